"""Which NVIDIA devices does a node offer? Whole, cut by MIG, time-sliced, shared by MPS, renamed, or in fractions.

Labels and resource names: NVIDIA k8s-device-plugin and gpu-feature-discovery (README, "Shared Access to GPUs" and
"MIG").
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from piqc_pipeline.cluster.accelerators import fractions, mig
from piqc_pipeline.cluster.accelerators.nvidia_smi import COMMANDS, OLDER_COMMANDS, REFUSAL, read_csv
from piqc_pipeline.cluster.accelerators.plugin import Inventory, Listing, Tool
from piqc_pipeline.cluster.accelerators.pools import (
    MAX_DEVICES,
    count_label,
    instance_accelerators,
    megabytes_label,
    missing_pool,
    read_pool,
    resource_keys,
    sharing_of,
)
from piqc_pipeline.cluster.accelerators.products import GFD_PRODUCT, card_gigabytes, mig_suffix, product_name
from piqc_pipeline.cluster.objects import NodeObject, PodObject
from piqc_pipeline.cluster.quantities import MAX_UNITS
from piqc_pipeline.facts.snapshot import AcceleratorPool, PodRequest, Sharing, Unknown

WHOLE = "nvidia.com/gpu"
_MIG_KEY = re.compile(r"nvidia\.com/mig-([\w.]+?)(\.shared)?")
_MEMORY_SLICE = re.compile(r"nvidia\.com/gpu-([0-9]{1,3})gb(?:\.shared)?")
_RENAMED = re.compile(r"nvidia\.com/(?:gpu[.-][\w.-]*|[\w.-]+\.shared|vgpu)")
_PASSTHROUGH = re.compile(r"nvidia\.com/[A-Z][A-Za-z0-9]*_[\w-]+")
_NO_DEVICE = re.compile(
    r"nvidia\.com/(?:gpu-?mem\w*|gpu-?cores?|gpumem-percentage|priority|gpu\.(?:count|memory)|vgpu-?mem\w*)"
)
COUNT_LABELS = ("nvidia.com/gpu.count", "karpenter.k8s.aws/instance-gpu-count", "aliyun.accelerator/nvidia_count")


class Nvidia:
    """NVIDIA GPUs, under every name that a device plugin gives them."""

    vendor = "nvidia"
    tool: Tool | None = Tool("nvidia-smi", COMMANDS, REFUSAL, OLDER_COMMANDS)

    def owns(self, resource: str) -> bool:
        """`nvidia.com/gpu`, MIG slices, renamed shares, passed-through devices, and keys of fractional schedulers."""
        if resource in fractions.UNITS_PER_DEVICE:
            return True
        if not resource.startswith("nvidia.com/") or _NO_DEVICE.fullmatch(resource):
            return False
        if resource == WHOLE or _RENAMED.fullmatch(resource) or _PASSTHROUGH.fullmatch(resource):
            return True
        match = _MIG_KEY.fullmatch(resource)
        return match is not None and mig.profile(match.group(1)) is not None

    def inventory(self, node: NodeObject) -> Inventory:
        """The node's pools; cards that are there and that it does not offer are one of them."""
        keys = [key for key in resource_keys(node) if self.owns(key)]
        product, source = product_name(node)
        if not keys and not _named(node):
            return Inventory()
        unknown: list[Unknown] = []
        base = AcceleratorPool(
            resource=WHOLE,
            vendor=self.vendor,
            product=product,
            memory_gib=megabytes_label(node, "nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory"),
            capacity_units=None,
            allocatable_units=None,
            product_source=source,
        )
        slices = [key for key in keys if _MIG_KEY.fullmatch(key)]
        pools = _mig_pools(node, slices, base, unknown)
        shares = [key for key in keys if key not in slices]
        if any(key in fractions.UNITS_PER_DEVICE for key in shares):
            pools += fractions.pools(node, shares, base, unknown)
            shares = [key for key in shares if key not in fractions.UNITS_PER_DEVICE]
            shares = [key for key in shares if not any(pool.capacity_units for pool in pools)]
        pools += [_shared_pool(node, key, base, unknown) for key in shares]
        pools = [_believable(pool, node, unknown) for pool in pools]
        pools = [pool for pool in pools if pool.capacity_units != 0 or pool.allocatable_units is None]
        if not pools:
            missing = missing_pool(node, base, _physical_cards(node), unknown)
            if node.metadata.label("nvidia.com/mig.strategy") == "mixed":
                missing = replace(missing, note="MIG mode is on and no instance is made", sharing="mig")
            pools = [missing] if missing.capacity_units != 0 else []
        return Inventory(tuple(pools), tuple(unknown))

    def request(self, resource: str, units: int, pools: Sequence[AcceleratorPool]) -> PodRequest:
        """The units asked for, shared as the node's pool is."""
        sharing = sharing_of(resource, pools)
        if sharing == "none" and _MIG_KEY.fullmatch(resource):
            sharing = "mig"
        if sharing == "none" and resource in fractions.UNITS_PER_DEVICE:
            sharing = "fraction" if fractions.UNITS_PER_DEVICE[resource] != 1 else "none"
        return PodRequest(resource, float(units), sharing)

    def annotated(self, pod: PodObject) -> tuple[PodRequest, ...]:
        """Fractions and MIG slices that run:ai, KAI and Alibaba give by annotation."""
        return fractions.annotated(pod)

    def read_tool(self, output: str) -> Listing:
        """The GPUs that nvidia-smi listed."""
        return read_csv(output)


def _named(node: NodeObject) -> bool:
    """Whether labels or the machine type say that the node has NVIDIA devices, whatever it offers."""
    label = node.metadata.label
    if label("nvidia.com/gpu.present") == "true" or label(GFD_PRODUCT):
        return True
    if label("karpenter.k8s.aws/instance-gpu-manufacturer") == "nvidia":
        return True
    return (label("cloud.google.com/gke-accelerator") or "").startswith("nvidia") or (
        instance_accelerators(node, "nvidia") is not None
    )


def _physical_cards(node: NodeObject) -> int | None:
    machine = instance_accelerators(node, "nvidia")
    return machine.count if machine else count_label(node, *COUNT_LABELS)


def _mig_pools(
    node: NodeObject, keys: list[str], base: AcceleratorPool, unknown: list[Unknown]
) -> list[AcceleratorPool]:
    """Pools of the mixed strategy: one a profile, and one of the space that no instance takes."""
    read: list[tuple[mig.Profile, int, AcceleratorPool]] = []
    for key in keys:
        match = _MIG_KEY.fullmatch(key)
        slice_ = mig.profile(match.group(1)) if match else None
        if slice_ is None:
            continue
        label = f"nvidia.com/mig-{slice_.name}"
        copies = max(1, count_label(node, f"{label}.replicas") or 1)
        memory = megabytes_label(node, f"{label}.memory")
        pool = read_pool(node, key, replace(base, resource=key, memory_gib=memory), unknown)
        read.append((slice_, copies, replace(pool, sharing="mig", profile=slice_.name)))
    instances = {slice_: -(-(pool.capacity_units or 0) // copies) for slice_, copies, pool in read}
    if not any(instances.values()):
        return [pool for _, _, pool in read if pool.capacity_units is None]
    card_gb = card_gigabytes(base.product, base.memory_gib)
    cut = mig.geometry(instances, _physical_cards(node), card_gb)
    pools = [
        replace(pool, units_per_device=cut.units_per_card.get(slice_, mig.COMPUTE_SLICES) * copies)
        for slice_, copies, pool in read
    ]
    if cut.free_slices and all(pool.capacity_units is not None for pool in pools):
        rest = replace(base, resource="nvidia.com/mig-unused", memory_gib=None, capacity_units=cut.free_slices)
        pools.append(
            replace(
                rest,
                allocatable_units=0,
                units_per_device=float(mig.COMPUTE_SLICES),
                sharing="mig",
                note="no MIG instance is made of it",
            )
        )
    return pools


def _shared_pool(node: NodeObject, key: str, base: AcceleratorPool, unknown: list[Unknown]) -> AcceleratorPool:
    """A pool of whole devices, or of shares of them."""
    if _PASSTHROUGH.fullmatch(key):
        named = replace(base, resource=key, product=base.product or key.partition("/")[2], product_source="label")
        return read_pool(node, key, named, unknown, MAX_DEVICES)
    pool = read_pool(node, key, replace(base, resource=key), unknown, MAX_UNITS)
    suffix = mig_suffix(node.metadata.label(GFD_PRODUCT) or "") or node.metadata.label(
        "cloud.google.com/gke-gpu-partition-size"
    )
    slice_ = mig.profile(suffix) if suffix else None
    copies = _copies(node)
    machine = instance_accelerators(node, "nvidia")
    units = pool.capacity_units
    if slice_ is not None:
        per_card: float | None = mig.instances_per_card(slice_, card_gigabytes(base.product)) * max(1, copies or 1)
        if machine and units and units % machine.count == 0:
            per_card = units / machine.count
        return replace(pool, units_per_device=per_card, sharing="mig", profile=slice_.name)
    cards = machine.count if machine else count_label(node, *COUNT_LABELS)
    if slot := _MEMORY_SLICE.fullmatch(key):
        gigabytes = card_gigabytes(base.product, base.memory_gib)
        per_card = units / cards if units and cards else gigabytes / int(slot.group(1)) if gigabytes else None
        return _told(replace(pool, units_per_device=per_card, sharing="mps"), node, unknown)
    if copies and copies > 1:
        return replace(pool, units_per_device=float(copies), sharing=_strategy(node))
    renamed = key != WHOLE or (node.metadata.label(GFD_PRODUCT) or "").endswith("-SHARED")
    if units and cards and units > cards:
        return replace(pool, units_per_device=units / cards, sharing=_strategy(node))
    if renamed and units and not cards:
        return _told(replace(pool, units_per_device=None, sharing=_strategy(node)), node, unknown)
    return replace(pool, sharing=_strategy(node)) if renamed else pool


def _believable(pool: AcceleratorPool, node: NodeObject, unknown: list[Unknown]) -> AcceleratorPool:
    """The pool, its capacity unknown where it would be more cards than any machine holds."""
    cards = (pool.capacity_units or 0) / (pool.units_per_device or float("inf"))
    if cards <= MAX_DEVICES:
        return pool
    why = f"{cards:g} GPUs are more than any machine holds"
    unknown.append(Unknown(f"capacity of {pool.resource} on node {node.metadata.name}", why))
    return replace(pool, capacity_units=None, allocatable_units=None)


def _copies(node: NodeObject) -> int | None:
    """Into how many shares each device is divided by time-slicing or MPS, by label."""
    gke = node.metadata.label("cloud.google.com/gke-gpu-sharing-strategy")
    if gke in ("time-sharing", "mps"):
        return count_label(node, "cloud.google.com/gke-max-shared-clients-per-gpu")
    return count_label(node, "nvidia.com/gpu.replicas")


def _strategy(node: NodeObject) -> Sharing:
    label = node.metadata.label
    words = {label("nvidia.com/gpu.sharing-strategy"), label("cloud.google.com/gke-gpu-sharing-strategy")}
    if "mps" in words or label("nvidia.com/sharing.mps.enabled") == "true":
        return "mps"
    return "time-slicing"


def _told(pool: AcceleratorPool, node: NodeObject, unknown: list[Unknown]) -> AcceleratorPool:
    if pool.units_per_device is None:
        why = f"{pool.resource} counts shares, and no label or machine type says how many make one card"
        unknown.append(Unknown(f"number of GPUs on node {node.metadata.name}", why))
    return pool
