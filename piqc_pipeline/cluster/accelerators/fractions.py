"""Which schedulers give a part of a GPU, and how do they write it? Resource keys and annotations of fractions.

Sources: run:ai and KAI scheduler (`gpu-fraction`), Aliyun gpushare-scheduler-extender, Alibaba cluster traces, Volcano,
Tencent gpu-manager, Koordinator; each in its own documentation.
"""

import re
from dataclasses import replace

from piqc_pipeline.cluster.accelerators import mig
from piqc_pipeline.cluster.accelerators.pools import count_label, instance_accelerators, read_pool
from piqc_pipeline.cluster.objects import NodeObject, PodObject
from piqc_pipeline.cluster.quantities import quantity, units
from piqc_pipeline.facts.snapshot import AcceleratorPool, PodRequest, Unknown

UNITS_PER_DEVICE: dict[str, float | None] = {
    "alibabacloud.com/gpu-count": 1,
    "alibabacloud.com/gpu-milli": 1000,
    "aliyun.com/gpu-count": 1,
    "aliyun.com/gpu-mem": None,
    "koordinator.sh/gpu": 100,
    "koordinator.sh/gpu-core": 100,
    "koordinator.sh/gpu-memory-ratio": 100,
    "tencent.com/vcuda-core": 100,
    "volcano.sh/gpu-number": 1,
    "volcano.sh/vgpu-number": None,
    "kubernetes.io/nvidia-gpu": 1,
    "alpha.kubernetes.io/nvidia-gpu": 1,
}
"""Units of each key that make one device; None: as many as the node's card count says."""

_SAME_DEVICES = (
    ("alibabacloud.com/gpu-count", "alibabacloud.com/gpu-milli"),
    ("aliyun.com/gpu-mem", "aliyun.com/gpu-count"),
    ("koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"),
    ("volcano.sh/vgpu-number", "volcano.sh/gpu-number"),
)
"""Keys that count the same devices in other units; the first that a node has is taken."""

WHOLE = "nvidia.com/gpu"
FRACTION_LABEL_GROUP = "runai-gpu-group"
RESERVATION_NAMESPACES = frozenset({"runai-reservation", "kai-resource-reservation"})
_MIG_ANNOTATION = re.compile(r"nvidia\.com/mig-([\w.]+)")


def pools(node: NodeObject, keys: list[str], base: AcceleratorPool, unknown: list[Unknown]) -> list[AcceleratorPool]:
    """One pool of the node's fraction keys; alternative views of the same devices are left out."""
    present = [key for key in keys if key in UNITS_PER_DEVICE]
    for group in _SAME_DEVICES:
        views = [key for key in group if key in present]
        present = [key for key in present if key not in views[1:]]
    found = []
    for key in present:
        per_device = UNITS_PER_DEVICE[key]
        pool = read_pool(node, key, replace(base, resource=key), unknown, limit=10**6)
        if per_device is None and pool.capacity_units:
            cards = count_label(node, "aliyun.accelerator/nvidia_count", "nvidia.com/gpu.count") or _capacity(
                node, "aliyun.com/gpu-count"
            )
            machine = instance_accelerators(node, "nvidia")
            cards = machine.count if machine else cards
            per_device = pool.capacity_units / cards if cards else None
            if per_device is None:
                why = f"{key} counts shares, and no label or machine type says how many make one card"
                unknown.append(Unknown(f"number of GPUs on node {node.metadata.name}", why))
        found.append(replace(pool, units_per_device=per_device, sharing="none" if per_device == 1 else "fraction"))
    return found


def _capacity(node: NodeObject, key: str) -> int | None:
    return units((node.status.capacity or {}).get(key))


def annotated(pod: PodObject) -> tuple[PodRequest, ...]:
    """Fractions and MIG slices that a scheduler gave by annotation; none for what is no number above 0."""
    notes = pod.metadata.annotations or {}
    slices = tuple(
        PodRequest(key, float(count), "mig")
        for key, value in sorted(notes.items())
        if (match := _MIG_ANNOTATION.fullmatch(key)) and mig.profile(match.group(1)) and (count := units(value))
    )
    if slices:
        return slices
    if (milli := quantity(notes.get("alibabacloud.com/gpu-milli"))) and milli > 0:
        cards = units(notes.get("alibabacloud.com/gpu-count")) or 1
        return (PodRequest("alibabacloud.com/gpu-count", float(milli) / 1000 * cards, "fraction"),)
    for key in ("gpu-fraction", "runai-allocated-gpus"):
        share = quantity(notes.get(key))
        if share is not None and 0 < share <= 64:
            devices = units(notes.get("gpu-fraction-num-devices")) or 1
            amount = float(share) * (devices if key == "gpu-fraction" else 1)
            return (PodRequest(WHOLE, amount, "fraction" if share % 1 else "none"),)
    if notes.get("gpu-memory"):
        return (PodRequest(WHOLE, None, "fraction"),)
    return ()
