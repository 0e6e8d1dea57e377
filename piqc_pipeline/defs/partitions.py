"""Which days does the history consist of, and which of them does a run mean? All in UTC.

Workload is a column and the day is the partition: keys by workload grow without bound and Dagster's pages slow down
long before its documented limit of 100,000.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import dagster as dg

from piqc_pipeline.errors import PartitionInFuture
from piqc_pipeline.settings import DEMO_NOW, Settings

KEY_FORMAT = "%Y-%m-%d"
ONE_DAY = timedelta(days=1)
FIRST_DAY: datetime = Settings.model_fields["history_start"].default
DEMO_FIRST_DAY = datetime(2025, 1, 6, tzinfo=UTC)
"""The first of the shipped load's fourteen days."""
PARTITION_TAG = "dagster/partition"
RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"


SINGLE_RUN = dg.BackfillPolicy.single_run()
"""On every asset, unpartitioned ones too: only then a range of the whole graph is one run."""


def key_of(moment: datetime) -> str:
    """The partition key of the day that holds an instant."""
    return moment.astimezone(UTC).strftime(KEY_FORMAT)


def daily(first_day: datetime, end: datetime | None = None) -> dg.DailyPartitionsDefinition:
    """Days in UTC from `first_day` to today; today is there although unfinished, and a later run replaces it.

    Args:
        first_day: The first day.
        end: The days stop before it, for a history that will not grow.
    """
    return dg.DailyPartitionsDefinition(
        start_date=key_of(first_day),
        end_date=key_of(end) if end else None,
        timezone="UTC",
        end_offset=0 if end else 1,
    )


def days_of(settings: Settings) -> dg.DailyPartitionsDefinition:
    """The days that the settings make fillable; the demo's own two weeks where nothing else is set."""
    other_source = settings.now or settings.history_file or settings.prometheus_url
    if settings.cluster == "demo" and not other_source:
        first = settings.history_start if "history_start" in settings.model_fields_set else DEMO_FIRST_DAY
        return daily(first, DEMO_NOW)
    return daily(settings.history_start)


DAYS = daily(FIRST_DAY)
"""The days that assets are declared with; `build_defs` puts those of the settings in their place."""


def until_now(window: dg.TimeWindow, now: datetime) -> tuple[datetime, datetime]:
    """Start (inclusive) and end (exclusive) of the days asked for; today ends now.

    Raises:
        PartitionInFuture: The last day asked for has not begun.
    """
    start, end = window.start.astimezone(UTC), window.end.astimezone(UTC)
    last_day = end - ONE_DAY
    if last_day >= now:
        raise PartitionInFuture(
            f"cannot fill the day {key_of(last_day)}: it has not begun (now is {now:%Y-%m-%dT%H:%MZ}); "
            f"ask for days up to {key_of(now - timedelta(microseconds=1))}"
        )
    return start, min(end, now)


def window_of_tags(tags: Mapping[str, str]) -> tuple[datetime, datetime] | None:
    """Start and end of the days that a run's tags name, or None where the run names none.

    Checks use it: a partitioned check is a preview feature of Dagster, and a range run records one evaluation without
    a partition anyway.
    """
    first = tags.get(RANGE_START_TAG) or tags.get(PARTITION_TAG)
    last = tags.get(RANGE_END_TAG) or tags.get(PARTITION_TAG)
    if not first or not last:
        return None
    return _midnight(first), _midnight(last) + ONE_DAY


def range_tags(first: datetime, last: datetime) -> dict[str, str]:
    """The tags that make one run mean every day from `first` to `last`, both included."""
    return {RANGE_START_TAG: key_of(first), RANGE_END_TAG: key_of(last)}


def _midnight(key: str) -> datetime:
    return datetime.strptime(key, KEY_FORMAT).replace(tzinfo=UTC)
