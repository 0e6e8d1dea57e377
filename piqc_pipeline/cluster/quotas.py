"""How many accelerators may a namespace hold? What its ResourceQuotas allow, and what is used of it.

Kubernetes counts a container's request under `requests.KEY`, pods under `pods` or `count/pods`, and devices of claims
by their class (kubernetes.io/docs/concepts/policy/resource-quotas).
"""

from collections.abc import Iterable

from piqc_pipeline.cluster.accelerators.plugin import Registry
from piqc_pipeline.cluster.quantities import amount
from piqc_pipeline.cluster.surroundings import QuotaObject
from piqc_pipeline.facts.snapshot import Quota

_REQUESTS = "requests."
_DEVICE_CLASS = ".deviceclass.resource.k8s.io/devices"


def quotas(items: Iterable[QuotaObject], registry: Registry) -> tuple[Quota, ...]:
    """The quotas that limit accelerators or the number of pods, in order; others are left out."""
    found = []
    for item in items:
        allowed, used = item.status.hard or item.spec.hard or {}, item.status.used or {}
        scoped = bool(item.spec.scopes or item.spec.scope_selector)
        for key, hard in allowed.items():
            resource = limited(key, registry)
            if resource is not None:
                place = item.metadata.namespace, item.metadata.name, resource
                found.append(Quota(*place, amount(hard), amount(used.get(key)), scoped))
    return tuple(sorted(found, key=lambda row: (row.namespace, row.name, row.resource)))


def limited(key: str, registry: Registry) -> str | None:
    """What a quota's key limits, by the name under which pods request it; None where it is no matter of ours."""
    if key in ("pods", "count/pods"):
        return "pods"
    if key.endswith(_DEVICE_CLASS):
        return key
    name = key.removeprefix(_REQUESTS)
    return name if name != key and registry.plugin_of(name) is not None else None
