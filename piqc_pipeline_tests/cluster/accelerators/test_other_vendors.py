from pathlib import Path

import pytest

from piqc_pipeline.cluster.accelerators.others import Gaudi
from piqc_pipeline.cluster.accelerators.plugin import BUILT_IN, Registry, installed_plugins
from piqc_pipeline_tests.cluster.clusters import container, node, only_node, pod, pods, scan


@pytest.mark.parametrize(
    ("resource", "units", "labels", "vendor", "product"),
    [
        ("amd.com/gpu", "8", {"amd.com/gpu.product-name": "AMD_Instinct_MI300X"}, "amd", "AMD_Instinct_MI300X"),
        ("amd.com/gpu", "8", {"beta.amd.com/gpu.product-name.AMD_Instinct_MI250": "8"}, "amd", "AMD_Instinct_MI250"),
        ("habana.ai/gaudi", "8", {"node.kubernetes.io/instance-type": "dl1.24xlarge"}, "intel", "Intel-Gaudi"),
        ("google.com/tpu", "4", {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}, "google", "tpu-v6e-slice"),
        ("aws.amazon.com/neuron", "16", {"node.kubernetes.io/instance-type": "trn1.32xlarge"}, "aws", "AWS-Trainium"),
        ("huawei.com/Ascend910", "8", {}, "huawei", "Ascend910"),
        ("gpu.intel.com/i915", "2", {}, "intel", None),
    ],
)
def test_accelerators_of_every_vendor_are_counted_and_never_dropped(
    tmp_path: Path, resource: str, units: str, labels: dict[str, str], vendor: str, product: str | None
) -> None:
    item = node("n0", None, None, labels=labels, extra={resource: units})
    holder = pod("p", [container(image="registry.local/jax:1", gpus=int(units), resource=resource)])
    snapshot = scan(tmp_path, item, holder)
    (found,) = only_node(snapshot).pools
    assert (found.vendor, found.product, found.capacity_units) == (vendor, product, int(units))
    (request,) = pods(snapshot)["p"].requests
    assert (request.resource, request.units) == (resource, float(units))


def test_chips_and_cores_of_one_trainium_node_are_counted_once(tmp_path: Path) -> None:
    extra = {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32", "aws.amazon.com/neurondevice": "16"}
    item = node("n0", None, None, labels={"node.kubernetes.io/instance-type": "trn1.32xlarge"}, extra=extra)
    holder = pod("p", [container(image="x", gpus=8, resource="aws.amazon.com/neuroncore")])
    snapshot = scan(tmp_path, item, holder)
    (found,) = only_node(snapshot).pools
    assert (found.resource, found.capacity_units) == ("aws.amazon.com/neuron", 16)
    (request,) = pods(snapshot)["p"].requests
    assert (request.resource, request.units) == ("aws.amazon.com/neuron", 4.0), "a Trainium chip has two cores"


def test_partitions_of_an_mi300x_are_eighths_of_a_card(tmp_path: Path) -> None:
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X", "amd.com/gpu.compute-memory-partition": "cpx_nps1"}
    found = only_node(scan(tmp_path, node("n0", None, None, labels=labels, extra={"amd.com/gpu": "64"}))).pools[0]
    assert (found.units_per_device, found.profile) == (8.0, "cpx")


def test_an_mi300x_machine_without_its_plugin_is_not_a_cpu_node(tmp_path: Path) -> None:
    labels = {"node.kubernetes.io/instance-type": "Standard_ND96isr_MI300X_v5"}
    found = only_node(scan(tmp_path, node("n0", None, None, labels=labels))).pools[0]
    assert (found.resource, found.capacity_units, found.allocatable_units) == ("amd.com/gpu", 8, 0)


def test_gaudi_cards_are_read_from_hl_smi() -> None:
    text = "0, 01P0-HL2000A0, HL-205, 32768, 512, 13, 40, 104\n1, x, HL-205, 32768, 512, N/A, 40, 104\nnoise\n"
    readings = Gaudi().read_tool(text).readings
    assert [reading.utilization_pct for reading in readings] == [13.0, None]
    assert Gaudi().read_tool("command failed").problems


def test_the_shipped_plugins_are_installed() -> None:
    assert {type(plugin).__name__ for plugin in installed_plugins()} >= {"Nvidia", "Amd", "Gaudi", "Tpu", "Neuron"}
    assert len(installed_plugins()) >= len(BUILT_IN)


@pytest.mark.parametrize(
    "key", ["cpu", "memory", "hugepages-2Mi", "nvidia.com/gpumem", "rdma/hca", "vpc.amazonaws.com/pod-eni"]
)
def test_other_resources_are_no_accelerators(key: str) -> None:
    assert Registry().plugin_of(key) is None
