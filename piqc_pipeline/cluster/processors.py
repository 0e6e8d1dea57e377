"""How much CPU do pods use, and how much may they? By the metrics server, and by their containers' limits."""

from collections.abc import Iterable

from piqc_pipeline.cluster.objects import PodSpec
from piqc_pipeline.cluster.quantities import amount
from piqc_pipeline.cluster.surroundings import UsageObject


def used_cores(items: Iterable[UsageObject]) -> dict[tuple[str, str], float]:
    """CPU cores by namespace and name of the pod; a pod of which a container's use cannot be read is left out."""
    found = {}
    for item in items:
        cores = [amount((container.usage or {}).get("cpu")) for container in item.containers or []]
        known = [one for one in cores if one is not None]
        if known and len(known) == len(cores):
            found[(item.metadata.namespace, item.metadata.name)] = sum(known)
    return found


def allowed_cores(spec: PodSpec) -> float | None:
    """Cores that the pod's containers may use by their limits, else were promised; None where one states neither."""
    total = 0.0
    for container in spec.containers:
        resources = container.resources
        limits, requests = (resources.limits or {}, resources.requests or {}) if resources else ({}, {})
        cores = amount(limits.get("cpu", requests.get("cpu")))
        if not cores:
            return None
        total += cores
    return total or None
