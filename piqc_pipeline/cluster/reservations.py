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


def sharers(
    pods: Mapping[tuple[str, str], Pod], objects: Iterable[PodObject]
) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """By placeholder: the pods that share its card, in order."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    placeholders: dict[tuple[str, str], tuple[str, str]] = {}
    for item in objects:
        group = item.metadata.label(FRACTION_LABEL_GROUP)
        key = (item.metadata.namespace, item.metadata.name)
        if group is None or key not in pods or not pods[key].holds:
            continue
        where = (pods[key].node or "", group)
        if item.metadata.namespace in RESERVATION_NAMESPACES:
            placeholders[key] = where
        else:
            groups[where].append(key)
    return {key: sorted(groups[where]) for key, where in placeholders.items() if groups[where]}


def without_reservations(
    pods: Mapping[tuple[str, str], Pod], objects: Iterable[PodObject]
) -> dict[tuple[str, str], Pod]:
    """The pods, where a placeholder whose card is used by fractions holds nothing: what is left of it is free."""
    shared = sharers(pods, objects)
    return {key: replace(pod, requests=()) if key in shared else pod for key, pod in pods.items()}
