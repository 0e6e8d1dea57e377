"""How high may demand go within the lead time? Calibrated quantiles of the maximum over a window.

The quantile of a maximum is not the maximum of quantiles, so the maximum itself is calibrated on its own past misses,
and an adaptive level repairs what is left (adaptive conformal inference: Gibbs and Candes 2021).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
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

LEVEL_RATE = 0.015
"""Measured on LLM traffic: 0.01 leaves series of 92 % and more, 0.03 costs pinball loss."""

LEVEL_SPAN = 0.3
LEVEL_LIMITS = (0.02, 0.995)
SCALE_FLOOR_SHARE = 0.02
LEAST_RESIDUALS = 12
HIGH = 0.9
UPPER_PART = 1.6
"""Residuals weighed beforehand, over those that the target quantile needs where all weigh the same."""


def window_maximum(paths: Floats, steps: int) -> Floats:
    """Maximum of the first `steps` steps along the last axis; NaN where one of them is."""
    maximum: Floats = np.max(paths[..., :steps], axis=-1)
    return maximum


def scale_of(peak: Floats, largest: Floats | float) -> Floats:
    """What a residual is divided by: the root of the forecast peak, at least that of 2 % of the largest so far."""
    return np.sqrt(np.maximum(np.maximum(np.abs(peak), SCALE_FLOOR_SHARE * np.asarray(largest)), 1e-12))


@lru_cache(maxsize=16)
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
    _scale: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Normalizes the residuals."""
        self._scale = scale_of(self.peaks, self.largest)
        self.residuals = (self.actual - self.peaks) / self._scale

    def run(
        self, quantile: float, first: int, start_level: float | None = None, given: Sequence[float] = ()
    ) -> Calibrated:
        """Quantile at every origin from position `first` on, with the level adapting as origins finish.

        Args:
            quantile: Target share of maxima at or under the result.
            first: Position of the first origin.
            start_level: Level to start with; the target itself if None.
            given: Quantiles that were given at the origins right before `first`, oldest first.
        """
        count = len(self.origins)
        quantiles, levels = np.full(count, np.nan), np.full(count, np.nan)
        quantiles[first - len(given) : first] = given
        level = quantile if start_level is None else start_level
        actual, peaks, scale = self.actual.tolist(), self.peaks.tolist(), self._scale.tolist()
        done_quantiles = quantiles.tolist()
        for begin in range(first, count, self.day):
            block = range(begin, min(begin + self.day, count))
            ranked = self._ranked(block, 1 - quantile)
            for row, position in enumerate(block):
                done = position - self.steps
                if done >= 0:
                    # NaN where the window or its quantile is unknown: neither above nor at or under.
                    if actual[done] > done_quantiles[done]:
                        level = adapted(level, True, quantile)
                    elif actual[done] <= done_quantiles[done]:
                        level = adapted(level, False, quantile)
                levels[position] = level
                residual = ranked.quantile(row, level) if ranked else None
                if residual is not None:
                    done_quantiles[position] = max(0.0, peaks[position] + residual * scale[position])
        return Calibrated(np.array(done_quantiles), levels)

    def _ranked(self, block: range, share: float) -> "Ranked | None":
        """Residuals that any origin of the block may use; those of the upper `share` sorted and weighed beforehand.

        An origin sees residuals whose window had ended by then and that are at most a week old.
        """
        week = round(RESIDUAL_DAYS * self.day)
        low, high = max(0, block.start - week), max(0, block.stop - self.steps)
        known = np.isfinite(self.residuals[low:high])
        if known.sum() < LEAST_RESIDUALS:
            return None
        offsets = np.flatnonzero(known)
        recency = np.where(known, 2.0 ** ((np.arange(high - low) - offsets[-1]) / (AGE_HALF_LIFE_DAYS * self.day)), 0.0)
        # Weight by age, nothing for windows that have not ended or are too old: one look-up an element.
        kernel = np.zeros(week + 1)
        kernel[self.steps :] = clock_kernel(self.day)[np.arange(self.steps, week + 1) % self.day]
        reach = block.start - low  # age of the oldest residual at the first origin
        padded = np.concatenate([np.zeros(week - reach), recency, np.zeros(block.stop - high)])
        totals = np.correlate(padded, kernel[::-1], "valid")
        counts = prefix_counts(padded > 0)
        seen = counts[week + 1 - self.steps : week + 1 - self.steps + len(block)] - counts[: len(block)]
        order = np.argsort(-self.residuals[low:high][offsets], kind="stable")
        return Ranked(
            self.residuals[low:high][offsets[order]],
            offsets[order],
            recency,
            np.concatenate([np.zeros(len(block)), kernel, np.zeros(len(block))]),
            reach + len(block),
            np.where(seen < LEAST_RESIDUALS, 0.0, totals[: len(block)]),
            share,
        )


class Ranked:
    """Residuals from the largest down and what each weighs at each origin of a block.

    A high quantile needs the upper part only, so that the weights of the others are not worked out.
    """

    def __init__(
        self, values: Floats, offsets: Ints, recency: Floats, kernel: Floats, origin: int, totals: Floats, share: float
    ) -> None:
        """Weighs the upper part for all origins.

        Args:
            values: Residuals, largest first.
            offsets: Where each lies in `recency`.
            recency: Weight by how old a residual is.
            kernel: Weight by age in steps; index 0 is `origin` minus the block's first age.
            origin: Index in `kernel` of the age of offset 0 at the first origin.
            totals: Sum of all weights at each origin; 0 where there are too few.
            share: Share of the weight that is looked up, at most.
        """
        self._values, self._offsets, self._recency = values, offsets, recency
        self._kernel, self._origin = kernel, origin
        self._totals = totals.tolist()
        top = min(len(values), math.ceil(UPPER_PART * share * len(values)) + LEAST_RESIDUALS)
        # A residual's age grows by one from origin to origin: its weights are a stretch of the kernel.
        stretches = np.lib.stride_tricks.sliding_window_view(kernel, len(totals))[origin - offsets[:top]]
        weights = stretches * recency[offsets[:top], None]
        for row in range(1, top):  # sums over whole rows: several times as fast as np.cumsum down the columns
            weights[row] += weights[row - 1]
        self._upper = weights.T.copy()

    def quantile(self, row: int, level: float) -> float | None:
        """The smallest residual with at least `level` of the weight at or under it; None with too few residuals."""
        total = self._totals[row]
        if total <= 0:
            return None
        above = (1 - level) * total
        cumulative = self._upper[row]
        if above >= cumulative[-1]:  # seldom: the weights lie on the smaller residuals
            weight = self._kernel[self._origin + row - self._offsets] * self._recency[self._offsets]
            cumulative = np.cumsum(weight)
        return float(self._values[min(int(cumulative.searchsorted(above, side="right")), len(self._values) - 1)])


def prefix_counts(marks: Bools) -> Ints:
    """How many of the first 0, 1, 2, ... are marked."""
    counts = np.zeros(len(marks) + 1, dtype=np.int64)
    np.cumsum(marks, out=counts[1:])
    return counts


def adapted(level: float, was_above: bool, quantile: float) -> float:
    """The adaptive level after one more finished window (Gibbs and Candes 2021, eq. 2), kept near the quantile."""
    level += LEVEL_RATE * (float(was_above) - (1 - quantile))
    return min(max(level, quantile - LEVEL_SPAN, LEVEL_LIMITS[0]), quantile + LEVEL_SPAN, LEVEL_LIMITS[1])


def scale_at(peak: float, largest: float) -> float:
    """`scale_of` for one number."""
    return math.sqrt(max(abs(peak), SCALE_FLOOR_SHARE * largest, 1e-12))


@lru_cache(maxsize=64)
def _age_weights(day: int, steps: int) -> Floats:
    """Weight of a miss by how many origins lie between it and the newest finished one."""
    age = steps + np.arange(round(RESIDUAL_DAYS * day))
    return clock_kernel(day)[age % day] * 2.0 ** (-age / (AGE_HALF_LIFE_DAYS * day))


@dataclass(frozen=True)
class PastMisses:
    """Normalized misses of a week, kept in order of size so that a new one costs microseconds.

    Attributes:
        day: Buckets of a day.
        steps: Width of the window.
        count: Origins so far, the newest finished one is `count - 1`; those without a miss count too.
        ranked: Misses, smallest first.
        origins: Origin of each of them.
    """

    day: int
    steps: int
    count: int
    ranked: Floats
    origins: Ints

    @staticmethod
    def of(residuals: Floats, steps: int, day: int) -> "PastMisses":
        """From misses one an origin, oldest first, NaN where not measured; the newest week is kept."""
        kept = residuals[-round(RESIDUAL_DAYS * day) :]
        known = np.flatnonzero(np.isfinite(kept))
        order = known[np.argsort(kept[known], kind="stable")]
        return PastMisses(day, steps, len(kept), kept[order], order)

    def in_order(self) -> Floats:
        """The misses one an origin, oldest first, NaN where not measured."""
        first = max(0, self.count - round(RESIDUAL_DAYS * self.day))
        result = np.full(self.count - first, np.nan)
        result[self.origins - first] = self.ranked
        return result

    def after(self, residual: float) -> "PastMisses":
        """With one more finished origin; NaN where not measured. The origin of a week ago leaves."""
        ranked, origins, count = self.ranked, self.origins, self.count + 1
        oldest = int(origins.argmin()) if len(origins) else 0
        if len(origins) and origins[oldest] < count - round(RESIDUAL_DAYS * self.day):
            ranked = np.concatenate((ranked[:oldest], ranked[oldest + 1 :]))
            origins = np.concatenate((origins[:oldest], origins[oldest + 1 :]))
        if math.isfinite(residual):
            at = int(ranked.searchsorted(residual, side="right"))
            ranked = np.concatenate((ranked[:at], (residual,), ranked[at:]))
            origins = np.concatenate((origins[:at], (count - 1,), origins[at:]))
        return PastMisses(self.day, self.steps, count, ranked, origins)

    @cached_property
    def _cumulative(self) -> Floats:
        """Weight of each miss and all smaller ones, for the origin that comes `steps` after the newest miss."""
        return _age_weights(self.day, self.steps).take(self.count - 1 - self.origins).cumsum()

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        """Quantiles for the origin that comes `steps` after the newest miss; NaN with too few misses.

        The same weights as `Calibration`: newer misses and those of the same time of day weigh more.
        """
        if len(self.ranked) < LEAST_RESIDUALS:
            return [math.nan] * len(levels)
        cumulative, last = self._cumulative, len(self.ranked) - 1
        total = float(cumulative[-1])
        return [float(self.ranked[min(int(cumulative.searchsorted(level * total)), last)]) for level in levels]


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
