"""Which days a run means."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from piqc_pipeline.defs import partitions
from piqc_pipeline.errors import PartitionInFuture


def day(number: int, hour: int = 0) -> datetime:
    return datetime(2025, 1, number, hour, tzinfo=UTC)


def test_whole_days_in_the_past_are_taken_whole() -> None:
    assert partitions.until_now(dg.TimeWindow(day(6), day(20)), now=day(20)) == (day(6), day(20))


def test_today_ends_now() -> None:
    assert partitions.until_now(dg.TimeWindow(day(19), day(20)), now=day(19, 9)) == (day(19), day(19, 9))


@pytest.mark.parametrize("now", [pytest.param(day(20), id="begins-now"), pytest.param(day(19, 23), id="begins-later")])
def test_a_day_that_has_not_begun_is_refused_with_the_last_day_that_can_be_filled(now: datetime) -> None:
    with pytest.raises(PartitionInFuture, match="2025-01-20: it has not begun .* up to 2025-01-19"):
        partitions.until_now(dg.TimeWindow(day(18), day(21)), now=now)


def test_tags_of_a_range_mean_every_day_of_it() -> None:
    assert partitions.window_of_tags(partitions.range_tags(day(6), day(19))) == (day(6), day(20))


def test_a_single_partition_means_its_day() -> None:
    assert partitions.window_of_tags({"dagster/partition": "2025-01-07"}) == (day(7), day(8))


def test_a_run_without_partitions_means_no_window() -> None:
    assert partitions.window_of_tags({"dagster/backfill": "abc"}) is None


def test_keys_are_days_in_utc_and_today_is_one_of_them() -> None:
    keys = partitions.daily(day(6)).get_partition_keys(current_time=day(8, 9))
    assert keys == ["2025-01-06", "2025-01-07", "2025-01-08"]
