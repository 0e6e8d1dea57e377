"""How did the forecasts of each past day do? Sums of errors, coverage and misses of one day after another.

A day is what lies between two nights. It is looked at once, when it is over; scores over several days are sums of days.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from piqc_pipeline.forecast.ensemble import PROPHET_MEMBERS, REFERENCES
from piqc_pipeline.forecast.grid import Floats, Ints
from piqc_pipeline.forecast.intervals import Calibrated, Calibration
from piqc_pipeline.forecast.model import (
    CONSTANT,
    DAYS_5H,
    DAYS_30M,
    ENSEMBLE,
    ENSEMBLE_WITHOUT_PROPHET,
    LAST_DAY_30M,
    LAST_VALUE,
    PROPHET,
    SAME_TIME_YESTERDAY,
    SMA60,
    Score,
)
from piqc_pipeline.forecast.rolling import Replay, targets
from piqc_pipeline.forecast.spread import Pending, day_spread

SHORT_SECONDS = 1800
CONSTANT_DAYS = 14
"""The constant that is shown for scale is the median of this many days before the scored one."""

SHORT, LONG = 0, 1
"""Rows of a day's sums: paths of 30 minutes from every bucket, of 5 hours from every hour."""

FIGURES = 6
"""Sums of a row: |error|, error², number; the same in points of utilization."""


@dataclass(frozen=True)
class Day:
    """One day's outcome.

    Attributes:
        sums: model → shape (2, `FIGURES`). Paths that reach past the day's end are left out.
        covered: Lead windows that ended in the day at or under their q90.
        windows: All that ended in the day and had one.
        spread: See `spread.day_spread`.
    """

    sums: Mapping[str, Floats]
    covered: int
    windows: int
    spread: Floats


def days_of(
    played: Replay,
    ensemble: Floats,
    windows: tuple[Calibration, Calibrated],
    ready_replicas: Floats | None,
    pending: Pending,
) -> tuple[list[Day], Pending]:
    """The days between the replay's nights, oldest first, and the long forecasts that are open after them.

    Args:
        played: The replay.
        ensemble: Combined short paths from every origin.
        windows: The lead window's misses and the quantiles that were given.
        ready_replicas: One a bucket of the replay's grid, or None.
        pending: Long forecasts from before the first of the days.
    """
    grid, end = played.grid, len(played.grid.values)
    lead = windows[0].steps
    far = played.combine(played.far_origins, played.far, REFERENCES, played.far_steps)
    pending = pending.and_then(Pending.of(played.far_origins, far, grid.step_seconds, lead))
    largest = np.maximum.accumulate(grid.values)
    cutoffs = [night.cutoff for night in played.nights if played.origins[0] <= night.cutoff < end]
    bounds = list(pairwise([*cutoffs, end]))
    hourly = [_hourly(played, begin, stop) for begin, stop in bounds]
    short = _models(played, played.origins, played.short, ensemble)
    rows = np.concatenate(hourly) if hourly else np.empty(0, dtype=np.int64)
    origins = played.long_origins[rows]
    long = _models(played, origins, played.long[rows])
    result, used = [], 0
    for (begin, stop), inside in zip(bounds, hourly, strict=True):
        bucket, hour = slice(begin - played.origins[0], stop - played.origins[0]), slice(used, used + len(inside))
        used = hour.stop
        constant = float(np.median(grid.values[max(0, begin - CONSTANT_DAYS * grid.day) : begin]))
        sums = {name: np.zeros((2, FIGURES)) for name in (*short, CONSTANT)}
        for row, models, starts, steps in (
            (SHORT, {name: paths[bucket] for name, paths in short.items()}, played.origins[bucket], SHORT_SECONDS),
            (LONG, {name: paths[hour] for name, paths in long.items()}, origins[hour], None),
        ):
            wide = played.buckets.horizon if steps is None else grid.steps(steps)
            whole = starts + wide <= stop
            actual = targets(grid, starts[whole], wide)
            replicas = _ready_at(ready_replicas, starts[whole], wide)
            for name, figures in sums.items():
                path = constant if name == CONSTANT else models[name][whole, :wide]
                figures[row] = error_sums(path - actual, replicas)
        covered, ended = _covered(*windows, begin, stop)
        near = origins[hour], long[ENSEMBLE][hour]
        spread = day_spread(grid, (begin, stop), near, pending, lead, float(largest[stop - 1]))
        result.append(Day(sums, covered, ended, spread))
        pending = pending.after(stop, grid.step_seconds, lead)
    return result, pending


def _hourly(played: Replay, begin: int, stop: int) -> Ints:
    """Positions of the long origins of each hour between two nights."""
    origins = played.long_origins
    inside = (origins >= begin) & (origins < stop) & ((origins - origins[0]) % played.grid.steps(3600) == 0)
    return np.flatnonzero(inside)


def _covered(calibration: Calibration, given: Calibrated, begin: int, stop: int) -> tuple[int, int]:
    """Lead windows that ended between two instants: at or under their q90, and all that had one."""
    ends = calibration.origins + calibration.steps
    known = np.isfinite(given.quantile) & np.isfinite(calibration.actual)
    scored = (ends > begin) & (ends <= stop) & known
    return int((calibration.actual[scored] <= given.quantile[scored]).sum()), int(scored.sum())


def _models(played: Replay, origins: Ints, paths: Floats, ensemble: Floats | None = None) -> dict[str, Floats]:
    """Paths of everything that is scored, by name."""
    models = {ENSEMBLE: played.combine(origins, paths, without=REFERENCES) if ensemble is None else ensemble}
    if any(name in played.names for name in PROPHET_MEMBERS):
        without = (*REFERENCES, *PROPHET_MEMBERS)
        models[ENSEMBLE_WITHOUT_PROPHET] = played.combine(origins, paths, without=without)
    for name in (LAST_VALUE, SMA60, SAME_TIME_YESTERDAY, PROPHET):
        if name in played.names:
            models[name] = paths[:, :, played.names.index(name)]
    return models


def _ready_at(ready: Floats | None, origins: Ints, steps: int) -> Floats | None:
    if ready is None:
        return None
    at: Floats = ready[np.minimum(origins[:, None] + np.arange(steps)[None, :], len(ready) - 1)]
    return at


def error_sums(error: Floats, ready: Floats | None) -> Floats:
    """Sums over every forecast value whose bucket was measured; see `FIGURES`."""
    known = np.isfinite(error)
    clean = np.where(known, error, 0.0)
    figures = np.zeros(FIGURES)
    figures[:3] = np.abs(clean).sum(), np.square(clean).sum(), known.sum()
    if ready is not None:
        measured = known & (ready > 0)
        points = 100.0 * clean / np.where(measured, ready, 1.0) * measured
        figures[3:] = np.abs(points).sum(), np.square(points).sum(), measured.sum()
    return figures


def scores_of(days: Sequence[Day], score_days: int) -> dict[str, dict[str, Score]]:
    """Scores of every model over the last day and over several.

    Args:
        days: Oldest first.
        score_days: How many count.
    """
    chosen = days[-score_days:]
    if not chosen:
        return {}
    result: dict[str, dict[str, Score]] = {}
    for name in chosen[-1].sums:
        last = chosen[-1].sums[name]
        total = np.sum([day.sums[name] for day in chosen if name in day.sums], axis=0)
        result[name] = {
            LAST_DAY_30M: score_of(last[SHORT]),
            DAYS_30M: score_of(total[SHORT]),
            DAYS_5H: score_of(total[LONG]),
        }
    return result


def score_of(figures: Floats) -> Score:
    """MAE and RMSE out of their sums; None where nothing was measured."""
    absolute, squared, count, absolute_pp, squared_pp, count_pp = figures.tolist()
    if not count:
        return Score(None, None, None, None, 0)
    mae_pp = rmse_pp = None
    if count_pp:
        mae_pp, rmse_pp = absolute_pp / count_pp, (squared_pp / count_pp) ** 0.5
    return Score(mae_pp, rmse_pp, absolute / count, (squared / count) ** 0.5, int(count))


def coverage_of(days: Sequence[Day], score_days: int) -> float | None:
    """Share of lead windows at or under their q90; None if none ended."""
    chosen = days[-score_days:]
    windows = sum(day.windows for day in chosen)
    return sum(day.covered for day in chosen) / windows if windows else None
