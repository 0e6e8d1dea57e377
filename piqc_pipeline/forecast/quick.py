"""What does every member say from one origin? The same paths as `members`, with as few array operations as possible.

The members' own `predict` serves thousands of origins at once; a refresh has one origin and under a millisecond. A test
holds both to the same numbers.
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


@dataclass(frozen=True)
class Kernels:
    """Everything that depends only on the step and the horizon.

    Attributes:
        smoothing: Weights of the newest buckets, oldest first, for exponential smoothing.
        features: Weights of the newest residuals, oldest first, for the seven AR features; shape (7, look-back).
        carry: Decay of a seasonal naive's carried level along the path.
        ridge_carry: Decay of the ridge's carried residual.
        fade: Fade of the AR correction past the last bucket.
        bucket: Horizon bucket of each step.
        day: Steps ahead modulo a day, and modulo a week: where the seasonal naive reads.
    """

    smoothing: Floats
    features: Floats
    carry: Floats
    ridge_carry: Floats
    fade: Floats
    bucket: Ints
    day: Ints
    week: Ints


@lru_cache(maxsize=64)
def kernels(step: int, horizon: int) -> Kernels:
    """Kernels of a step and a horizon."""
    grid = Grid(np.zeros(1), np.ones(1, bool), np.ones(1, bool), 0.0, step, Calendar())
    ahead = np.arange(horizon)
    weights = (L.SMOOTHING * (1 - L.SMOOTHING) ** np.arange(L.SMOOTHING_TERMS))[::-1]
    look_back = grid.steps(R.LOOK_BACK_SECONDS)
    width = max(look_back, grid.steps(3600) + 1, grid.steps(1200) + 1)
    # Features are linear in the residuals: those of unit residuals are their weights.
    units = np.eye(width)
    features = np.stack([R.features(grid, unit, np.array([width - 1]))[0] for unit in units], axis=1)
    buckets = Buckets.of(step)
    beyond = np.maximum(0, ahead + 1 - buckets.horizon) * step
    return Kernels(
        weights / weights.sum(),
        features,
        np.exp(-(ahead + 1) * step / L.CARRY_DECAY_SECONDS),
        np.exp(-(ahead + 1) * step / RIDGE_DECAY_SECONDS),
        np.exp(-beyond / R.BEYOND_DECAY_SECONDS),
        buckets.index_of(horizon),
        ahead % grid.day,
        ahead % (7 * grid.day),
    )


@dataclass(frozen=True)
class QuickNight:
    """A night's fits, written out.

    Attributes:
        cutoff: Of the night.
        first: Index of the first element of the lines.
        ridge, profile, prophet: Seasonal lines; None where a season is absent.
        ridge_ar, profile_ar: AR coefficients, shape (buckets, 7).
    """

    cutoff: int
    first: int
    ridge: Floats | None
    profile: Floats | None
    prophet: Floats | None
    ridge_ar: Floats | None
    profile_ar: Floats | None


def written_out(night: Night, ahead_seconds: float) -> QuickNight:
    """A night's seasons as lines from three hours and some before its cutoff to `ahead_seconds` after it."""
    grid = night.grid
    first = night.cutoff - kernels(grid.step_seconds, 1).features.shape[1]
    index = np.arange(first, night.cutoff + grid.steps(ahead_seconds))
    lines = {name: season.values(index) for name, season in night.seasons.items()}
    return QuickNight(
        night.cutoff,
        first,
        lines.get("ridge"),
        lines.get("profile"),
        lines.get("prophet"),
        night.coefficients.get("ridge_ar"),
        night.coefficients.get("profile_ar"),
    )


def paths(grid: Grid, night: QuickNight, origin: int, horizon: int, members: int) -> Floats:
    """Every member's path from one origin, shape (members, horizon), in the order of `ensemble.members_of`.

    Needs at least a day and the look-back before the origin, and a clock that does not change; NaN where a member is
    absent.
    """
    values, step, day = grid.values, grid.step_seconds, grid.day
    kernel = kernels(step, horizon)
    result = np.full((members, horizon), np.nan)
    result[0] = values[origin - 1]
    hour = grid.steps(3600)
    result[1] = values[origin - hour : origin].sum() / hour
    result[2] = values[origin - L.SMOOTHING_TERMS : origin] @ kernel.smoothing
    width = grid.steps(L.CARRY_WINDOW_SECONDS)
    level = values[origin - width : origin].sum() / width
    result[3] = _naive(values, origin, day, kernel.day, width, level, kernel.carry)
    if night.cutoff >= 7 * day + width:
        result[4] = _naive(values, origin, 7 * day, kernel.week, width, level, kernel.carry)
    else:
        result[4] = result[3]
    back = kernel.features.shape[1]
    at = origin - night.first
    newest = values[origin - back : origin]
    short = grid.steps(R.CARRY_WINDOW_SECONDS)
    if night.ridge is not None:
        residual = newest - night.ridge[at - back : at]
        line = _ahead(night.ridge, at, horizon)
        result[5] = line + (residual[-short:].sum() / short) * kernel.ridge_carry
        if night.ridge_ar is not None:
            result[6] = line + (night.ridge_ar @ (kernel.features @ residual))[kernel.bucket] * kernel.fade
    if night.profile is not None and night.profile_ar is not None:
        residual = newest - night.profile[at - back : at]
        correction = (night.profile_ar @ (kernel.features @ residual))[kernel.bucket]
        result[7] = _ahead(night.profile, at, horizon) + correction * kernel.fade
    if members > 8 and night.prophet is not None:
        residual = newest - night.prophet[at - back : at]
        result[8] = _ahead(night.prophet, at, horizon) + residual[-short:].sum() / short
    return result


def _naive(values: Floats, origin: int, lag: int, ahead: Ints, width: int, level: float, carry: Floats) -> Floats:
    then = values[origin - lag - width : origin - lag].sum() / width
    path: Floats = values[origin - lag + ahead] + (level - then) * carry
    return path


def _ahead(line: Floats, at: int, horizon: int) -> Floats:
    """The line from `at` on; past its end the last value holds."""
    part = line[at : at + horizon]
    if len(part) == horizon:
        return part
    missing = horizon - len(part)
    return np.concatenate([part, np.full(missing, line[-1])])
