"""What does a usual day look like? Ridge on Fourier terms with a piecewise trend, and a robust daily profile.

Both are fitted in milliseconds; both are shapes only: the distance to today's level is carried in `residuals`.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from piqc_pipeline.forecast.grid import DAY, Floats, Grid, Ints
from piqc_pipeline.forecast.members import Night

BLOCK_SECONDS = 1800.0
"""Regressions are fitted on half-hour means: finer detail is noise to a season."""

HISTORY_DAYS = 28
WEEKLY_FROM_DAYS = 13
DAY_ORDER, WEEK_ORDER, KNOTS = 8, 3, 8
HALF_LIFE_DAYS = 7.0
HUBER_PASSES = 3
HUBER_LIMIT = 1.5 * 1.48
"""1.5 robust standard deviations; 1.48 turns a median absolute residual into one (Huber, Robust Statistics)."""

PROFILE_DAYS = 14


@dataclass(frozen=True)
class Design:
    """Regressors of a cutoff: everything that does not depend on demand, shared by all workloads of one clock."""

    matrix: Floats
    penalty: Floats
    age_weight: Floats


@lru_cache(maxsize=256)
def _design(rows: int, block: float, phase: float, weekly: bool) -> Design:
    """Design for `rows` blocks that end at a cutoff whose local week clock shows `phase` seconds."""
    until = (np.arange(rows) - rows + 0.5) * block
    matrix = _features(until / DAY, phase + until, rows * block / DAY, weekly)
    penalty = np.concatenate(
        [
            [0.0, 10.0],
            np.full(KNOTS, 30.0),
            np.repeat(10.0 * (1 + (np.arange(1, DAY_ORDER + 1) / 4.0) ** 2), 2),
            np.full(2 * WEEK_ORDER if weekly else 0, 10.0),
        ]
    )
    return Design(matrix, penalty, 0.5 ** (-until / DAY / HALF_LIFE_DAYS))


def _features(days: Floats, clock: Floats, span_days: float, weekly: bool) -> Floats:
    """Columns: constant, linear, hinges, day harmonics, week harmonics. `days` is 0 at the cutoff, negative before."""
    held = np.minimum(days, 0.0)
    knots = np.linspace(-span_days, -0.5, KNOTS + 2)[1:-1]
    columns = [np.ones_like(days), held, *(np.maximum(0.0, held - knot) for knot in knots)]
    columns += _harmonics(clock, DAY, DAY_ORDER)
    if weekly:
        columns += _harmonics(clock, 7 * DAY, WEEK_ORDER)
    return np.stack(columns, axis=1)


def _harmonics(clock: Floats, period: float, order: int) -> list[Floats]:
    angle = 2 * np.pi * clock / period
    return [wave(k * angle) for k in range(1, order + 1) for wave in (np.sin, np.cos)]


@lru_cache(maxsize=64)
def _track_features(first: int, size: int, step: int, phase: float, span_days: float, weekly: bool) -> Floats:
    ahead = (first + np.arange(size) + 0.5) * step
    return _features(ahead / DAY, phase + ahead, span_days, weekly)


@dataclass(frozen=True)
class RidgeSeason:
    """A fitted ridge; `values` holds the trend constant after the cutoff."""

    grid: Grid
    cutoff: int
    coefficients: Floats
    span_days: float
    weekly: bool
    phase: float | None

    def values(self, index: Ints) -> Floats:
        """Expected demand in the buckets."""
        grid = self.grid
        if self.phase is not None and len(index):
            first = int(index[0]) - self.cutoff
            key = (first, len(index), grid.step_seconds, self.phase, self.span_days, self.weekly)
            return _track_features(*key) @ self.coefficients
        days = (index - self.cutoff + 0.5) * grid.step_seconds / DAY
        return _features(days, grid.calendar.week_clock(grid.seconds(index)), self.span_days, self.weekly) @ (
            self.coefficients
        )


def fit_ridge(night: Night) -> RidgeSeason | None:
    """Ridge on half-hour means, newer days weighing more, outliers less; None under a day of history."""
    grid, cutoff = night.grid, night.cutoff
    width = grid.steps(BLOCK_SECONDS)
    rows = min(cutoff, HISTORY_DAYS * grid.day) // width
    block = width * grid.step_seconds
    span_days = rows * block / DAY
    if span_days < 1:
        return None
    weekly = span_days >= WEEKLY_FROM_DAYS
    means, weight = block_means(grid, cutoff, rows, width)
    if not weight.any():
        return None
    simple = grid.calendar.zone == "UTC" and grid.calendar.country is None
    edge = grid.start_seconds + cutoff * grid.step_seconds
    if simple:
        phase: float | None = edge % (7 * DAY)
        design = _design(rows, block, edge % (7 * DAY), weekly)
    else:
        phase = None
        until = (np.arange(rows) - rows + 0.5) * block
        clock = grid.calendar.week_clock(edge + until)
        plain = _design(rows, block, 0.0, weekly)
        design = Design(_features(until / DAY, clock, span_days, weekly), plain.penalty, plain.age_weight)
    center = float(np.average(means, weights=weight))
    scale = float(np.sqrt(np.average((means - center) ** 2, weights=weight))) or 1.0
    coefficients = _huber_ridge(design, (means - center) / scale, design.age_weight * weight)
    coefficients = coefficients * scale
    coefficients[0] += center
    return RidgeSeason(grid, cutoff, coefficients, span_days, weekly, phase)


def _huber_ridge(design: Design, target: Floats, weight: Floats) -> Floats:
    matrix, penalty = design.matrix, np.diag(design.penalty)
    robust = weight
    coefficients: Floats = np.zeros(matrix.shape[1])
    for _ in range(HUBER_PASSES):
        weighted = matrix.T * robust
        coefficients = np.linalg.solve(weighted @ matrix + penalty, weighted @ target)
        error = np.abs(target - matrix @ coefficients)
        limit = HUBER_LIMIT * float(np.median(error)) + 1e-9
        robust = weight * np.minimum(1.0, limit / np.maximum(error, 1e-12))
    return coefficients


def block_means(grid: Grid, cutoff: int, rows: int, width: int) -> tuple[Floats, Floats]:
    """Means of the last `rows` blocks of `width` buckets before the cutoff, and the share of each that was usable.

    Blocks without a usable bucket weigh nothing; their mean is that of the filled values.
    """
    cut = slice(cutoff - rows * width, cutoff)
    usable = grid.usable[cut].reshape(rows, width)
    values = grid.values[cut].reshape(rows, width)
    if usable.all():
        return values.mean(axis=1), np.ones(rows)
    count = usable.sum(axis=1)
    sums = np.where(usable, values, 0.0).sum(axis=1)
    return np.where(count > 0, sums / np.maximum(count, 1), values.mean(axis=1)), count / width


@dataclass(frozen=True)
class ProfileSeason:
    """Median day; `values` repeats it on the local clock."""

    grid: Grid
    cutoff: int
    profile: Floats

    def values(self, index: Ints) -> Floats:
        """Expected demand in the buckets."""
        grid = self.grid
        days_back = 1 + np.maximum(0, index - self.cutoff) // grid.day
        if not grid.clock_changes:
            return self.profile[(index - self.cutoff) % grid.day]
        lagged = index.copy()
        for back in np.unique(days_back):
            chosen = days_back == back
            lagged[chosen] = grid.same_time(index[chosen], int(back))
        return self.profile[(lagged - self.cutoff) % grid.day]


def fit_profile(night: Night) -> ProfileSeason | None:
    """Median over the last two weeks at the same local time, smoothed over half an hour; None under a day."""
    grid, cutoff = night.grid, night.cutoff
    days = min(PROFILE_DAYS, cutoff // grid.day)
    if days < 1:
        return None
    if not grid.clock_changes:
        table = grid.values[cutoff - days * grid.day : cutoff].reshape(days, grid.day)
    else:
        newest = np.arange(cutoff - grid.day, cutoff)
        rows = [np.clip(grid.same_time(newest, back) if back else newest, 0, cutoff - 1) for back in range(days)]
        table = grid.values[np.stack(rows)]
    ranked = np.sort(table, axis=0)  # several times as fast as np.median on so few rows
    median: Floats = (ranked[(days - 1) // 2] + ranked[days // 2]) / 2
    width = grid.steps(BLOCK_SECONDS)
    if width > 1:
        half = width // 2
        around = np.concatenate([median[-half:], median, median[:half]])
        kernel = np.ones(2 * half + 1)
        median = np.convolve(around, kernel / kernel.sum(), mode="valid")
    return ProfileSeason(grid, cutoff, median)
