"""Which pods hold a whole card only so that others share it? Placeholders of fractional schedulers.

run:ai and KAI start a pod `runai-reservation-gpu-…` that requests the card; the workloads' fractions name the same
group.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from piqc_pipeline.cluster.accelerators.fractions import FRACTION_LABEL_GROUP, RESERVATION_NAMESPACES
from piqc_pipeline.cluster.objects import PodObject
from piqc_pipeline.facts.snapshot import Pod


def without_reservations(
    pods: Mapping[tuple[str, str], Pod], objects: Iterable[PodObject]
) -> dict[tuple[str, str], Pod]:
    """The pods, where a placeholder whose card is used by fractions holds nothing: what is left of it is free."""
    sharers: dict[tuple[str, str], int] = defaultdict(int)
    groups: dict[tuple[str, str], str] = {}
    for item in objects:
        group = item.metadata.label(FRACTION_LABEL_GROUP)
        key = (item.metadata.namespace, item.metadata.name)
        if group is None or key not in pods:
            continue
        groups[key] = group
        if item.metadata.namespace not in RESERVATION_NAMESPACES and pods[key].holds:
            sharers[(pods[key].node or "", group)] += 1
    return {
        key: replace(pod, requests=())
        if key[0] in RESERVATION_NAMESPACES and sharers[(pod.node or "", groups.get(key, ""))]
        else pod
        for key, pod in pods.items()
    }
