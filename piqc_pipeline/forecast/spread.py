"""How far off are forecasts at each distance, up to two days ahead? Every day's misses, kept as a few quantiles.

Calibration of the lead window, which replicas are planned by now, belongs to `intervals`; this is for the rest of the
table. A day's misses are kept as ten quantiles a distance: a week of them is small, and no day is replayed twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from piqc_pipeline.forecast.combine import Buckets, spans_of
from piqc_pipeline.forecast.grid import Floats, Grid, Ints
from piqc_pipeline.forecast.intervals import scale_of

FAR_EDGES_SECONDS = (36_000, 86_400, 172_800)
"""Ends of the distances past the ensemble's own horizon: 10, 24 and 48 hours."""

SPREAD_DAYS = 7
SKETCH = 10
"""Quantiles kept of a day's misses: 5 %, 15 %, ... 95 %."""

POINTS, PEAKS = 0, 1
LEVELS = ((0.1, 0.9), (0.5, 0.9))
"""What is asked of the misses of single buckets, and of those of lead-window maxima."""


@dataclass(frozen=True)
class Distances:
    """Distances ahead in steps of a series.

    Attributes:
        ends: One past the last step of each distance; the first ones are those of `combine.Buckets`.
        far: Steps past the ensemble's horizon at which misses are looked at: the last of each hour.
    """

    ends: tuple[int, ...]
    far: Ints

    @staticmethod
    @lru_cache(maxsize=32)
    def of(step_seconds: int) -> "Distances":
        """Distances of a step."""
        near = Buckets.of(step_seconds)
        hour = max(1, round(3600 / step_seconds))
        ends = (*near.ends, *(edge // step_seconds for edge in FAR_EDGES_SECONDS))
        return Distances(ends, np.arange(near.horizon + hour, ends[-1] + 1, hour) - 1)

    def index_of(self, steps: int, known: int) -> Ints:
        """Distance of each step of a table, at most the last of `known` ones."""
        return spans_of(self.ends[:known], steps)

    def columns(self, lead: int) -> Ints:
        """Steps of a long path that are needed: the far ones and the lead windows that begin there."""
        return np.unique(self.far[:, None] + np.arange(lead)[None, :])


@dataclass(frozen=True)
class Pending:
    """Long forecasts whose time has not come yet.

    Attributes:
        origins: Where they start.
        points: Forecast at `Distances.far`, shape (origins, far steps).
        peaks: Forecast maximum of the lead window that begins there, same shape.
    """

    origins: Ints
    points: Floats
    peaks: Floats

    @staticmethod
    def none(step_seconds: int) -> "Pending":
        """Nothing is pending."""
        empty = np.empty((0, len(Distances.of(step_seconds).far)))
        return Pending(np.empty(0, dtype=np.int64), empty, empty)

    @staticmethod
    def of(origins: Ints, paths: Floats, step_seconds: int, lead: int) -> "Pending":
        """From the ensemble's paths at `Distances.columns`; rounded as they are kept."""
        distances = Distances.of(step_seconds)
        at = np.searchsorted(distances.columns(lead), distances.far[:, None] + np.arange(lead)[None, :])
        windows = paths[:, at].astype(np.float32).astype(np.float64)
        return Pending(origins, windows[:, :, 0], windows.max(axis=2))

    def and_then(self, later: "Pending") -> "Pending":
        """With later ones."""
        return Pending(
            np.concatenate([self.origins, later.origins]),
            np.concatenate([self.points, later.points]),
            np.concatenate([self.peaks, later.peaks]),
        )

    def after(self, end: int, step_seconds: int, lead: int) -> "Pending":
        """Those that reach past an instant."""
        open_ = self.origins + int(Distances.of(step_seconds).far[-1]) + lead > end
        return Pending(self.origins[open_], self.points[open_], self.peaks[open_])


def day_spread(
    grid: Grid, day: tuple[int, int], near: tuple[Ints, Floats], pending: Pending, lead: int, largest: float
) -> Floats:
    """What a day's misses were like, shape (2, distances, `SKETCH`): of single buckets and of lead-window maxima.

    Args:
        grid: The series.
        day: Its first bucket and one past its last.
        near: Origins inside the day, and the ensemble's paths from them.
        pending: Long forecasts; what of them came during the day counts.
        lead: Steps of the lead window.
        largest: Largest demand so far.
    """
    begin, stop = day
    distances, buckets = Distances.of(grid.step_seconds), Buckets.of(grid.step_seconds)
    result = np.full((2, len(distances.ends), SKETCH), np.nan)
    known = np.where(grid.known[:stop], grid.values[:stop], np.nan)
    origins, paths = near
    if len(origins):
        wide = min(lead, buckets.horizon)
        misses, peak_misses = _near_misses(known, origins, paths, wide, largest)
        for index, (first, end) in enumerate(zip(buckets.starts, buckets.ends, strict=True)):
            result[POINTS, index] = sketch(misses[:, first:end])
            result[PEAKS, index] = sketch(peak_misses[:, first:end])
    if len(pending.origins):
        target = pending.origins[:, None] + distances.far[None, :]
        came, tops = window_values(known, target, 1), window_values(known, target, lead)
        point = np.where(target >= begin, (came - pending.points) / scale_of(pending.points, largest), np.nan)
        due = target + lead > begin
        peak = np.where(due, (tops - pending.peaks) / scale_of(pending.peaks, largest), np.nan)
        index_far = distances.index_of(int(distances.far[-1]) + 1, len(distances.ends))[distances.far]
        for index in range(buckets.count, len(distances.ends)):
            result[POINTS, index] = sketch(point[:, index_far == index])
            result[PEAKS, index] = sketch(peak[:, index_far == index])
    return result


def _near_misses(known: Floats, origins: Ints, paths: Floats, wide: int, largest: float) -> tuple[Floats, Floats]:
    index = origins[:, None] + np.arange(paths.shape[1])[None, :]
    actual = np.where(index < len(known), known[np.minimum(index, len(known) - 1)], np.nan)
    view = np.lib.stride_tricks.sliding_window_view
    tops, came = view(paths, wide, axis=1).max(axis=-1), view(actual, wide, axis=1).max(axis=-1)
    return (actual - paths) / scale_of(paths, largest), (came - tops) / scale_of(tops, largest)


def window_values(known: Floats, first: Ints, width: int) -> Floats:
    """Maximum of the `width` buckets from each index on; NaN where one is unknown or has not come."""
    index = first[..., None] + np.arange(width)
    values: Floats = np.where(index < len(known), known[np.minimum(index, len(known) - 1)], np.nan).max(axis=-1)
    return values


def sketch(misses: Floats) -> Floats:
    """`SKETCH` quantiles of the finite values, as they are kept (single precision); NaN without any."""
    finite = misses[np.isfinite(misses)]
    if not len(finite):
        return np.full(SKETCH, np.nan)
    finite.sort()
    chosen = finite[((np.arange(SKETCH) + 0.5) / SKETCH * len(finite)).astype(np.int64)]
    return chosen.astype(np.float32).astype(np.float64)


def spread_quantiles(days: Sequence[Floats], distances: int) -> tuple[Floats, Floats]:
    """Quantiles of the misses of the last week's days, at each distance.

    Args:
        days: From `day_spread`, oldest first.
        distances: How many there are.

    Returns:
        Two arrays of shape (2, distances): q10 and q90 of single buckets, q50 and q90 of lead-window maxima. A distance
        of which nothing is known yet takes the one before it; zero where none is known.
    """
    result = np.zeros((2, 2, distances))
    if days:
        stacked = np.sort(np.concatenate(days[-SPREAD_DAYS:], axis=2), axis=2)
        counts = np.isfinite(stacked).sum(axis=2)
        for kind, levels in enumerate(LEVELS):
            for index in range(distances):
                count = int(counts[kind, index])
                if not count:
                    result[kind, :, index] = result[kind, :, index - 1] if index else 0.0
                    continue
                found = [stacked[kind, index, min(int(level * count), count - 1)] for level in levels]
                if kind == POINTS and index:  # nothing is known better further ahead: a lucky week is no narrower tail
                    found[0] = min(found[0], result[kind, 0, index - 1])
                if index:
                    found[1] = max(found[1], result[kind, 1, index - 1])
                result[kind, :, index] = found
    return result[0], result[1]
