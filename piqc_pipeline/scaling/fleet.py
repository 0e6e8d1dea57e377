"""Which workloads of a cluster get a plan, which do not, and why?

One call for the shells: snapshot and artifact in, plans out. The rule itself is in `plan.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from piqc_pipeline.errors import ScalingError
from piqc_pipeline.facts.snapshot import ClusterSnapshot
from piqc_pipeline.scaling.limits import limits_from_snapshot
from piqc_pipeline.scaling.plan import DemandForecast, ReplicaPlan, plan_workload
from piqc_pipeline.scaling.policy import ScalingPolicy


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
        demand_now: Live demand by workload id, replicas at 100 %.
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
        plans.append(
            plan_workload(
                forecast,
                (demand_now or {}).get(workload.id),
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
