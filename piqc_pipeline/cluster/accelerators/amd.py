"""Which AMD Instinct and Radeon devices does a node offer? Whole, or partitioned into SPX, DPX, QPX, CPX.

Labels: ROCm/k8s-device-plugin, node labeller. Partitions: AMD Instinct MI300 partitioning guide (a CPX of MI300X is
one of its 8 compute dies).
"""

import re
from dataclasses import replace

from piqc_pipeline.cluster.accelerators import amd_smi, rocm_smi
from piqc_pipeline.cluster.accelerators.plugin import Inventory, Listing, Tool
from piqc_pipeline.cluster.accelerators.pools import PlainPlugin
from piqc_pipeline.cluster.objects import NodeObject

_PARTITIONS = {"spx": 1.0, "dpx": 2.0, "tpx": 3.0, "qpx": 4.0, "cpx": 8.0}
_KEY = re.compile(r"amd\.com/(?:gpu|(spx|dpx|tpx|qpx|cpx)_nps[0-9])")
_PRODUCT_LABELS = (
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "amd.com/gpu.product",
    "feature.node.kubernetes.io/amd-gpu-product",
)
_COUNTED = re.compile(r"(?:beta\.)?amd\.com/gpu\.product-name\.(.+)")
_MODE_LABELS = ("amd.com/gpu.compute-memory-partition", "amd.com/gpu.compute-partition", "amd.com/compute-partition")


class Amd(PlainPlugin):
    """AMD GPUs, with rocm-smi, and amd-smi where a container has that one only."""

    vendor = "amd"
    tool: Tool | None = Tool("rocm-smi", (*rocm_smi.COMMANDS, *amd_smi.COMMANDS))
    pattern = _KEY

    def product(self, node: NodeObject) -> str | None:
        """`AMD_Instinct_MI300X` and the like, in the value of a label, or in its key, as old labellers write it."""
        for key in _PRODUCT_LABELS:
            if value := node.metadata.label(key):
                return value
        for key in sorted(node.metadata.labels or {}):
            if (match := _COUNTED.fullmatch(key)) and (node.metadata.label(key) or "").isdigit():
                return match.group(1)
        return None

    def main_key(self) -> str:
        """`amd.com/gpu`."""
        return "amd.com/gpu"

    def inventory(self, node: NodeObject) -> Inventory:
        """Pools of whole GPUs, or of partitions of them."""
        found = super().inventory(node)
        mode = next((value for key in _MODE_LABELS if (value := node.metadata.label(key))), "").lower()
        pools = []
        for pool in found.pools:
            match = _KEY.fullmatch(pool.resource)
            partition = (match.group(1) if match else None) or mode.partition("_")[0]
            parts = _PARTITIONS.get(partition, 1.0)
            if partition == "cpx" and "MI300A" in (pool.product or "").upper():
                parts = 6.0
            if parts > 1:
                pool = replace(pool, units_per_device=parts, sharing="mig", profile=partition)
            pools.append(pool)
        return Inventory(tuple(pools), found.unknown)

    def read_tool(self, output: str) -> Listing:
        """The GPUs that rocm-smi or amd-smi listed."""
        found = rocm_smi.read_json(output)
        if not found.readings and '"gpu"' in output:  # amd-smi's key of a GPU; rocm-smi calls them `card0`
            return amd_smi.read_json(output)
        return found
