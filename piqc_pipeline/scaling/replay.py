"""Which scaling policy would have served this workload best, and by how much? Closed-loop replay of a trace.

Every policy runs under the HPA's arithmetic on the same demand with the same start times; the first half of the trace
is only learned from. Figures hold for this simulator and this trace, not for a cluster.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.errors import TraceUnreadable
from piqc_pipeline.forecast.series import SECONDS_PER_DAY, DemandSeries
from piqc_pipeline.scaling import replay_scores as scores
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay_choice import Recommendation, bootstrap_days, ratio_interval, recommend
from piqc_pipeline.scaling.replay_engine import (
    NONE,
    TICK_SECONDS,
    TICKS_PER_MINUTE,
    Controller,
    Course,
    Lanes,
    simulate,
)
from piqc_pipeline.scaling.replay_forecast import ENSEMBLE, PeakForecast, phases_of, rolling_peaks
from piqc_pipeline.scaling.replay_policies import FORECAST, FRONTIER, REACTIVE, PolicyTrack, frontier, tracks
from piqc_pipeline.scaling.replay_trace import (
    INJECTIONS,
    Injection,
    Ticks,
    bridged,
    daily_peaks,
    inject,
    rebucketed,
    scaled,
    skip_reason,
    start_delays,
    to_ticks,
)

Floats = NDArray[np.float64]

DAY_TICKS = SECONDS_PER_DAY // TICK_SECONDS
WARM_UP_SECONDS = 2 * 3600
"""Each day starts this long (and twice the lead time) early, so that replicas and queue have forgotten their start."""
SEED = 20_250_106


@dataclass(frozen=True)
class ReplayOptions:
    """What is replayed.

    Attributes:
        peak_replicas: The trace's highest demand, replicas at 100 %; None takes the trace as it is.
        gpus_per_replica: Accelerators of one replica.
        usd_per_gpu_hour: Their price; None leaves dollars out.
        tolerance: HPA's tolerance: 0.1, or 0 where the cluster has it per HPA.
        injections: Faults that the forecast and the reactive policy are put through.
        draws: Draws of the bootstrap by day.
        seed: Of start times and bootstrap.
    """

    peak_replicas: float | None = None
    gpus_per_replica: float = 1.0
    usd_per_gpu_hour: float | None = None
    tolerance: float = 0.1
    injections: tuple[Injection, ...] = INJECTIONS
    draws: int = 1000
    seed: int = SEED


@dataclass(frozen=True)
class SeriesReplay:
    """One workload's result.

    Attributes:
        series: Its id.
        days: Days scored.
        least: Fewest replicas.
        most: Most replicas.
        achievable: Share of 5-minute means for which some count is in the band.
        policies: Scores by policy.
        injected: Scores by fault, for the forecast and for staying reactive.
        forecast: Coverage, pinball loss and error of the forecast's lead-window quantile.
        recommendation: Which policy, and why.
        equal_hours: The forecast's minutes over 90 %, and those of the reactive policy at equal GPU-hours.
        daily: GPU-hours, minutes over 90 %, 5-minute means in the band and known, by policy and day.
    """

    series: str
    days: int
    least: int
    most: int
    achievable: float
    policies: Mapping[str, scores.PolicyScore]
    injected: Mapping[str, Mapping[str, scores.PolicyScore]]
    forecast: Mapping[str, float | None]
    recommendation: Recommendation
    equal_hours: tuple[float, float]
    daily: Mapping[str, tuple[Floats, Floats, Floats, Floats]] = field(repr=False)


@dataclass(frozen=True)
class ReplayResult:
    """All series of a trace.

    Attributes:
        lead_seconds: From decision to a ready replica, p95.
        peak_replicas: Scale of the trace; None: as it is.
        series: Results in the order of the trace.
        skipped: Series that could not be replayed, with the reason.
        pooled: Minutes over 90 % at equal GPU-hours and in band over achievable, each with its bootstrap interval.
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
    skipped = {series.workload: why for series in trace if (why := skip_reason(series))}
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
    if options.peak_replicas is not None:
        series = scaled(series, options.peak_replicas)
    filled = bridged(series)
    ticks = to_ticks(series, filled)
    series = rebucketed(series, ticks)
    filled = bridged(series)
    days = max(1, len(filled) * series.step_seconds // SECONDS_PER_DAY // 2)
    first = len(ticks.demand) - days * DAY_TICKS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # means of empty windows at the start of a trace
        begin = first * TICK_SECONDS // series.step_seconds
        forecasts = rolling_peaks(series, ticks.demand, policy.lead_seconds, begin, policy.quantile)
    least, most = limits_of(filled, policy)
    stage = _Stage(series, ticks, first, days, least, most, policy, options)
    every = [*tracks(series, forecasts, policy, filled, ticks.demand), *frontier()]
    minutes = stage.run(every)
    scored = {name: stage.score(course) for name, course in minutes.items() if not name.startswith(FRONTIER)}
    daily = {name: scores.by_day(course) for name, course in minutes.items()}
    pair = [track for track in every if track.name in (REACTIVE, FORECAST)]
    injected: dict[str, dict[str, scores.PolicyScore]] = {
        kind: {name: stage.score(course) for name, course in stage.run(pair, kind).items()}
        for kind in options.injections
    }
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
        daily=daily,
    )


def limits_of(filled: Floats, policy: ScalingPolicy) -> tuple[int, int]:
    """Fewest and most replicas: the policy's, else headroom over the trace's 99.9 % quantile."""
    enough = int(np.ceil(policy.max_headroom * float(np.quantile(filled, 0.999)) / policy.u_mid))
    least = policy.min_replicas
    return least, max(policy.max_replicas or enough, least, 1)


class _Stage:
    """One series, ready to be run under any policies: its days become columns that advance together."""

    def __init__(
        self,
        series: DemandSeries,
        ticks: Ticks,
        first: int,
        days: int,
        least: int,
        most: int,
        policy: ScalingPolicy,
        options: ReplayOptions,
    ) -> None:
        self.ticks, self.first, self.days, self.least, self.most = ticks, first, days, least, most
        self.policy, self.options = policy, options
        per_bucket = series.step_seconds // TICK_SECONDS
        self.per_phase = per_bucket // phases_of(per_bucket)
        warm = (WARM_UP_SECONDS + 2 * policy.lead_seconds) / TICK_SECONDS
        self.warm = min(
            int(np.ceil(warm / TICKS_PER_MINUTE)) * TICKS_PER_MINUTE, first // TICKS_PER_MINUTE * TICKS_PER_MINUTE
        )
        starts = first - self.warm + DAY_TICKS * np.arange(days)
        self.index = starts[None, :] + np.arange(self.warm + DAY_TICKS)[:, None]
        self.delays = start_delays(len(ticks.demand), policy.lead_seconds, options.seed)
        self.peaks = daily_peaks(ticks.demand, first, days)
        self.controller = Controller(
            tolerance=options.tolerance,
            down_window_ticks=max(1, policy.down_window_seconds // TICK_SECONDS),
            period_ticks=max(1, policy.period_seconds // TICK_SECONDS),
            up_pods=policy.up_pods,
            up_share=policy.up_pct / 100,
            down_pods=policy.down_pods,
            down_share=policy.down_pct / 100,
            after_removal=policy.u_after_removal,
        )

    def run(self, chosen: Sequence[PolicyTrack], fault: Injection = "none") -> dict[str, scores.Minutes]:
        """The course of each policy over the scored days."""
        plans = [self._at_ticks(track.planned, 0.0) for track in chosen]
        gap = np.zeros(len(self.ticks.demand), dtype=bool)
        demand, plans, gap = inject(fault, self.ticks.demand, plans, gap, self.peaks)
        delays = self.delays * (2 if fault == "double_lead" else 1)
        lanes = self._lanes(chosen, plans, demand, gap, delays)
        course = simulate(lanes, self.controller)
        out = {}
        for position, track in enumerate(chosen):
            columns = slice(position * self.days, (position + 1) * self.days)
            out[track.name] = self._minutes(course, columns, track, demand)
        return out

    def _at_ticks(self, values: Floats | None, otherwise: float) -> Floats:
        """Values of phases at each tick: a phase's value is known when it begins."""
        if values is None:
            return np.full(len(self.ticks.demand), otherwise)
        return np.repeat(np.where(np.isfinite(values), values, otherwise), self.per_phase)

    def _lanes(
        self,
        chosen: Sequence[PolicyTrack],
        plans: Sequence[Floats],
        demand: Floats,
        gap: NDArray[np.bool_],
        delays: NDArray[np.int64],
    ) -> Lanes:
        spread = np.repeat(np.arange(len(chosen)), self.days)
        literal = [
            self._at_ticks(track.literal, 0.0) if track.literal is not None else np.full(len(demand), np.nan)
            for track in chosen
        ]
        follows = [track.planned is not None for track in chosen]
        shape = (self.index.shape[0], len(spread))
        fallback = max(
            1.0, float(np.ceil(np.quantile(self.ticks.demand[: max(1, self.first)], 0.95) / self.policy.u_mid))
        )
        return Lanes(
            demand=demand[self.index],
            column=np.tile(np.arange(self.days), len(chosen)),
            delay_ticks=delays[self.index],
            planned=np.stack([np.clip(plan, None, self.most)[self.index] for plan in plans], axis=1).reshape(shape),
            fallback=np.full(len(spread), fallback),
            unlikely=np.stack([self._at_ticks(track.unlikely, 0.0)[self.index] for track in chosen], axis=1).reshape(
                shape
            ),
            literal=np.stack([values[self.index] for values in literal], axis=1).reshape(shape),
            literal_target=75.0,
            literal_value=np.array([track.literal_value for track in chosen])[spread],
            follows_plan=np.array(follows)[spread],
            observed=np.array([track.observed for track in chosen])[spread],
            threshold=np.array([track.threshold for track in chosen])[spread],
            observed_gap=np.tile(gap[self.index], (1, len(chosen))),
            least=np.full(len(spread), float(self.least)),
            most=np.full(len(spread), float(self.most)),
        )

    def _minutes(self, course: Course, columns: slice, track: PolicyTrack, demand: Floats) -> scores.Minutes:
        begin = self.warm // TICKS_PER_MINUTE
        cut = slice(self.first, self.first + self.days * DAY_TICKS)
        true = demand[cut].reshape(-1, TICKS_PER_MINUTE).mean(axis=1)
        known = np.asarray(self.ticks.known[cut].reshape(-1, TICKS_PER_MINUTE).all(axis=1))
        if not track.closed_loop:
            whole = scores.fives(true)
            count = np.repeat(np.clip(np.ceil(whole / self.policy.u_mid - 1e-9), max(self.least, 1), self.most), 5)
            used = np.minimum(true / count, 1.0)
            return scores.Minutes(used, count, count, np.zeros_like(used), np.zeros_like(used), true, known)
        used, wanted, ready, wait, lost = (
            getattr(course, name)[begin:, columns].T.reshape(-1).astype(np.float64)
            for name in ("utilization", "wanted", "ready", "wait_seconds", "lost")
        )
        return scores.Minutes(used, wanted, ready, wait, lost, true, known)

    def score(self, minutes: scores.Minutes) -> scores.PolicyScore:
        """The acceptance rules' figures."""
        return scores.score(
            minutes,
            self.options.gpus_per_replica,
            self.options.usd_per_gpu_hour,
            self.least,
            self.most,
            self.policy.down_window_seconds,
        )


def _forecast_figures(forecast: PeakForecast) -> dict[str, float | None]:
    figures = {"coverage": forecast.coverage, "pinball_replicas": forecast.pinball, "mae_replicas": forecast.mae}
    return {name: value if np.isfinite(value) else None for name, value in figures.items()}


def _equal_hours(daily: Mapping[str, tuple[Floats, ...]], days: NDArray[np.int64]) -> tuple[float, float]:
    ours, reactive = _equal_hours_draws(daily, days)
    return float(ours[0]), float(reactive[0])


def _equal_hours_draws(daily: Mapping[str, tuple[Floats, ...]], days: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The forecast's minutes over 90 % and the reactive ones at its GPU-hours, for each draw of days (rows)."""
    names = [name for name in daily if name.startswith(FRONTIER)]
    hours = np.stack([daily[name][0][days].sum(axis=1) for name in names])
    over = np.stack([daily[name][1][days].sum(axis=1) for name in names])
    return scores.at_equal_hours(
        daily[FORECAST][0][days].sum(axis=1), daily[FORECAST][1][days].sum(axis=1), hours, over
    )


def _pooled(results: Sequence[SeriesReplay], options: ReplayOptions) -> dict[str, dict[str, float | None]]:
    """Sums over the series, with an interval from drawing days (the same days of every series in one draw)."""
    days = min(result.days for result in results)
    draws = np.vstack([np.arange(days)[None, :], bootstrap_days(days, options.draws, options.seed)])
    pairs = [_equal_hours_draws(result.daily, draws + result.days - days) for result in results]
    over, reactive = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    band = np.zeros(len(draws))
    possible = np.zeros(len(draws))
    for result in results:
        here = draws + result.days - days
        _, _, inside, known = result.daily[FORECAST]
        band += inside[here].sum(axis=1)
        possible += result.achievable * known[here].sum(axis=1)
    return {
        "minutes_over_90_at_equal_gpu_hours": ratio_interval(np.asarray(over), np.asarray(reactive)),
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
        "in_band_over_achievable": value.in_band / one.achievable if one.achievable else None,
        "gpu_hours_over_oracle": value.gpu_hours / oracle if oracle else None,
        "gpu_hours_over_static_peak": value.gpu_hours / peak if peak else None,
    }


__all__ = ["NONE", "ReplayOptions", "ReplayResult", "SeriesReplay", "replay", "replay_one", "to_json"]
