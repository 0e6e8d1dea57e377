"""How does `gpu_utilization` lie in the DuckDB file? SQL is in `migrations`; connections belong to `duckdb_store`.

What stays the same over a workload's rows is its series and stands in a table of its own; rows carry the number of
their series: 288,000 rows a day share a thousand series, and inserting numbers takes half the time of inserting text.
`gpu_utilization` is a view that joins both.
"""

from datetime import UTC, datetime
from typing import Any

import polars as pl

from piqc_pipeline.history.samples import HISTORY_SCHEMA
from piqc_pipeline.history.table import runs

SERIES = ("cluster", "workload", "step_seconds", "gpus_per_replica", "signal", "confidence", "source")
"""Columns that change rarely over the life of a workload."""
SERIES_SCHEMA: dict[str, pl.DataType] = {"series_id": pl.Int32(), **{name: HISTORY_SCHEMA[name] for name in SERIES}}
BUCKETS_SCHEMA: dict[str, pl.DataType] = {
    "series_id": pl.Int32(),
    **{name: kind for name, kind in HISTORY_SCHEMA.items() if name not in SERIES},
}
"""`gpu_utilization` with a number in place of the series."""
BUCKETS_KEY = ["series_id", "ts"]


def coded(rows: pl.DataFrame, known: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of `HISTORY_SCHEMA` as rows of `BUCKETS_SCHEMA`, sorted by series and time; and the series that are new.

    Args:
        rows: Any rows; series come in runs of a day, so that a thousand are looked up and not 288,000.
        known: `SERIES_SCHEMA`; the new ones are numbered on from its last.
    """
    heads, run = runs(rows, SERIES)
    unique = heads.unique(maintain_order=True)
    missing = unique.join(known, on=SERIES, how="anti", nulls_equal=True, maintain_order="left")
    first = int(known["series_id"].to_numpy().max()) + 1 if known.height else 0
    numbers = pl.Series("series_id", range(first, first + missing.height), dtype=pl.Int32)
    new = missing.select(numbers, *SERIES)
    found = heads.join(pl.concat([known, new]), on=SERIES, how="left", nulls_equal=True, maintain_order="left")
    numbered = rows.with_columns(found["series_id"].gather(run)).select(list(BUCKETS_SCHEMA))
    number, ts = pl.col("series_id"), pl.col("ts")
    later = (number > number.shift(1)) | ((number == number.shift(1)) & (ts > ts.shift(1)))
    return numbered if numbered.select(later.slice(1).all()).item() else numbered.sort(BUCKETS_KEY), new


def named(rows: pl.DataFrame, series: pl.DataFrame) -> pl.DataFrame:
    """Rows of `BUCKETS_SCHEMA` as rows of `HISTORY_SCHEMA`, sorted by cluster, workload and time.

    Args:
        rows: Rows; those of other series are left out.
        series: `SERIES_SCHEMA`.
    """
    ranked = series.sort(SERIES[:2]).with_columns(rank=pl.struct(SERIES[:2]).rle_id())
    return rows.join(ranked, on="series_id").sort("rank", "ts").select(list(HISTORY_SCHEMA))


def where(start: datetime | None, end: datetime | None) -> tuple[str, list[Any]]:
    """Condition and values that keep rows of `[start, end)`."""
    bounds = [(">=", start), ("<", end)]
    known = [(sign, moment) for sign, moment in bounds if moment is not None]
    clause = " AND ".join(f"ts {sign} ?" for sign, _ in known)
    return (f" WHERE {clause}" if clause else ""), [naive(moment) for _, moment in known]


def naive(moment: datetime) -> datetime:
    """The instant in UTC without its zone, as the file has it."""
    return moment.astimezone(UTC).replace(tzinfo=None)
