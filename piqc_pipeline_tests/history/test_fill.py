from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from piqc_pipeline.errors import PartitionInFuture, PrometheusError
from piqc_pipeline.history.doubts import Doubt
from piqc_pipeline.history.fill import fill
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.samples import FetchedHistory
from piqc_pipeline.history.store import open_store
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows


class Constant:
    """A source of 0.5 in every bucket, which fails from an instant on."""

    told_by, tells_all = "the answer", True

    def __init__(self, fails_at: datetime | None = None) -> None:
        self.fails_at = fails_at

    def fetch(
        self, start: datetime, end: datetime, inventory: Sequence[WorkloadInventory], bucket_seconds: int
    ) -> FetchedHistory:
        if self.fails_at and end > self.fails_at:
            raise PrometheusError("gone")
        buckets = int((end - start).total_seconds() // bucket_seconds)
        return FetchedHistory(rows([0.5] * buckets, start=start, step_seconds=bucket_seconds), (Doubt("a warning"),))


def test_a_day_that_has_not_begun_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionInFuture, match="cannot fill the history from 2025-01-07 00:00 UTC: it is only"):
        fill(open_store(tmp_path / "h.duckdb"), Constant(), NEXT_DAY, NEXT_DAY + timedelta(days=1), (), 300, DAY)
    assert not (tmp_path / "h.duckdb").exists()


def test_a_bucket_that_has_not_ended_is_left_for_later(tmp_path: Path) -> None:
    store = open_store(tmp_path / "h.duckdb")
    filled = fill(store, Constant(), DAY, NEXT_DAY, (), 300, DAY + timedelta(minutes=14))
    assert (filled.rows_written, filled.warnings) == (2, ("a warning",))
    assert store.newest() == DAY + timedelta(minutes=10)


def test_a_range_that_begins_and_ends_within_buckets_takes_the_first_whole_and_leaves_the_last(tmp_path: Path) -> None:
    store = open_store(tmp_path / "h.duckdb")
    start, end = DAY + timedelta(minutes=13, seconds=27), DAY + timedelta(minutes=24, seconds=59)
    filled = fill(store, Constant(), start, end, (), 300, NEXT_DAY)
    assert filled.rows_written == 2
    assert store.read().equals(rows([0.5, 0.5], start=DAY + timedelta(minutes=10)))


def test_a_source_that_dies_in_the_middle_leaves_whole_days_and_the_next_run_completes_them(tmp_path: Path) -> None:
    store = open_store(tmp_path / "h.duckdb")
    end = DAY + timedelta(days=3)
    with pytest.raises(PrometheusError):
        fill(store, Constant(NEXT_DAY), DAY, end, (), 3600, end)
    assert store.read().height == 24
    fill(store, Constant(), DAY, end, (), 3600, end)
    assert store.read().equals(rows([0.5] * 72, step_seconds=3600))


def test_progress_is_told_day_by_day(tmp_path: Path) -> None:
    done: list[int] = []
    end, store = DAY + timedelta(days=5), open_store(tmp_path / "h.duckdb")
    fill(store, Constant(), DAY, end, (), 3600, end, on_day=lambda: done.append(store.read().height))
    assert done == [24, 48, 72, 96, 120]


def test_the_same_warning_of_many_days_is_one_sentence_with_their_number(tmp_path: Path) -> None:
    store = open_store(tmp_path / "h.duckdb")
    end = DAY + timedelta(days=28)
    filled = fill(store, Constant(), DAY, end, (), 3600, end)
    assert filled.warnings == ("a warning (28 days, 2025-01-06 to 2025-02-02)",)


@pytest.mark.parametrize("name", ["h.duckdb", "lake"])
def test_stored_rows_that_answers_lack_are_one_sentence_with_their_number(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name)
    end = DAY + timedelta(days=3)
    two = pl.concat([rows([0.9] * count, workload=f"prod/x/Deployment/w{count}", start=DAY) for count in (2, 5)])
    store.replace(DAY, NEXT_DAY, two)
    store.replace(NEXT_DAY, end, rows([0.9], workload="prod/x/Deployment/w9", start=NEXT_DAY))
    filled = fill(store, Constant(), DAY, end, (), 3600, end)
    assert filled.rows_kept == 8
    assert filled.warnings == (
        "a warning (3 days, 2025-01-06 to 2025-01-08)",
        "8 stored rows are not in the answer and stay (force deletes them) (2 days, 2025-01-06 to 2025-01-07)",
    )


def test_what_is_filled_twice_or_in_overlapping_ranges_is_the_same(tmp_path: Path) -> None:
    store = open_store(tmp_path / "h.duckdb")
    end = DAY + timedelta(days=2)
    for first in (DAY, DAY + timedelta(hours=7), DAY):
        fill(store, Constant(), first, end, (), 3600, end)
    assert store.read().equals(rows([0.5] * 48, step_seconds=3600))
    assert store.read().select(pl.struct("workload", "ts").is_duplicated().any()).item() is False
