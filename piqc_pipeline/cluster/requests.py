"""How many accelerators does a pod hold? Kubernetes' effective request, claims and annotations, by resource key.

Rule: KEP-753 (sidecar containers): the larger of what runs together at the end and of each moment of the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from piqc_pipeline.cluster.accelerators.plugin import Registry
from piqc_pipeline.cluster.claims import Claims
from piqc_pipeline.cluster.objects import Container, PodObject, PodSpec
from piqc_pipeline.cluster.quantities import units
from piqc_pipeline.facts.snapshot import AcceleratorPool, PodRequest, Unknown
from piqc_pipeline.facts.taints import STATE_TAINT_PREFIX, Toleration

Amounts = dict[str, int | None]
"""Units by resource key; None where one of the quantities cannot be read."""


@dataclass(frozen=True)
class Held:
    """What a pod holds, and what of it cannot be told."""

    requests: tuple[PodRequest, ...] = ()
    unknown: tuple[Unknown, ...] = ()


def container_amounts(container: Container, registry: Registry) -> Amounts:
    """Accelerators that one container asks for; a limit counts as request, as the API server copies it."""
    resources = container.resources
    if resources is None or not (resources.requests or resources.limits):
        return {}
    limits, requests = resources.limits or {}, resources.requests or {}
    keys = {key for key in (*limits, *requests) if "/" in key and registry.plugin_of(key) is not None}
    found = {key: units(requests.get(key, limits.get(key))) for key in keys}
    return {key: number for key, number in found.items() if number != 0}


def effective_amounts(pod: PodObject, registry: Registry) -> Amounts:
    """Accelerators that the scheduler reserves for the pod."""
    running: Amounts = {}
    for container in pod.spec.containers:
        running = _plus(running, container_amounts(container, registry))
    if not pod.spec.init_containers:
        return running
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for container in pod.spec.init_containers:
        amounts = container_amounts(container, registry)
        if container.restart_policy == "Always":
            sidecars = _plus(sidecars, amounts)
            peaks.append(sidecars)
        elif amounts:
            peaks.append(_plus(sidecars, amounts))
    total = _plus(running, sidecars)
    for peak in peaks:
        total = _larger(total, peak)
    return total


def held(pod: PodObject, registry: Registry, claims: Claims, pools: Sequence[AcceleratorPool]) -> Held:
    """What the pod holds on its node, by resource key, in order.

    Args:
        pod: The pod.
        registry: The vendors' plugins.
        claims: The cluster's ResourceClaims.
        pools: Pools of the pod's node; empty where it is not bound or not read.
    """
    amounts = effective_amounts(pod, registry)
    unknown = []
    requests = []
    for key, number in sorted(amounts.items()):
        plugin = registry.plugin_of(key)
        if number is None or plugin is None:
            requests.append(PodRequest(key, None))
            unknown.append(
                Unknown(f"{key} held by pod {_name(pod)}", "the quantity in its spec is no count", about="devices held")
            )
        else:
            requests.append(plugin.request(key, number, pools))
    if pod.spec.resource_claims:
        claimed = claims.held(pod)
        requests += claimed.requests
        unknown += claimed.unknown
    if not requests:
        requests += registry.annotated(pod)
        unknown += [
            Unknown(
                f"{request.resource} held by pod {_name(pod)}",
                "its annotation gives memory, not a share of a card",
                about="devices held",
            )
            for request in requests
            if request.units is None
        ]
    return Held(tuple(requests), tuple(unknown))


def tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    """The taints that the pod puts up with, but for those of a node's state, which every pod has."""
    return tuple(
        Toleration(row.key or "", row.value or "", row.effect or "", row.operator == "Exists")
        for row in spec.tolerations or ()
        if not (row.key or "").startswith(STATE_TAINT_PREFIX)
    )


def _name(pod: PodObject) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _plus(left: Amounts, right: Amounts) -> Amounts:
    if not right:
        return left
    total = dict(left)
    for key, number in right.items():
        have = total.get(key, 0)
        total[key] = None if number is None or have is None else have + number
    return total


def _larger(left: Amounts, right: Amounts) -> Amounts:
    total = dict(left)
    for key, number in right.items():
        have = total.get(key, 0)
        total[key] = None if number is None or have is None else max(have, number)
    return total
