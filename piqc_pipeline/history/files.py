"""What load does a CSV or Parquet file tell of which workload? Rows are parsed in `parsing`."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import polars as pl

from piqc_pipeline.errors import HistoryFileUnreadable
from piqc_pipeline.history.demand import SATURATED_UTILIZATION
from piqc_pipeline.history.doubts import Doubt, some
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.parsing import NATIVE_FIGURES, ParsedFile, parse_file
from piqc_pipeline.history.samples import FetchedHistory, conform, empty_history

SHOWN_BAD_ROWS = 5
NO_CLUSTER = "file"
"""Cluster in ids of series that no inventory knows."""
USUAL_STEPS_SECONDS = (60, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
GAP_WORTH_TELLING_SECONDS = 6 * 3600


class Series(NamedTuple):
    """One series of a file: its name there, its workload id, its step in seconds, how many rows and instants it has."""

    name: str
    workload: str
    step_seconds: int
    rows: int
    instants: int
    first: datetime
    last: datetime


class FileSource:
    """History from a file: CSV or Parquet in one of the forms of `parsing`."""

    tells_all = False

    def __init__(
        self, path: Path | str, *, unit: str | None = None, capacity: float | None = None, skip_bad: bool = False
    ) -> None:
        """The file is opened at the first fetch.

        Args:
            path: `.csv` or `.parquet`.
            unit: Unit in place of what the file says.
            capacity: Rate that keeps one replica 100 % busy, where the file has no column for it.
            skip_bad: Leave bad rows out with a warning; else one bad row refuses the file.
        """
        self._path = Path(path)
        self._unit = unit
        self._capacity = capacity
        self._skip_bad = skip_bad
        self._opened: ParsedFile | None = None
        self._known: dict[tuple[tuple[WorkloadInventory, ...], int], list[Series]] = {}
        self._bad: tuple[int, list[tuple[int, str]]] | None = None

    @property
    def told_by(self) -> str:
        """As sentences call it."""
        return self._path.name

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def refuse_bad_rows(self) -> None:
        """Raise `HistoryFileUnreadable` where the file has bad rows and they may not be skipped."""
        self._bad_rows(self.opened())

    def opened(self) -> ParsedFile:
        """The parsed file (rows are read lazily)."""
        if self._opened is None:
            self._opened = parse_file(self._path, unit=self._unit)
        return self._opened

    def series(self, inventory: Sequence[WorkloadInventory], bucket_seconds: int) -> list[Series]:
        """Every series of the file with the workload it belongs to and its step (never below the bucket's width)."""
        key = (tuple(inventory), bucket_seconds)
        if key not in self._known:
            self._known[key] = self._read_series(inventory, bucket_seconds)
        return self._known[key]

    def _read_series(self, inventory: Sequence[WorkloadInventory], bucket_seconds: int) -> list[Series]:
        rows = _good(self.opened()).select("series", "ts")
        steps = pl.col("ts").unique().sort().diff().dt.total_microseconds().quantile(0.5, "lower") / 1_000_000
        table = (
            rows.group_by("series")
            .agg(
                steps.alias("step"),
                pl.len().alias("rows"),
                pl.col("ts").n_unique().alias("instants"),
                pl.col("ts").min().alias("first"),
                pl.col("ts").max().alias("last"),
            )
            .sort("series")
            .collect()
        )
        names = _workload_ids(table["series"].to_list(), inventory)
        return [
            Series(name, names[name], max(bucket_seconds, _step(step or bucket_seconds)), *told)
            for name, step, *told in table.iter_rows()
        ]

    def fetch(
        self, start: datetime, end: datetime, inventory: Sequence[WorkloadInventory], bucket_seconds: int
    ) -> FetchedHistory:
        """Rows of the file whose buckets begin in `[start, end)`; a file coarser than the bucket keeps its own step.

        Raises:
            HistoryFileUnreadable: The file cannot be read, holds no good row, or holds bad ones and `skip_bad` is off.
        """
        parsed = self.opened()
        warnings = self._bad_rows(parsed)
        series = self.series(inventory, bucket_seconds)
        if not series:
            raise HistoryFileUnreadable(f"cannot read {self._path}: no row of it can be used")
        warnings += _series_warnings(series, inventory)
        known = pl.DataFrame(
            {
                "series": [entry.name for entry in series],
                "workload": [entry.workload for entry in series],
                "step_seconds": [entry.step_seconds for entry in series],
            }
        ).lazy()
        step_us = pl.col("step_seconds").cast(pl.Int64) * 1_000_000
        floored = (pl.col("ts").dt.epoch("us") // step_us * step_us).cast(pl.Datetime("us", "UTC"))
        means = (
            _good(parsed)
            .join(known, on="series")
            .with_columns(floored.alias("ts"))
            .filter((pl.col("ts") >= start) & (pl.col("ts") < end))
            .group_by("workload", "ts", "step_seconds")
            .agg(pl.col(*NATIVE_FIGURES).mean(), pl.len().alias("samples_seen"))
            .collect(engine="streaming")
        )
        known_rates = {entry.id: self._capacity or entry.capacity_rate_per_replica for entry in inventory}
        by_workload = pl.col("workload").replace_strict(known_rates, default=self._capacity, return_dtype=pl.Float64)
        means = means.with_columns(pl.col("capacity_rate_per_replica").fill_null(by_workload))
        rows = _with_demand(means, inventory)
        return FetchedHistory(rows, tuple(map(Doubt, warnings + _load_warnings(rows))))

    def _bad_rows(self, parsed: ParsedFile) -> list[str]:
        if self._bad is None:
            self._bad = parsed.bad_rows(SHOWN_BAD_ROWS)
        count, first = self._bad
        if not count:
            return []
        word = "row" if self._path.suffix == ".parquet" else "line"
        shown = "; ".join(f"{word} {line}: {problem}" for line, problem in first)
        more = f"; and {count - len(first)} more" if count > len(first) else ""
        if self._skip_bad:
            were = "row of it was" if count == 1 else "rows of it were"
            return [f"{self._path}: {count} bad {were} left out: {shown}{more}"]
        raise HistoryFileUnreadable(
            f"{self._path} has {counted(count, 'bad row')}: {shown}{more}; correct {'it' if count == 1 else 'them'}, "
            "or import the rest with `piqc history import --skip-bad`"
        )


def _good(parsed: ParsedFile) -> pl.LazyFrame:
    """Rows that say something: no problem, and at least one figure (an empty cell is a missing bucket)."""
    return parsed.rows.filter(
        pl.col("problem").is_null(),
        pl.any_horizontal(
            pl.col("utilization", "demand_replicas", "busy_gpus", "offered_rate", "waiting_requests").is_not_null()
        ),
    )


def _step(median_seconds: float) -> int:
    """The usual step near the median distance of samples, a day at most; jittered clocks are within 5 % of it."""
    near = [step for step in USUAL_STEPS_SECONDS if abs(step - median_seconds) <= 0.05 * step]
    return near[0] if near else min(round(median_seconds), USUAL_STEPS_SECONDS[-1])


def _workload_ids(names: list[str], inventory: Sequence[WorkloadInventory]) -> dict[str, str]:
    """Series name to workload id: an id as it stands, `namespace/name` by the inventory, else an id of its own."""
    by_name: dict[str, str] = {}
    for entry in inventory:
        by_name[entry.id] = entry.id
        by_name.setdefault(f"{entry.namespace}/{entry.name}", entry.id)
    cluster = inventory[0].cluster if inventory else NO_CLUSTER
    ids = {}
    for name in names:
        parts = name.strip("/").split("/")
        if name in by_name:
            ids[name] = by_name[name]
        elif len(parts) == 4 and parts[2][:1].isupper():  # Kubernetes' kinds begin with a capital
            ids[name] = name
        elif len(parts) == 2:
            ids[name] = f"{cluster}/{parts[0]}/Workload/{parts[1]}"
        else:
            ids[name] = f"{cluster}/{parts[0] if len(parts) > 1 else 'imported'}/Series/{'.'.join(parts[1:] or parts)}"
    return ids


def _with_demand(means: pl.DataFrame, inventory: Sequence[WorkloadInventory]) -> pl.DataFrame:
    """Rows of the table from the figures that the file has; figures that follow from others are computed.

    demand = offered rate / capacity per replica, else utilization x ready replicas; utilization = demand / ready
    replicas, at most 1. Where no replicas are given, one is assumed and confidence is low.
    """
    if means.is_empty():
        return empty_history()
    sizes = {entry.id: entry.gpus_per_replica for entry in inventory}
    ready = pl.col("ready_replicas")
    gpus = pl.col("gpus_per_replica")
    assumed = pl.coalesce(ready, 1.0)
    rate = pl.col("offered_rate") / pl.when(pl.col("capacity_rate_per_replica") > 0).then(
        pl.col("capacity_rate_per_replica")
    )
    frame = means.with_columns(
        pl.coalesce(gpus, pl.col("workload").replace_strict(sizes, default=None, return_dtype=pl.Float64)).alias(
            "gpus_per_replica"
        )
    ).with_columns(
        pl.coalesce("demand_replicas", rate, pl.col("busy_gpus") / gpus, pl.col("utilization") * assumed).alias(
            "demand"
        ),
        pl.when(rate.is_not_null())
        .then(pl.lit("offered_rate/capacity"))
        .when(pl.col("demand_replicas").is_not_null())
        .then(pl.lit("demand_replicas"))
        .when(pl.col("busy_gpus").is_not_null())
        .then(pl.lit("busy_gpus"))
        .when(pl.col("utilization").is_not_null())
        .then(pl.lit("utilization"))
        .otherwise(pl.lit("offered_rate"))
        .alias("signal"),
    )
    derived = pl.when(ready > 0).then((pl.col("demand") / ready).clip(0, 1))
    frame = frame.with_columns(pl.coalesce("utilization", derived).clip(0, 1).alias("utilization"))
    busy = pl.coalesce("busy_gpus", pl.col("utilization") * assumed * gpus)
    saturated = (
        (pl.col("utilization") >= SATURATED_UTILIZATION) | (pl.col("waiting_requests") > 0) | (pl.col("demand") > ready)
    )
    return conform(
        frame.with_columns(
            pl.col("workload").str.split("/").list.first().alias("cluster"),
            pl.col("demand").alias("demand_replicas"),
            busy.alias("busy_gpus"),
            pl.when(ready.is_null() & pl.col("demand_replicas").is_null() & rate.is_null())
            .then(pl.lit("low"))
            .when(rate.is_not_null())
            .then(pl.lit("high"))
            .otherwise(pl.lit("medium"))
            .alias("confidence"),
            saturated.fill_null(False).alias("censored"),
            pl.lit("file").alias("source"),
        )
    ).sort("workload", "ts")


def _series_warnings(series: list[Series], inventory: Sequence[WorkloadInventory]) -> list[str]:
    warnings = []
    known = {entry.id for entry in inventory}
    strange = [entry.name for entry in series if entry.workload not in known]
    if inventory and strange:
        warnings.append(
            f"{len(strange)} series belong to no workload of the inventory and keep their own names: {some(strange)}"
        )
    doubled = [entry.name for entry in series if entry.instants < entry.rows]
    if doubled:
        warnings.append(f"several samples of one instant are averaged in {some(doubled)}")
    single = [entry.name for entry in series if entry.rows == 1]
    if single:
        warnings.append(f"only one sample in {some(single)}: neither a profile nor a forecast can be made of it")
    return warnings


def _load_warnings(rows: pl.DataFrame) -> list[str]:
    warnings = []
    zero = rows.group_by("workload").agg(pl.col("demand_replicas").max().alias("top"), pl.len().alias("n"))
    idle = zero.filter((pl.col("top") == 0) & (pl.col("n") > 1))["workload"].sort().to_list()
    if idle:
        warnings.append(f"the load is zero throughout in {some(idle)}")
    step = pl.col("ts").diff().over("workload").dt.total_seconds()
    gaps = rows.with_columns(step.alias("pause")).filter(
        (pl.col("pause") > GAP_WORTH_TELLING_SECONDS) & (pl.col("pause") > pl.col("step_seconds"))
    )
    for row in gaps.head(SHOWN_BAD_ROWS).iter_rows(named=True):
        hours = (row["pause"] - row["step_seconds"]) / 3600
        warnings.append(f"{hours:.1f} h without samples in {row['workload']} before {row['ts']:%Y-%m-%d %H:%M} UTC")
    rate_only = rows.filter(pl.col("signal") == "offered_rate")["workload"].unique().sort().to_list()
    if rate_only:
        warnings.append(
            f"only a rate is given for {some(rate_only)}: demand in replicas is unknown without "
            "capacity_rate_per_replica (or --capacity)"
        )
    unsure = (
        rows.filter(pl.col("signal") == "utilization", pl.col("confidence") == "low")["workload"]
        .unique()
        .sort()
        .to_list()
    )
    if unsure:
        warnings.append(f"no replicas are given for {some(unsure)}: one is assumed, so demand equals utilization")
    return warnings


def counted(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
