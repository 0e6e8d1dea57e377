"""What does tonight take over from the nights before? Days that were replayed once are not replayed again.

A night's replay leaves its losses, misses and level (the living state), one record a day, and the long forecasts whose
time has not come. The next night goes on from there with the buckets that came since, and arrives at what a replay of
all the days would. It starts afresh where that would not be so: no such record, another step, clock, lead window or set
of members, a gap of days, or data that were changed since.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from piqc_pipeline.errors import ArtifactAltered
from piqc_pipeline.forecast.combine import Losses
from piqc_pipeline.forecast.days import FIGURES, Day
from piqc_pipeline.forecast.grid import Grid
from piqc_pipeline.forecast.live import Misses
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.seasons import fit_profile
from piqc_pipeline.forecast.rolling import Resumed
from piqc_pipeline.forecast.spread import SKETCH, SPREAD_DAYS, Distances, Pending
from piqc_pipeline.forecast.state import decode, encode, from_plain, kept_nights

VERSION = 1
KEY = "journal"
"""Where it stands in a forecast's state; a refresh does not look at it."""

SETTLING_SECONDS = 3600.0
"""Demand of the last hour before a run may still change with samples that come late; that is no change of history."""

SHORTEST_DAYS = 0.75
MOST_NIGHTS = 3
"""A night begins at least 18 hours after the last one; after three missed nights all is replayed."""


@dataclass(frozen=True)
class Journal:
    """What a replay leaves besides the living state.

    Attributes:
        days: The newest days, oldest first.
        pending: Long forecasts whose time has not come; their origins count from the first bucket of the grid.
        seen: Checksums of the days of demand; see `checksums`.
    """

    days: tuple[Day, ...]
    pending: Pending
    seen: tuple[int, ...]


@dataclass(frozen=True)
class TakenOver:
    """The nights before, in terms of tonight's grid.

    Attributes:
        resumed: Where the replay goes on.
        cutoffs: Of the night before the last run, of the last run, and of those since; tonight's is the last.
        nights: The fits of the first two.
        misses: Of the lead window, at the end of the last run.
        days: Records of the days before.
        pending: Long forecasts whose time had not come.
    """

    resumed: Resumed
    cutoffs: tuple[int, ...]
    nights: Mapping[int, Night]
    misses: Misses
    days: tuple[Day, ...]
    pending: Pending


def checksums(grid: Grid, end: int) -> tuple[int, ...]:
    """One checksum a whole day of demand that had settled by `end`, newest first."""
    starts = range(end - grid.steps(SETTLING_SECONDS) - grid.day, -1, -grid.day)
    marked = np.where(grid.known, grid.values, np.nan)
    return tuple(zlib.crc32(marked[start : start + grid.day].tobytes()) for start in starts)


def taken_over(state: Mapping[str, Any] | None, grid: Grid, names: tuple[str, ...], lead: int) -> TakenOver | None:
    """What the last run left, if tonight may go on from it; None if everything must be replayed.

    Args:
        state: Of the last run.
        grid: Tonight's demand.
        names: Members of tonight's ensemble.
        lead: Steps of tonight's lead window.
    """
    plain = (state or {}).get(KEY)
    if state is None or not plain or plain.get("version") != VERSION:
        return None
    try:
        return _taken_over(state, plain, grid, names, lead)
    except (ArtifactAltered, KeyError, ValueError, TypeError):
        return None  # another program's state: it costs a replay, not the night's forecast


def _taken_over(
    state: Mapping[str, Any], plain: Mapping[str, Any], grid: Grid, names: tuple[str, ...], lead: int
) -> TakenOver | None:
    live = from_plain(state)
    offset = (live.grid.start_seconds - grid.start_seconds) / grid.step_seconds
    same = (live.grid.step_seconds, live.grid.calendar, live.names) == (grid.step_seconds, grid.calendar, names)
    if not same or offset != int(offset):
        return None
    shift = int(offset)
    before, end = live.end + shift, len(grid.values)
    nights_since = round((end - before) / grid.day)
    if not 1 <= nights_since <= MOST_NIGHTS or end - before < SHORTEST_DAYS * grid.day:
        return None
    seen = checksums(grid, before)
    if not seen or any(then != now for then, now in zip(plain["seen"], seen, strict=False)):
        return None
    (misses, *_), losses = live.misses, live.losses
    open_windows = misses.steps == lead and len(misses.peaks) == lead
    if not open_windows or not (losses.weights.max(axis=1) > 0).all() or losses.newest.min() + shift < grid.day:
        return None
    kept = kept_nights(state, grid)
    older = [cutoff for cutoff in sorted(kept) if cutoff < before]
    if before not in kept or not older:
        return None
    for night in kept.values():
        # Kept in single precision or not at all; it is made again from the same demand.
        profile = fit_profile(night)
        if profile is not None:
            night.seasons["profile"] = profile
    pending = _pending(plain["pending"], grid.step_seconds, shift)
    return TakenOver(
        Resumed(
            Losses(losses.sums, losses.weights, losses.newest + shift),
            live.floor,
            tuple(kept[cutoff] for cutoff in older[:-1]),
            before,
        ),
        (older[-1], *(before + night * grid.day for night in range(nights_since)), end),
        {cutoff: kept[cutoff] for cutoff in (older[-1], before)},
        misses,
        tuple(_day_of(one) for one in plain["days"]),
        pending,
    )


def to_plain(journal: Journal, first: int) -> dict[str, Any]:
    """The journal as JSON values.

    Args:
        journal: What is left.
        first: Bucket of the grid that the state's history begins with.
    """
    return {
        "version": VERSION,
        "seen": list(journal.seen),
        "days": [_plain_day(day) for day in journal.days[-SPREAD_DAYS:]],
        "pending": {
            "origins": (journal.pending.origins - first).tolist(),
            "points": encode(journal.pending.points.ravel(), "f4"),
            "peaks": encode(journal.pending.peaks.ravel(), "f4"),
        },
    }


def _plain_day(day: Day) -> dict[str, Any]:
    return {
        "models": list(day.sums),
        "sums": encode(np.array([day.sums[name] for name in day.sums]).ravel()),
        "covered": day.covered,
        "windows": day.windows,
        "spread": encode(day.spread.ravel(), "f4"),
    }


def _day_of(plain: Mapping[str, Any]) -> Day:
    sums = decode(plain["sums"]).reshape(-1, 2, FIGURES)
    return Day(
        dict(zip(plain["models"], sums, strict=True)),
        int(plain["covered"]),
        int(plain["windows"]),
        decode(plain["spread"]).reshape(2, -1, SKETCH),
    )


def _pending(plain: Mapping[str, Any], step_seconds: int, shift: int) -> Pending:
    width = len(Distances.of(step_seconds).far)
    return Pending(
        np.array(plain["origins"], dtype=np.int64) + shift,
        decode(plain["points"]).reshape(-1, width),
        decode(plain["peaks"]).reshape(-1, width),
    )
