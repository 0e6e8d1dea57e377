"""Which workloads of a cluster get a plan, which do not, and why?

One call for the shells, `plan_cluster`: snapshot and artifact in, plans out. The rule itself is in `plan.py`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from piqc_pipeline.errors import ScaleUnknown, ScalingError, UsageError
from piqc_pipeline.facts.snapshot import ClusterSnapshot, Workload
from piqc_pipeline.scaling.demand import demand_of
from piqc_pipeline.scaling.limits import limits_from_snapshot
from piqc_pipeline.scaling.pairs import paired_plans, pairs_of
from piqc_pipeline.scaling.plan import DemandForecast, ReplicaPlan, plan_workload
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.unit_price import UnitPrice, unit_price
from piqc_pipeline.waste.prices import PriceList

FRESH = timedelta(minutes=10)
"""A snapshot older than this says nothing of demand now."""


class _Known(Protocol):
    """What is asked of a `forecast.model.DataCard`."""

    @property
    def demand_q95(self) -> float | None: ...  # noqa: D102
    @property
    def demand_q999(self) -> float | None: ...  # noqa: D102


class _WithHistory(DemandForecast, Protocol):
    """What is asked of a `forecast.model.WorkloadForecast`, accepted or not."""

    @property
    def data(self) -> _Known: ...  # noqa: D102


class _Artifact(Protocol):
    """What is asked of a `forecast.model.PredictorArtifact`."""

    @property
    def workloads(self) -> Mapping[str, _WithHistory]: ...  # noqa: D102
    @property
    def failed(self) -> Mapping[str, str]: ...  # noqa: D102


@dataclass(frozen=True)
class FleetPlan:
    """Plans of a cluster's inference workloads.

    Attributes:
        plans: In the order of their ids.
        left_out: Workloads that cannot be scaled by an autoscaler, with the reason.
        unread: Those of them whose owner may have been among what a failed read hid.
    """

    plans: tuple[ReplicaPlan, ...]
    left_out: Mapping[str, str]
    unread: frozenset[str] = frozenset()

    def within(self, namespaces: Collection[str]) -> "FleetPlan":
        """Those of some namespaces.

        Raises:
            UsageError: No workload is in one of them.
        """
        there = {_namespace(name) for name in (*(plan.workload for plan in self.plans), *self.left_out)}
        if absent := [name for name in namespaces if name not in there]:
            raise UsageError(
                f"no inference workload of the last scan is in namespace {' or '.join(absent)}; there are some in "
                f"{', '.join(sorted(there)) or 'none'}"
            )
        return FleetPlan(
            tuple(plan for plan in self.plans if plan.limits.namespace in namespaces),
            {name: why for name, why in self.left_out.items() if _namespace(name) in namespaces},
            frozenset(name for name in self.unread if _namespace(name) in namespaces),
        )


def _namespace(workload: str) -> str:
    return workload.rsplit("/", 3)[1]


def plan_cluster(
    snapshot: ClusterSnapshot,
    artifact: _Artifact,
    policy: ScalingPolicy,
    now: datetime,
    prices: PriceList,
    horizon: timedelta = timedelta(hours=6),
) -> FleetPlan:
    """Plans every inference workload of the snapshot on the artifact's forecasts and the histories behind them."""
    histories = {name: entry.data for name, entry in artifact.workloads.items()}
    high = {name: data.demand_q95 for name, data in histories.items()}
    highest = {name: data.demand_q999 for name, data in histories.items()}
    return plan_fleet(
        snapshot,
        artifact.workloads,
        policy,
        now,
        horizon,
        failed=artifact.failed,
        high_demand={name: value for name, value in high.items() if value is not None},
        highest_demand={name: value for name, value in highest.items() if value is not None},
        prices=prices,
    )


def plan_fleet(
    snapshot: ClusterSnapshot,
    forecasts: Mapping[str, DemandForecast],
    policy: ScalingPolicy,
    now: datetime,
    horizon: timedelta = timedelta(hours=6),
    *,
    failed: Mapping[str, str] | None = None,
    high_demand: Mapping[str, float] | None = None,
    highest_demand: Mapping[str, float] | None = None,
    prices: PriceList | None = None,
) -> FleetPlan:
    """Plans every inference workload of the snapshot; one without a forecast on the snapshot's own fresh readings.

    Args:
        snapshot: What one scan saw.
        forecasts: `PredictorArtifact.workloads`, by workload id.
        policy: One rule for all.
        now: Aware UTC.
        horizon: How far to plan.
        failed: `PredictorArtifact.failed`: why a workload has no forecast.
        high_demand: Quantile 0.95 of demand by workload id.
        highest_demand: Quantile 0.999 of demand by workload id. Without it no maximum comes from demand: a forecast
            alone must not keep the reactive trigger from answering a burst that was seen before.
        prices: For what is short; None leaves dollars out.

    Returns:
        A plan for each that can be scaled, the reason for each that cannot.
    """
    plans, left_out, unread = [], {}, set[str]()
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
            )
        except ScalingError as error:
            left_out[workload.id] = str(error)
            if isinstance(error, ScaleUnknown) and snapshot.read_failed:
                unread.add(workload.id)
            continue
        unit = unit_price(snapshot, workload, prices) if prices is not None else UnitPrice()
        limits = replace(limits, product=unit.product)
        live = None
        if (forecast is None or not forecast.accepted) and abs(now - snapshot.taken_at) < FRESH:
            live = demand_of(snapshot, workload).replicas
        plans.append(
            plan_workload(
                forecast,
                live,
                limits,
                policy,
                now,
                horizon,
                usd_per_gpu_hour=unit.usd_per_hour,
                high_demand=(high_demand or {}).get(workload.id),
                no_forecast_reason=(failed or {}).get(workload.id) or _under_another_id(workload, snapshot, forecasts),
            )
        )
    return FleetPlan(_in_pairs(plans, snapshot, policy), left_out, frozenset(unread))


def _under_another_id(workload: Workload, snapshot: ClusterSnapshot, names: Iterable[str]) -> str | None:
    """A load that was imported before any scan, or from another cluster, is known under an id of its own."""
    scanned = {one.id for one in snapshot.workloads}
    place = workload.namespace, workload.name
    other = next(
        (name for name in sorted(names) if name not in scanned and tuple(name.rsplit("/", 3)[1::2]) == place), None
    )
    if other is None:
        return None
    return (
        f"there is a forecast of {other} and none of {workload.id}: import its load again now that the scan names it, "
        "then train"
    )


def _in_pairs(
    plans: Sequence[ReplicaPlan], snapshot: ClusterSnapshot, policy: ScalingPolicy
) -> tuple[ReplicaPlan, ...]:
    """The plans, roles of a pair raised to its ratio; a role whose mate has no plan stands alone."""
    planned = {plan.workload for plan in plans}
    pairs = [pair for pair in pairs_of(snapshot, policy.pair_ratio) if {pair.prefill, pair.decode} <= planned]
    bounds = {name: bound for pair in pairs for name, bound in pair.bounds().items()}
    return tuple(
        paired_plans([replace(plan, limits=replace(plan.limits, pair=bounds.get(plan.workload))) for plan in plans])
    )
