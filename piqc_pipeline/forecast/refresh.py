"""What does the forecast say now that newer demand was seen? The artifact's table, re-anchored in under a millisecond.

    entry = load(folder).workloads[workload]
    live = live_of(entry)                          # once
    live = observe(live, start, values)            # whenever buckets came in; the rest is kept
    entry = refreshed(entry, live, now)            # same shape as the artifact's entry

Nothing is fitted, no file is read, and what is passed in is never changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast.catch_up import FROM_BUCKETS, can_catch_up, catch_up
from piqc_pipeline.forecast.live import Live
from piqc_pipeline.forecast.model import WorkloadForecast
from piqc_pipeline.forecast.state import from_plain
from piqc_pipeline.forecast.tabulate import table_of

LONGEST_GAP_HOURS = 24.0
"""After a longer silence there is nothing to re-anchor on: the nightly forecast stands until it is trained again."""


def live_of(entry: WorkloadForecast) -> Live:
    """The living state of an artifact's entry.

    Raises:
        ForecastError: The entry is a plain fallback: it has no state.
        ArtifactAltered: Its state cannot be read.
    """
    if entry.state is None:
        raise ForecastError(f"the forecast of {entry.workload} has no state to refresh: {'; '.join(entry.reasons)}")
    return from_plain(entry.state)


def data_until(live: Live) -> datetime:
    """End of the newest bucket that the state knows (UTC)."""
    return datetime.fromtimestamp(live.grid.start_seconds + live.end * live.grid.step_seconds, UTC)


def observe(live: Live, start: datetime, values: Sequence[float | None], ahead: int = 0) -> Live:
    """The state after newer demand; buckets that it knows already are skipped, those missing in between are gaps.

    Many buckets at once cost no more than a few milliseconds: a predictor that was restarted catches up.

    Args:
        live: The state.
        start: Start of the first bucket of `values` (UTC); moved onto the state's grid.
        values: Demand a bucket, oldest first, in steps of the state; None, NaN and negative values are not measured.
        ahead: Buckets that will be asked for next; a table's length and its lead window, so that it is made once.

    Raises:
        ForecastError: The values begin more than `LONGEST_GAP_HOURS` after the state's end.
    """
    grid = live.grid
    first = round((start.timestamp() - grid.start_seconds) / grid.step_seconds)
    gap = max(0, first - live.end)
    if gap * grid.step_seconds > LONGEST_GAP_HOURS * 3600:
        raise ForecastError(
            f"the newest demand known to the forecast is {gap * grid.step_seconds / 3600:.0f} h older than what came; "
            "train again"
        )
    fresh = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    fresh = np.concatenate([np.full(gap, np.nan), fresh[max(0, live.end - first) :]])
    known = np.isfinite(fresh) & (fresh >= 0)
    if len(fresh) >= FROM_BUCKETS and can_catch_up(live):
        return catch_up(live, fresh, known)
    return live.observe(np.where(known, fresh, 0.0), known, ahead)


def refreshed(entry: WorkloadForecast, live: Live, now: datetime) -> WorkloadForecast:
    """The entry as of now: same shape, table from the newest bucket on.

    Args:
        entry: Of the artifact.
        live: Its state after the newest demand.
        now: When it is issued.

    Returns:
        An entry whose `valid_until` stays: a refresh does not make the fits younger.
    """
    steps = len(entry.table.q50)
    lead = live.misses[0].steps if live.misses else 1
    return replace(
        entry,
        issued_at=now,
        data_until=data_until(live),
        table=table_of(live, steps, lead, entry.workload, rounded=False),
    )


def refresh(
    entry: WorkloadForecast, start: datetime, values: Sequence[float | None], now: datetime
) -> WorkloadForecast:
    """All of it in one call, for those who keep no state. See `observe`."""
    live = live_of(entry)
    ahead = len(entry.table.q50) + (live.misses[0].steps if live.misses else 1)
    return refreshed(entry, observe(live, start, values, ahead), now)


__all__ = ["Live", "data_until", "live_of", "observe", "refresh", "refreshed"]
