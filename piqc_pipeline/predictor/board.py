"""What do we know of each workload until the next refresh, and until when may it be said?

A `Board` is built once a refresh and then only read; the service swaps it by one assignment, so that no request
sees half of two. Rendering belongs to `answers`, reading to `live` and `reload`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from piqc_pipeline.forecast.model import PredictorArtifact, WorkloadForecast
from piqc_pipeline.predictor.live import Observed
from piqc_pipeline.predictor.memory import WorkloadMemory
from piqc_pipeline.scaling.limits import ReplicaLimits
from piqc_pipeline.scaling.pairs import paired_plans
from piqc_pipeline.scaling.plan import PlanStep, ReplicaPlan, plan_workload
from piqc_pipeline.scaling.policy import ScalingPolicy

STALE_FLOOR_SECONDS = 600.0
"""Demand older than this is stale, unless a refresh or a bucket is wider."""

CLOCK_TOLERANCE_SECONDS = 120.0
"""How far ahead of this machine's clock data may be; NTP keeps clusters within a second."""


@dataclass(frozen=True)
class Reason:
    """Why no number is given: a code, and the sentence."""

    code: str
    detail: str


@dataclass(frozen=True)
class Entry:
    """One workload's state.

    Attributes:
        workload: `cluster/namespace/Kind/name`.
        forecast: Moved to live demand where there is any; None if training failed.
        plan: The decision of this refresh; None where nothing can be decided.
        observed: Live figures, None where Prometheus was not asked or did not say.
        live: Whether live demand is followed (a Prometheus is configured).
        unavailable: Why no number may be given at all.
        data_until: End of the newest demand behind the answer.
        fresh_until: After this moment the answer is stale (UTC).
        limits: Fewest and most replicas.
    """

    workload: str
    forecast: WorkloadForecast | None
    plan: ReplicaPlan | None
    observed: Observed | None
    live: bool
    unavailable: Reason | None
    data_until: datetime | None
    fresh_until: datetime | None
    limits: ReplicaLimits

    def refusal(self, now: datetime) -> Reason | None:
        """Why no number may be given at `now`; None if one may."""
        if self.unavailable is not None:
            return self.unavailable
        if self.data_until is not None and self.data_until > now + timedelta(seconds=CLOCK_TOLERANCE_SECONDS):
            ahead = (self.data_until - now).total_seconds()
            return Reason(
                "clock_skew",
                f"the newest demand of {self.workload} is {ahead:.0f} s ahead of this machine's clock; synchronize "
                "the clocks of the predictor, Prometheus and the training job",
            )
        if self.fresh_until is not None and now > self.fresh_until:
            return self.stale(now)
        return None

    def stale(self, now: datetime) -> Reason:
        """The sentence for an answer whose time has passed."""
        assert self.fresh_until is not None
        forecast = self.forecast
        if forecast is not None and forecast.accepted and now > forecast.valid_until:
            return Reason(
                "stale",
                f"the forecast of {self.workload} ended {forecast.valid_until:%Y-%m-%dT%H:%M:%SZ}; train again",
            )
        seen = f"{self.data_until:%Y-%m-%dT%H:%M:%SZ}" if self.data_until else "never"
        return Reason(
            "stale",
            f"the newest demand known of {self.workload} ended {seen}; check that Prometheus answers and records "
            "workload:gpu_demand:replicas for it",
        )


@dataclass(frozen=True)
class Board:
    """Everything that requests are answered from.

    Attributes:
        artifact: The artifact in use.
        entries: By workload id.
        names: Ids by every name that a client may use.
        policy: The rule's numbers.
        rendered: Answers already written; emptied with the board.
    """

    artifact: PredictorArtifact
    entries: Mapping[str, Entry]
    names: Mapping[str, tuple[str, ...]]
    policy: ScalingPolicy
    rendered: dict[object, bytes] = field(default_factory=dict, compare=False)


def stale_after_seconds(refresh_seconds: float, step_seconds: float) -> float:
    """Age of demand from which an answer is stale: 10 minutes, two refreshes or two buckets, the longest."""
    return max(STALE_FLOOR_SECONDS, 2 * refresh_seconds, 2 * step_seconds)


def name_index(workloads: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Ids by `namespace/name`, `namespace/Kind/name` and the id itself."""
    found: dict[str, list[str]] = {}
    for workload in workloads:
        _, namespace, kind, name = split_id(workload)
        for key in {f"{namespace}/{name}", f"{namespace}/{kind}/{name}", workload}:
            found.setdefault(key, []).append(workload)
    return {key: tuple(sorted(ids)) for key, ids in found.items()}


def split_id(workload: str) -> tuple[str, str, str, str]:
    """Cluster, namespace, kind and name of an id; a cluster's name may hold slashes."""
    cluster, namespace, kind, name = (["", "", ""] + workload.rsplit("/", 3))[-4:]
    return cluster, namespace, kind, name


def decide(
    workload: str,
    forecast: WorkloadForecast | None,
    failed: str | None,
    observed: Observed | None,
    data_until: datetime | None,
    memory: WorkloadMemory,
    limits: ReplicaLimits,
    policy: ScalingPolicy,
    now: datetime,
    *,
    live: bool,
    refresh_seconds: float,
) -> Entry:
    """One workload's entry at `now`, and the memory of what was decided.

    Args:
        workload: Id.
        forecast: Its forecast, already moved to live demand.
        failed: Why training made none.
        observed: Live figures; None where Prometheus did not say.
        data_until: End of the newest demand known; None where there is none.
        memory: What was published before; changed here.
        limits: Fewest and most replicas.
        policy: The rule's numbers.
        now: Aware UTC.
        live: Whether a Prometheus is configured.
        refresh_seconds: Time between two refreshes.
    """
    seen = observed or Observed()
    accepted = forecast is not None and forecast.accepted

    def entry(plan: ReplicaPlan | None, reason: Reason | None, fresh_until: datetime | None) -> Entry:
        return Entry(workload, forecast, plan, observed, live, reason, data_until, fresh_until, limits)

    if not accepted and seen.demand is None:
        why = failed or "; ".join(forecast.reasons if forecast else ()) or "no forecast exists"
        code = "not_accepted" if forecast is not None else "no_forecast"
        return entry(None, Reason(code, f"{workload} stays reactive: {why}; and no live demand is seen"), None)
    fresh_until = _fresh_until(forecast if accepted else None, data_until, now, live, refresh_seconds)
    if fresh_until is not None and now > fresh_until:
        return entry(None, None, fresh_until)
    state = memory.live_state(
        now,
        policy,
        replicas_wanted=seen.replicas_wanted,
        replicas_ready=seen.replicas_ready,
        waiting_requests=seen.waiting_requests,
        demand_window_max=seen.demand_window_max,
    )
    plan = plan_workload(forecast, seen.demand, limits, policy, now, timedelta(seconds=1), live=state)
    if plan.now is None:
        reason = "; ".join(plan.reasons) or "the forecast has no row for this moment"
        return entry(None, Reason("no_forecast", f"nothing can be decided for {workload}: {reason}"), fresh_until)
    wanted = limits.clamp(plan.now.unclamped)
    step = plan.now
    if live and seen.demand is None and state.replicas is not None and step.replicas < state.replicas:
        # A forecast alone never removes a replica.
        step = _held(step, limits.clamp(state.replicas), "live demand is not seen at the moment")
        plan = replace(plan, steps=(step, *plan.steps[1:]))
    memory.remember(now, step, wanted, seen.demand)
    return entry(plan, None, fresh_until)


def paired_entries(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Entries of prefill and decode roles, raised to the ratio of their pair; the others are left out."""
    roles = {name: entry for name, entry in entries.items() if entry.limits.pair and entry.plan and entry.plan.steps}
    plans = paired_plans([entry.plan for entry in roles.values() if entry.plan is not None])
    return {plan.workload: replace(roles[plan.workload], plan=plan) for plan in plans}


def _held(step: PlanStep, replicas: int, why: str) -> PlanStep:
    return replace(step, replicas=replicas, binding="hold", explain=f"{replicas} replicas, held: {why}; {step.explain}")


def _fresh_until(
    forecast: WorkloadForecast | None,
    data_until: datetime | None,
    now: datetime,
    live: bool,
    refresh_seconds: float,
) -> datetime | None:
    """When an answer turns stale; without a Prometheus the forecast's own `valid_until` alone."""
    if forecast is None:
        return now + timedelta(seconds=stale_after_seconds(refresh_seconds, 0))
    if not live or data_until is None:
        return forecast.valid_until
    limit = timedelta(seconds=stale_after_seconds(refresh_seconds, forecast.step_seconds))
    return min(forecast.valid_until, data_until + limit)
