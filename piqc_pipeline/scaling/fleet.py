"""Which workloads of a cluster get a plan, which do not, and why?

One call for the shells: snapshot and artifact in, plans out. The rule itself is in `plan.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from piqc_pipeline.errors import ScalingError
from piqc_pipeline.facts.snapshot import ClusterSnapshot
from piqc_pipeline.scaling.demand import demand_of, paired
from piqc_pipeline.scaling.limits import limits_from_snapshot
from piqc_pipeline.scaling.plan import DemandForecast, PlanStep, ReplicaPlan, plan_workload
from piqc_pipeline.scaling.policy import ScalingPolicy

FRESH = timedelta(minutes=10)
"""A snapshot older than this says nothing of demand now."""


class _Known(Protocol):
    """What is asked of a `forecast.model.DataCard`."""

    @property
    def demand_q95(self) -> float | None: ...  # noqa: D102
    @property
    def demand_q999(self) -> float | None: ...  # noqa: D102


class _WithHistory(Protocol):
    """What is asked of a `forecast.model.WorkloadForecast`, accepted or not."""

    @property
    def data(self) -> _Known: ...  # noqa: D102


def demand_levels(forecasts: Mapping[str, _WithHistory]) -> tuple[dict[str, float], dict[str, float]]:
    """`high_demand` and `highest_demand` for `plan_fleet`, from the histories that forecasts were made from."""
    high = {name: entry.data.demand_q95 for name, entry in forecasts.items()}
    highest = {name: entry.data.demand_q999 for name, entry in forecasts.items()}
    return (
        {name: value for name, value in high.items() if value is not None},
        {name: value for name, value in highest.items() if value is not None},
    )


@dataclass(frozen=True)
class FleetPlan:
    """Plans of a cluster's inference workloads.

    Attributes:
        plans: In the order of their ids.
        left_out: Workloads that cannot be scaled by an autoscaler, with the reason.
    """

    plans: tuple[ReplicaPlan, ...]
    left_out: Mapping[str, str]


def plan_fleet(
    snapshot: ClusterSnapshot,
    forecasts: Mapping[str, DemandForecast],
    policy: ScalingPolicy,
    now: datetime,
    horizon: timedelta = timedelta(hours=6),
    *,
    failed: Mapping[str, str] | None = None,
    demand_now: Mapping[str, float] | None = None,
    high_demand: Mapping[str, float] | None = None,
    highest_demand: Mapping[str, float] | None = None,
    usd_per_gpu_hour: Mapping[str, float] | None = None,
    quota_gpus: Mapping[str, float] | None = None,
) -> FleetPlan:
    """Plans every inference workload of the snapshot.

    Args:
        snapshot: What one scan saw.
        forecasts: `PredictorArtifact.workloads`, by workload id.
        policy: One rule for all.
        now: Aware UTC.
        horizon: How far to plan.
        failed: `PredictorArtifact.failed`: why a workload has no forecast.
        demand_now: Live demand by workload id, replicas at 100 %. A workload without a forecast is planned on the
            snapshot's own readings where they are fresh and none is given.
        high_demand: Quantile 0.95 of demand by workload id.
        highest_demand: Quantile 0.999 of demand by workload id. Without it no maximum comes from demand: a forecast
            alone must not keep the reactive trigger from answering a burst that was seen before.
        usd_per_gpu_hour: Price of an accelerator by workload id.
        quota_gpus: Accelerators that the quota leaves, by namespace.

    Returns:
        A plan for each that can be scaled, the reason for each that cannot.
    """
    plans, left_out = [], {}
    for workload in sorted(snapshot.workloads, key=lambda entry: entry.id):
        if not workload.is_inference:
            continue
        forecast = forecasts.get(workload.id)
        foreseen = forecast.table.peak_q90 if forecast is not None and forecast.accepted else ()
        seen = (highest_demand or {}).get(workload.id)
        try:
            limits = limits_from_snapshot(
                snapshot,
                workload,
                policy,
                highest_demand=None if seen is None else max([seen, *foreseen]),
                quota_gpus=(quota_gpus or {}).get(workload.namespace),
            )
        except ScalingError as error:
            left_out[workload.id] = str(error)
            continue
        seen = (demand_now or {}).get(workload.id)
        if seen is None and (forecast is None or not forecast.accepted) and abs(now - snapshot.taken_at) < FRESH:
            seen = demand_of(snapshot, workload).replicas
        plans.append(
            plan_workload(
                forecast,
                seen,
                limits,
                policy,
                now,
                horizon,
                usd_per_gpu_hour=(usd_per_gpu_hour or {}).get(workload.id),
                high_demand=(high_demand or {}).get(workload.id),
                no_forecast_reason=(failed or {}).get(workload.id),
            )
        )
    return FleetPlan(tuple(plans), left_out)


def pair_plans(prefill: ReplicaPlan, decode: ReplicaPlan, least: float, most: float) -> tuple[ReplicaPlan, ReplicaPlan]:
    """Plans of a prefill and a decode role whose ratio stays within limits: step by step the smaller one is raised.

    Args:
        prefill: Plan of the prefill role.
        decode: Plan of the decode role, on the same steps.
        least: Fewest prefill replicas a decode replica, above 0.
        most: Most of them.

    Returns:
        Both plans; a count never exceeds its own maximum, which is said where it matters.
    """
    ones, others = [], []
    for one, other in zip(prefill.steps, decode.steps, strict=False):
        wanted = paired(one.replicas, other.replicas, least, most)
        ones.append(_raised(one, prefill, wanted[0], f"{decode.limits.name} has {wanted[1]}"))
        others.append(_raised(other, decode, wanted[1], f"{prefill.limits.name} has {wanted[0]}"))
    return (
        replace(prefill, steps=(*ones, *prefill.steps[len(ones) :])),
        replace(decode, steps=(*others, *decode.steps[len(others) :])),
    )


def _raised(step: PlanStep, plan: ReplicaPlan, wanted: int, why: str) -> PlanStep:
    count = plan.limits.clamp(wanted)
    if count <= step.replicas:
        return step
    short = f", {wanted} would keep the ratio" if wanted > count else ""
    return replace(step, replicas=count, binding="pair", explain=f"{count} replicas: {why}{short}; {step.explain}")
