"""What may replace what in `gpu_utilization`? The interface of both stores and the rule they share.

A window is replaced as a whole, yet an emptier answer never replaces fuller rows: Prometheus forgets, the table must
not. How bytes reach a disk belongs to `duckdb_store` and `lake`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Protocol

import numpy as np
import polars as pl

from piqc_pipeline.history.doubts import Doubt
from piqc_pipeline.history.samples import HISTORY_SCHEMA, TIMESTAMP, conform

KEY = ["cluster", "workload", "ts"]
DECISIVE = ("utilization", "demand_replicas", "samples_seen", "samples_expected", "devices_seen")
"""What decides whether a stored row or a new one stays, beside the key and the width of the bucket."""

FACTS_SCHEMA: dict[str, pl.DataType] = {
    "cluster": pl.String(),
    "taken_at": TIMESTAMP,
    "accelerators": pl.Float64(),
    "installed_usd_per_day": pl.Float64(),
    "wasted_usd_per_day": pl.Float64(),
    "facts_json": pl.String(),
}
"""One row a scan: when, how many accelerators, what they cost and waste a day (null = unknown), the bundle as JSON."""

FINDINGS_SCHEMA: dict[str, pl.DataType] = {
    "cluster": pl.String(),
    "taken_at": TIMESTAMP,
    "kind": pl.String(),
    "subject": pl.String(),
    "gpus": pl.Float64(),
    "usd_per_day": pl.Float64(),
    "confidence": pl.String(),
    "detail": pl.String(),
}
"""One row a finding of a scan: kind of waste, workload id or node, accelerators, dollars a day (null = unknown)."""

PARTS_SCHEMA: dict[str, pl.DataType] = {**HISTORY_SCHEMA, "generation": pl.Int64()}
"""Rows where a day may lie in several objects: `generation` is above that of every row that was there when it came.
A row without `step_seconds` says that there is none any more, while an older one may still lie in another object."""


@dataclass(frozen=True)
class Replaced:
    """What replacing a window did.

    Attributes:
        rows_written: Rows that came from the new answer.
        rows_kept: Stored rows that stayed because the new answer was emptier there.
        rows_fuller: Those of them that the answer tells of, too.
        days_kept: Days of workloads that stayed with their own width of buckets.
        rows_of_kept_days: Rows of these days.
    """

    rows_written: int
    rows_kept: int
    rows_fuller: int = 0
    days_kept: int = 0
    rows_of_kept_days: int = 0

    def __add__(self, other: "Replaced") -> "Replaced":
        """Both together."""
        return Replaced(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def doubts(self, told_by: str) -> tuple[Doubt, ...]:
        """What was kept, and why.

        Args:
            told_by: As a sentence calls what the new rows came from.
        """
        emptier = f"{{count}} workload-days stay as stored: {told_by} has another bucket width there and is emptier"
        fuller = f"{{count}} stored rows are fuller than in {told_by} and stay (force takes the emptier ones)"
        missing = f"{{count}} stored rows are not in {told_by} and stay (force deletes them)"
        rows_missing = self.rows_kept - self.rows_fuller - self.rows_of_kept_days
        told = ((emptier, self.days_kept), (fuller, self.rows_fuller), (missing, rows_missing))
        return tuple(Doubt(says, count) for says, count in told if count)


class HistoryStore(Protocol):
    """One interface over the DuckDB file and the Parquet lake."""

    location: str

    def replace(
        self, start: datetime, end: datetime, frame: pl.DataFrame, *, force: bool = False, others: bool = True
    ) -> Replaced:
        """Replace the rows of `[start, end)`; running it twice changes nothing.

        Args:
            start: First instant.
            end: Instant after the last.
            frame: The new rows.
            force: Take them as they are, emptier or not.
            others: Whether they tell of all workloads; else days of a workload that they do not name are left alone.
        """
        ...

    def read(
        self, start: datetime | None = None, end: datetime | None = None, workloads: "list[str] | None" = None
    ) -> pl.DataFrame:
        """Rows of `HISTORY_SCHEMA` in `[start, end)`, sorted by cluster, workload and time."""
        ...

    def query(self, sql: str) -> pl.DataFrame:
        """The answer to a SELECT over `gpu_utilization`, `observations`, `findings` and `facts`."""
        ...

    def days(self) -> list[datetime]:
        """UTC midnights of the days that have rows."""
        ...

    def workloads(self, start: datetime | None = None, end: datetime | None = None) -> list[str]:
        """Ids of the workloads that have rows in `[start, end)`, sorted."""
        ...

    def newest(self) -> datetime | None:
        """End of the newest bucket; None for an empty table."""
        ...

    def append_observations(self, frame: pl.DataFrame) -> int:
        """Add what snapshots saw; observations already there are left alone. Returns how many were new."""
        ...

    def append_findings(self, frame: pl.DataFrame) -> int:
        """Add the findings of a scan (`FINDINGS_SCHEMA`); a scan already there is left alone."""
        ...

    def append_facts(self, frame: pl.DataFrame) -> int:
        """Add the facts of a scan (`FACTS_SCHEMA`); a scan already there is left alone."""
        ...

    def observations(self, start: datetime | None = None, end: datetime | None = None) -> pl.DataFrame:
        """What snapshots saw in `[start, end)`, as rows of `HISTORY_SCHEMA` whose `ts` is the instant."""
        ...

    def findings(self) -> pl.DataFrame:
        """All stored findings, oldest first."""
        ...

    def facts(self) -> pl.DataFrame:
        """All stored facts, oldest first."""
        ...

    def prune(self, before: datetime) -> int:
        """Delete rows older than the instant; returns how many."""
        ...

    def compact(self) -> None:
        """Give freed space back to the disk."""
        ...


def check_window(start: datetime, end: datetime, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame in the table's form, or an error where it does not fit the window.

    Raises:
        ValueError: The window is empty, a row lies outside it or not at a whole second, or a bucket of a workload
            occurs twice.
    """
    if start >= end:
        raise ValueError(f"the window {start.isoformat()} to {end.isoformat()} is empty")
    if (
        frame.schema != HISTORY_SCHEMA
        or frame.select(pl.any_horizontal((~pl.col(pl.Float64).is_finite()).any())).item()
    ):
        frame = conform(frame)
    if frame.is_empty():
        return frame
    if frame.select(pl.any_horizontal(pl.col(*KEY, "step_seconds").is_null()).any()).item():
        raise ValueError("a row has no cluster, workload, time or bucket width")
    outside = frame.filter((pl.col("ts") < start) | (pl.col("ts") >= end))
    if not outside.is_empty():
        row = outside.row(0, named=True)
        raise ValueError(f"a row of {row['ts'].isoformat()} lies outside {start.isoformat()} to {end.isoformat()}")
    within = frame.filter(pl.col("ts").to_physical() % 1_000_000 != 0)
    if not within.is_empty():
        raise ValueError(f"the bucket {within['ts'][0].isoformat()} does not begin at a whole second")
    if _in_order(frame):
        return frame
    frame = frame.sort(KEY)
    doubled = frame.filter(pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in KEY))
    if not doubled.is_empty():
        row = doubled.row(0, named=True)
        raise ValueError(f"workload {row['workload']} has two rows for the bucket {row['ts'].isoformat()}")
    return frame


def _in_order(frame: pl.DataFrame) -> bool:
    """True where rows rise by their key, as sources deliver them: looking is twenty times cheaper than sorting."""
    names, starts = runs(frame, KEY[:-1])
    cluster, workload = (pl.col(name) for name in KEY[:-1])
    rises = (cluster > cluster.shift(1)) | ((cluster == cluster.shift(1)) & (workload > workload.shift(1)))
    later = (pl.col("ts") > pl.col("ts").shift(1)) | (starts != starts.shift(1))
    return bool(names.select(rises.slice(1).all()).item() and frame.select(later.slice(1).all()).item())


def runs(rows: pl.DataFrame, names: Sequence[str]) -> tuple[pl.DataFrame, pl.Series]:
    """The names of each run of rows that share them, and the position of each row's run.

    Names come in runs of a day, so that a thousand of them are looked up and not 288,000.
    """
    changes = rows.select(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in names)
    starts = changes.with_row_index("row").filter((pl.col("row") == 0) | pl.any_horizontal(names))["row"].to_numpy()
    lengths = np.diff(starts, append=rows.height)
    return rows.select(names)[starts], pl.Series(np.repeat(np.arange(starts.size, dtype=np.int32), lengths))


def merged(
    stored: pl.DataFrame, incoming: pl.DataFrame, *, force: bool = False, others: bool = True, key: list[str] = KEY
) -> tuple[pl.DataFrame, Replaced]:
    """The rows that a window holds after an answer came in.

    A bucket goes to the answer unless what is stored is fuller: more devices times a larger share of the expected
    samples, or a figure where the answer has none. A stored bucket that the answer lacks stays. Where the two have
    different bucket widths in one day of a workload, the fuller of the two takes the whole day, because rows of both
    would count the same minutes twice.

    Args:
        stored: Rows of the window as they lie in the store.
        incoming: Rows of the window as the source answers now.
        force: Take the answer as it is, emptier or not.
        others: Whether the answer is about all workloads; else days of one that it does not name are left alone.
        key: Columns that name a bucket, `ts` last; a store may have numbers in place of names.
    """
    if not others:
        days: list[str | pl.Expr] = [*key[:-1], pl.col("ts").dt.truncate("1d")]
        named = incoming.select(days).unique()
        rest = stored.join(named, left_on=days, right_on=[*key[:-1], "ts"], how="anti", maintain_order="left")
        told = stored.join(named, left_on=days, right_on=[*key[:-1], "ts"], how="semi", maintain_order="left")
        rows, outcome = merged(told, incoming, force=force, key=key)
        return (pl.concat([rest.select(rows.columns), rows]).sort(key) if rest.height else rows), outcome
    if force or stored.is_empty() or takes_all(stored, incoming, [*key, "step_seconds"]):
        return incoming, Replaced(incoming.height, 0)
    stored, incoming, days_kept, rows_of_kept_days = _one_width_a_day(stored, incoming, key)
    both = pl.concat(
        [
            incoming.with_columns(_fullness(), pl.lit(1, pl.Int8).alias("_new")),
            stored.with_columns(_fullness(), pl.lit(0, pl.Int8).alias("_new")),
        ]
    )
    winners = both.sort([*key, "_full", "_new"]).unique(key, keep="last", maintain_order=True)
    written = int(winners["_new"].sum())
    kept = winners.height - written
    fuller = winners.filter(pl.col("_new") == 0).join(incoming, on=key, how="semi").height
    outcome = Replaced(written, kept, fuller, days_kept, rows_of_kept_days)
    return winners.select(incoming.columns), outcome


def joined_parts(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of several parts, sorted by their key; of a bucket that stands in two of them the one written last.

    Args:
        rows: Of `PARTS_SCHEMA`. Of equal generations, which two writers at once make, the fuller row counts.
    """
    rows, there = rows.sort(KEY), pl.col("step_seconds").is_not_null()
    if not rows.select(pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in KEY).any()).item():
        return rows.filter(there)
    fullest = rows.with_columns(_fullness()).sort([*KEY, "generation", "_full"], maintain_order=True)
    return fullest.unique(KEY, keep="last", maintain_order=True).drop("_full").filter(there)


def takes_all(stored: pl.DataFrame, incoming: pl.DataFrame, same: Sequence[str]) -> bool:
    """True where an answer has the buckets that are stored, none of them emptier: a day that is run again.

    Args:
        stored: At least the columns of `same` and `DECISIVE`.
        incoming: Rows of the answer, in the same order.
        same: Columns that name a bucket and tell its width.
    """
    if stored.height != incoming.height or not all(stored[name].equals(incoming[name]) for name in same):
        return False
    return not (incoming.select(_fullness())["_full"] < stored.select(_fullness())["_full"]).any()


def _fullness() -> pl.Expr:
    """How much a row knows: devices seen times share of samples seen; below 0 where it has no figure at all."""
    share = (pl.col("samples_seen") / pl.col("samples_expected")).clip(0, 1).fill_null(1.0).fill_nan(1.0)
    devices = pl.col("devices_seen").cast(pl.Float64).fill_null(1.0)
    measured = pl.any_horizontal(pl.col("utilization", "demand_replicas").is_not_null())
    return pl.when(measured).then((share * devices).round(4)).otherwise(-1.0).alias("_full")


def _one_width_a_day(
    stored: pl.DataFrame, incoming: pl.DataFrame, key: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame, int, int]:
    """Both without the days of the emptier width; how many days stay as stored, and their rows."""
    group = [*key[:-1], "day"]
    columns = incoming.columns
    day = pl.col("ts").dt.truncate("1d").alias("day")
    weigh = (pl.col("step_seconds") * pl.col("_full").clip(lower_bound=0)).sum()
    widths = pl.col("step_seconds")

    def summary(frame: pl.DataFrame) -> pl.DataFrame:
        return (
            frame.with_columns(day, _fullness())
            .group_by(group)
            .agg(weigh.alias("weight"), widths.min().alias("narrow"), widths.max().alias("wide"))
        )

    pairs = (
        summary(stored)
        .join(summary(incoming), on=group, suffix="_new")
        .filter((pl.col("narrow") != pl.col("wide_new")) | (pl.col("wide") != pl.col("narrow_new")))
    )
    if pairs.is_empty():
        return stored, incoming, 0, 0
    keep = pairs.filter(pl.col("weight") > pl.col("weight_new"))
    take = pairs.filter(pl.col("weight") <= pl.col("weight_new"))
    stored = stored.with_columns(day).join(take, on=group, how="anti").select(columns)
    incoming = incoming.with_columns(day).join(keep, on=group, how="anti").select(columns)
    rows_kept = stored.with_columns(day).join(keep, on=group, how="semi").height
    return stored, incoming, keep.height, rows_kept


def as_schema(frame: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """The frame in the order and types of a schema; absent columns are null, times without a zone are UTC."""
    return frame.select(
        (pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, dtype=kind)).alias(name)
        for name, kind in schema.items()
    )


OBSERVATIONS_SCHEMA = HISTORY_SCHEMA
"""Observations have the table's columns; their `ts` is the instant of the snapshot."""
