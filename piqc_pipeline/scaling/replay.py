"""Which scaling policy would have served this workload best, and by how much? Closed-loop replay of a trace.

Every policy runs under the HPA's arithmetic on the same demand with the same start times; the first half of the trace
is only learned from. Figures hold for this simulator and this trace, not for a cluster.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.errors import TraceUnreadable
from piqc_pipeline.forecast.series import SECONDS_PER_DAY, DemandSeries
from piqc_pipeline.scaling import replay_scores as scores
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay_choice import Recommendation, bootstrap_days, ratio_interval, recommend
from piqc_pipeline.scaling.replay_engine import TICK_SECONDS
from piqc_pipeline.scaling.replay_forecast import ENSEMBLE, PeakForecast, rolling_peaks
from piqc_pipeline.scaling.replay_policies import FORECAST, FRONTIER, REACTIVE, PolicyTrack, frontier, tracks
from piqc_pipeline.scaling.replay_stage import DAY_TICKS, Stage
from piqc_pipeline.scaling.replay_trace import (
    INJECTIONS,
    Injection,
    Ticks,
    bridged,
    in_replicas,
    rebucketed,
    shifted_week,
    skip_reason,
    to_ticks,
    unit_note,
)

Floats = NDArray[np.float64]

SEED = 20_250_106


@dataclass(frozen=True)
class ReplayOptions:
    """What is replayed.

    Attributes:
        peak_replicas: The trace's highest demand, replicas at 100 %; None takes the trace as it is.
        gpus_per_replica: Accelerators of one replica.
        usd_per_gpu_hour: Their price; None leaves dollars out.
        tolerance: HPA's tolerance: 0 as the manifests set it from Kubernetes 1.35 on, 0.1 on older clusters.
        injections: Faults that the forecast and the reactive policy are put through.
        draws: Draws of the bootstrap by day.
        seed: Of start times and bootstrap.
    """

    peak_replicas: float | None = None
    gpus_per_replica: float = 1.0
    usd_per_gpu_hour: float | None = None
    tolerance: float = 0.0
    injections: tuple[Injection, ...] = INJECTIONS
    draws: int = 500
    seed: int = SEED


@dataclass(frozen=True)
class SeriesReplay:
    """One workload's result.

    Attributes:
        series: Its id.
        days: Days scored.
        least: Fewest replicas.
        most: Most replicas.
        achievable: Share of 5-minute means for which some count is in the band; None where none was known.
        policies: Scores by policy.
        injected: Scores by fault, for the forecast and for staying reactive.
        forecast: Coverage, pinball loss and error of the forecast's lead-window quantile.
        recommendation: Which policy, and why.
        equal_hours: The forecast's minutes over 90 %, and those of the reactive policy at equal GPU-hours.
        notes: What a reader should know of the series.
        daily: GPU-hours, minutes over 90 %, 5-minute means in the band and known, by policy and day.
    """

    series: str
    days: int
    least: int
    most: int
    achievable: float | None
    policies: Mapping[str, scores.PolicyScore]
    injected: Mapping[str, Mapping[str, scores.PolicyScore]]
    forecast: Mapping[str, float | None]
    recommendation: Recommendation
    equal_hours: tuple[float, float]
    notes: tuple[str, ...]
    daily: Mapping[str, tuple[Floats, Floats, Floats, Floats]] = field(repr=False)


@dataclass(frozen=True)
class ReplayResult:
    """All series of a trace.

    Attributes:
        lead_seconds: From decision to a ready replica, p95.
        peak_replicas: Scale of the trace; None: as it is.
        series: Results in the order of the trace.
        skipped: Series that could not be replayed, with the reason.
        pooled: Minutes over 90 % at equal GPU-hours, of the forecast everywhere and of what is recommended for each;
            in band over achievable; each with its bootstrap interval.
    """

    lead_seconds: float
    peak_replicas: float | None
    series: tuple[SeriesReplay, ...]
    skipped: Mapping[str, str]
    pooled: Mapping[str, Mapping[str, float | None]]


def replay(
    trace: Sequence[DemandSeries],
    policy: ScalingPolicy | None = None,
    options: ReplayOptions | None = None,
    progress: Callable[[str], None] | None = None,
) -> ReplayResult:
    """Replays every series under every policy.

    Args:
        trace: Demand; scaled to `options.peak_replicas` where given.
        policy: The rule's numbers; its lead time is what replicas take to start.
        options: Scale, price, faults.
        progress: Called with each series' id when it is done.

    Raises:
        TraceUnreadable: No series can be replayed; the message says why of the first.
    """
    policy, options = policy or ScalingPolicy(), options or ReplayOptions()
    skipped = {series.workload: why for series in trace if (why := skip_reason(series, options.peak_replicas))}
    usable = [series for series in trace if series.workload not in skipped]
    if not usable:
        name, why = next(iter(skipped.items()), ("the trace", "it holds no series"))
        raise TraceUnreadable(f"cannot replay {name}: {why}")
    results = []
    for series in usable:
        results.append(replay_one(series, policy, options))
        if progress is not None:
            progress(series.workload)
    return ReplayResult(policy.lead_seconds, options.peak_replicas, tuple(results), skipped, _pooled(results, options))


def replay_one(series: DemandSeries, policy: ScalingPolicy, options: ReplayOptions) -> SeriesReplay:
    """Replays one series under every policy, and the two main ones under every fault."""
    notes = tuple(note for note in [unit_note(series)] if note)
    series = in_replicas(series, options.peak_replicas, options.gpus_per_replica)
    filled = bridged(series)
    ticks = to_ticks(series, filled)
    series = rebucketed(series, ticks)
    filled = bridged(series)
    days = max(1, len(filled) * series.step_seconds // SECONDS_PER_DAY // 2)
    first = len(ticks.demand) - days * DAY_TICKS
    least, most = limits_of(filled, policy)
    stage = Stage(series, ticks, first, days, least, most, policy, options.tolerance, options.seed)
    forecasts = _forecasts(series, ticks.demand, first, policy)
    every = [*tracks(series, forecasts, policy, filled, ticks.demand), *frontier()]
    pair = [track for track in every if track.name in (REACTIVE, FORECAST)]
    injections = [fault for fault in options.injections if fault != "weekly_shift" or days > 1]
    jobs: dict[Injection, list[PolicyTrack]] = {"none": every, **dict.fromkeys(injections, pair)}
    if "weekly_shift" in jobs:
        jobs["weekly_shift"] = _after_a_shift(series, ticks, first, policy)
    courses = stage.run(jobs)
    minutes = courses["none"]

    def score(found: Mapping[str, scores.Minutes]) -> dict[str, scores.PolicyScore]:
        size, usd = options.gpus_per_replica, options.usd_per_gpu_hour
        judged = {name: course for name, course in found.items() if not name.startswith(FRONTIER)}
        return {name: stage.score(course, size, usd) for name, course in judged.items()}

    scored = score(minutes)
    injected: dict[str, dict[str, scores.PolicyScore]] = {fault: score(courses[fault]) for fault in injections}
    daily = {name: scores.by_day(course) for name, course in minutes.items()}
    draws = bootstrap_days(days, options.draws, options.seed)
    return SeriesReplay(
        series=series.workload,
        days=days,
        least=least,
        most=most,
        achievable=scores.achievable_share(minutes[FORECAST], least, most),
        policies=scored,
        injected=injected,
        forecast=_forecast_figures(forecasts[ENSEMBLE]),
        recommendation=recommend(scored, daily, draws, policy),
        equal_hours=_equal_hours(daily, np.arange(days)[None, :]),
        notes=notes,
        daily=daily,
    )


def _forecasts(series: DemandSeries, demand: Floats, first: int, policy: ScalingPolicy) -> dict[str, PeakForecast]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # means of empty windows at the start of a trace
        begin = first * TICK_SECONDS // series.step_seconds
        return rolling_peaks(series, demand, policy.lead_seconds, begin, policy.quantile)


def _after_a_shift(series: DemandSeries, ticks: Ticks, first: int, policy: ScalingPolicy) -> list[PolicyTrack]:
    """The two main policies where the scored days come one day early: the forecast sees it only as it comes."""
    begin = first * TICK_SECONDS // series.step_seconds
    moved = replace(series, demand=shifted_week(series.demand, begin, series.steps_per_day))
    demand = shifted_week(ticks.demand, first, DAY_TICKS)
    forecasts = _forecasts(moved, demand, first, policy)
    found = tracks(moved, forecasts, policy, bridged(moved), demand)
    return [track for track in found if track.name in (REACTIVE, FORECAST)]


def limits_of(filled: Floats, policy: ScalingPolicy) -> tuple[int, int]:
    """Fewest and most replicas: the policy's, else headroom over the trace's 99.9 % quantile."""
    enough = int(np.ceil(policy.max_headroom * float(np.quantile(filled, 0.999)) / policy.u_mid))
    least = policy.min_replicas
    return least, max(policy.max_replicas or enough, least, 1)


def _forecast_figures(forecast: PeakForecast) -> dict[str, float | None]:
    figures = {"coverage": forecast.coverage, "pinball_replicas": forecast.pinball, "mae_replicas": forecast.mae}
    return {name: value if np.isfinite(value) else None for name, value in figures.items()}


def _equal_hours(daily: Mapping[str, tuple[Floats, ...]], days: NDArray[np.int64]) -> tuple[float, float]:
    ours, reactive = _equal_hours_draws(daily, days)
    return float(ours[0]), float(reactive[0])


def _equal_hours_draws(
    daily: Mapping[str, tuple[Floats, ...]], days: NDArray[np.int64], policy: str = FORECAST
) -> tuple[Floats, Floats]:
    """A policy's minutes over 90 % and the reactive ones at its GPU-hours, for each draw of days (rows)."""
    names = [name for name in daily if name.startswith(FRONTIER)]
    hours = np.stack([daily[name][0][days].sum(axis=1) for name in names])
    over = np.stack([daily[name][1][days].sum(axis=1) for name in names])
    return scores.at_equal_hours(daily[policy][0][days].sum(axis=1), daily[policy][1][days].sum(axis=1), hours, over)


def _pooled(results: Sequence[SeriesReplay], options: ReplayOptions) -> dict[str, dict[str, float | None]]:
    """Sums over the series, with an interval from drawing days (the same days of every series in one draw)."""
    days = min(result.days for result in results)
    draws = np.vstack([np.arange(days)[None, :], bootstrap_days(days, options.draws, options.seed)])
    pairs = [_equal_hours_draws(result.daily, draws + result.days - days) for result in results]
    over, reactive = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    chosen = [
        _equal_hours_draws(result.daily, draws + result.days - days, result.recommendation.policy) for result in results
    ]
    advised, without = sum(pair[0] for pair in chosen), sum(pair[1] for pair in chosen)
    band = np.zeros(len(draws))
    possible = np.zeros(len(draws))
    for result in results:
        if result.achievable is None:
            continue
        here = draws + result.days - days
        _, _, inside, known = result.daily[FORECAST]
        band += inside[here].sum(axis=1)
        possible += result.achievable * known[here].sum(axis=1)
    return {
        "minutes_over_90_at_equal_gpu_hours": ratio_interval(np.asarray(over), np.asarray(reactive)),
        # Each workload under its recommended policy, "stay reactive" among them; chosen on the days that are scored.
        "minutes_over_90_as_recommended": ratio_interval(np.asarray(advised), np.asarray(without)),
        "in_band_over_achievable": ratio_interval(band, possible),
    }


def to_json(result: ReplayResult) -> dict[str, object]:
    """The result as plain JSON values."""
    return {
        "schemaVersion": "piqc-replay.v1",
        "lead_seconds": result.lead_seconds,
        "peak_replicas": result.peak_replicas,
        "pooled": result.pooled,
        "skipped": dict(result.skipped),
        "series": [
            {
                "series": one.series,
                "days": one.days,
                "min_replicas": one.least,
                "max_replicas": one.most,
                "achievable_share": one.achievable,
                "notes": list(one.notes),
                "recommended": one.recommendation.policy,
                "why": one.recommendation.why,
                "minutes_over_90": {"forecast": one.equal_hours[0], "reactive_at_equal_gpu_hours": one.equal_hours[1]},
                "forecast": dict(one.forecast),
                "policies": {name: _with_ratios(value, one) for name, value in one.policies.items()},
                "injected": {
                    fault: {name: asdict(value) for name, value in found.items()}
                    for fault, found in one.injected.items()
                },
            }
            for one in result.series
        ],
    }


def _with_ratios(value: scores.PolicyScore, one: SeriesReplay) -> dict[str, object]:
    oracle, peak = one.policies["oracle"].gpu_hours, one.policies["static_peak"].gpu_hours
    return {
        **asdict(value),
        "in_band_over_achievable": None
        if value.in_band is None or not one.achievable
        else value.in_band / one.achievable,
        "gpu_hours_over_oracle": value.gpu_hours / oracle if oracle else None,
        "gpu_hours_over_static_peak": value.gpu_hours / peak if peak else None,
    }


__all__ = ["ReplayOptions", "ReplayResult", "SeriesReplay", "replay", "replay_one", "to_json"]
