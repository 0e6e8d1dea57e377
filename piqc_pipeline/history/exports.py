"""How does history leave the table? Files for other tools, written day by day and atomically."""

import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Literal

import polars as pl
from polars.io.plugins import register_io_source

from piqc_pipeline.atomic import replacing
from piqc_pipeline.errors import HistoryError, OutputUnwritable, UsageError
from piqc_pipeline.history.samples import HISTORY_SCHEMA
from piqc_pipeline.history.table import HistoryStore

Form = Literal["csv", "rows", "parquet"]
"""`csv` is the specification's `gpu_util.csv` (`ds,y`); `rows` every column as CSV; `parquet` every column."""


def export(
    store: HistoryStore,
    form: Form,
    target: Path | IO[bytes],
    *,
    workloads: list[str] | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    on_day: Callable[[], None] | None = None,
) -> int:
    """Write the table, or some workloads of it; returns the number of rows.

    With `csv` and several workloads, y is their mean utilization in percent, weighted by accelerators.

    Args:
        store: The history.
        form: See `Form`.
        target: A file, replaced atomically, or an open binary stream.
        workloads: Ids; None means all.
        start: First instant.
        end: Instant after the last.
        on_day: Called after each day.

    Raises:
        UsageError: The range ends before it begins.
        HistoryError: Nothing is stored in the range.
        OutputUnwritable: Full disk or read-only folder.
    """
    if start is not None and end is not None and start >= end:
        raise UsageError(f"the start, {start:%Y-%m-%dT%H:%M}, is not before the end, {end:%Y-%m-%dT%H:%M}")
    days = [
        day for day in store.days() if (start is None or day + timedelta(days=1) > start) and (end is None or day < end)
    ]
    if not days:
        raise HistoryError(f"there is no history in {store.location} for that range: nothing to export")
    if not isinstance(target, Path):
        return _write(store, form, target, days, workloads, start, end, on_day)
    try:
        with replacing(target) as partial, partial.open("wb") as stream:
            rows = _write(store, form, stream, days, workloads, start, end, on_day)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write {target}: {error.strerror or error}; free space or choose another place"
        ) from error
    return rows


def _write(
    store: HistoryStore,
    form: Form,
    stream: IO[bytes],
    days: list[datetime],
    workloads: list[str] | None,
    start: datetime | None,
    end: datetime | None,
    on_day: Callable[[], None] | None,
) -> int:
    rows, header = 0, True

    def frames() -> Iterator[pl.DataFrame]:
        nonlocal rows
        for day in days:
            first = max(day, start) if start else day
            last = min(day + timedelta(days=1), end) if end else day + timedelta(days=1)
            frame = store.read(first, last, workloads)
            rows += frame.height
            yield frame
            if on_day is not None:
                on_day()

    if form == "parquet":
        # Days pass through one after the other; the whole table never lies in memory.
        source = register_io_source(lambda columns, where, limit, batch: frames(), schema=HISTORY_SCHEMA)
        try:
            source.sink_parquet(stream, compression="zstd")
        except pl.exceptions.ComputeError as error:
            # The file's own error (no reader, no room) stands only in the message.
            if number := re.search(r"os error (\d+)", str(error)):
                raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
            raise
    else:
        stamp = "%Y-%m-%d %H:%M:%S" if form == "csv" else "%Y-%m-%dT%H:%M:%SZ"
        for frame in frames():
            told = ds_y(frame) if form == "csv" else frame
            stream.write(told.write_csv(include_header=header, datetime_format=stamp).encode())
            header = False
    if not rows:
        raise HistoryError(f"no row of {store.location} matches that range and workload: nothing to export")
    return rows


def ds_y(frame: pl.DataFrame) -> pl.DataFrame:
    """The specification's form: `ds` in UTC without zone, `y` in percent, one row an instant."""
    weight = (pl.col("ready_replicas").fill_null(1.0) * pl.col("gpus_per_replica").fill_null(1.0)).clip(
        lower_bound=1e-9
    )
    known = frame.filter(pl.col("utilization").is_not_null())
    means = known.group_by("ts").agg((pl.col("utilization") * weight).sum() / weight.sum())
    return means.sort("ts").select(
        pl.col("ts").dt.replace_time_zone(None).alias("ds"), (pl.col("utilization") * 100).round(2).alias("y")
    )
