"""How many replicas does the cluster allow, and why exactly that many?

Room on nodes and under quotas is counted in `room.py`; demand belongs to `plan.py`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from piqc_pipeline.errors import ScaleUnknown, ScalingError
from piqc_pipeline.facts.snapshot import Autoscaler, ClusterSnapshot, Workload
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.room import Room, pods_per_replica, room_on_nodes, rooms_under_quotas

SCALABLE_KINDS = ("Deployment", "StatefulSet", "ReplicaSet", "LeaderWorkerSet")
"""Kinds whose `/scale` subresource takes replicas. KServe's kinds set the replicas of their Deployments themselves."""

DEFAULT_MAX_REPLICAS = 100
"""What KEDA takes where no maximum is written (ScaledObject `maxReplicaCount`)."""


@dataclass(frozen=True)
class PairBound:
    """What a role of a prefill/decode pair owes to the other one.

    Attributes:
        mate: Id of the other workload.
        per_mate: Fewest replicas of this workload for each of the mate's, above 0.
        why: Where the ratio comes from, one clause.
    """

    mate: str
    per_mate: float
    why: str


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
        product: Name of the accelerators that it takes; None where nothing names it.
        pair: The other role of a prefill/decode pair; None for a workload of its own.
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
    product: str | None = None
    pair: PairBound | None = None
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
) -> ReplicaLimits:
    """The smallest of the user's maximum, the quotas, the accelerators that exist, and headroom over known demand.

    Args:
        snapshot: What one scan saw.
        workload: The workload, one of the snapshot's.
        policy: Its `min_replicas`, `max_replicas` and `max_headroom` are used.
        highest_demand: Highest demand seen (quantile 0.999) or foreseen (over the lead time), in replicas at 100 %;
            None leaves this bound out.

    Returns:
        Limits that are never contradictory: where less than `min_replicas` can be placed, the minimum stays and a
        warning says so.

    Raises:
        ScalingError: The owner has no replicas to scale (a DaemonSet, Job or bare pod), or the quota allows none.
    """
    _refuse_unscalable(workload)
    placeable = room_on_nodes(snapshot, workload)
    quotas = list(rooms_under_quotas(snapshot, workload))
    _refuse_without_quota(workload, quotas)
    rooms = (placeable, *quotas)
    warnings = [f"a limit of {workload.id} is unknown: {room.why}" for room in rooms if room.replicas is None]
    bounds = [
        *_stated(policy),
        *((room.replicas, room.why) for room in rooms if room.replicas is not None),
        *_of_demand(policy, highest_demand),
    ]
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
        gpus_per_replica=workload.gpus_per_replica,
        schedulable_replicas=placeable.replicas,
        replicas_now=workload.replicas_wanted,
        api_version=workload.api_version,
        pods_per_replica=pods_per_replica(workload),
        controller=workload.autoscaler,
        warnings=tuple(warnings),
    )


def _stated(policy: ScalingPolicy) -> Iterator[tuple[int, str]]:
    if policy.max_replicas is not None:
        yield policy.max_replicas, f"max_replicas is set to {policy.max_replicas}"


def _of_demand(policy: ScalingPolicy, highest: float | None) -> Iterator[tuple[int, str]]:
    if highest is not None and highest > 0:
        enough = max(1, math.ceil(policy.max_headroom * highest / policy.u_mid - 1e-9))
        yield enough, f"{policy.max_headroom:g} times the highest demand seen or foreseen ({highest:.2f} replicas)"


def _refuse_unscalable(workload: Workload) -> None:
    if workload.kind in SCALABLE_KINDS and workload.replicas_wanted is None:
        raise ScaleUnknown(f"cannot scale {workload.id}: how many replicas its owner asks for is unknown")
    if workload.kind not in SCALABLE_KINDS:
        raise ScalingError(
            f"cannot scale {workload.id}: a {workload.kind} takes no replicas from an autoscaler; "
            f"{', '.join(SCALABLE_KINDS)} do"
        )


def _refuse_without_quota(workload: Workload, quotas: list[Room]) -> None:
    for room in quotas:
        if room.replicas is not None and room.replicas < 1:
            raise ScalingError(
                f"cannot scale {workload.id}: {room.why}; raise the quota of namespace {workload.namespace}"
            )
