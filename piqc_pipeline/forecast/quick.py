"""What does every member say from a few origins? The same paths as `members`, with as few array operations as possible.

The members' own `predict` serves thousands of origins at once; a refresh has the newest one, and at most six whose
paths have just ended. On arrays so small an operation costs what its call costs: all origins, both seasonal naives and
all seasons go through each one together. A test holds both to the same numbers.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from piqc_pipeline.forecast.calendar import Calendar
from piqc_pipeline.forecast.combine import Buckets
from piqc_pipeline.forecast.ensemble import HOUR
from piqc_pipeline.forecast.grid import Floats, Grid, Ints
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members import levels as L
from piqc_pipeline.forecast.members import residuals as R

RIDGE_DECAY_SECONDS = 6 * HOUR
SEASONS = ("ridge", "profile", "prophet")
AUTOREGRESSIVE = ("ridge_ar", "profile_ar")
LEVELS, NAIVES, CARRIED, CORRECTED = slice(0, 3), slice(3, 5), slice(5, 9, 3), slice(6, 8)
"""Rows of the paths, in the order of `ensemble.members_of`: levels, seasonal naives, the carried ridge and Prophet, and
between these two `AUTOREGRESSIVE`."""


@dataclass(frozen=True)
class Kernels:
    """Everything that depends only on the step and the horizon. Offsets are in buckets from an origin.

    Attributes:
        newest: Offsets of the newest buckets, oldest first.
        levels: Their weights in the three members that stay level and in the level that seasonal naives carry; shape
            (newest, 4).
        window: Width of the window behind that level.
        naive: Offsets that yesterday and last week are read at: their own window, then their path; shape (2, ...).
        carry: Decay of the carried level along the path.
        season: Offsets that a season is read at: the newest buckets for its residuals, then its path.
        features: Weights of the newest residuals in the seven AR features and in the carried residual; shape (..., 8).
        season_carry: Decay of the carried residual along the path, of the ridge and of Prophet; shape (2, 1, horizon).
        fade: Fade of the AR correction past the last bucket.
        bucket: Horizon bucket of each step.
    """

    newest: Ints
    levels: Floats
    window: int
    naive: Ints
    carry: Floats
    season: Ints
    features: Floats
    season_carry: Floats
    fade: Floats
    bucket: Ints


@lru_cache(maxsize=64)
def kernels(step: int, horizon: int) -> Kernels:
    """Kernels of a step and a horizon."""
    grid = Grid(np.zeros(1), np.ones(1, bool), np.ones(1, bool), 0.0, step, Calendar())
    ahead = np.arange(horizon)
    features = _feature_weights(grid)
    window = grid.steps(L.CARRY_WINDOW_SECONDS)
    newest = np.arange(-max(len(features), grid.steps(3600), window, L.SMOOTHING_TERMS), 0)
    naive = [np.concatenate([np.arange(-lag - window, -lag), ahead % lag - lag]) for lag in (grid.day, 7 * grid.day)]
    buckets = Buckets.of(step)
    beyond = np.maximum(0, ahead + 1 - buckets.horizon) * step
    decay = np.exp(-(ahead + 1) * step / RIDGE_DECAY_SECONDS)
    return Kernels(
        newest,
        _level_weights(grid, len(newest)),
        window,
        np.stack(naive),
        np.exp(-(ahead + 1) * step / L.CARRY_DECAY_SECONDS),
        np.arange(-len(features), horizon),
        features,
        np.stack([decay, np.ones(horizon)])[:, None],
        np.exp(-beyond / R.BEYOND_DECAY_SECONDS),
        buckets.index_of(horizon),
    )


def _level_weights(grid: Grid, width: int) -> Floats:
    smoothing = L.SMOOTHING * (1 - L.SMOOTHING) ** np.arange(L.SMOOTHING_TERMS)
    weights = np.zeros((width, 4))
    weights[-1, 0] = 1.0
    weights[-L.SMOOTHING_TERMS :, 2] = smoothing[::-1] / smoothing.sum()
    for column, seconds in ((1, 3600.0), (3, L.CARRY_WINDOW_SECONDS)):
        weights[-grid.steps(seconds) :, column] = 1.0 / grid.steps(seconds)
    return weights


def _feature_weights(grid: Grid) -> Floats:
    width = max(grid.steps(R.LOOK_BACK_SECONDS), grid.steps(3600) + 1, grid.steps(1200) + 1)
    weights = np.zeros((width, 8))
    # Features are linear in the residuals: those of unit residuals are their weights.
    weights[:, :7] = [R.features(grid, unit, np.array([width - 1]))[0] for unit in np.eye(width)]
    short = grid.steps(R.CARRY_WINDOW_SECONDS)
    weights[-short:, 7] = 1.0 / short
    return weights


@dataclass(frozen=True)
class QuickNight:
    """A night's fits, written out.

    Attributes:
        cutoff: Of the night.
        first: Index of the first element of the lines.
        lines: What each of `SEASONS` expects, shape (3, ...); NaN where one is absent.
        coefficients: Of each of `AUTOREGRESSIVE`, shape (2, 7, horizon buckets); NaN where one is absent.
    """

    cutoff: int
    first: int
    lines: Floats
    coefficients: Floats


def written_out(night: Night, ahead_seconds: float) -> QuickNight:
    """A night's seasons as lines from three hours and some before its cutoff to `ahead_seconds` after it."""
    grid = night.grid
    first = night.cutoff - len(kernels(grid.step_seconds, 1).features)
    index = np.arange(first, night.cutoff + grid.steps(ahead_seconds))
    lines = np.full((len(SEASONS), len(index)), np.nan)
    for row, name in enumerate(SEASONS):
        if name in night.seasons:
            lines[row] = night.seasons[name].values(index)
    coefficients = np.full((len(AUTOREGRESSIVE), 7, Buckets.of(grid.step_seconds).count), np.nan)
    for row, name in enumerate(AUTOREGRESSIVE):
        if name in night.coefficients:
            coefficients[row] = night.coefficients[name].T
    return QuickNight(night.cutoff, first, lines, coefficients)


def paths(grid: Grid, night: QuickNight, origins: Ints, horizon: int, members: int) -> Floats:
    """Every member's paths, shape (members, origins, horizon), in the order of `ensemble.members_of`.

    Needs at least a day and the look-back before each origin, and a clock that does not change; NaN where a member is
    absent.
    """
    kernel, at = kernels(grid.step_seconds, horizon), origins[:, None]
    back, window = len(kernel.features), kernel.window
    result = np.empty((9, len(origins), horizon))
    newest = grid.values.take(at + kernel.newest)
    levels = (newest @ kernel.levels).T[..., None]
    result[LEVELS] = levels[:3]
    # Without a week before the night, last week is yesterday too.
    offsets = kernel.naive if night.cutoff >= 7 * grid.day + window else kernel.naive[[0, 0]]
    before = grid.values.take(at + offsets[:, None])
    then = before[..., :window].sum(axis=2, keepdims=True) / window
    result[NAIVES] = before[..., window:] + (levels[3] - then) * kernel.carry
    lines = night.lines.take(at + (kernel.season - night.first), axis=1, mode="clip")  # a line's last value holds
    residuals = (newest[:, -back:] - lines[..., :back]) @ kernel.features
    correction = (residuals[:2, :, :7] @ night.coefficients).take(kernel.bucket, axis=2)
    lines = lines[..., back:]
    result[CARRIED] = lines[::2] + residuals[::2, :, 7:] * kernel.season_carry
    result[CORRECTED] = lines[:2] + correction * kernel.fade
    return result[:members]
