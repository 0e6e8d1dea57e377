"""Which demand is replayed, at which scale, and what goes wrong in it?

Scaling and injections; the replay itself is in `replay_engine.py`, reading in `forecast.trace_file`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.forecast.series import SECONDS_PER_DAY, DemandSeries
from piqc_pipeline.scaling.replay_engine import TICK_SECONDS

Floats = NDArray[np.float64]

Injection = Literal[
    "none", "outage", "stale", "gap", "burst", "weekly_shift", "double_lead", "start_failure", "gpu_shortage"
]
INJECTIONS: tuple[Injection, ...] = (
    "outage",
    "stale",
    "gap",
    "burst",
    "weekly_shift",
    "double_lead",
    "start_failure",
    "gpu_shortage",
)
REPLICA_UNITS = ("replicas", "instances", "pods", "value")
"""Units whose values are replicas at 100 %; `value` is a trace that names none."""
GPU_UNITS = ("gpus", "busy gpus")
CAPPED_UNITS = ("percent", "%", "pct", "ratio", "share", "fraction")
"""Utilization: cut off at its top, whatever was asked for."""

BUCKET_SECONDS = 300
"""Step of the history, `PIQC_BUCKET_SECONDS`."""
OUTAGE_SECONDS = 2 * 3600
GAP_SECONDS = 3600
BURST_SECONDS = 20 * 60
BURST_FACTOR = 2.0
SHORTAGE_SECONDS = 2 * 3600
START_FAILURE_SHARE = 0.2
"""Share of starts that fail once and are tried again, each of them as long as the first."""
START_SPREAD = 1.5
"""Ratio of the 95th to the 50th percentile of start times: images and weights come from caches or not."""
Z95 = 1.6449


def scaled(series: DemandSeries, peak_replicas: float) -> DemandSeries:
    """The series with its highest value at `peak_replicas` (replicas at 100 %)."""
    highest = float(np.nanmax(series.demand, initial=0.0))
    factor = peak_replicas / highest if highest > 0 else 1.0
    return replace(series, demand=series.demand * factor, unit="replicas")


def in_replicas(series: DemandSeries, peak_replicas: float | None, gpus_per_replica: float) -> DemandSeries:
    """The series in replicas at 100 %: scaled to a peak, else by its unit (see `skip_reason`)."""
    if peak_replicas is not None:
        return scaled(series, peak_replicas)
    if series.unit.lower() in GPU_UNITS:
        return replace(series, demand=series.demand / gpus_per_replica, unit="replicas")
    return series


def skip_reason(series: DemandSeries, peak_replicas: float | None = None) -> str | None:
    """Why a series cannot be replayed, or None."""
    unit = series.unit.lower()
    if peak_replicas is None and unit not in REPLICA_UNITS + GPU_UNITS:
        return f"its unit is {series.unit}, not replicas: say with --peak how many replicas its highest value takes"
    days = len(series.demand) * series.step_seconds / SECONDS_PER_DAY
    known = int(np.isfinite(series.demand).sum())
    if days < 3:
        return f"{days:.1f} days: replay needs 3, the first half to learn from"
    if known < len(series.demand) / 2:
        return f"only {known} of {len(series.demand)} buckets were measured"
    if not np.nanmax(series.demand) > 0:
        return "demand is zero throughout"
    if not np.isfinite(series.demand[len(series.demand) // 2 :]).any():
        return "no bucket of its second half, which is scored, was measured"
    return None


def unit_note(series: DemandSeries) -> str | None:
    """What a reader should know of a unit that is no count of replicas."""
    if series.unit.lower() in CAPPED_UNITS:
        return f"its values are utilization ({series.unit}), which is cut off at its top: peaks may have been higher"
    if series.unit.lower() not in REPLICA_UNITS + GPU_UNITS:
        return f"its values are {series.unit}: only their shape is used"
    return None


def bridged(series: DemandSeries) -> Floats:
    """Demand with its gaps bridged by straight lines."""
    known = np.isfinite(series.demand)
    index = np.arange(len(series.demand))
    filled: Floats = np.interp(index, index[known], series.demand[known])
    return filled


@dataclass(frozen=True)
class Ticks:
    """A series at the replay's step.

    Attributes:
        demand: Between the middles of two buckets demand moves in a straight line: a step at each edge would punish
            every policy without foresight for the coarseness of the record.
        known: Whether the bucket was measured.
    """

    demand: Floats
    known: NDArray[np.bool_]


def to_ticks(series: DemandSeries, filled: Floats) -> Ticks:
    """The series at steps of 15 s."""
    per_bucket = series.step_seconds // TICK_SECONDS
    ticks = np.arange(len(filled) * per_bucket)
    middles = (np.arange(len(filled)) + 0.5) * per_bucket
    return Ticks(np.interp(ticks + 0.5, middles, filled), np.repeat(np.isfinite(series.demand), per_bucket))


def rebucketed(series: DemandSeries, ticks: Ticks, step_seconds: int = BUCKET_SECONDS) -> DemandSeries:
    """A coarse record at the history's own step: what a pipeline that was running then would have stored."""
    if series.step_seconds <= step_seconds or series.step_seconds % step_seconds:
        return series
    width = step_seconds // TICK_SECONDS
    means = ticks.demand.reshape(-1, width).mean(axis=1)
    known = ticks.known.reshape(-1, width).all(axis=1)
    return replace(series, step_seconds=step_seconds, demand=np.where(known, means, np.nan))


def start_delays(ticks: int, lead_seconds: float, seed: int) -> NDArray[np.int64]:
    """Ticks until a replica asked for at each tick is ready: lognormal, `lead_seconds` its 95th percentile.

    One draw a tick, the same for every policy; never under 2 ticks nor over twice the lead time.
    """
    sigma = np.log(START_SPREAD) / Z95
    median = lead_seconds / START_SPREAD
    drawn = median * np.exp(sigma * np.random.default_rng(seed).standard_normal(ticks))
    low, high = 1, max(2, int(2 * lead_seconds / TICK_SECONDS))
    delays: NDArray[np.int64] = np.clip(np.round(drawn / TICK_SECONDS), low, high).astype(np.int64)
    return delays


def daily_peaks(demand: Floats, first_tick: int, days: int) -> list[int]:
    """Tick of each scored day's highest demand."""
    day = SECONDS_PER_DAY // TICK_SECONDS
    starts = [first_tick + day * index for index in range(days)]
    return [start + int(np.argmax(demand[start : start + day])) for start in starts]


def faulty_delays(kind: Injection, delays: NDArray[np.int64], peaks: Sequence[int], seed: int) -> NDArray[np.int64]:
    """Start times under a fault.

    Double lead: every start takes twice as long. Start failure: one start in five fails once. GPU shortage: in the two
    hours up to each day's peak no accelerator is free; what was asked for then starts when they are over.
    """
    if kind == "double_lead":
        return delays * 2
    if kind == "start_failure":
        failed = np.random.default_rng(seed + 1).random(len(delays)) < START_FAILURE_SHARE
        return np.where(failed, 2 * delays, delays)
    if kind == "gpu_shortage":
        late = delays.copy()
        for peak in peaks:
            begin = max(0, peak - SHORTAGE_SECONDS // TICK_SECONDS)
            late[begin:peak] += peak - np.arange(begin, peak)
        return late
    return delays


def shifted_week(values: NDArray[Any], first: int, day: int) -> NDArray[Any]:
    """The scored part one day early, its first day last: what was learned of weekdays does not hold any more."""
    return np.concatenate([values[:first], np.roll(values[first:], -day)])


def inject(
    kind: Injection, demand: Floats, planned: Sequence[Floats], gap: NDArray[np.bool_], peaks: Sequence[int]
) -> tuple[Floats, list[Floats], NDArray[np.bool_]]:
    """What a fault changes: demand, the plans (NaN: the read fails), the gaps of live demand.

    Outage: the predictor is away in the two hours up to each day's peak. Stale: it has no fresh data for a whole day
    (the middle one) and answers 503. Gap: live demand and predictor are both away in the hour up to the peak. Burst:
    demand doubles for 20 minutes from the peak on, unforeseen.
    """
    demand, gap, plans = demand.copy(), gap.copy(), [plan.copy() for plan in planned]
    day = SECONDS_PER_DAY // TICK_SECONDS
    if kind == "outage":
        for peak in peaks:
            for plan in plans:
                plan[max(0, peak - OUTAGE_SECONDS // TICK_SECONDS) : peak] = np.nan
    elif kind == "stale":
        middle = peaks[len(peaks) // 2] // day * day
        for plan in plans:
            plan[middle : middle + day] = np.nan
    elif kind == "gap":
        for peak in peaks:
            away = slice(max(0, peak - GAP_SECONDS // TICK_SECONDS), peak)
            gap[away] = True
            for plan in plans:
                plan[away] = np.nan
    elif kind == "burst":
        for peak in peaks:
            demand[peak : peak + BURST_SECONDS // TICK_SECONDS] *= BURST_FACTOR
    return demand, plans, gap
