"""What would have been forecast at each past origin? Members replayed night by night, without look-ahead.

The same replay feeds the weights and quantiles of tonight's forecast and the scores of a backtest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast.combine import (
    FLOOR_SHARE,
    Buckets,
    Losses,
    central_value,
    mean_loss,
    rolling_losses,
    weights_from,
)
from piqc_pipeline.forecast.grid import Floats, Grid, Ints
from piqc_pipeline.forecast.members import Member, Night, Predictor
from piqc_pipeline.forecast.members.residuals import TRAINING_DAYS

LOSS_STRIDE_SECONDS = 1800.0
"""Whole paths are replayed every half hour; short ones at every bucket."""

FAR_STRIDE_SECONDS = 6 * 3600.0
"""Paths of two days are replayed from four origins a day."""


@dataclass(frozen=True)
class Resumed:
    """Where a replay goes on, so that days replayed before are not replayed again.

    Attributes:
        losses: Rolling losses of the members (without references) at `first`.
        floor: Loss under which members count as equal.
        earlier: Nights fitted before the first cutoff, oldest first.
        first: First origin whose short path is wanted; the end of the replay before.
    """

    losses: Losses
    floor: float
    earlier: tuple[Night, ...]
    first: int


@dataclass
class Replay:
    """Paths of every member from every past origin.

    Attributes:
        grid: The series.
        names: Members, in the order of the last axis.
        buckets: Horizon buckets.
        origins: Every bucket from the first cutoff on; the last origin may be the end of the series.
        short: Paths from `origins`, shape (origins, short horizon, members); NaN where a member was not there.
        long_origins: Every half hour.
        long: Paths from `long_origins`, shape (long origins, horizon, members).
        errors: Mean absolute error inside each bucket, shape (long origins, members, buckets).
        nights: The fitted nights, oldest first.
        last: The members fitted at the last cutoff, by name.
        notes: Members that dropped out, with the reason.
        far_origins: Every `FAR_STRIDE_SECONDS`.
        far: Some steps of the paths from `far_origins`, shape (far origins, steps, members).
        far_steps: Which.
        resumed: Where the replay went on from, or None.
    """

    grid: Grid
    names: tuple[str, ...]
    buckets: Buckets
    origins: Ints
    short: Floats
    long_origins: Ints
    long: Floats
    errors: Floats
    nights: tuple[Night, ...]
    last: dict[str, Predictor]
    notes: tuple[str, ...] = field(default=())
    far_origins: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    far: Floats = field(default_factory=lambda: np.empty((0, 0, 0)))
    far_steps: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    resumed: Resumed | None = None
    _after: dict[tuple[int, ...], Floats] = field(default_factory=dict, repr=False)

    @cached_property
    def floor(self) -> float:
        """Loss under which members count as equal: from what was known at the first origin."""
        if self.resumed is not None:
            return self.resumed.floor
        past = self.grid.values[: max(1, int(self.origins[0]))]
        return FLOOR_SHARE * float(np.std(past))

    def chosen(self, without: Sequence[str] = ()) -> Ints:
        """Positions of the members that take part, some left out."""
        return np.array([i for i, name in enumerate(self.names) if name not in without], dtype=np.int64)

    def weights(self, origins: Ints, members: Ints) -> Floats:
        """Weight of some members as known at each origin, shape (origins, buckets, members).

        Weights change only when a half-hourly path finishes, so they are made once for each of those.
        """
        key = tuple(members.tolist())
        if key not in self._after:
            sums, counts = (part[:, :, members] for part in self._losses)
            losses = mean_loss(np.moveaxis(sums, 2, 3), np.moveaxis(counts, 2, 3))
            self._after[key] = np.moveaxis(weights_from(np.moveaxis(losses, 1, 2), self.floor), 1, 2)
        after = self._after[key]
        result = np.ones((len(origins), self.buckets.count, len(members)))
        for bucket, end in enumerate(self.buckets.ends):
            newest = np.searchsorted(self.long_origins, origins - end, side="right") - 1
            finished = newest >= 0
            result[finished, bucket] = after[newest[finished], bucket]
        return result

    @cached_property
    def _losses(self) -> tuple[Floats, Floats]:
        """Rolling sums and weights of every member after each long origin."""
        before = None if self.resumed is None else self.resumed.losses
        return rolling_losses(self.errors, self.long_origins, self.grid.day, before)

    def losses_at_end(self, members: Ints) -> Losses:
        """Rolling losses of some members as of the last origin."""
        end = int(self.origins[-1])
        sums, weights = (part[:, :, members] for part in self._losses)
        newest = np.searchsorted(self.long_origins, end - np.array(self.buckets.ends), side="right") - 1
        shape = (sums.shape[0], len(members), self.buckets.count)
        last_sums, last_weights = np.zeros(shape), np.zeros(shape)
        for bucket, position in enumerate(newest):
            if position >= 0:
                last_sums[:, :, bucket] = sums[:, position, :, bucket]
                last_weights[:, :, bucket] = weights[:, position, :, bucket]
        origins = np.where(newest >= 0, self.long_origins[np.maximum(newest, 0)], self.long_origins[0] - 1)
        return Losses(last_sums, last_weights, origins)

    def combine(self, origins: Ints, paths: Floats, without: Sequence[str] = (), steps: Ints | None = None) -> Floats:
        """The ensemble's path from each origin, shape (origins, horizon).

        Args:
            origins: Where the paths start.
            paths: Shape (origins, horizon, members).
            without: Names of members that are left out.
            steps: Which steps of the paths these are; the first ones if None.
        """
        members = self.chosen(without)
        weights = self.weights(origins, members)
        weights = cold_start(weights, self.grid, origins, int(self.origins[0]), [self.names[i] for i in members])
        bucket = self.buckets.index_of(paths.shape[1] if steps is None else int(steps.max()) + 1)
        expanded = np.moveaxis(weights[:, bucket if steps is None else bucket[steps]], 2, 0)
        usable = np.moveaxis(paths[:, :, members], 2, 0)
        absent = ~np.isfinite(usable)
        if absent.any():
            expanded = np.where(absent, 0.0, expanded)
            usable = np.where(absent, 0.0, usable)
        return np.maximum(central_value(usable, expanded), 0.0)


def cold_start(weights: Floats, grid: Grid, origins: Ints, first: int, names: Sequence[str]) -> Floats:
    """Under half a day of finished paths the last value alone is believed: equal weights hurt on trending demand."""
    young = origins - first < grid.day // 2
    if first >= grid.day or not young.any():
        return weights
    only = np.array([name == "last_value" for name in names], dtype=np.float64)
    return np.where(young[:, None, None], only, weights)


def nightly_cutoffs(grid: Grid, end: int, nights: int, least: int) -> list[int]:
    """Cutoffs a day apart, the last one at `end`, none with fewer than `least` buckets before it."""
    cutoffs = [end - grid.day * back for back in range(nights + 1)]
    return sorted(cutoff for cutoff in cutoffs if cutoff >= max(1, least)) or [max(1, min(end, least))]


def replay(
    grid: Grid,
    members: Sequence[Member],
    cutoffs: Sequence[int],
    end: int,
    short_horizon: int,
    horizon: int | None = None,
    kept: Mapping[int, Night] | None = None,
    far_steps: Ints | None = None,
    resumed: Resumed | None = None,
) -> Replay:
    """Fits every member at every cutoff and lets it forecast from every origin until the next.

    Args:
        grid: The series.
        members: Forecasters; one that raises a `ForecastError` or has too little history is left out, and noted.
        cutoffs: Ascending.
        end: Last origin (inclusive).
        short_horizon: Steps of the paths from every bucket.
        horizon: Steps of the half-hourly paths; the end of the last horizon bucket if None.
        kept: Fits of earlier runs by cutoff; what they hold is not fitted again.
        far_steps: Steps of long paths from a few origins; none if None.
        resumed: Goes on after an earlier replay; the first cutoff then is that of the night before its end.
    """
    buckets = Buckets.of(grid.step_seconds)
    horizon = horizon or buckets.horizon
    first = cutoffs[0] if resumed is None else resumed.first
    first_long = cutoffs[0] if resumed is None else int(resumed.losses.newest.min())
    far_steps = np.empty(0, dtype=np.int64) if far_steps is None else far_steps
    asked = (
        _Asked.of(np.arange(first, end + 1), np.arange(short_horizon), len(members)),
        _Asked.of(np.arange(first_long, end + 1, grid.steps(LOSS_STRIDE_SECONDS)), np.arange(horizon), len(members)),
        _Asked.of(np.arange(first, end, grid.steps(FAR_STRIDE_SECONDS)), far_steps, len(members)),
    )
    nights: list[Night] = [] if resumed is None else list(resumed.earlier)
    last: dict[str, Predictor] = {}
    notes: dict[str, None] = {}
    for position, cutoff in enumerate(cutoffs):
        until = cutoffs[position + 1] if position + 1 < len(cutoffs) else end + 1
        before = (kept or {}).get(cutoff) or Night(grid, cutoff)
        night = replace(before, earlier=tuple(nights[-TRAINING_DAYS:]))
        last = {}
        for index, member in enumerate(members):
            try:
                predictor = member.fit(night)
            except ForecastError as error:
                notes[f"{member.name} dropped out: {error}"] = None
                continue
            if predictor is None:
                continue
            last[member.name] = predictor
            for paths in asked:
                paths.fill(index, predictor, cutoff, until)
        nights.append(night)
    short, long, far = (np.moveaxis(one.paths, 0, 2) for one in asked)
    long_origins = asked[1].origins
    errors = path_errors(grid, long_origins, long, buckets)
    names = tuple(member.name for member in members)
    return Replay(
        grid,
        names,
        buckets,
        asked[0].origins,
        short,
        long_origins,
        long,
        errors,
        tuple(nights),
        last,
        tuple(notes),
        asked[2].origins,
        far,
        far_steps,
        resumed,
    )


@dataclass(frozen=True)
class _Asked:
    """Paths that are wanted from some origins: shape (members, origins, steps)."""

    origins: Ints
    steps: Ints
    paths: Floats

    @staticmethod
    def of(origins: Ints, steps: Ints, members: int) -> "_Asked":
        return _Asked(origins, steps, np.full((members, len(origins), len(steps)), np.nan))

    def fill(self, member: int, predictor: Predictor, first: int, until: int) -> None:
        """A member's paths from the origins between two cutoffs."""
        inside = slice(int(np.searchsorted(self.origins, first)), int(np.searchsorted(self.origins, until)))
        if inside.stop <= inside.start or not len(self.steps):
            return
        horizon = int(self.steps[-1]) + 1
        paths = predictor.predict(self.origins[inside], horizon)
        self.paths[member, inside] = paths if horizon == len(self.steps) else paths[:, self.steps]


def targets(grid: Grid, origins: Ints, horizon: int) -> Floats:
    """What came: shape (origins, horizon), NaN in gaps and past the end."""
    index = origins[:, None] + np.arange(horizon)[None, :]
    inside = index < len(grid.values)
    index = np.minimum(index, len(grid.values) - 1)
    return np.where(inside & grid.known[index], grid.values[index], np.nan)


def path_errors(grid: Grid, origins: Ints, paths: Floats, buckets: Buckets) -> Floats:
    """Mean absolute error inside each bucket, shape (origins, members, buckets).

    Gaps are left out of the mean; NaN where nothing was measured or the bucket has not ended.
    """
    horizon = buckets.horizon
    actual = targets(grid, origins, horizon)
    error = np.abs(paths[:, :horizon] - actual[:, :, None])
    known = np.isfinite(error)
    sums = np.add.reduceat(np.where(known, error, 0.0), buckets.starts, axis=1)
    counts = np.add.reduceat(known, buckets.starts, axis=1, dtype=np.int64)
    finished = origins[:, None] + np.array(buckets.ends)[None, :] <= len(grid.values)
    valid = (counts > 0) & finished[:, :, None]
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=valid)
    return np.moveaxis(means, 2, 1)
