"""Labels and quantities: NVIDIA's device plugin documentation, and nodes published by their owners."""

from pathlib import Path

import pytest

from piqc_pipeline.facts.snapshot import AcceleratorPool
from piqc_pipeline_tests.cluster.clusters import container, node, only_node, pod, pods, scan


def pool(folder: Path, item: dict[str, object]) -> AcceleratorPool:
    (found,) = only_node(scan(folder, item)).pools
    return found


def cards(pools: tuple[AcceleratorPool, ...]) -> float:
    return sum((p.capacity_units or 0) / (p.units_per_device or 1) for p in pools)


def test_whole_gpus_are_one_unit_a_device(tmp_path: Path) -> None:
    found = pool(tmp_path, node("n0", "2", "Tesla-T4", labels={"nvidia.com/gpu.memory": "15360"}))
    assert (found.resource, found.product, found.capacity_units, found.units_per_device) == (
        "nvidia.com/gpu",
        "Tesla-T4",
        2,
        1.0,
    )
    assert found.memory_gib == 15.0 and found.sharing == "none"


def test_an_unhealthy_gpu_is_installed_and_not_allocatable(tmp_path: Path) -> None:
    found = pool(tmp_path, node("n0", "8", allocatable={"nvidia.com/gpu": "7"}))
    assert (found.capacity_units, found.allocatable_units) == (8, 7)


def test_seven_mixed_slices_make_one_card(tmp_path: Path) -> None:
    item = node("n0", "0", "NVIDIA-A100-SXM4-80GB", extra={"nvidia.com/mig-1g.10gb": "7"})
    found = pool(tmp_path, item)
    assert (found.capacity_units, found.units_per_device, found.sharing, found.profile) == (7, 7.0, "mig", "1g.10gb")


def test_a_card_cut_in_part_has_an_unused_rest(tmp_path: Path) -> None:
    # run-ai/fake-gpu-operator, design/samples: A100 40GB: 3 x 1g.5gb and 1 x 2g.10gb; 2 of 7 slices are left.
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "0", "nvidia.com/mig.strategy": "mixed"}
    extra = {"nvidia.com/mig-1g.5gb": "3", "nvidia.com/mig-2g.10gb": "1"}
    found = only_node(scan(tmp_path, node("n0", "0", "NVIDIA-A100-SXM4-40GB", labels=labels, extra=extra))).pools
    assert [(p.resource, p.capacity_units, p.allocatable_units, p.units_per_device) for p in found] == [
        ("nvidia.com/mig-1g.5gb", 3, 3, 7.0),
        ("nvidia.com/mig-2g.10gb", 1, 1, 3.5),
        ("nvidia.com/mig-unused", 2, 0, 7.0),
    ]
    assert cards(found) == pytest.approx(1.0)
    assert found[2].note == "no MIG instance is made of it"


def test_two_halves_of_the_memory_are_one_card(tmp_path: Path) -> None:
    extra = {"nvidia.com/mig-3g.40gb": "2"}
    found = only_node(scan(tmp_path, node("n0", "0", labels={"nvidia.com/gpu.count": "1"}, extra=extra))).pools
    assert [p.units_per_device for p in found] == [2.0]


def test_a_balanced_h100_is_one_card(tmp_path: Path) -> None:
    # NVIDIA/cloud-native-docs, mig-mixed-node-labels.json: 2 x 1g.10gb, 1 x 2g.20gb, 1 x 3g.40gb.
    extra = {"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-2g.20gb": "1", "nvidia.com/mig-3g.40gb": "1"}
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "0", "nvidia.com/mig-1g.10gb.memory": "9984"}
    found = only_node(scan(tmp_path, node("n0", "0", labels=labels, extra=extra))).pools
    assert cards(found) == pytest.approx(1.0)
    assert len(found) == 3 and found[0].memory_gib == 9.75


def test_mig_mode_without_instances_is_a_card_that_nobody_can_use(tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/mig.strategy": "mixed"}
    found = pool(tmp_path, node("n0", "0", "NVIDIA-A100-SXM4-40GB", labels=labels))
    assert (found.capacity_units, found.allocatable_units) == (1, 0)
    assert found.note == "MIG mode is on and no instance is made"


@pytest.mark.parametrize(
    ("product", "units", "per_card"),
    [
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "7", 7),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.10gb", "4", 4),
        ("NVIDIA-A100-SXM4-40GB-MIG-2g.10gb", "3", 3),
        ("NVIDIA-H200-MIG-3g.71gb", "2", 2),
        ("NVIDIA-A30-MIG-1g.6gb", "4", 4),
    ],
)
def test_slices_of_the_single_strategy_are_parts_of_a_card(
    tmp_path: Path, product: str, units: str, per_card: float
) -> None:
    found = pool(tmp_path, node("n0", units, product, labels={"nvidia.com/gpu.count": units}))
    assert (found.units_per_device, found.sharing) == (per_card, "mig")
    assert found.product == product.partition("-MIG-")[0]


def test_a_time_sliced_card_is_one_card(tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.replicas": "8", "nvidia.com/gpu.count": "1"}
    found = pool(tmp_path, node("n0", "8", "Tesla-T4-SHARED", labels=labels))
    assert (found.product, found.units_per_device, found.sharing) == ("Tesla-T4", 8.0, "time-slicing")


def test_renamed_shares_are_counted_by_their_own_name(tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "4", "nvidia.com/gpu.sharing-strategy": "mps"}
    found = pool(tmp_path, node("n0", "0", "NVIDIA-A10G-SHARED", labels=labels, extra={"nvidia.com/gpu.shared": "16"}))
    assert (found.resource, found.capacity_units, found.units_per_device) == ("nvidia.com/gpu.shared", 16, 4.0)
    assert found.sharing == "mps"


def test_shares_of_which_nothing_tells_how_many_make_a_card_are_unknown_not_128_cards(tmp_path: Path) -> None:
    # bottlerocket-os/bottlerocket#4418: 8 GPUs x 4 MIG partitions x 4 replicas; its status alone does not say so.
    snapshot = scan(tmp_path, node("n0", "0", None, extra={"nvidia.com/gpu.shared": "128"}))
    (found,) = only_node(snapshot).pools
    assert found.units_per_device is None
    assert [entry.what for entry in only_node(snapshot).unknown] == ["number of GPUs on node n0"]


def test_the_machine_type_tells_how_many_cards_the_shares_are_of(tmp_path: Path) -> None:
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    found = pool(tmp_path, node("n0", "0", None, labels=labels, extra={"nvidia.com/gpu.shared": "128"}))
    assert (found.units_per_device, found.product) == (16.0, "NVIDIA-H100-80GB-HBM3")


def test_gke_sharing_and_partitions_are_read_from_its_own_labels(tmp_path: Path) -> None:
    shared = {
        "cloud.google.com/gke-accelerator": "nvidia-l4",
        "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
        "cloud.google.com/gke-max-shared-clients-per-gpu": "3",
    }
    found = pool(tmp_path, node("n0", "3", None, labels=shared))
    assert (found.product, found.units_per_device, found.sharing) == ("NVIDIA-L4", 3.0, "time-slicing")
    cut = {
        "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
        "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
    }
    assert pool(tmp_path, node("n0", "7", None, labels=cut)).units_per_device == 7


@pytest.mark.parametrize(
    ("labels", "product"),
    [
        ({"node.kubernetes.io/instance-type": "p4d.24xlarge"}, "NVIDIA-A100-SXM4-40GB"),
        ({"node.kubernetes.io/instance-type": "g5.xlarge"}, "NVIDIA-A10G"),
        (
            {"node.kubernetes.io/instance-type": "Standard_NC24ads_A100_v4", "accelerator": "nvidia"},
            "NVIDIA-A100-80GB-PCIe",
        ),
        ({"karpenter.k8s.aws/instance-gpu-name": "l40s"}, "NVIDIA-L40S"),
        (
            {"karpenter.k8s.aws/instance-gpu-name": "a100", "karpenter.k8s.aws/instance-gpu-memory": "81920"},
            "NVIDIA-A100-SXM4-80GB",
        ),
        ({"karpenter.k8s.aws/instance-gpu-name": "a100"}, "a100"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, "NVIDIA-H100-80GB-HBM3"),
        ({"cloud.google.com/gke-accelerator": "nvidia-new-chip"}, "nvidia-new-chip"),
        ({"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"}, "Tesla-V100-SXM2-16GB"),
        ({"accelerator": "nvidia"}, None),
        ({}, None),
    ],
)
def test_products_are_named_by_the_labels_of_each_cloud(
    tmp_path: Path, labels: dict[str, str], product: str | None
) -> None:
    assert pool(tmp_path, node("n0", "1", None, labels=labels)).product == product


def test_a_gpu_machine_without_device_plugin_is_paid_for_and_not_schedulable(tmp_path: Path) -> None:
    # carverauto/threadr#68: an AKS GPU node with the wrong image has no nvidia.com/gpu line at all.
    labels = {"node.kubernetes.io/instance-type": "Standard_NC4as_T4_v3"}
    found = pool(tmp_path, node("n0", None, None, labels=labels))
    assert (found.capacity_units, found.allocatable_units, found.product) == (1, 0, "Tesla-T4")


def test_a_named_card_without_any_count_is_an_unknown_number(tmp_path: Path) -> None:
    # kubernetes/kubernetes#55005: a K80 by label, capacity is not told.
    item = node("n0", None, None, labels={"cloud.google.com/gke-accelerator": "nvidia-tesla-k80"})
    item["status"] = {}
    found = pool(tmp_path, item)
    assert (found.product, found.capacity_units) == ("Tesla-K80", None)


def test_a_cpu_node_has_no_pool(tmp_path: Path) -> None:
    labels = {"node.kubernetes.io/instance-type": "m5.large"}
    assert only_node(scan(tmp_path, node("n0", None, None, labels=labels))).pools == ()


@pytest.mark.parametrize("text", ["8k", "-1", "many", "99999", "1.5"])
def test_a_capacity_that_no_machine_has_is_unknown_on_that_node_only(tmp_path: Path, text: str) -> None:
    snapshot = scan(tmp_path, node("bad", text), node("good", "8"))
    assert snapshot.nodes is not None
    bad, good = snapshot.nodes
    assert bad.pools[0].capacity_units is None and bad.unknown
    assert good.pools[0].capacity_units == 8 and not good.unknown


@pytest.mark.parametrize("resource", ["nvidia.com/mig-3g.40gb", "alibabacloud.com/gpu-count"])
def test_more_cards_than_any_machine_holds_are_unknown_under_every_key(tmp_path: Path, resource: str) -> None:
    item = node("n0", "0", "NVIDIA-A100-SXM4-80GB", extra={resource: "800"})
    snapshot = scan(tmp_path, item)
    found = {one.resource: one for one in only_node(snapshot).pools}[resource]
    assert found.capacity_units is None
    assert "more than any machine holds" in only_node(snapshot).unknown[0].why


def test_alibaba_counts_cards_and_thousandths_of_the_same_cards(tmp_path: Path) -> None:
    # alibaba/clusterdata, cluster-trace-gpu-v2023: gpu-count 2 and gpu-milli 2000 are two P100.
    extra = {"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "2000"}
    found = pool(tmp_path, node("n0", None, None, labels={"alibabacloud.com/gpu-card-model": "P100"}, extra=extra))
    assert (found.resource, found.product, found.capacity_units) == ("alibabacloud.com/gpu-count", "P100", 2)


def test_half_a_gpu_by_annotation_is_half_a_gpu(tmp_path: Path) -> None:
    # run-ai/fake-gpu-operator: annotation gpu-fraction '0.5', no GPU among the resources.
    meta = {"annotations": {"gpu-fraction": "0.5", "runai-allocated-gpus": "0.5"}}
    item = pod("frac", [container(gpus=None, image="example/gpu-burn")], meta=meta)
    (request,) = pods(scan(tmp_path, node("n0"), item))["frac"].requests
    assert (request.resource, request.units, request.sharing) == ("nvidia.com/gpu", 0.5, "fraction")


def test_a_placeholder_of_a_fractional_scheduler_is_not_counted_beside_its_sharers(tmp_path: Path) -> None:
    group = {"runai-gpu-group": "g1"}
    holder = pod(
        "runai-reservation-gpu-n0-x", [container(image="reserve")], labels=group, namespace="runai-reservation"
    )
    meta = {"annotations": {"gpu-fraction": "0.5"}}
    sharer = pod("frac", [container(gpus=None, image="x")], labels=group, meta=meta)
    found = pods(scan(tmp_path, node("n0"), holder, sharer))
    assert sum(r.units or 0 for item in found.values() for r in item.requests) == 0.5


def test_a_mig_slice_by_annotation_is_held(tmp_path: Path) -> None:
    extra = {"nvidia.com/mig-1g.5gb": "3"}
    meta = {"annotations": {"nvidia.com/mig-1g.5gb": "1", "runai-allocated-mig-gpus": "0.14285714285714285"}}
    item = pod("job", [container(gpus=None, image="example/gpu-burn")], meta=meta)
    snapshot = scan(tmp_path, node("n0", "0", "NVIDIA-A100-SXM4-40GB", extra=extra), item)
    (request,) = pods(snapshot)["job"].requests
    assert (request.resource, request.units, request.sharing) == ("nvidia.com/mig-1g.5gb", 1.0, "mig")
