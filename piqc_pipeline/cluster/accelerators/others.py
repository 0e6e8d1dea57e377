"""Which other accelerators does a node offer? Intel Gaudi and GPUs, Google TPU, AWS Neuron, further vendors' keys."""

import re
from collections.abc import Sequence
from dataclasses import replace

from piqc_pipeline.cluster.accelerators.nvidia_smi import amount, number, percent
from piqc_pipeline.cluster.accelerators.plugin import Inventory, Listing, Tool
from piqc_pipeline.cluster.accelerators.pools import PlainPlugin, sharing_of
from piqc_pipeline.cluster.objects import NodeObject
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.facts.snapshot import AcceleratorPool, AcceleratorReading, PodRequest

_HL_FIELDS = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "memory.used",
    "utilization.aip",
    "temperature.aip",
    "power.draw",
)


class Gaudi(PlainPlugin):
    """Intel Gaudi (`habana.ai/gaudi`) and Intel data center GPUs."""

    vendor = "intel"
    pattern = re.compile(r"habana\.ai/gaudi\w*|gpu\.intel\.com/(?:i915|xe)")
    tool: Tool | None = Tool("hl-smi", (("hl-smi", "-Q", ",".join(_HL_FIELDS), "-f", "csv,noheader,nounits"),))

    def product(self, node: NodeObject) -> str | None:
        """Named by the operator's labels, where it sets one."""
        keys = (
            "habana.ai/product",
            "habana.ai/gaudi.product",
            "gpu.intel.com/product",
            "gpu.intel.com/device-id.product",
        )
        return next((value for key in keys if (value := node.metadata.label(key))), None)

    def main_key(self) -> str:
        """`habana.ai/gaudi`."""
        return "habana.ai/gaudi"

    def inventory(self, node: NodeObject) -> Inventory:
        """Pools of whole devices; Intel GPUs may be shared (`gpu.intel.com/gpu-numbers` says how many there are)."""
        found = super().inventory(node)
        pools = []
        for pool in found.pools:
            numbers = node.metadata.label("gpu.intel.com/gpu-numbers") or ""
            cards = len(numbers.split(".")) if numbers and pool.resource.startswith("gpu.intel.com/") else 0
            if cards and pool.capacity_units and pool.capacity_units > cards:
                pool = replace(pool, units_per_device=pool.capacity_units / cards, sharing="time-slicing")
            pools.append(pool)
        return Inventory(tuple(pools), found.unknown)

    def read_tool(self, output: str) -> Listing:
        """The devices that hl-smi listed, one CSV line each."""
        readings = []
        for line in output.splitlines()[:256]:
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) != len(_HL_FIELDS) or not cells[0].isdigit():
                continue
            index, _, name, total, used, busy, temperature, power = cells
            readings.append(
                AcceleratorReading(
                    source="exec",
                    index=index,
                    product=printable(name, 80),
                    utilization_pct=percent(busy),
                    memory_used_mib=amount(used),
                    memory_total_mib=amount(total),
                    temperature_celsius=number(temperature),
                    power_watts=amount(power),
                    signal="utilization.aip",
                )
            )
        problem = f"its output cannot be read: {printable(output, 80)!r}" if output.strip() and not readings else None
        return Listing(tuple(readings), (problem,) if problem else ())


class Tpu(PlainPlugin):
    """Google TPU: one unit a chip."""

    vendor = "google"
    pattern = re.compile(r"google\.com/tpu|cloud-tpus\.google\.com/[\w.-]+")

    def product(self, node: NodeObject) -> str | None:
        """`tpu-v6e-slice` and the like."""
        return node.metadata.label("cloud.google.com/gke-tpu-accelerator")

    def main_key(self) -> str:
        """`google.com/tpu`."""
        return "google.com/tpu"


class Neuron(PlainPlugin):
    """AWS Trainium and Inferentia. A node offers the same chips as devices and as cores; chips are counted."""

    vendor = "aws"
    pattern = re.compile(r"aws\.amazon\.com/neuron(?:device|core)?")
    chips = ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice")
    cores = "aws.amazon.com/neuroncore"

    def product(self, node: NodeObject) -> str | None:
        """Karpenter's name, for instance `trainium`; else the machine type says it."""
        return (
            None
            if node.metadata.label("node.kubernetes.io/instance-type")
            else node.metadata.label("karpenter.k8s.aws/instance-accelerator-name")
        )

    def main_key(self) -> str:
        """`aws.amazon.com/neuron`."""
        return "aws.amazon.com/neuron"

    def inventory(self, node: NodeObject) -> Inventory:
        """One pool: of chips where the node offers them, else of cores."""
        found = super().inventory(node)
        by_key = {pool.resource: pool for pool in found.pools}
        chips = next((by_key[key] for key in self.chips if key in by_key), None)
        if chips is None:
            return found
        return Inventory((chips,), found.unknown)

    def request(self, resource: str, units: int, pools: Sequence[AcceleratorPool]) -> PodRequest:
        """Chips; cores are turned into chips by what a chip of the node's machine type has."""
        offered = [pool for pool in pools if pool.vendor == self.vendor]
        if not offered or any(pool.resource == resource for pool in offered):
            return PodRequest(resource, float(units), sharing_of(resource, pools))
        main = offered[0]
        if resource != self.cores:
            return PodRequest(main.resource, float(units), main.sharing)
        cores = _CORES.get(main.product or "")
        return PodRequest(main.resource, units / cores if cores else None, "fraction")


_CORES = {"AWS-Trainium": 2, "AWS-Inferentia2": 2, "AWS-Inferentia": 4, "AWS-Trainium2": 8}
"""NeuronCores of one chip (awsdocs-neuron, "Neuron architecture guide")."""


class FurtherVendors(PlainPlugin):
    """Accelerators of vendors that only offer a resource key: counted, named by label where there is one."""

    vendor = "other"
    pattern = re.compile(
        r"huawei\.com/Ascend[0-9]\w*|cambricon\.com/(?:mlu[0-9]*|real-mlu-counts)|metax-tech\.com/gpu|iluvatar\.(?:ai|com)/\w*gpu|"
        r"enflame\.com/gcu\w*|hygon\.com/dcu\w*|kunlunxin\.com/xpu|qualcomm\.com/qaic\w*|mthreads\.com/gpu|furiosa\.ai/\w+|"
        r"rebellions\.ai/\w+|tenstorrent\.com/\w+|cerebras\.net/\w+|graphcore\.ai/ipu\w*|groq\.com/\w+|sambanova\.ai/\w+"
    )

    def inventory(self, node: NodeObject) -> Inventory:
        """One pool a key; the product is the key's own name (`Ascend910`)."""
        found = super().inventory(node)
        pools = tuple(
            replace(
                pool, product=pool.product or pool.resource.partition("/")[2], vendor=pool.resource.partition(".")[0]
            )
            for pool in found.pools
        )
        return Inventory(pools, found.unknown)
