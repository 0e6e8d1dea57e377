"""What is one row of `gpu_utilization`, and how do samples become rows of equal buckets?

Where samples come from belongs to the sources (`prometheus`, `files`, `snapshots`); where rows lie to the stores.
A missing bucket has no row; an unknown figure is null, never 0 and never NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import polars as pl

from piqc_pipeline.history.doubts import Doubt
from piqc_pipeline.history.inventory import WorkloadInventory

TIMESTAMP = pl.Datetime("us", "UTC")

HISTORY_SCHEMA: dict[str, pl.DataType] = {
    "cluster": pl.String(),
    "workload": pl.String(),
    "ts": TIMESTAMP,
    "step_seconds": pl.Int32(),
    "utilization": pl.Float64(),
    "ready_replicas": pl.Float64(),
    "wanted_replicas": pl.Float64(),
    "gpus_per_replica": pl.Float64(),
    "demand_replicas": pl.Float64(),
    "busy_gpus": pl.Float64(),
    "offered_rate": pl.Float64(),
    "waiting_requests": pl.Float64(),
    "signal": pl.String(),
    "confidence": pl.String(),
    "samples_seen": pl.Int32(),
    "samples_expected": pl.Int32(),
    "devices_seen": pl.Int32(),
    "devices_expected": pl.Int32(),
    "censored": pl.Boolean(),
    "source": pl.String(),
}
"""Columns of `gpu_utilization`.

    cluster, workload   name of the cluster; id `cluster/namespace/Kind/name`
    ts, step_seconds    start of the bucket, UTC; its width
    utilization         share 0..1: mean of the load signal over the devices of ready pods
    ready_replicas, wanted_replicas   means over the bucket
    gpus_per_replica    accelerators that one replica requests
    demand_replicas     work in replicas that would be 100 % busy; corrected where the bucket is censored
    busy_gpus           utilization x devices: accelerators that would be 100 % busy; not corrected
    offered_rate        requests/s (tokens/s where the engine counts no requests)
    waiting_requests    mean length of the engines' queues
    signal, confidence  which metric the load comes from; high, medium or low
    samples_seen, samples_expected, devices_seen, devices_expected   coverage; null where nobody can tell
    censored            True where demand may have been above what the replicas could show
    source              prometheus, snapshot or file
"""

HISTORY_COLUMNS = tuple(HISTORY_SCHEMA)

DECIMALS = {
    "utilization": 4,
    "ready_replicas": 3,
    "wanted_replicas": 3,
    "gpus_per_replica": 3,
    "demand_replicas": 4,
    "busy_gpus": 3,
    "offered_rate": 4,
    "waiting_requests": 2,
}
"""Digits that the signals carry: DCGM's percentages are integers, means of ten of them end at 0.1 points."""


@dataclass(frozen=True)
class FetchedHistory:
    """What a source answered for a range.

    Attributes:
        frame: Rows of `HISTORY_SCHEMA`, sorted by workload and time, one a bucket at most.
        doubts: What is missing or doubtful; goes into the run's metadata.
    """

    frame: pl.DataFrame
    doubts: tuple[Doubt, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The doubts as sentences."""
        return tuple(map(str, self.doubts))


class HistorySource(Protocol):
    """Anything that history can be read from.

    Attributes:
        told_by: As sentences call what it tells: `the answer of Prometheus`, `load.csv`.
        tells_all: Whether a workload that it does not name has no load there; a file tells of its own only.
    """

    @property
    def told_by(self) -> str: ...  # noqa: D102 - see the class

    @property
    def tells_all(self) -> bool: ...  # noqa: D102

    def fetch(
        self, start: datetime, end: datetime, inventory: Sequence[WorkloadInventory], bucket_seconds: int
    ) -> FetchedHistory:
        """Rows whose buckets begin in `[start, end)`."""
        ...


def empty_history() -> pl.DataFrame:
    """A frame of `HISTORY_SCHEMA` without rows."""
    return pl.DataFrame(schema=HISTORY_SCHEMA)


def conform(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame in the order, types and rounding of `HISTORY_SCHEMA`; absent columns are null, NaN is null.

    Args:
        frame: Any subset of the columns; `ts` aware in UTC, or naive and meant as UTC.
    """
    columns = []
    for name, kind in HISTORY_SCHEMA.items():
        if name not in frame.columns or frame.schema[name] == pl.Null:
            columns.append(pl.lit(None, dtype=kind).alias(name))
            continue
        column = pl.col(name)
        if name == "ts":
            column = column.dt.replace_time_zone("UTC") if _naive(frame) else column.dt.convert_time_zone("UTC")
        column = column.cast(kind)
        if name in DECIMALS:
            column = pl.when(column.is_finite()).then(column.round(DECIMALS[name]) + 0.0)
        columns.append(column.alias(name))
    return frame.select(columns)


def _naive(frame: pl.DataFrame) -> bool:
    kind = frame.schema["ts"]
    return isinstance(kind, pl.Datetime) and kind.time_zone is None


def floor_to(moment: datetime, step_seconds: int) -> datetime:
    """The start of the bucket that holds the moment; buckets are counted from 1970-01-01T00:00Z."""
    seconds = int(moment.timestamp() // step_seconds) * step_seconds
    return datetime.fromtimestamp(seconds, UTC)


def day_of(moment: datetime) -> datetime:
    """UTC midnight before or at the moment."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def days_between(start: datetime, end: datetime) -> list[datetime]:
    """UTC midnights of every day that `[start, end)` touches."""
    days = []
    day = day_of(start)
    while day < end:
        days.append(day)
        day += timedelta(days=1)
    return days
