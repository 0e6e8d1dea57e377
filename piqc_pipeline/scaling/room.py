"""For how many replicas is there room: on nodes that admit them, and under the namespace's quotas? Unknown is a reason.

Which of these bounds counts, and what the user allows, is decided in `limits.py`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from piqc_pipeline.facts.snapshot import ClusterSnapshot, Node, Pod, Quota, Workload
from piqc_pipeline.facts.taints import to_tolerate


@dataclass(frozen=True)
class Room:
    """One bound on a workload's replicas.

    Attributes:
        replicas: Most replicas; None where that is unknown.
        why: The bound as a clause, or why it is unknown.
    """

    replicas: int | None
    why: str


def room_on_nodes(snapshot: ClusterSnapshot, workload: Workload) -> Room:
    """Replicas that fit on ready, admitting nodes beside what other workloads hold."""
    per_replica = workload.gpus_per_replica
    if not per_replica:
        return Room(None, "how many accelerators a replica takes is unknown")
    if snapshot.nodes is None or snapshot.pods is None:
        return Room(None, f"{'nodes' if snapshot.nodes is None else 'pods'} could not be read")
    if snapshot.unread_namespaces:
        return Room(None, f"pods of namespace {', '.join(snapshot.unread_namespaces[:3])} could not be read")
    own = own_pods(snapshot, workload)
    resources = resources_of(own)
    if not resources:
        return Room(None, "no pod of it says which accelerators it requests")
    per_pod = _units_per_pod(own, per_replica / pods_per_replica(workload))
    slots = 0
    for node in snapshot.nodes:
        if not node.ready or node.cordoned or not _admits(node, workload):
            continue
        free = _free_units(node, snapshot.pods, workload.id, resources)
        if isinstance(free, str):
            return Room(None, free)
        slots += math.floor(free / per_pod + 1e-9)
    replicas = slots // pods_per_replica(workload)
    return Room(replicas, f"the cluster has schedulable accelerators for {replicas} replicas")


def rooms_under_quotas(snapshot: ClusterSnapshot, workload: Workload) -> Iterator[Room]:
    """What each ResourceQuota of the namespace leaves, the workload's own pods not counted as taken."""
    own = [pod for pod in own_pods(snapshot, workload) if pod.phase not in ("Succeeded", "Failed")]
    for quota in snapshot.quotas or ():
        if quota.namespace != workload.namespace:
            continue
        if quota.resource == "pods":
            yield _under(quota, pods_per_replica(workload), len(own))
        elif workload.gpus_per_replica and quota.resource in resources_of(own):
            held, whole = _units(own, {quota.resource}), _units(own, resources_of(own))
            if held is None or whole is None:
                yield Room(None, f"how many {quota.resource} its own pods hold could not be read")
            elif held > 0:
                yield _under(quota, workload.gpus_per_replica * held / whole, held)


def _units(pods: list[Pod], resources: set[str]) -> float | None:
    """Units of these resources that the pods request; None where one of the amounts cannot be read."""
    amounts = [request.units for pod in pods for request in pod.requests if request.resource in resources]
    known = [units for units in amounts if units is not None]
    return sum(known) if len(known) == len(amounts) else None


def _under(quota: Quota, need: float, held: float) -> Room:
    """What the quota leaves of which a replica needs so much, and the workload holds so much already."""
    what = quota.resource
    if quota.scoped:
        return Room(None, f"quota {quota.name} on {what} counts some pods only: it is left out")
    if quota.hard is None or quota.used is None:
        return Room(None, f"quota {quota.name} on {what} has no readable count")
    left = max(0.0, quota.hard - max(0.0, quota.used - held))
    return Room(math.floor(left / need + 1e-9), f"quota {quota.name} leaves {left:g} {what} to it, {need:g} a replica")


def own_pods(snapshot: ClusterSnapshot, workload: Workload) -> list[Pod]:
    """The workload's pods; none where pods could not be read."""
    return [pod for pod in snapshot.pods or () if pod.workload_id == workload.id]


def resources_of(pods: list[Pod]) -> set[str]:
    """Resource keys that the pods request."""
    return {request.resource for pod in pods for request in pod.requests}


def pods_per_replica(workload: Workload) -> int:
    """Pods that make one replica: a group of a LeaderWorkerSet has several."""
    return max(1, workload.topology.pods_per_group) if workload.topology else 1


def _units_per_pod(own: list[Pod], fallback: float) -> float:
    """Units of the largest pod: a group is limited by its hungriest member."""
    return max((units for pod in own if (units := _units([pod], resources_of([pod])))), default=fallback)


def _free_units(node: Node, pods: tuple[Pod, ...], workload_id: str, resources: set[str]) -> float | str:
    """Units that the workload may take, or why that is unknown; slices of a shared device add no capacity 1:1."""
    pools = [pool for pool in node.pools if pool.resource in resources]
    installed = 0
    for pool in pools:
        if pool.allocatable_units is None:
            return f"how many {pool.resource} node {node.name} offers could not be read"
        installed += pool.allocatable_units
    if not installed:
        return 0.0
    shared = [pool.units_per_device for pool in pools if pool.sharing in ("time-slicing", "mps")]
    if None in shared:
        return f"how many units of node {node.name} share a device is unknown"
    slices = max((units for units in shared if units), default=1.0)
    held = 0.0
    for pod in pods:
        if pod.node != node.name or not pod.holds or pod.workload_id == workload_id:
            continue
        for request in pod.requests:
            if request.resource not in resources:
                continue
            if request.units is None:
                return f"how many {request.resource} pod {pod.namespace}/{pod.name} holds could not be read"
            held += request.units
    if slices > 1:
        return max(0.0, math.floor(installed / slices) - math.ceil(held / slices))
    return max(0.0, installed - held)


def admitting_nodes(snapshot: ClusterSnapshot, workload: Workload) -> list[Node]:
    """Nodes that a new pod of the workload could stand on, full or not."""
    return [node for node in snapshot.nodes or () if node.ready and not node.cordoned and _admits(node, workload)]


def _admits(node: Node, workload: Workload) -> bool:
    """Whether the node carries the pod's selector and every hard taint is tolerated."""
    selector = workload.pod_spec.get("nodeSelector")
    wanted: Mapping[object, object] = selector if isinstance(selector, dict) else {}
    if any(node.labels.get(str(key)) != str(value) for key, value in wanted.items()):
        return False
    return all(any(one.covers(taint) for one in workload.tolerations) for taint in to_tolerate(node.taints))
