"""How many replicas does each of the next hours need, which term decides, and what is missing?

Pure: values in, values out. The rule: typical demand over the lead time under `u_mid`, unlikely demand under `u_cap`,
what is seen right now under `u_observed`, removal only where it is safe.
How the numbers are published belongs to `overlay.py` and the predictor.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import NormalDist
from typing import Literal, Protocol

from piqc_pipeline.scaling.limits import ReplicaLimits
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.shortfall import CapacityShortfall, count_of, shortfalls

Binding = Literal["fc50", "fcq", "observed", "min", "max", "hold", "pair"]
"""Which term set a count: median of the forecast, its quantile, live demand, a limit, the hold on scale-in, or the
ratio to the other role of a prefill/decode pair."""

BINDING_WORDS: dict[Binding, str] = {
    "fc50": "median forecast",
    "fcq": "likely peak",
    "pair": "other role of the pair",
    "observed": "live demand",
    "min": "minimum",
    "max": "maximum",
    "hold": "hold on scale-in",
}
"""The same for people."""

LIVE_DELAY_SECONDS = 60.0
"""Live demand is a mean over two minutes."""

LIVE_LOWERS_AT_MOST = 0.25
"""Share of the forecast that live demand may take away: a measurement that is partly blind must not remove replicas."""

_WHOLE = 1e-9
"""Demand within this of a whole multiple counts as that multiple (2.4 / 0.8 is 2.9999999999999996 in floats)."""


class DemandTable(Protocol):
    """What a plan needs of a `forecast.model.ForecastTable`: even steps, columns of one length, replicas at 100 %."""

    @property
    def start(self) -> datetime: ...  # noqa: D102
    @property
    def step_seconds(self) -> int: ...  # noqa: D102
    @property
    def q50(self) -> Sequence[float]: ...  # noqa: D102
    @property
    def peak_q50(self) -> Sequence[float]: ...  # noqa: D102
    @property
    def peak_q90(self) -> Sequence[float]: ...  # noqa: D102


class DemandForecast(Protocol):
    """What a plan needs of a `forecast.model.WorkloadForecast`."""

    @property
    def accepted(self) -> bool: ...  # noqa: D102
    @property
    def reasons(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def lead_seconds(self) -> int: ...  # noqa: D102
    @property
    def valid_until(self) -> datetime: ...  # noqa: D102
    @property
    def table(self) -> DemandTable: ...  # noqa: D102


@dataclass(frozen=True)
class LiveState:
    """What a controller sees of the workload besides demand now. None where it does not see.

    Attributes:
        replicas: Replicas wanted now, pending ones included.
        pending_replicas: Of these, how many are not ready.
        waiting_requests: Requests that wait.
        demand_window_max: Highest demand of the last `down_window_seconds`.
        wanted_window_max: Highest count that this rule wanted in the last `down_window_seconds`.
    """

    replicas: int | None = None
    pending_replicas: int | None = None
    waiting_requests: float | None = None
    demand_window_max: float | None = None
    wanted_window_max: int | None = None


@dataclass(frozen=True)
class PlanStep:
    """Replicas of one step of the forecast.

    Attributes:
        ts: Start of the step.
        replicas: The count, within the limits.
        binding: The term that set it.
        explain: The same as a sentence.
        unclamped: The count before the limits; above `replicas` where capacity is short.
        fc50: Count for the median of the maximum over the lead time; None without a forecast.
        fcq: Count for its quantile.
        observed: Count for live demand; None where no demand is seen (all steps but the first).
        demand_q50: That median, replicas at 100 %.
        demand_q90: That quantile, replicas at 100 %.
    """

    ts: datetime
    replicas: int
    binding: Binding
    explain: str
    unclamped: int
    fc50: int | None = None
    fcq: int | None = None
    observed: int | None = None
    demand_q50: float | None = None
    demand_q90: float | None = None


@dataclass(frozen=True)
class ReplicaPlan:
    """Replicas of one workload over the next hours.

    Attributes:
        workload: `cluster/namespace/Kind/name`.
        issued_at: The instant taken as now.
        lead_seconds: From decision to a ready replica.
        limits: Fewest and most replicas with reasons.
        accepted: A forecast was accepted; otherwise the workload stays reactive.
        reasons: Why not, or what weakens the plan.
        steps: From the step that holds `issued_at` on. One step without a forecast, none without demand either.
        shortfalls: Hours in which demand may exceed the maximum.
        fallback_replicas: Where to stand when a metric cannot be read.
        fallback_reason: Why that many.
        demand_now: Live demand, replicas at 100 %; None where not seen.
        step_seconds: Width of a step.
        usd_per_gpu_hour: Price of one accelerator; None where unknown.
    """

    workload: str
    issued_at: datetime
    lead_seconds: float
    limits: ReplicaLimits
    accepted: bool
    reasons: tuple[str, ...]
    steps: tuple[PlanStep, ...]
    shortfalls: tuple[CapacityShortfall, ...] = ()
    fallback_replicas: int = 1
    fallback_reason: str = ""
    demand_now: float | None = None
    step_seconds: float = 300.0
    usd_per_gpu_hour: float | None = None

    @property
    def binding_share(self) -> dict[Binding, float]:
        """Share of steps that each term decided."""
        terms = sorted({step.binding for step in self.steps})
        return {term: sum(step.binding == term for step in self.steps) / len(self.steps) for term in terms}

    @property
    def now(self) -> PlanStep | None:
        """The step that counts now; None where neither forecast nor live demand is known."""
        return self.steps[0] if self.steps else None


def replicas_for(demand: float, utilization: float) -> int:
    """Fewest replicas that carry `demand` (replicas at 100 %) at or under `utilization` (share)."""
    return max(0, math.ceil(demand / utilization - _WHOLE))


def plan_workload(
    forecast: DemandForecast | None,
    demand_now: float | None,
    limits: ReplicaLimits,
    policy: ScalingPolicy,
    now: datetime,
    horizon: timedelta = timedelta(hours=6),
    *,
    live: LiveState | None = None,
    usd_per_gpu_hour: float | None = None,
    high_demand: float | None = None,
    no_forecast_reason: str | None = None,
) -> ReplicaPlan:
    """The replica plan of one workload from `now` to `now + horizon`.

    Args:
        forecast: The workload's forecast; None, or one that was not accepted, leaves the reactive floor alone.
        demand_now: Live demand (2-minute mean, backlog included), replicas at 100 %; None where not seen.
        limits: Fewest and most replicas.
        policy: The rule's numbers.
        now: Aware UTC.
        horizon: How far to plan.
        live: What is known of the running workload, for the hold on scale-in.
        usd_per_gpu_hour: Price of one accelerator, for shortfalls.
        high_demand: Quantile 0.95 of demand, replicas at 100 %, for the fallback; else the plan's own peak.
        no_forecast_reason: Why `forecast` is None, where known.

    Returns:
        The plan; more live demand, or a forecast that is higher throughout, never lowers any of its counts.
    """
    live = live or LiveState()
    usable, reasons = _usable(forecast, now, no_forecast_reason)
    rows = _rows(forecast, demand_now, policy, now, horizon) if forecast is not None and usable else []
    steps: list[PlanStep] = []
    standing = live.replicas
    for index, (ts, q50, q90) in enumerate(rows):
        first = index == 0
        step = _decide(ts, q50, q90, demand_now if first else None, limits, policy)
        step = _hold(step, standing, limits, policy, live if first else None)
        steps.append(step)
        standing = step.replicas
    if not steps and demand_now is not None:
        step = _decide(now, None, None, demand_now, limits, policy)
        steps = [_hold(step, standing, limits, policy, live)]
    fallback, fallback_reason = _fallback(steps, limits, policy, high_demand)
    plan = ReplicaPlan(
        workload=limits.workload,
        issued_at=now,
        lead_seconds=policy.lead_seconds,
        limits=limits,
        accepted=forecast is not None and forecast.accepted,
        reasons=tuple(reasons),
        steps=(),
        fallback_replicas=fallback,
        fallback_reason=fallback_reason,
        demand_now=demand_now,
        step_seconds=forecast.table.step_seconds if forecast is not None else policy.lead_seconds,
        usd_per_gpu_hour=usd_per_gpu_hour,
    )
    return with_steps(plan, tuple(steps))


def with_steps(plan: ReplicaPlan, steps: tuple[PlanStep, ...]) -> ReplicaPlan:
    """The plan with these steps, and the shortfalls that they mean."""
    width = timedelta(seconds=plan.step_seconds)
    return replace(plan, steps=steps, shortfalls=shortfalls(steps, width, plan.limits, plan.usd_per_gpu_hour))


def _usable(forecast: DemandForecast | None, now: datetime, why_none: str | None) -> tuple[bool, list[str]]:
    if forecast is None:
        return False, [why_none or "no forecast exists for this workload"]
    if not forecast.accepted:
        return False, list(forecast.reasons) or ["its forecast was not accepted"]
    if now > forecast.valid_until:
        return False, [f"its forecast ended at {forecast.valid_until:%Y-%m-%dT%H:%MZ}; train again"]
    return True, []


def _rows(
    forecast: DemandForecast, demand_now: float | None, policy: ScalingPolicy, now: datetime, horizon: timedelta
) -> list[tuple[datetime, float, float]]:
    """Steps of the plan: start, median and quantile of the maximum over the policy's lead time."""
    surprise = _surprise(forecast.table, demand_now, now) if policy.live_seconds > 0 else 0.0
    table, width = forecast.table, timedelta(seconds=forecast.table.step_seconds)
    # A longer lead than the forecast's own is covered by the larger of the windows that start later.
    extra = max(0, math.ceil((policy.lead_seconds - forecast.lead_seconds) / table.step_seconds))
    # A calibrated column beats an extrapolated one, where the artifact has it.
    exact: Sequence[float] | None = getattr(table, "peak_q95", None) if policy.quantile == 0.95 else None
    rows = []
    first = max(0, (now - table.start) // width)
    stop = min(len(table.peak_q50), max(0, math.ceil((now + horizon - table.start) / width)))
    for index in range(first, stop):
        ts = table.start + index * width
        # A window begins with its step: past its beginning, the next one reaches as far as a replica asked for now.
        window = slice(index, index + extra + (2 if ts < now else 1))
        medians = [value for value in table.peak_q50[window] if _known(value)]
        quantiles = [value for value in (exact or table.peak_q90)[window] if _known(value)]
        if not medians or not quantiles:
            continue
        median, unlikely = max(medians), max(*quantiles, max(medians))
        unlikely = unlikely if exact else _at_quantile(median, unlikely, policy.quantile)
        if surprise:
            moved = surprise * math.exp(-max(0.0, (ts - now).total_seconds()) / policy.live_seconds)
            median, unlikely = max(0.0, median + moved), max(0.0, unlikely + moved)
        rows.append((max(ts, now), median, unlikely))
    return rows


def _surprise(table: DemandTable, demand_now: float | None, now: datetime) -> float:
    """Live demand minus what was expected for the moment it stands for (a 2-minute mean: one minute ago).

    Expected demand runs in straight lines between the middles of steps, and is flat before the first.
    """
    if demand_now is None or not table.q50:
        return 0.0
    position = ((now - table.start).total_seconds() - LIVE_DELAY_SECONDS) / table.step_seconds - 0.5
    position = min(max(position, 0.0), len(table.q50) - 1.0)
    left = int(position)
    right = min(left + 1, len(table.q50) - 1)
    expected = table.q50[left] + (table.q50[right] - table.q50[left]) * (position - left)
    if not math.isfinite(expected):
        return 0.0
    return max(demand_now - expected, -LIVE_LOWERS_AT_MOST * expected)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value >= 0


def _at_quantile(median: float, q90: float, quantile: float) -> float:
    """Moves the 0.90 quantile to another one along a normal distribution through both points."""
    if quantile == 0.90:
        return q90
    normal = NormalDist()
    return median + (q90 - median) * normal.inv_cdf(quantile) / normal.inv_cdf(0.90)


def _decide(
    ts: datetime,
    q50: float | None,
    q90: float | None,
    demand_now: float | None,
    limits: ReplicaLimits,
    policy: ScalingPolicy,
) -> PlanStep:
    """Items 11 and 12: the largest of three terms, within the limits."""
    minutes = policy.lead_seconds / 60
    terms: dict[Binding, tuple[int, str]] = {}
    if demand_now is not None:
        terms["observed"] = (
            replicas_for(demand_now, policy.u_observed),
            f"live demand is {demand_now:.2f} replicas, at {policy.u_observed:.0%} utilization",
        )
    if q50 is not None and q90 is not None:
        terms["fcq"] = (
            replicas_for(q90, policy.u_cap),
            f"within {minutes:.0f} min demand stays under {q90:.2f} replicas with probability {policy.quantile:g}, at "
            f"{policy.u_cap:.0%} utilization",
        )
        terms["fc50"] = (
            replicas_for(q50, policy.u_mid),
            f"within {minutes:.0f} min demand typically peaks at {q50:.2f} replicas, at {policy.u_mid:.0%} utilization",
        )
    binding: Binding = max(terms, key=lambda term: terms[term][0])
    wanted, why = terms[binding]
    replicas = limits.clamp(wanted)
    explain = f"{count_of(replicas)}: {why}"
    if replicas > wanted:
        binding, explain = "min", f"{count_of(replicas)}: the minimum ({limits.min_reason}); {wanted} would do: {why}"
    elif replicas < wanted:
        binding = "max"
        explain = f"{count_of(replicas)}: the maximum ({limits.max_reason}); {wanted} are wanted: {why}"
    return PlanStep(
        ts=ts,
        replicas=replicas,
        binding=binding,
        explain=explain,
        unclamped=wanted,
        fc50=terms["fc50"][0] if "fc50" in terms else None,
        fcq=terms["fcq"][0] if "fcq" in terms else None,
        observed=terms["observed"][0] if "observed" in terms else None,
        demand_q50=q50,
        demand_q90=q90,
    )


def _hold(
    step: PlanStep,
    standing: int | None,
    limits: ReplicaLimits,
    policy: ScalingPolicy,
    live: LiveState | None,
) -> PlanStep:
    """Item 14: how far down from `standing` is safe. A step of the future is wider than window and period together."""
    if standing is None or step.replicas >= standing or standing <= limits.min_replicas:
        return step
    keep, why = step.replicas, ""
    demands = [value for value in (step.demand_q90, live.demand_window_max if live else None) if value is not None]
    if demands and replicas_for(max(demands), policy.u_after_removal) > keep:
        keep = replicas_for(max(demands), policy.u_after_removal)
        why = f"fewer would stand above {policy.u_after_removal:.0%} if demand reaches {max(demands):.2f}"
    if live is not None:
        if live.wanted_window_max is not None and live.wanted_window_max > keep:
            keep = live.wanted_window_max
            why = f"{keep} were wanted within the last {policy.down_window_seconds} s"
        slowest = limit_of_removal(standing, policy)
        if slowest > keep:
            keep, why = slowest, f"at most {standing - slowest} of {standing} are removed in {policy.period_seconds} s"
        if live.waiting_requests:
            keep, why = standing, f"{live.waiting_requests:g} requests wait"
        elif live.pending_replicas:
            keep, why = standing, f"{count_of(live.pending_replicas)} still starting"
    keep = limits.clamp(min(keep, standing))
    if keep <= step.replicas:
        return step
    return PlanStep(
        **{
            **step.__dict__,
            "replicas": keep,
            "binding": "hold",
            "explain": f"{count_of(keep)}, held: {why}; {step.explain}",
        }
    )


def limit_of_removal(replicas: int, policy: ScalingPolicy) -> int:
    """Fewest replicas that one period of scale-in may leave (HPA's own arithmetic, select policy Max)."""
    return min(replicas - policy.down_pods, math.floor(replicas * (1 - policy.down_pct / 100)))


def _fallback(
    steps: Sequence[PlanStep], limits: ReplicaLimits, policy: ScalingPolicy, high_demand: float | None
) -> tuple[int, str]:
    """Item 20: quantile 0.95 of demand at `u_mid`; else the plan's own peak; else what runs now."""
    if high_demand is not None:
        count = max(1, replicas_for(high_demand, policy.u_mid))
        why = f"quantile 0.95 of demand is {high_demand:.2f} replicas, at {policy.u_mid:.0%} utilization"
    elif steps:
        count, why = max(step.replicas for step in steps), "the most that the plan asks for"
    elif limits.replicas_now:
        count, why = limits.replicas_now, "what runs now"
    else:
        count, why = limits.min_replicas, "the minimum"
    return max(1, limits.clamp(count)), why
