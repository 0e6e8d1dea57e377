"""What if demand just stays, or repeats itself? Last value, moving average, exponential smoothing, seasonal naive.

No fitting at all: these need one sample (the seasonal ones a day) and follow level shifts at once.
"""

from dataclasses import dataclass

import numpy as np

from piqc_pipeline.forecast.grid import Floats, Grid, Ints
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.model import SMA60

SMOOTHING = 0.3
"""Weight of the newest bucket in exponential smoothing (forecaster design, section 1)."""

SMOOTHING_TERMS = 40
"""0.7^40 is 6e-7: older buckets no longer matter."""

CARRY_DECAY_SECONDS = 12 * 3600.0
"""How fast the distance to yesterday's level is forgotten along the path."""

CARRY_WINDOW_SECONDS = 1800.0


@dataclass(frozen=True)
class LastValue:
    """The newest bucket, repeated."""

    name: str = "last_value"

    def fit(self, night: Night) -> "LastValuePredictor":
        """Nothing to fit."""
        return LastValuePredictor(night.grid)


@dataclass(frozen=True)
class LastValuePredictor:
    """See `LastValue`."""

    grid: Grid

    def predict(self, origins: Ints, horizon: int) -> Floats:
        """The bucket before each origin."""
        return np.repeat(self.grid.values[np.maximum(origins - 1, 0)][:, None], horizon, axis=1)


@dataclass(frozen=True)
class MovingAverage:
    """Mean of the last hour, repeated."""

    name: str = SMA60
    window_seconds: float = 3600.0

    def fit(self, night: Night) -> "MovingAveragePredictor":
        """Nothing to fit."""
        return MovingAveragePredictor(night.grid, night.grid.steps(self.window_seconds))


@dataclass(frozen=True)
class MovingAveragePredictor:
    """See `MovingAverage`."""

    grid: Grid
    width: int

    def predict(self, origins: Ints, horizon: int) -> Floats:
        """Mean of the buckets before each origin."""
        return np.repeat(self.grid.window_mean(origins, self.width)[:, None], horizon, axis=1)


@dataclass(frozen=True)
class ExponentialSmoothing:
    """Simple exponential smoothing with a fixed weight, repeated."""

    name: str = "exponential_smoothing"

    def fit(self, night: Night) -> "ExponentialSmoothingPredictor":
        """Nothing to fit."""
        return ExponentialSmoothingPredictor(night.grid)


@dataclass(frozen=True)
class ExponentialSmoothingPredictor:
    """See `ExponentialSmoothing`."""

    grid: Grid

    def predict(self, origins: Ints, horizon: int) -> Floats:
        """Smoothed level before each origin."""
        weights = SMOOTHING * (1 - SMOOTHING) ** np.arange(SMOOTHING_TERMS)
        index = np.maximum(origins[:, None] - 1 - np.arange(SMOOTHING_TERMS)[None, :], 0)
        level = self.grid.values[index] @ (weights / weights.sum())
        return np.repeat(level[:, None], horizon, axis=1)


@dataclass(frozen=True)
class SeasonalNaive:
    """The same local time some days ago, moved by the distance between then and now, which decays along the path."""

    name: str
    days: int
    carry: bool = True

    def fit(self, night: Night) -> "SeasonalNaivePredictor | None":
        """Needs one season of history; a week falls back to a day while there is less."""
        lag = self.days if night.cutoff >= self.days * night.grid.day + night.grid.steps(CARRY_WINDOW_SECONDS) else 1
        if night.cutoff < night.grid.day:
            return None
        return SeasonalNaivePredictor(night.grid, lag, self.carry)


@dataclass(frozen=True)
class SeasonalNaivePredictor:
    """See `SeasonalNaive`."""

    grid: Grid
    days: int
    carry: bool

    def predict(self, origins: Ints, horizon: int) -> Floats:
        """Yesterday's (last week's) path, repeated beyond one season, with the carried level."""
        grid = self.grid
        ahead = np.arange(horizon)
        seasons_back = self.days * (1 + ahead // (self.days * grid.day))
        index = origins[:, None] + ahead[None, :]
        lagged = np.empty_like(index)
        for back in range(int(seasons_back[0]), int(seasons_back[-1]) + 1, self.days):
            columns = seasons_back == back
            lagged[:, columns] = grid.same_time(index[:, columns], back)
        path: Floats = grid.values[np.minimum(np.maximum(lagged, 0), origins[:, None] - 1)]
        if self.carry:
            width = grid.steps(CARRY_WINDOW_SECONDS)
            then = grid.window_mean(np.maximum(grid.same_time(origins, self.days), 1), width)
            decay = np.exp(-(ahead + 1) * grid.step_seconds / CARRY_DECAY_SECONDS)
            path = path + (grid.window_mean(origins, width) - then)[:, None] * decay[None, :]
        return path
