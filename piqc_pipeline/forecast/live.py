"""What is expected now, after the newest buckets came in? A forecast's living state between two nights.

Nothing is fitted here: the night's fits stay, while losses, residuals, levels and the path follow the demand. A bucket
costs well under a millisecond. `refresh` is the outside of this module, `state` its form on disk.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np

from piqc_pipeline.forecast.combine import (
    HALF_LIVES_DAYS,
    Buckets,
    Losses,
    central_value,
    mean_loss,
    weights_from,
)
from piqc_pipeline.forecast.ensemble import KEPT, members_of
from piqc_pipeline.forecast.grid import Bools, Floats, Grid, Ints
from piqc_pipeline.forecast.intervals import HIGH, PastMisses, adapted, scale_at
from piqc_pipeline.forecast.members import Night, Season
from piqc_pipeline.forecast.members.levels import SMOOTHING_TERMS
from piqc_pipeline.forecast.members.residuals import LOOK_BACK_SECONDS
from piqc_pipeline.forecast.quick import QuickNight, paths, written_out
from piqc_pipeline.forecast.rolling import LOSS_STRIDE_SECONDS

HALF_LIVES = np.array(HALF_LIVES_DAYS)[:, None, None]

AHEAD_HOURS = 90
"""Seasonal tracks reach this far past a night's cutoff: a table of 48 h, made up to 36 h later, and some."""


@dataclass(frozen=True)
class Track:
    """A seasonal fit written out, so that a refresh only looks it up.

    Attributes:
        first: Index of the first element.
        line: Expected demand in each bucket; past its end the last value holds.
    """

    first: int
    line: Floats

    def values(self, index: Ints) -> Floats:
        """Expected demand in the buckets."""
        at: Floats = self.line[np.clip(index - self.first, 0, len(self.line) - 1)]
        return at


@dataclass(frozen=True)
class Misses:
    """Past misses of the maximum over one window, and the windows that have not ended.

    Attributes:
        steps: Width of the window.
        past: Normalized misses of the windows that ended.
        peaks: Forecast maxima of the newest origins, whose windows have not ended; the last is that of the newest.
        highs: The q90 that was given for each of them.
        level: Adaptive level of the q90.
    """

    steps: int
    past: PastMisses
    peaks: tuple[float, ...]
    highs: tuple[float, ...]
    level: float


@dataclass(frozen=True)
class Live:
    """A forecast's state at one instant.

    Attributes:
        grid: Recent demand, at least the last week and five hours; its end is the newest origin.
        nights: The newest fits, oldest first; the last one makes the coming paths.
        names: Members, in the order of `losses`.
        losses: Rolling losses.
        misses: One a window.
        floor: Loss under which members count as equal.
        largest: Largest demand so far.
        point, peak: Quantiles of normalized misses by horizon bucket (see `spread.spread_quantiles`).
    """

    grid: Grid
    nights: tuple[Night, ...]
    names: tuple[str, ...]
    losses: Losses
    misses: tuple[Misses, ...]
    floor: float
    largest: float
    point: Floats
    peak: Floats

    @property
    def end(self) -> int:
        """Index of the first bucket that is not known yet."""
        return len(self.grid.values)

    @property
    def until(self) -> datetime:
        """End of the newest bucket that is known, and start of the next (UTC)."""
        return datetime.fromtimestamp(self.grid.start_seconds + self.end * self.grid.step_seconds, UTC)

    @cached_property
    def _simple(self) -> bool:
        """Whether the quick paths hold: enough history before the nights, and no change of clocks."""
        grid = self.grid
        first = self.nights[0].cutoff if len(self.nights) < 2 else self.nights[-2].cutoff
        long_enough = first >= grid.day + grid.steps(LOOK_BACK_SECONDS) + SMOOTHING_TERMS
        return long_enough and not grid.clock_changes

    @cached_property
    def _quick(self) -> dict[int, QuickNight]:
        """Nights written out so far, by position."""
        return {}

    @cached_property
    def _tracks(self) -> dict[int, dict[str, Season]]:
        """The same for the general members."""
        return {}

    @property
    def buckets(self) -> Buckets:
        """Horizon buckets of the series' step."""
        return Buckets.of(self.grid.step_seconds)

    def _paths(self, grid: Grid, origins: Ints, horizon: int) -> Floats:
        """Every member's paths, shape (members, origins, horizon); NaN where a member is absent.

        Args:
            grid: This state's, or one that goes further.
            origins: Ascending; each is forecast with the newest night before it.
            horizon: Steps.
        """
        used = [max(0, bisect_right(self.nights, one, key=lambda night: night.cutoff) - 1) for one in origins.tolist()]
        if used[0] == used[-1]:
            return self._paths_of(used[0], grid, origins, horizon)
        parts = [(position, origins[np.array(used) == position]) for position in sorted(set(used))]
        return np.concatenate([self._paths_of(position, grid, part, horizon) for position, part in parts], axis=1)

    def _paths_of(self, position: int, grid: Grid, origins: Ints, horizon: int) -> Floats:
        night = self.nights[position]
        if self._simple:
            if position not in self._quick:
                self._quick[position] = written_out(night, AHEAD_HOURS * 3600)
            return paths(grid, self._quick[position], origins, horizon, len(self.names))
        if position not in self._tracks:
            self._tracks[position] = tracks_of(night)
        bound = Night(grid, night.cutoff, dict(self._tracks[position]), night.coefficients)
        result = np.full((len(self.names), len(origins), horizon), np.nan)
        for row, member in enumerate(members_of(KEPT)[: len(self.names)]):
            predictor = member.fit(bound)
            if predictor is not None:
                result[row] = predictor.predict(origins, horizon)
        return result

    @cached_property
    def _weights(self) -> Floats:
        """Weight of each member in each bucket, shape (members, buckets)."""
        losses = mean_loss(self.losses.sums.swapaxes(1, 2), self.losses.weights.swapaxes(1, 2))
        return weights_from(losses.T, self.floor)

    def path(self, horizon: int) -> Floats:
        """The ensemble's path from now; made once, a shorter one is its beginning."""
        made: Floats | None = self.__dict__.get("_path")
        if made is None or len(made) < horizon:
            made = self._path_of(horizon)
            self.__dict__["_path"] = made
        return made[:horizon]

    def _path_of(self, horizon: int) -> Floats:
        members = self._paths(self.grid, np.array([self.end]), horizon)[:, 0]
        weights = self._weights.take(self.buckets.index_of(horizon), axis=1)
        absent = np.isnan(members[:, 0])
        if absent.any():
            weights, members = weights[~absent], members[~absent]
        return np.maximum(central_value(members, weights), 0.0)

    def observe(self, values: Floats, known: Bools, ahead: int = 0) -> "Live":
        """The state after some more buckets, oldest first.

        Args:
            values: Demand; where not measured, whatever (the last value is carried).
            known: Where it was measured.
            ahead: Steps of the path that will be asked for next; it is then made once.
        """
        live = self
        for left, value, is_known in zip(range(len(values))[::-1], values.tolist(), known.tolist(), strict=True):
            carried = value if is_known else float(live.grid.values[-1])
            live = live._after(carried, is_known, 0 if left else ahead)
        return live

    def _after(self, value: float, known: bool, ahead: int) -> "Live":
        marks = np.concatenate((self.grid.known, (known,)))
        grid = replace(self.grid, values=np.concatenate((self.grid.values, (value,))), known=marks, usable=marks)
        moved = self._with(grid=grid, largest=max(self.largest, value), losses=self._losses_after(grid))
        horizon = max((miss.steps for miss in self.misses), default=1)
        path = moved.path(max(horizon, ahead))
        return moved._with(misses=tuple(moved._misses_after(miss, path) for miss in self.misses))

    def _with(self, **changes: object) -> "Live":
        changed: Live = replace(self, **changes)  # type: ignore[arg-type]
        # What depends only on the nights is written out once; weights change with losses, the path with demand too.
        stale = {"_weights": changed.losses is not self.losses, "_path": changed.grid is not self.grid}
        for name in ("_simple", "_quick", "_tracks", "_weights", "_path"):
            if name in self.__dict__ and not stale.get(name):
                changed.__dict__[name] = self.__dict__[name]
        return changed

    def _losses_after(self, grid: Grid) -> Losses:
        """Losses with the paths that ended with the newest bucket of a grid that goes one further."""
        losses, end = self.losses, len(grid.values)
        stride, phase = grid.steps(LOSS_STRIDE_SECONDS), self.nights[-1].cutoff
        due = [
            bucket
            for bucket, width in enumerate(self.buckets.ends)
            if end - width > losses.newest[bucket] and (end - width - phase) % stride == 0
        ]
        if not due:
            return losses
        newest = losses.newest.copy()
        newest[due] = end - np.array(self.buckets.ends)[due]
        error = np.full(losses.sums.shape[1:], np.nan)
        error[:, due] = self._errors(grid, due)
        measured = np.isfinite(error)
        decay = 0.5 ** ((newest - losses.newest) / (HALF_LIVES * grid.day))
        return Losses(losses.sums * decay + np.where(measured, error, 0.0), losses.weights * decay + measured, newest)

    def _errors(self, grid: Grid, due: list[int]) -> Floats:
        """Mean absolute error of each member in some horizon buckets, of the paths for which they end with the grid.

        Gaps are left out of the mean; NaN where nothing was measured.

        Returns:
            Shape (members, due).
        """
        end = len(grid.values)
        farthest_first = due[::-1]  # its origin is the earliest
        starts, ends = (np.array(edges)[farthest_first, None] for edges in (self.buckets.starts, self.buckets.ends))
        ahead = np.arange(ends[0, 0])
        index = end - ends + ahead
        counted = (ahead >= starts) & (ahead < ends) & grid.known.take(index, mode="clip")
        error = np.abs(self._paths(grid, end - ends[:, 0], len(ahead)) - grid.values.take(index, mode="clip"))
        sums, count = (error * counted).sum(axis=2), counted.sum(axis=1)
        means: Floats = np.divide(sums, count, out=np.full(sums.shape, np.nan), where=count > 0)
        return means[:, ::-1]

    def _misses_after(self, miss: Misses, path: Floats) -> Misses:
        """The window that ended with the newest bucket is scored; the newest origin gets its peak and q90."""
        past, level = miss.past, miss.level
        if len(miss.peaks) >= miss.steps:
            tail = slice(self.end - miss.steps, self.end)
            actual = max(self.grid.values[tail].tolist()) if all(self.grid.known[tail].tolist()) else math.nan
            past = past.after((actual - miss.peaks[0]) / scale_at(miss.peaks[0], self.largest))
            if math.isfinite(actual) and math.isfinite(miss.highs[0]):
                level = adapted(level, actual > miss.highs[0], HIGH)
        peak = max(path[: miss.steps].tolist())
        high = self.quantiles(past, peak, (level,))[0]
        keep = miss.steps
        return Misses(keep, past, (*miss.peaks, peak)[-keep:], (*miss.highs, high)[-keep:], level)

    def quantiles(self, past: PastMisses, peak: float, levels: Sequence[float]) -> list[float]:
        """Quantiles of the maximum over a window that starts now; NaN with too few finished windows."""
        scale = scale_at(peak, self.largest)
        found = (peak + residual * scale for residual in past.quantiles(levels))
        return [0.0 if value < 0 else value for value in found]  # max(0.0, NaN) would be 0.0


def tracks_of(night: Night) -> dict[str, Season]:
    """A night's seasons written out from three hours before its cutoff to `AHEAD_HOURS` after it."""
    first = night.cutoff - night.grid.steps(LOOK_BACK_SECONDS)
    index = np.arange(first, night.cutoff + night.grid.steps(AHEAD_HOURS * 3600))
    return {name: Track(first, season.values(index)) for name, season in night.seasons.items()}
