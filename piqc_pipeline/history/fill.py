"""How is a range of the table filled from a source? Day by day, so that memory and losses stay at one day.

The sources fetch, the stores keep; nothing is computed here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from piqc_pipeline.errors import PartitionInFuture
from piqc_pipeline.history.doubts import Doubt, sentences
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.samples import HistorySource, days_between, floor_to
from piqc_pipeline.history.table import HistoryStore


@dataclass(frozen=True)
class Filled:
    """What filling a range did: rows from the source, stored rows that stayed, and everything worth telling."""

    rows_written: int
    rows_kept: int
    warnings: tuple[str, ...] = ()


def fill(
    store: HistoryStore,
    source: HistorySource,
    start: datetime,
    end: datetime,
    inventory: Sequence[WorkloadInventory],
    bucket_seconds: int,
    now: datetime,
    *,
    force: bool = False,
    on_day: Callable[[], None] | None = None,
) -> Filled:
    """Fetch `[start, end)` and replace it in the store; buckets that have not ended at `now` are left for later.

    The bucket in which the range begins is filled whole, the one in which it ends not at all.

    Each day is fetched whole and replaced in one transaction. When a later one fails, the earlier ones are stored and
    running the range again completes it.

    Args:
        store: Where rows go.
        source: Where they come from.
        start: First bucket.
        end: Where the range ends.
        inventory: Workloads to join to.
        bucket_seconds: Width of a bucket.
        now: The present.
        force: Let emptier answers replace fuller rows.
        on_day: Called when a day is done.

    Raises:
        PartitionInFuture: The range begins after `now`.
    """
    if start >= now:
        raise PartitionInFuture(
            f"cannot fill the history from {start:%Y-%m-%d %H:%M} UTC: it is only {now:%Y-%m-%d %H:%M} UTC; "
            "choose a past day"
        )
    start, end = floor_to(start, bucket_seconds), floor_to(min(end, now), bucket_seconds)
    written, kept, doubts = 0, 0, dict[datetime, tuple[Doubt, ...]]()
    for day in days_between(start, end):
        first, last = max(start, day), min(end, day + timedelta(days=1))
        fetched = source.fetch(first, last, inventory, bucket_seconds)
        outcome = store.replace(first, last, fetched.frame, force=force, others=source.tells_all)
        written += outcome.rows_written
        kept += outcome.rows_kept
        doubts[day] = (*fetched.doubts, *outcome.doubts(source.told_by))
        if on_day is not None:
            on_day()
    return Filled(written, kept, sentences(doubts))
