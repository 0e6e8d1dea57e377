"""How does a file of any size get into the table? In windows of bounded size; bad rows are put aside first."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path

from piqc_pipeline.atomic import replacing
from piqc_pipeline.errors import HistoryFileUnreadable, OutputUnwritable
from piqc_pipeline.history.doubts import Doubt, together
from piqc_pipeline.history.files import FileSource
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.samples import day_of, days_between
from piqc_pipeline.history.table import HistoryStore

ROWS_AT_ONCE = 1_000_000
"""Rows of the file in memory at a time: about 200 MiB with their strings."""
MAX_BAD_ROWS_ASIDE = 100_000


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    rows_written: int
    rows_kept: int
    workloads: int
    warnings: tuple[str, ...]


def import_file(
    store: HistoryStore,
    source: FileSource,
    inventory: Sequence[WorkloadInventory],
    bucket_seconds: int,
    now: datetime,
    *,
    force: bool = False,
    on_part: Callable[[int, int | None], None] | None = None,
) -> Imported:
    """Bring a file into the table, window by window; running it twice changes nothing.

    Args:
        store: Where rows go.
        source: The file.
        inventory: Workloads to join series to.
        bucket_seconds: Width of a row, unless the file is coarser.
        now: Rows that end after it are left out with a warning.
        force: Let emptier rows replace fuller ones, and delete other rows that its workloads have on its days.
        on_part: Called with windows done (1) and windows in all.

    Raises:
        HistoryFileUnreadable: No history in it, or bad rows and the source does not skip them.
    """
    aside = put_aside(source)
    try:
        series = source.series(inventory, bucket_seconds)
        if not series:
            source.fetch(now, now + timedelta(days=1), inventory, bucket_seconds)
        source.refuse_bad_rows()
    except HistoryFileUnreadable as error:
        if aside:
            count = source.opened().bad_rows(0)[0]
            which = f"the first {MAX_BAD_ROWS_ASIDE}" if count > MAX_BAD_ROWS_ASIDE else "all"
            raise HistoryFileUnreadable(f"{error}; {which} bad rows are in {aside}") from error
        raise
    first, last = min(entry.first for entry in series), max(entry.last for entry in series)
    warnings = [f"bad rows were put aside in {aside}"] if aside else []
    if first >= now:
        raise HistoryFileUnreadable(
            f"cannot import {source.path}: all its samples are later than now ({now:%Y-%m-%d %H:%M} UTC), the first of "
            f"{first:%Y-%m-%d %H:%M}; check their zone, or set PIQC_NOW"
        )
    if last >= now:
        warnings.append(
            f"samples after now ({now:%Y-%m-%d %H:%M} UTC) are left out; the file's last is {last:%Y-%m-%d %H:%M}"
        )
    days = days_between(day_of(first), min(last, now) + timedelta(microseconds=1))
    parts = max(1, min(len(days), ceil(sum(entry.rows for entry in series) / ROWS_AT_ONCE)))
    size = ceil(len(days) / parts) if days else 1
    written, kept, doubts = 0, 0, list[Doubt]()
    windows = [days[position : position + size] for position in range(0, len(days), size)]
    for window in windows:
        start, end = window[0], min(window[-1] + timedelta(days=1), now)
        fetched = source.fetch(start, end, inventory, bucket_seconds)
        outcome = store.replace(start, end, fetched.frame, force=force, others=source.tells_all)
        written, kept = written + outcome.rows_written, kept + outcome.rows_kept
        doubts += [*fetched.doubts, *outcome.doubts(source.told_by)]
        if on_part is not None:
            on_part(1, len(windows))
    told = (*warnings, *map(str, together(doubts)))
    return Imported(written, kept, len({entry.workload for entry in series}), told)


def put_aside(source: FileSource) -> Path | None:
    """Write the bad rows beside the file as `FILE.bad.csv` (`line,problem`); None where there is none."""
    count, bad = source.opened().bad_rows(MAX_BAD_ROWS_ASIDE)
    if not count:
        return None
    path = source.path.with_name(f"{source.path.name}.bad.csv")
    try:
        with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["line", "problem"])
            writer.writerows(bad)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot put bad rows aside in {path}: {error.strerror}; copy the file elsewhere"
        ) from error
    return path
