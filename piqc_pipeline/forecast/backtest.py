"""How good would the forecasts have been? Rolling origins over the last days of any trace, beside every reference.

Models are fitted each night on what came before; whole paths are scored from hourly origins, quantiles from every
bucket. Errors are in points of the series' maximum (percent series: percentage points), so that series can be pooled.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from piqc_pipeline.forecast.ensemble import PROPHET_MEMBERS, REFERENCES, SeasonFits, members_of, references_of
from piqc_pipeline.forecast.grid import Floats, Grid, Ints, prepare
from piqc_pipeline.forecast.intervals import HIGH, Calibration, coverage, pinball, window_maximum
from piqc_pipeline.forecast.members import Member, Night, Season
from piqc_pipeline.forecast.members.prophet import SPECIFICATION, ProphetSettings, fit_prophet
from piqc_pipeline.forecast.members.residuals import PlainSeason
from piqc_pipeline.forecast.model import LAST_VALUE, PROPHET, PROPHET_SPECIFICATION, SAME_TIME_YESTERDAY, SMA60
from piqc_pipeline.forecast.rolling import Replay, replay, targets
from piqc_pipeline.forecast.series import DemandSeries

LEAST_DAYS = 8
WARM_NIGHTS = 8
"""Nights replayed before the first scored day, so that losses and misses have a week behind them."""

PROPHET_WARM_NIGHTS = 4
WINDOWS_SECONDS = (600, 1800)
ADAPTING_DAYS = 1.0
"""The adaptive level starts this long before the first scored day."""


OURS, WITHOUT_PROPHET = "ours", "ours_without_prophet"
LAST, YESTERDAY = "last", "yesterday"
PROPHET_SPEC, PROPHET_FLAT = "prophet_spec", "prophet_flat"
PUBLISHED = {
    LAST_VALUE: LAST,
    SAME_TIME_YESTERDAY: YESTERDAY,
    SMA60: SMA60,
    PROPHET: PROPHET_FLAT,
    PROPHET_SPECIFICATION: PROPHET_SPEC,
}
"""Names of the replayed members → names in a backtest's answer."""


@dataclass(frozen=True)
class BacktestOptions:
    """What is scored.

    Attributes:
        days: Days scored, the last ones of the series.
        horizons_seconds: Lengths of the scored paths.
        with_prophet: Whether Prophet takes part (and is scored alone, with our settings and the specification's).
    """

    days: int = 4
    horizons_seconds: tuple[int, ...] = (1800, 18_000)
    with_prophet: bool = True


@dataclass(frozen=True)
class DailyErrors:
    """Errors of one model on one horizon, day by day, so that days can be resampled.

    Attributes:
        absolute: Sum of absolute errors of each scored day, points.
        squared: Sum of squared errors.
        count: Values compared.
    """

    absolute: tuple[float, ...]
    squared: tuple[float, ...]
    count: tuple[int, ...]

    @property
    def mae(self) -> float:
        """Mean absolute error, points; NaN where nothing was measured."""
        return sum(self.absolute) / sum(self.count) if sum(self.count) else float("nan")

    @property
    def rmse(self) -> float:
        """Root mean squared error, points."""
        return (sum(self.squared) / sum(self.count)) ** 0.5 if sum(self.count) else float("nan")


@dataclass(frozen=True)
class SeriesResult:
    """One series' scores.

    Attributes:
        series_id: Id.
        n: Measured buckets.
        step_minutes: Width of a bucket.
        skipped: Why it was not scored, or None.
        errors: model → horizon label → errors.
        coverage_q90: window label → share of maxima at or under our q90.
        pinball_q90: model (`ours`, `last`) → window label → mean pinball loss, points.
        seconds: Wall time.
        notes: Members that dropped out.
    """

    series_id: str
    n: int
    step_minutes: float
    skipped: str | None = None
    errors: Mapping[str, Mapping[str, DailyErrors]] = field(default_factory=dict)
    coverage_q90: Mapping[str, float] = field(default_factory=dict)
    pinball_q90: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def wire(self) -> dict[str, Any]:
        """The object printed for the series; unknown figures are null."""
        head = {"series_id": self.series_id, "n": self.n, "step_minutes": self.step_minutes}
        if self.skipped is not None:
            return {**head, "skipped": self.skipped}
        return {
            **head,
            "mae": _table(self.errors, "mae"),
            "rmse": _table(self.errors, "rmse"),
            "coverage_q90": {label: _figure(value) for label, value in self.coverage_q90.items()},
            "pinball_q90": {label: _figure(value) for label, value in self.pinball_q90[OURS].items()},
            "pinball_q90_last": {label: _figure(value) for label, value in self.pinball_q90[LAST].items()},
            "unit": "points of the series' maximum",
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
        }


def _table(errors: Mapping[str, Mapping[str, DailyErrors]], figure: str) -> dict[str, dict[str, float | None]]:
    return {
        model: {label: _figure(getattr(daily, figure)) for label, daily in by_horizon.items()}
        for model, by_horizon in errors.items()
    }


def _figure(value: float) -> float | None:
    return round(value, 5) if np.isfinite(value) else None


def label_of(seconds: int) -> str:
    """`30m`, `5h`: how a duration is named in the answer."""
    return f"{seconds // 3600}h" if seconds % 3600 == 0 else f"{seconds // 60}m"


def backtest(series: DemandSeries, options: BacktestOptions | None = None) -> SeriesResult:
    """One series' scores; skipped with a reason where the history is too short or nothing was measured."""
    options = options or BacktestOptions()
    began = time.monotonic()
    known = int(np.isfinite(series.demand).sum())
    head = (series.workload, known, series.step_seconds / 60)
    span_days = len(series.demand) / series.steps_per_day
    if span_days < max(LEAST_DAYS, options.days + 2):
        return SeriesResult(*head, skipped=f"{span_days:.1f} days are under {max(LEAST_DAYS, options.days + 2)}")
    if known == 0 or float(np.nanmax(series.demand)) <= 0:
        return SeriesResult(*head, skipped="; ".join(("no demand above zero was measured", *series.notes)))
    grid = prepare(series)
    end, first = len(grid.values), len(grid.values) - options.days * grid.day
    if first < 2 * grid.day:
        return SeriesResult(*head, skipped=f"under two days of demand before the {options.days} scored days")
    if not grid.known[first:].any():
        return SeriesResult(*head, skipped=f"no demand was measured in the last {options.days} days")
    played = replayed(grid, first, options)
    scale = 1.0 if series.unit == "percent" else 100.0 / float(np.nanmax(series.demand))
    errors = _errors(played, first, end, scale, options)
    covered, losses = _quantile_scores(played, first, scale)
    return SeriesResult(
        *head,
        errors=errors,
        coverage_q90=covered,
        pinball_q90=losses,
        seconds=time.monotonic() - began,
        notes=series.notes + played.notes,
    )


def replayed(grid: Grid, first: int, options: BacktestOptions) -> Replay:
    """Every member and reference, replayed over the scored days and the nights before them.

    Args:
        grid: The series.
        first: First scored origin.
        options: What is scored.
    """
    least = 2 * grid.day
    cutoffs = [first + grid.day * night for night in range(-WARM_NIGHTS, options.days)]
    cutoffs = [cutoff for cutoff in cutoffs if cutoff >= least] or [first]

    def flat(night: Night) -> Season | None:
        return fit_prophet(night) if night.cutoff >= first - PROPHET_WARM_NIGHTS * grid.day else None

    def specified(night: Night, settings: ProphetSettings = SPECIFICATION) -> Season | None:
        return fit_prophet(night, settings) if night.cutoff >= first else None

    fits = SeasonFits(prophet=flat if options.with_prophet else None)
    members: list[Member] = members_of(fits) + references_of(fits)
    if options.with_prophet:
        members.append(PlainSeason(PROPHET_SPECIFICATION, PROPHET_SPECIFICATION, specified))
    horizon = max(grid.steps(seconds) for seconds in (*options.horizons_seconds, 18_000))
    short = max(grid.steps(seconds) for seconds in WINDOWS_SECONDS)
    return replay(grid, members, cutoffs, len(grid.values) - 1, short, horizon)


def _errors(
    played: Replay, first: int, end: int, scale: float, options: BacktestOptions
) -> dict[str, dict[str, DailyErrors]]:
    grid = played.grid
    hour = grid.steps(3600)
    rows = np.flatnonzero((played.long_origins >= first) & ((played.long_origins - first) % hour == 0))
    origins, paths = played.long_origins[rows], played.long[rows]
    models = {OURS: played.combine(origins, paths, without=(*REFERENCES, PROPHET_SPECIFICATION))}
    if options.with_prophet:
        left_out = (*REFERENCES, PROPHET_SPECIFICATION, *PROPHET_MEMBERS)
        models[WITHOUT_PROPHET] = played.combine(origins, paths, without=left_out)
    for name, published in PUBLISHED.items():
        if name in played.names:
            models[published] = paths[:, :, played.names.index(name)]
    result: dict[str, dict[str, DailyErrors]] = {model: {} for model in models}
    for seconds in options.horizons_seconds:
        steps = grid.steps(seconds)
        whole = origins + steps <= end
        actual = targets(grid, origins[whole], steps)
        days = (origins[whole] - first) // grid.day
        for model, path in models.items():
            result[model][label_of(seconds)] = _daily(scale * (path[whole, :steps] - actual), days, options.days)
    return result


def _daily(error: Floats, days: Ints, count: int) -> DailyErrors:
    known = np.isfinite(error)
    clean = np.where(known, error, 0.0)

    def by_day(rows: Floats) -> list[float]:
        sums: list[float] = np.bincount(days, weights=rows, minlength=count).tolist()
        return sums

    counts = by_day(known.sum(axis=1).astype(np.float64))
    return DailyErrors(
        tuple(by_day(np.abs(clean).sum(axis=1))),
        tuple(by_day(np.square(clean).sum(axis=1))),
        tuple(int(number) for number in counts),
    )


def _quantile_scores(played: Replay, first: int, scale: float) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Coverage and pinball loss of the calibrated q90 of the window's maximum, from every bucket of the scored days."""
    grid, origins = played.grid, played.origins
    left_out = (*REFERENCES, PROPHET_SPECIFICATION)
    bases = {OURS: played.combine(origins, played.short, without=left_out)}
    bases[LAST] = played.short[:, :, played.names.index(LAST_VALUE)]
    largest = np.maximum.accumulate(grid.values)[np.maximum(origins - 1, 0)]
    begin = int(np.searchsorted(origins, first - round(ADAPTING_DAYS * grid.day)))
    scored = origins >= first
    covered: dict[str, float] = {}
    losses: dict[str, dict[str, float]] = {OURS: {}, LAST: {}}
    for seconds in WINDOWS_SECONDS:
        steps, label = grid.steps(seconds), label_of(seconds)
        actual = window_maximum(targets(grid, origins, steps), steps)
        for base, paths in bases.items():
            calibration = Calibration(steps, grid.day, origins, window_maximum(paths, steps), actual, largest)
            given = calibration.run(HIGH, begin).quantile
            losses[base][label] = scale * pinball(actual[scored], given[scored], HIGH)
            if base == OURS:
                covered[label] = coverage(actual[scored], given[scored])
    return covered, losses
