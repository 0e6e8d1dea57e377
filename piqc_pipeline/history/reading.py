"""How is a long range of many workloads read without holding all of it? Some workloads after the other."""

from collections.abc import Iterable, Iterator
from datetime import datetime

import polars as pl

from piqc_pipeline.history.samples import empty_history
from piqc_pipeline.history.table import HistoryStore

ROWS_AT_ONCE = 250_000
"""Rows in memory at a time, about 50 MB: the profile of 1,000 workloads and four weeks then takes 470 MiB."""


def by_workloads(
    store: HistoryStore, start: datetime, end: datetime, step_seconds: int, workloads: list[str] | None = None
) -> Iterator[pl.DataFrame]:
    """Rows of `[start, end)`, some workloads after the other: at most about `ROWS_AT_ONCE`, however long the range is.

    Args:
        store: The history.
        start: First instant.
        end: Instant after the last.
        step_seconds: Usual width of a bucket.
        workloads: Only these ids; all if None.
    """
    names = store.workloads(start, end) if workloads is None else sorted(workloads)
    size = max(1, int(ROWS_AT_ONCE * step_seconds / (end - start).total_seconds()))
    if len(names) <= size:
        yield store.read(start, end, workloads)
        return
    for position in range(0, len(names), size):
        yield store.read(start, end, names[position : position + size])


def busiest(parts: Iterable[pl.DataFrame], count: int) -> pl.DataFrame:
    """Rows of the workloads that keep most accelerators busy, of all parts together.

    Args:
        parts: Rows of `HISTORY_SCHEMA`; all rows of a workload are in one part.
        count: Workloads that are kept.
    """
    kept = empty_history()
    for rows in parts:
        both = pl.concat([kept, rows])
        means = both.group_by("workload").agg(pl.col("busy_gpus").mean().fill_null(0), pl.col("utilization").mean())
        ranked = means.sort("busy_gpus", "utilization", "workload", descending=[True, True, False], nulls_last=True)
        kept = both.filter(pl.col("workload").is_in(ranked["workload"].head(count).to_list()))
    return kept
