"""What may a forecaster look at? One workload's demand with gaps filled from the past, and its clock.

Everything at an origin `o` (index of the first unknown bucket) reads only buckets before `o`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.forecast.calendar import DAY, Calendar, events_of
from piqc_pipeline.forecast.series import SECONDS_PER_DAY, DemandSeries

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Grid:
    """Demand on an even grid, ready for members.

    Attributes:
        values: Demand with gaps filled by the last value before them; finite.
        known: Where demand was measured; only these buckets are scored.
        usable: Where it may also be learned from: known, and outside known events.
        start_seconds: Start of bucket 0, seconds since 1970 UTC.
        step_seconds: Width of a bucket.
        calendar: The workload's clock.
    """

    values: Floats
    known: Bools
    usable: Bools
    start_seconds: float
    step_seconds: int
    calendar: Calendar

    @property
    def day(self) -> int:
        """Buckets of a day."""
        return SECONDS_PER_DAY // self.step_seconds

    def steps(self, seconds: float) -> int:
        """Buckets nearest to a duration, at least one."""
        return max(1, round(seconds / self.step_seconds))

    def seconds(self, index: Ints | int) -> Floats:
        """Middle of the buckets, seconds since 1970 UTC."""
        return self.start_seconds + (np.asarray(index, dtype=np.float64) + 0.5) * self.step_seconds

    @cached_property
    def _offset_steps(self) -> Ints | None:
        """Local minus UTC in buckets, from 8 days before bucket 0 to 8 days past the end; None if it never changes."""
        margin = 8 * self.day
        offsets = self.calendar.offsets_seconds(self.seconds(np.arange(-margin, len(self.values) + margin)))
        if not len(offsets) or np.all(offsets == offsets[0]):
            return None
        return np.round(offsets / self.step_seconds).astype(np.int64)

    @property
    def clock_changes(self) -> bool:
        """Whether the local clock is put forward or back in this history or within the week after it."""
        return self._offset_steps is not None

    def same_time(self, index: Ints, days: int) -> Ints:
        """The buckets of the same local time `days` days before; daylight saving is followed."""
        lagged = index - days * self.day
        offsets = self._offset_steps
        if offsets is None:
            return lagged
        margin = 8 * self.day
        limit = len(offsets) - 1
        return lagged + offsets[np.clip(index + margin, 0, limit)] - offsets[np.clip(lagged + margin, 0, limit)]

    def window_mean(self, ends: Ints, width: int) -> Floats:
        """Mean of the `width` buckets before each index; fewer at the very start."""
        index = ends[:, None] - np.arange(width, 0, -1)[None, :]
        means: Floats = self.values[np.minimum(np.maximum(index, 0), len(self.values) - 1)].mean(axis=1)
        return means


def fill_gaps(values: Floats) -> Floats:
    """The last value before a gap is carried forward; a gap at the start takes the first value after it."""
    known = np.isfinite(values)
    if not known.any():
        return np.zeros(len(values))
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    first = int(np.argmax(known))
    return values[np.where(last < 0, first, last)]


def prepare(series: DemandSeries, calendar: Calendar | None = None) -> Grid:
    """A series becomes a grid: leading gaps cut, gaps filled, known events marked."""
    calendar = calendar or Calendar()
    known = np.isfinite(series.demand)
    first = int(np.argmax(known)) if known.any() else 0
    values, known = series.demand[first:], known[first:]
    start = series.start.timestamp() + first * series.step_seconds
    usable = known.copy()
    middle = start + (np.arange(len(values)) + 0.5) * series.step_seconds
    for event in events_of(calendar.events, series.workload):
        usable &= ~((middle >= event.start.timestamp()) & (middle < event.end.timestamp()))
    return Grid(fill_gaps(values), known, usable, start, series.step_seconds, calendar)


def event_factors(calendar: Calendar, workload: str, seconds: Floats) -> Floats:
    """What each coming bucket is multiplied by because of known events."""
    factors = np.ones(len(seconds))
    for event in events_of(calendar.events, workload):
        inside = (seconds >= event.start.timestamp()) & (seconds < event.end.timestamp())
        factors[inside] *= event.factor
    return factors


__all__ = ["DAY", "Bools", "Floats", "Grid", "Ints", "event_factors", "fill_gaps", "prepare"]
