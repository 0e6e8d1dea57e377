"""How many replicas does the cluster allow, and why exactly that many?

Only placement is asked here (nodes, taints, what others hold, quota); demand belongs to `plan.py`.
"""

import math
from dataclasses import dataclass

from piqc_pipeline.errors import ScalingError
from piqc_pipeline.facts.snapshot import Autoscaler, ClusterSnapshot, Node, Pod, Workload
from piqc_pipeline.scaling.policy import ScalingPolicy

SCALABLE_KINDS = ("Deployment", "StatefulSet", "ReplicaSet", "LeaderWorkerSet")
"""Kinds whose `/scale` subresource takes replicas. KServe's kinds set the replicas of their Deployments themselves."""

DEFAULT_MAX_REPLICAS = 100
"""What KEDA takes where no maximum is written (ScaledObject `maxReplicaCount`)."""


@dataclass(frozen=True)
class ReplicaLimits:
    """Fewest and most replicas of one workload, each with its reason.

    Attributes:
        workload: `cluster/namespace/Kind/name`.
        min_replicas: Fewest replicas, at least 0.
        max_replicas: Most replicas, at least `min_replicas` and at least 1.
        min_reason: Why not fewer, one clause.
        max_reason: Why not more, one clause.
        gpus_per_replica: Accelerator units that one replica requests; None where unknown.
        schedulable_replicas: Replicas for which accelerators exist now; None where the cluster does not say.
        replicas_now: Replicas wanted at the moment, where known.
        api_version: Of the workload's kind, for instance `apps/v1`.
        pods_per_replica: Pods that make one replica (a group of a LeaderWorkerSet), at least 1.
        controller: What sets its replicas already, where something does.
        warnings: What a user should know of these limits, one sentence each.
    """

    workload: str
    min_replicas: int
    max_replicas: int
    min_reason: str = "set by the policy"
    max_reason: str = "set by the policy"
    gpus_per_replica: float | None = None
    schedulable_replicas: int | None = None
    replicas_now: int | None = None
    api_version: str = "apps/v1"
    pods_per_replica: int = 1
    controller: Autoscaler | None = None
    warnings: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """Namespace of the workload (a cluster's name may hold slashes: an EKS ARN does)."""
        return self.workload.rsplit("/", 3)[1]

    @property
    def kind(self) -> str:
        """Kind of the workload."""
        return self.workload.rsplit("/", 3)[2]

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.workload.rsplit("/", 3)[3]

    def clamp(self, replicas: int) -> int:
        """The count nearest to `replicas` that the limits allow."""
        return min(max(replicas, self.min_replicas), self.max_replicas)


def limits_from_snapshot(
    snapshot: ClusterSnapshot,
    workload: Workload,
    policy: ScalingPolicy,
    *,
    highest_demand: float | None = None,
    quota_gpus: float | None = None,
) -> ReplicaLimits:
    """The smallest of the user's maximum, the quota, the accelerators that exist, and headroom over known demand.

    Args:
        snapshot: What one scan saw.
        workload: The workload, one of the snapshot's.
        policy: Its `min_replicas`, `max_replicas` and `max_headroom` are used.
        highest_demand: Highest demand seen (quantile 0.999) or foreseen (over the lead time), in replicas at 100 %;
            None leaves this bound out.
        quota_gpus: Accelerators that the namespace's quota leaves for this workload; None where there is no quota.

    Returns:
        Limits that are never contradictory: where less than `min_replicas` can be placed, the minimum stays and a
        warning says so.

    Raises:
        ScalingError: The owner has no replicas to scale (a DaemonSet, Job or bare pod), or the quota allows none.
    """
    if workload.kind in SCALABLE_KINDS and workload.replicas_wanted is None:
        raise ScalingError(f"cannot scale {workload.id}: how many replicas its owner asks for could not be read")
    if workload.kind not in SCALABLE_KINDS:
        raise ScalingError(
            f"cannot scale {workload.id}: a {workload.kind} takes no replicas from an autoscaler; "
            f"{', '.join(SCALABLE_KINDS)} do"
        )
    warnings: list[str] = []
    bounds: list[tuple[int, str]] = []
    if policy.max_replicas is not None:
        bounds.append((policy.max_replicas, f"max_replicas is set to {policy.max_replicas}"))
    per_replica = workload.gpus_per_replica
    schedulable = _schedulable_replicas(snapshot, workload)
    if schedulable is not None:
        bounds.append((schedulable, f"the cluster has schedulable accelerators for {schedulable} replicas"))
    if quota_gpus is not None and per_replica:
        by_quota = math.floor(quota_gpus / per_replica + 1e-9)
        if by_quota < 1:
            raise ScalingError(
                f"cannot scale {workload.id}: the quota leaves {quota_gpus:g} accelerators and one replica needs "
                f"{per_replica:g}; raise the quota of namespace {workload.namespace}"
            )
        bounds.append((by_quota, f"the quota leaves {quota_gpus:g} accelerators, {per_replica:g} a replica"))
    if highest_demand is not None and highest_demand > 0:
        enough = max(1, math.ceil(policy.max_headroom * highest_demand / policy.u_mid - 1e-9))
        bounds.append(
            (
                enough,
                f"{policy.max_headroom:g} times the highest demand seen or foreseen ({highest_demand:.2f} replicas)",
            )
        )
    if not bounds:
        bounds.append((DEFAULT_MAX_REPLICAS, "KEDA's default: neither capacity, quota nor demand is known"))
        warnings.append(f"no upper limit is known for {workload.id}: set one with --max-replicas")
    maximum, max_reason = min(bounds)
    minimum, min_reason = policy.min_replicas, f"min_replicas is set to {policy.min_replicas}"
    if maximum < max(minimum, 1):
        warnings.append(
            f"{max_reason}, fewer than the minimum of {max(minimum, 1)} for {workload.id}: replicas will stay pending"
        )
        maximum, max_reason = max(minimum, 1), f"the minimum; in fact {max_reason}"
    if minimum == 0:
        warnings.append(
            f"{workload.id} may go to zero: KEDA 2.20 does so on a failed read too, and it comes back only if "
            "something counts requests that find no backend (KEDA #1850, production-stack PR 679)"
        )
    return ReplicaLimits(
        workload=workload.id,
        min_replicas=minimum,
        max_replicas=maximum,
        min_reason=min_reason,
        max_reason=max_reason,
        gpus_per_replica=per_replica,
        schedulable_replicas=schedulable,
        replicas_now=workload.replicas_wanted,
        api_version=workload.api_version,
        pods_per_replica=_pods_per_replica(workload),
        controller=workload.autoscaler,
        warnings=tuple(warnings),
    )


def _schedulable_replicas(snapshot: ClusterSnapshot, workload: Workload) -> int | None:
    """Replicas that fit on ready, admitting nodes beside what other workloads hold; None where unreadable."""
    per_replica = workload.gpus_per_replica
    if snapshot.nodes is None or snapshot.pods is None or not per_replica:
        return None
    own = [pod for pod in snapshot.pods if pod.workload_id == workload.id]
    resources = {request.resource for pod in own for request in pod.requests}
    if not resources or snapshot.unread_namespaces:
        return None
    pods_per_replica = _pods_per_replica(workload)
    per_pod = _units_per_pod(own, per_replica / pods_per_replica)
    selector = _selector(workload)
    slots = sum(
        math.floor(_free_units(node, snapshot.pods, workload.id, resources) / per_pod + 1e-9)
        for node in snapshot.nodes
        if node.ready and not node.cordoned and _admits(node, selector, workload)
    )
    return slots // pods_per_replica


def _pods_per_replica(workload: Workload) -> int:
    return max(1, workload.topology.pods_per_group) if workload.topology else 1


def _units_per_pod(own: list[Pod], fallback: float) -> float:
    """Units of the largest pod: a group is limited by its hungriest member."""
    return max((sum(request.units or 0.0 for request in pod.requests) for pod in own), default=0.0) or fallback


def _free_units(node: Node, pods: tuple[Pod, ...], workload_id: str, resources: set[str]) -> float:
    """Units that the workload may take; of devices shared in time, one a device: slices add no capacity 1:1."""
    pools = [pool for pool in node.pools if pool.resource in resources]
    installed = sum(pool.allocatable_units or 0 for pool in pools)
    shared = [pool.units_per_device for pool in pools if pool.sharing in ("time-slicing", "mps")]
    slices = max((units for units in shared if units), default=1.0)
    held = sum(
        1.0 if request.units is None else request.units
        for pod in pods
        if pod.node == node.name and pod.holds and pod.workload_id != workload_id
        for request in pod.requests
        if request.resource in resources
    )
    if slices > 1:
        return max(0.0, math.floor(installed / slices) - math.ceil(held / slices))
    return max(0.0, installed - held)


def _selector(workload: Workload) -> dict[str, str]:
    found = workload.pod_spec.get("nodeSelector")
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _admits(node: Node, selector: dict[str, str], workload: Workload) -> bool:
    """Whether the node carries the pod's selector and every hard taint is tolerated."""
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return False
    found = workload.pod_spec.get("tolerations")
    tolerations = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return all(_tolerated(taint, tolerations) for taint in node.taints)


def _tolerated(taint: str, tolerations: list[dict[str, object]]) -> bool:
    """Kubernetes' rule: empty key with Exists tolerates all; effect and value must match where they are given."""
    pair, _, effect = taint.rpartition(":")
    key, _, value = pair.partition("=")
    # The ExtendedResourceToleration admission plugin adds this one on its own to pods that request the resource.
    if key.endswith("nvidia.com/gpu") or key == "nvidia.com/gpu":
        return True
    for toleration in tolerations:
        operator = toleration.get("operator") or "Equal"
        if toleration.get("effect") not in (None, "", effect):
            continue
        if operator == "Exists" and toleration.get("key") in (None, "", key):
            return True
        if operator == "Equal" and toleration.get("key") == key and (toleration.get("value") or "") == value:
            return True
    return False
