"""How far is today from its usual shape, and how long will that last? Carried level and AR on seasonal residuals.

A seasonal shape alone is a poor short-term forecast; these members add what the last minutes and hours say about today.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from piqc_pipeline.forecast.combine import Buckets
from piqc_pipeline.forecast.grid import Floats, Grid, Ints
from piqc_pipeline.forecast.members import Night, Predictor, Season

SeasonFit = Callable[[Night], Season | None]

LOOK_BACK_SECONDS = 3 * 3600.0
CARRY_WINDOW_SECONDS = 600.0
TRAINING_DAYS = 7
TRAINING_STRIDE_SECONDS = 1200.0
LAD_PASSES = 5
LAD_FLOOR = 0.05
SHRINKAGE = 20.0
PRIOR_LAST = 0.8
"""Coefficients are shrunk towards "0.8 of the last residual stays" (forecaster design, section 1)."""

BEYOND_DECAY_SECONDS = 6 * 3600.0
"""Past the last horizon bucket the AR correction fades with this time constant."""


def season_of(night: Night, name: str, fit: SeasonFit) -> Season | None:
    """The night's seasonal fit, made once however many members use it."""
    if name not in night.seasons:
        fitted = fit(night)
        if fitted is None:
            return None
        night.seasons[name] = fitted
    return night.seasons[name]


def _track(season: Season, grid: Grid, origins: Ints, horizon: int) -> tuple[Floats, int]:
    """Season over every bucket that the origins look at, and the index of its first element."""
    first = int(origins.min()) - grid.steps(LOOK_BACK_SECONDS)
    return season.values(np.arange(first, int(origins.max()) + horizon)), first


@dataclass(frozen=True)
class CarriedSeason:
    """A seasonal shape moved by the mean residual of the last ten minutes, which decays along the path.

    Attributes:
        name: Member's name.
        season: Key under which the night keeps the fit.
        fit_season: Makes it.
        decay_seconds: Time constant of the decay; None for none.
    """

    name: str
    season: str
    fit_season: SeasonFit
    decay_seconds: float | None

    def fit(self, night: Night) -> Predictor | None:
        """Fits (or shares) the season."""
        season = season_of(night, self.season, self.fit_season)
        return None if season is None else CarriedSeasonPredictor(night.grid, season, self.decay_seconds)


@dataclass(frozen=True)
class CarriedSeasonPredictor:
    """See `CarriedSeason`."""

    grid: Grid
    season: Season
    decay_seconds: float | None

    def predict(self, origins: Ints, horizon: int) -> Floats:
        """Season plus carried residual."""
        grid = self.grid
        track, first = _track(self.season, grid, origins, horizon)
        ahead = np.arange(horizon)
        width = grid.steps(CARRY_WINDOW_SECONDS)
        back = origins[:, None] - np.arange(width, 0, -1)[None, :]
        residual: Floats = (grid.values[np.maximum(back, 0)] - track[back - first]).mean(axis=1)
        decay: Floats = np.ones(horizon)
        if self.decay_seconds is not None:
            decay = np.exp(-(ahead + 1) * grid.step_seconds / self.decay_seconds)
        path: Floats = track[origins[:, None] + ahead[None, :] - first]
        return path + residual[:, None] * decay[None, :]


@dataclass(frozen=True)
class PlainSeason:
    """A seasonal shape as it is, with nothing carried: a reference."""

    name: str
    season: str
    fit_season: SeasonFit

    def fit(self, night: Night) -> Predictor | None:
        """Fits (or shares) the season."""
        season = season_of(night, self.season, self.fit_season)
        return None if season is None else PlainSeasonPredictor(night.grid, season)


@dataclass(frozen=True)
class PlainSeasonPredictor:
    """See `PlainSeason`."""

    grid: Grid
    season: Season

    def predict(self, origins: Ints, horizon: int) -> Floats:
        """The season."""
        track, first = _track(self.season, self.grid, origins, horizon)
        path: Floats = track[origins[:, None] + np.arange(horizon)[None, :] - first]
        return path


@dataclass(frozen=True)
class AutoregressiveSeason:
    """A seasonal shape plus a forecast of its residual, one robust regression per horizon bucket.

    Trained on out-of-sample residuals only (each day with the season fitted the night before): in-sample residuals
    look smaller and shorter-lived than they are.
    """

    name: str
    season: str
    fit_season: SeasonFit

    def fit(self, night: Night) -> Predictor | None:
        """Least absolute deviations by reweighting, shrunk towards the prior."""
        season = season_of(night, self.season, self.fit_season)
        if season is None:
            return None
        buckets = Buckets.of(night.grid.step_seconds)
        if self.name not in night.coefficients:
            night.coefficients[self.name] = fit_coefficients(night, self.season, buckets)
        return AutoregressivePredictor(night.grid, season, buckets, night.coefficients[self.name])


def features(grid: Grid, residual: Floats, last: Ints) -> Floats:
    """Seven features a row: last residual, that of 20 minutes ago, means of 30 min, 1 h, 3 h, changes over 10 min, 1 h.

    Args:
        grid: For the step.
        residual: A contiguous stretch of residuals.
        last: Position in it of the last known bucket of each row.
    """
    sums = prefix_sums(residual)

    def mean(seconds: float) -> Floats:
        width = grid.steps(seconds)
        means: Floats = (sums[last + 1] - sums[last + 1 - width]) / width
        return means

    newest = residual[last]
    return np.stack(
        [
            newest,
            residual[last - grid.steps(1200)],
            mean(1800),
            mean(3600),
            mean(LOOK_BACK_SECONDS),
            newest - residual[last - grid.steps(600)],
            newest - residual[last - grid.steps(3600)],
        ],
        axis=1,
    )


def prefix_sums(values: Floats) -> Floats:
    """Sums of the first 0, 1, 2, ... values: the mean of any stretch is one difference."""
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    return sums


def fit_coefficients(night: Night, name: str, buckets: Buckets) -> Floats:
    """AR coefficients, shape (buckets, 7), from the days before the cutoff."""
    grid, cutoff = night.grid, night.cutoff
    prior = np.zeros((buckets.count, 7))
    prior[:, 0] = PRIOR_LAST
    stride = grid.steps(TRAINING_STRIDE_SECONDS)
    rows, targets = [], []
    for index, past in enumerate(night.earlier):
        if name not in past.seasons or past.cutoff < cutoff - TRAINING_DAYS * grid.day:
            continue
        if index + 1 < len(night.earlier):
            # The day after that night is over, and all its paths are finished: its rows never change again.
            if name not in past.rows:
                past.rows[name] = _training_rows(past, name, night.earlier[index + 1].cutoff, cutoff, stride, buckets)
            matrix, target = past.rows[name]
        else:
            matrix, target = _training_rows(past, name, cutoff, cutoff, stride, buckets)
        rows.append(matrix)
        targets.append(target)
    if not rows:
        return prior
    return lad(np.concatenate(rows), np.concatenate(targets).T, prior, enough=grid.day // stride // 2)


def _training_rows(
    past: Night, name: str, until: int, cutoff: int, stride: int, buckets: Buckets
) -> tuple[Floats, Floats]:
    """Features and mean residuals ahead, by bucket, of the origins between a night and the next.

    Residuals are those of the season fitted that night. NaN where a bucket has not ended by the cutoff, or was not
    measured throughout.
    """
    grid = past.grid
    origins = np.arange(past.cutoff, until, stride)
    track, first = _track(past.seasons[name], grid, origins, buckets.horizon)
    upto, begin = min(first + len(track), cutoff), max(0, -first)
    residual = np.zeros(len(track))
    residual[begin : upto - first] = grid.values[first + begin : upto] - track[begin : upto - first]
    residual[:begin] = residual[begin]
    usable = np.zeros(len(track))
    usable[begin : upto - first] = grid.usable[first + begin : upto]
    sums, counts = prefix_sums(residual), prefix_sums(usable)
    low = origins[:, None] - first + np.array(buckets.starts)[None, :]
    high = origins[:, None] - first + np.array(buckets.ends)[None, :]
    width = high - low
    finished = counts[high] - counts[low] > width - 0.5
    return features(grid, residual, origins - 1 - first), np.where(finished, (sums[high] - sums[low]) / width, np.nan)


def lad(matrix: Floats, target: Floats, prior: Floats, enough: int) -> Floats:
    """Least absolute deviations by iteratively reweighted ridge, all buckets at once.

    Args:
        matrix: Features, shape (rows, features).
        target: Shape (buckets, rows), NaN where a path is not finished.
        prior: Shape (buckets, features): what coefficients are shrunk towards.
        enough: Fewer finished rows than this leave the prior as it is.
    """
    finished = np.isfinite(target)
    scale = float(np.mean(np.abs(matrix[:, 0])))
    if not np.isfinite(scale) or scale <= 0:
        return prior
    scaled = matrix / scale
    goal = np.where(finished, target, 0.0) / scale
    coefficients = prior.copy()
    ridge = SHRINKAGE * np.eye(matrix.shape[1])
    for _ in range(LAD_PASSES):
        error = np.abs(goal - coefficients @ scaled.T)
        weight = finished / np.maximum(error, LAD_FLOOR)
        weighted = scaled.T[None, :, :] * weight[:, None, :]
        gram = weighted @ scaled + ridge
        moment = np.einsum("bfr,br->bf", weighted, goal) + SHRINKAGE * prior
        coefficients = np.linalg.solve(gram, moment[..., None])[..., 0]
    return np.where((finished.sum(axis=1) >= enough)[:, None], coefficients, prior)


@dataclass(frozen=True)
class AutoregressivePredictor:
    """See `AutoregressiveSeason`."""

    grid: Grid
    season: Season
    buckets: Buckets
    coefficients: Floats

    def predict(self, origins: Ints, horizon: int) -> Floats:
        """Season plus forecast residual."""
        grid = self.grid
        track, first = _track(self.season, grid, origins, horizon)
        newest = int(origins.max())
        residual = grid.values[np.maximum(np.arange(first, newest), 0)] - track[: newest - first]
        correction = features(grid, residual, origins - 1 - first) @ self.coefficients.T
        ahead = np.arange(horizon)
        spread = correction[:, self.buckets.index_of(horizon)]
        beyond = np.maximum(0, ahead + 1 - self.buckets.horizon) * grid.step_seconds
        fade = np.exp(-beyond / BEYOND_DECAY_SECONDS)
        path: Floats = track[origins[:, None] + ahead[None, :] - first]
        return path + spread * fade[None, :]
