"""Which policies are replayed, and what does each know at each bucket?

Everything here is computed before the replay runs, from buckets that were over by then; only the oracle and the
foresight look ahead, and the static ones know the trace's peak.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay_engine import COUNT, NONE, RATIO, TICK_SECONDS, VALUE
from piqc_pipeline.scaling.replay_forecast import ENSEMBLE, YESTERDAY, PeakForecast, phases_of

Floats = NDArray[np.float64]

REACTIVE = "stay_reactive"
FORECAST = "forecast"
ORACLE = "oracle"
FORESIGHT = "foresight"
STATIC_PEAK = "static_peak"
CANDIDATES = (REACTIVE, "reactive_demand", "cron", "seasonal_naive", FORECAST)
"""What may be recommended: policies that a user can deploy and that do not look ahead."""

FRONTIER = "reactive_at_"
FRONTIER_THRESHOLDS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.3)
"""Reactive policies held to other shares: what their overload costs at other GPU-hours."""
CRON_PART_HOURS = 4


@dataclass(frozen=True)
class PolicyTrack:
    """One policy on one series, phase by phase of each bucket.

    Attributes:
        name: As in the result.
        planned: Replicas it asks for, before limits; None where it asks for none by itself.
        unlikely: Demand that must still fit after a removal; None without a hold on scale-in.
        literal: Predicted demand behind the specification's utilization; None elsewhere.
        literal_value: Whether that is read as Value.
        observed: How live demand is read.
        threshold: Share that live demand is held to.
        closed_loop: False for the foresight, which has no HPA and no lead time.
    """

    name: str
    planned: Floats | None = None
    unlikely: Floats | None = None
    literal: Floats | None = None
    literal_value: bool = False
    observed: str = NONE
    threshold: float = 0.8
    closed_loop: bool = True


def tracks(
    series: DemandSeries, forecasts: dict[str, PeakForecast], policy: ScalingPolicy, filled: Floats, demand: Floats
) -> list[PolicyTrack]:
    """The twelve policies of one series.

    Args:
        series: Demand, replicas at 100 %.
        forecasts: `replay_forecast.rolling_peaks` of it.
        policy: The rule's numbers.
        filled: Demand with its gaps bridged.
        demand: The same at ticks of 15 s, for the policies that look ahead.
    """
    phases = phases_of(series.step_seconds // TICK_SECONDS)
    size = len(filled) * phases
    peak, high = float(np.max(filled)), float(np.quantile(filled, 0.95))
    ahead = _maximum_ahead(demand, policy.lead_seconds, len(demand) // size)
    live = policy.u_observed
    ensemble, yesterday = forecasts[ENSEMBLE], forecasts[YESTERDAY]
    return [
        PolicyTrack(STATIC_PEAK, np.full(size, need(peak, policy.u_mid))),
        PolicyTrack("static_p95", np.full(size, need(high, policy.u_mid))),
        # The observed trigger alone: ceil(demand / share), target 1; then demand as it is, and utilization as Value.
        PolicyTrack(REACTIVE, observed=COUNT, threshold=live),
        PolicyTrack("reactive_demand", observed=RATIO, threshold=live),
        PolicyTrack("reactive_value", observed=VALUE, threshold=0.75),
        PolicyTrack("cron", np.repeat(cron(series, policy, filled), phases)),
        PolicyTrack(
            "seasonal_naive",
            rule(yesterday, policy),
            yesterday.unlikely,
            observed=COUNT,
            threshold=live,
        ),
        PolicyTrack(
            FORECAST,
            rule(ensemble, policy),
            ensemble.unlikely,
            observed=COUNT,
            threshold=live,
        ),
        PolicyTrack("literal_average", literal=ensemble.point),
        PolicyTrack("literal_value", literal=ensemble.point, literal_value=True),
        PolicyTrack(ORACLE, need_all(ahead, policy.u_mid)),
        PolicyTrack(FORESIGHT, closed_loop=False),
    ]


def frontier() -> list[PolicyTrack]:
    """The reactive policy held to other shares."""
    return [PolicyTrack(f"{FRONTIER}{share:g}", observed=COUNT, threshold=share) for share in FRONTIER_THRESHOLDS]


def need(demand: float, share: float) -> float:
    """Fewest replicas that carry demand at or under a share."""
    return float(np.ceil(demand / share - 1e-9))


def need_all(demand: Floats, share: float) -> Floats:
    """`need` for each bucket."""
    count: Floats = np.ceil(demand / share - 1e-9)
    return count


def rule(forecast: PeakForecast, policy: ScalingPolicy) -> Floats:
    """Item 11: the median under `u_mid`, the quantile under `u_cap`. Before the first forecast nothing is asked."""
    count = np.maximum(need_all(forecast.median, policy.u_mid), need_all(forecast.unlikely, policy.u_cap))
    return np.where(np.isfinite(count), count, 0.0)


def cron(series: DemandSeries, policy: ScalingPolicy, filled: Floats) -> Floats:
    """Counts by part of the day, from the days before, started one lead time early.

    A part asks for what 90 % of its buckets of all past days needed; until a day is over, for what was needed so far.
    """
    day = series.steps_per_day
    part = max(1, CRON_PART_HOURS * 3600 // series.step_seconds)
    shift = int(np.ceil(policy.lead_seconds / series.step_seconds))
    offset = int(
        (series.start - series.start.replace(hour=0, minute=0, second=0)) / timedelta(seconds=series.step_seconds)
    )
    clock = (np.arange(len(filled)) + offset) % day // part
    counts = np.empty(len(filled))
    for begin in range(0, len(filled), day):
        past, hours = filled[: max(begin, 1)], clock[: max(begin, 1)]
        whole = np.quantile(past, 0.9)
        levels = {int(p): np.quantile(past[hours == p], 0.9) if (hours == p).any() else whole for p in np.unique(clock)}
        block = slice(begin, min(begin + day, len(filled)))
        counts[block] = [levels[int(p)] for p in clock[block]]
    early = np.maximum(counts, np.append(counts[shift:], np.repeat(counts[-1:], shift)) if shift else counts)
    return need_all(early, policy.u_mid)


def _maximum_ahead(demand: Floats, lead_seconds: float, ticks_per_phase: int) -> Floats:
    """Highest demand from each phase until a replica asked for at its end is ready."""
    width = int(np.ceil(lead_seconds / TICK_SECONDS)) + ticks_per_phase
    padded = np.append(demand, np.repeat(demand[-1:], width))
    ahead: Floats = np.lib.stride_tricks.sliding_window_view(padded, width)[: len(demand) : ticks_per_phase].max(axis=1)
    return ahead
