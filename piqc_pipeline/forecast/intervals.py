"""How high may demand go within the lead time? Calibrated quantiles of the maximum over a window.

The quantile of a maximum is not the maximum of quantiles, so the maximum itself is calibrated on its own past misses,
and an adaptive level repairs what is left (adaptive conformal inference: Gibbs and Candes 2021).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RESIDUAL_DAYS = 7.0
AGE_HALF_LIFE_DAYS = 3.0
CLOCK_BASE = 0.3
CLOCK_WIDTH_HOURS = 2.0
"""A residual weighs 0.3 plus a Gaussian of its distance in the time of day, 2 h wide."""

LEVEL_RATE = 0.01
LEVEL_SPAN = 0.3
LEVEL_LIMITS = (0.02, 0.995)
SCALE_FLOOR_SHARE = 0.02
LEAST_RESIDUALS = 12


@dataclass(frozen=True)
class Window:
    """A quantile of the maximum over some steps.

    Attributes:
        steps: Width of the window.
        quantile: Between 0 and 1.
    """

    steps: int
    quantile: float


def window_maximum(paths: Floats, steps: int) -> Floats:
    """Maximum of the first `steps` steps along the last axis; NaN where one of them is."""
    maximum: Floats = np.max(paths[..., :steps], axis=-1)
    return maximum


def scale_of(peak: Floats, largest: Floats | float) -> Floats:
    """What a residual is divided by: the root of the forecast peak, at least that of 2 % of the largest so far."""
    return np.sqrt(np.maximum(np.maximum(np.abs(peak), SCALE_FLOOR_SHARE * np.asarray(largest)), 1e-12))


def clock_kernel(day: int) -> Floats:
    """Weight by distance in the time of day, in steps modulo a day."""
    distance = np.arange(day)
    hours = np.minimum(distance, day - distance) * 24.0 / day
    return CLOCK_BASE + np.exp(-0.5 * (hours / CLOCK_WIDTH_HOURS) ** 2)


@dataclass(frozen=True)
class Calibrated:
    """Quantiles at each origin and the levels that gave them.

    Attributes:
        quantile: Shape (origins,); NaN where there were too few finished residuals.
        level: Adaptive level used at each origin; the last entry holds for the next.
    """

    quantile: Floats
    level: Floats


@dataclass
class Calibration:
    """Residuals of the maximum over one window, in the order of their origins.

    Attributes:
        steps: Width of the window.
        day: Buckets of a day.
        origins: One origin after another, each one step after the last.
        peaks: Forecast maximum at each origin.
        actual: Maximum that came; NaN where not finished or not measured throughout.
        largest: Largest demand known at each origin.
    """

    steps: int
    day: int
    origins: Ints
    peaks: Floats
    actual: Floats
    largest: Floats
    residuals: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Normalizes the residuals."""
        self.residuals = (self.actual - self.peaks) / scale_of(self.peaks, self.largest)

    def run(self, quantile: float, first: int, start_level: float | None = None) -> Calibrated:
        """Quantile at every origin from position `first` on, with the level adapting as origins finish.

        Args:
            quantile: Target share of maxima at or under the result.
            first: Position of the first origin.
            start_level: Level to start with; the target itself if None.
        """
        count = len(self.origins)
        quantiles, levels = np.full(count, np.nan), np.full(count, np.nan)
        level = quantile if start_level is None else start_level
        for begin in range(first, count, self.day):
            block = range(begin, min(begin + self.day, count))
            ranked, cumulative = self._weights(block)
            for row, position in enumerate(block):
                done = position - self.steps
                if done >= first and np.isfinite(self.actual[done]) and np.isfinite(quantiles[done]):
                    level += LEVEL_RATE * (float(self.actual[done] > quantiles[done]) - (1 - quantile))
                    level = min(
                        max(level, quantile - LEVEL_SPAN, LEVEL_LIMITS[0]), quantile + LEVEL_SPAN, LEVEL_LIMITS[1]
                    )
                levels[position] = level
                total = cumulative[row, -1] if len(ranked) else 0.0
                if total <= 0:
                    continue
                chosen = min(int(np.searchsorted(cumulative[row], level * total)), len(ranked) - 1)
                peak, scale = self.peaks[position], scale_of(self.peaks[position], self.largest[position])
                quantiles[position] = max(0.0, float(peak + ranked[chosen] * scale))
        return Calibrated(quantiles, levels)

    def _weights(self, block: range) -> tuple[Floats, Floats]:
        """Residuals that any origin of the block may use, sorted, and their cumulative weights for each origin.

        An origin sees residuals whose window had ended by then and that are at most a week old.
        """
        week = round(RESIDUAL_DAYS * self.day)
        low, high = max(0, block.start - week), max(0, block.stop - self.steps)
        positions = np.arange(low, high)
        positions = positions[np.isfinite(self.residuals[positions])]
        if len(positions) < LEAST_RESIDUALS:
            return np.empty(0), np.empty((len(block), 0))
        positions = positions[np.argsort(self.residuals[positions], kind="stable")]
        here = np.array(block)[:, None]
        age = here - positions[None, :]
        seen = (age >= self.steps) & (age <= week)
        recency = 2.0 ** ((positions - positions.max()) / (AGE_HALF_LIFE_DAYS * self.day))
        weight = np.where(seen, clock_kernel(self.day)[age % self.day] * recency[None, :], 0.0)
        weight[seen.sum(axis=1) < LEAST_RESIDUALS] = 0.0
        return self.residuals[positions], np.cumsum(weight, axis=1)


def pinball(actual: Floats, forecast: Floats, quantile: float) -> float:
    """Mean pinball loss: what a quantile forecast is scored by (Koenker and Bassett 1978); NaN pairs are left out."""
    error = actual - forecast
    known = np.isfinite(error)
    if not known.any():
        return float("nan")
    return float(np.mean(np.where(error[known] >= 0, quantile, quantile - 1) * error[known]))


def coverage(actual: Floats, forecast: Floats) -> float:
    """Share of maxima at or under the forecast; NaN pairs are left out."""
    known = np.isfinite(actual) & np.isfinite(forecast)
    return float(np.mean(actual[known] <= forecast[known])) if known.any() else float("nan")
