"""What does Prometheus know of a workload's load? Asked day by day, all questions of a day at the same time.

Which queries are right belongs to `questions`, whose their answers are to `prometheus_day`, transport to the package
`prometheus`, the arithmetic of rows to `rows`.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import httpx
import polars as pl

from piqc_pipeline.history.attribution import Owners
from piqc_pipeline.history.doubts import together
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.points import Window
from piqc_pipeline.history.prometheus_day import PrometheusDay
from piqc_pipeline.history.questions import DayQuestions, names_pattern
from piqc_pipeline.history.rows import day_rows
from piqc_pipeline.history.samples import FetchedHistory, days_between, empty_history, floor_to
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline.prometheus.client import PrometheusClient

MAX_ANSWER_BYTES = 32 * 2**20
"""A longer answer is asked for in halves: decoded, it takes ten times as much, and some are read at once."""
DAY_SECONDS = 86_400


class PrometheusSource:
    """History from a Prometheus that scrapes GPU exporters, engines and, at best, kube-state-metrics."""

    told_by = "the answer of Prometheus"
    tells_all = True

    def __init__(
        self,
        access: PrometheusAccess,
        *,
        workers: int = 4,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            access: Address, credentials, time limit.
            workers: Questions asked at the same time.
            transport: In place of the network, in tests.
        """
        self._access = replace(access, max_answer_bytes=min(access.max_answer_bytes, MAX_ANSWER_BYTES))
        self._workers = workers
        self._transport = transport

    def fetch(
        self, start: datetime, end: datetime, inventory: Sequence[WorkloadInventory], bucket_seconds: int
    ) -> FetchedHistory:
        """Rows whose buckets begin in `[start, end)`; a bucket without samples has no row.

        Args:
            start: First bucket; floored to the bucket's width.
            end: A bucket that ends after it is left for later.
            inventory: Workloads to join pods to.
            bucket_seconds: Width of a bucket.

        Raises:
            PrometheusError: Unreachable, refused, timed out, or an answer that is none.
        """
        start, end = floor_to(start, bucket_seconds), floor_to(end, bucket_seconds)
        # Whole days are asked for and cut afterwards: what a pod or signal is worth is judged by its day, so that a
        # part of a day gives the same rows as the day.
        with PrometheusClient(self._access, self._transport) as client, _pool(self._workers) as pool:
            parts = [self._day(client, pool, day, inventory, bucket_seconds) for day in days_between(start, end)]
        frame = pl.concat([part.frame for part in parts]) if parts else empty_history()
        frame = frame.filter((pl.col("ts") >= start) & (pl.col("ts") < end))
        if len(parts) > 1:
            names = pl.Enum(frame["workload"].unique().sort())  # whose numbers are sorted, not millions of texts
            frame = frame.sort(pl.col("workload").cast(names), "ts")
        return FetchedHistory(frame, together(doubt for part in parts for doubt in part.doubts))

    def _day(
        self,
        client: PrometheusClient,
        pool: Executor,
        start: datetime,
        inventory: Sequence[WorkloadInventory],
        bucket_seconds: int,
    ) -> FetchedHistory:
        window = Window(start, bucket_seconds, DAY_SECONDS // bucket_seconds)
        names = set(client.names(names_pattern(), start, window.end))
        day = PrometheusDay(DayQuestions(client, pool, window, names), window)
        rows = day_rows(day.samples(Owners(inventory, *day.owners())), inventory)
        return FetchedHistory(rows, together(day.doubts))


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads whose waiting work is dropped when one of them fails."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
