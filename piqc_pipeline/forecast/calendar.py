"""What time is it where the workload's users are? Zone, daylight saving, holidays and known events.

Time is UTC everywhere else; a season follows the local clock, so it moves by an hour in UTC when the clocks change.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.errors import UsageError

Floats = NDArray[np.floating[Any]]

DAY = 86_400.0
WEEK = 7 * DAY
MONDAY = -3 * DAY
"""1970-01-01 was a Thursday: the Monday before it, in seconds since 1970."""


@dataclass(frozen=True)
class KnownEvent:
    """Something planned that moves demand: a launch, a campaign, a migration.

    Attributes:
        name: For the card.
        start: UTC.
        end: UTC, exclusive.
        workload: Id, or the end of one (`inference/chat-8b`); None means every workload.
        factor: Expected demand over usual demand; 1.0 where only the past is to be left out of training.
    """

    name: str
    start: datetime
    end: datetime
    workload: str | None = None
    factor: float = 1.0

    def concerns(self, workload: str) -> bool:
        """Whether the event is about this workload."""
        return self.workload is None or workload == self.workload or workload.endswith("/" + self.workload)


@dataclass(frozen=True)
class Calendar:
    """The local clock of a workload.

    Attributes:
        zone: IANA name; the workload's day begins at its midnight.
        country: ISO code whose public holidays count as Sundays and go to Prophet as holidays; None for none.
        events: Known events.
    """

    zone: str = "UTC"
    country: str | None = None
    events: tuple[KnownEvent, ...] = ()

    def offsets_seconds(self, seconds: Floats) -> Floats:
        """Local minus UTC at each instant (seconds since 1970)."""
        if self.zone == "UTC" or not len(seconds):
            return np.zeros(len(seconds))
        # Transitions happen on quarter hours in every zone of the tz database since 1972.
        quarter = np.floor_divide(seconds, 900).astype(np.int64)
        first = int(quarter[0])
        table = np.array(_offsets(self.zone, first, int(quarter[-1]) - first + 1))
        return table[quarter - first]

    def local(self, seconds: Floats) -> Floats:
        """Local wall-clock time as seconds since 1970-01-01T00:00 local."""
        return seconds + self.offsets_seconds(seconds)

    def week_clock(self, seconds: Floats) -> Floats:
        """Local wall-clock time in which public holidays are moved onto the Sunday of their week."""
        local = self.local(seconds)
        if self.country is None:
            return local
        days = np.floor_divide(local, DAY)
        unique = np.unique(days)
        held = holidays_between(self.country, _day(unique[0]), _day(unique[-1]))
        for day in unique:
            if _day(day) in held:
                weekday = int(((day * DAY - MONDAY) % WEEK) // DAY)
                local = np.where(days == day, local + (6 - weekday) * DAY, local)
        return local


def _day(days: float) -> date:
    return date(1970, 1, 1) + timedelta(days=int(days))


@lru_cache(maxsize=64)
def _offsets(zone: str, first_quarter: int, count: int) -> tuple[float, ...]:
    try:
        info = ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(f"cannot use the time zone {zone!r}: write an IANA name such as Europe/Berlin") from error
    moments = (datetime.fromtimestamp((first_quarter + i) * 900, UTC).astimezone(info) for i in range(count))
    return tuple((moment.utcoffset() or timedelta()).total_seconds() for moment in moments)


@lru_cache(maxsize=64)
def holidays_between(country: str, first: date, last: date) -> frozenset[date]:
    """Public holidays of a country, both ends included.

    Raises:
        UsageError: The country is not known.
    """
    import holidays

    try:
        known = holidays.country_holidays(country, years=range(first.year, last.year + 1))
    except NotImplementedError as error:
        raise UsageError(f"cannot tell the holidays of {country!r}: use an ISO 3166 code such as DE or US") from error
    return frozenset(day for day in known if first <= day <= last)


def read_events(path: Path) -> tuple[KnownEvent, ...]:
    """Known events from a CSV file with columns `name,start,end` and optional `workload,factor` (ISO 8601 with zone).

    Raises:
        UsageError: The file cannot be read or a row cannot be meant; the message names the row.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the events file {path}: {error}") from error
    return parse_events(text, str(path))


def parse_events(text: str, origin: str) -> tuple[KnownEvent, ...]:
    """Known events from the text of such a file; `origin` is named in errors."""
    reader = csv.DictReader(io.StringIO(text))
    missing = {"name", "start", "end"} - set(reader.fieldnames or ())
    if missing:
        raise UsageError(f"cannot use the events file {origin}: no column {', '.join(sorted(missing))}")
    events = []
    for number, row in enumerate(reader, start=2):
        try:
            start, end = _moment(row["start"]), _moment(row["end"])
            factor = float(row.get("factor") or 1.0)
        except (ValueError, TypeError) as error:
            raise UsageError(f"cannot use line {number} of {origin}: {error}") from error
        if end <= start or not 0 <= factor <= 1000:
            raise UsageError(
                f"cannot use line {number} of {origin}: the end must follow the start, 0 <= factor <= 1000"
            )
        events.append(KnownEvent(row["name"], start, end, row.get("workload") or None, factor))
    return tuple(events)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no zone; write 2025-01-20T08:00:00+01:00 or ...Z")
    return moment.astimezone(UTC)


def events_of(events: Sequence[KnownEvent], workload: str) -> tuple[KnownEvent, ...]:
    """The events that concern a workload."""
    return tuple(event for event in events if event.concerns(workload))
