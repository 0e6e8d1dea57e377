"""What does the forecast say now that newer demand was seen? The artifact's table, re-anchored in under a millisecond.

    entry = load(folder).workloads[workload]
    live = live_of(entry)                          # once
    live = observe(live, start, values)            # whenever buckets came in; the rest is kept
    entry = refreshed(entry, live, now)            # same shape as the artifact's entry

Nothing is fitted, no file is read, and what is passed in is never changed.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast.catch_up import FROM_BUCKETS, can_catch_up, catch_up
from piqc_pipeline.forecast.grid import Bools
from piqc_pipeline.forecast.live import AHEAD_HOURS, Live
from piqc_pipeline.forecast.model import WorkloadForecast
from piqc_pipeline.forecast.series import LARGEST_DEMAND, credible_up_to
from piqc_pipeline.forecast.state import from_plain
from piqc_pipeline.forecast.tabulate import packed_table_of

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


def observe(live: Live, start: datetime, values: Sequence[float | None], ahead: int = 0) -> Live:
    """The state after newer demand; buckets that it knows already are skipped, those missing in between are gaps.

    Many buckets at once cost no more than a few milliseconds: a predictor that was restarted catches up.

    Args:
        live: The state.
        start: Start of the first bucket of `values` (UTC); moved onto the state's grid.
        values: Demand a bucket, oldest first, in steps of the state; None, NaN, negative and absurd values (above
            `credible_up_to` of the largest so far) are not measured.
        ahead: Buckets that will be asked for next; a table's length and its lead window, so that it is made once.

    Raises:
        ForecastError: Nothing was measured for more than `LONGEST_GAP_HOURS`, or the values reach beyond `AHEAD_HOURS`
            after the night of the fits.
    """
    grid = live.grid
    first = round((start.timestamp() - grid.start_seconds) / grid.step_seconds)
    gap = max(0, first - live.end)
    _check_age(live, first + len(values))
    fresh = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    fresh = np.concatenate([np.full(gap, np.nan), fresh]) if gap else fresh[live.end - first :]
    credible = credible_up_to(live.largest) if live.largest else LARGEST_DEMAND
    known = (fresh >= 0) & (fresh <= credible)  # NaN is neither
    _check_silence(live, known)
    if len(fresh) >= FROM_BUCKETS and can_catch_up(live):
        return catch_up(live, fresh, known)
    return live.observe(np.where(known, fresh, 0.0), known, ahead)


def _check_age(live: Live, end: int) -> None:
    hours = (end - live.nights[-1].cutoff) * live.grid.step_seconds / 3600
    if hours > AHEAD_HOURS:
        raise ForecastError(
            f"demand came {hours:.0f} h after the training that the forecast is from, which reaches {AHEAD_HOURS} h: "
            "train again"
        )


def _check_silence(live: Live, known: Bools) -> None:
    if known.all() and live.grid.known[-1]:
        return
    measured = np.flatnonzero(np.concatenate([live.grid.known[-live.grid.day - 1 :], known, [True]]))
    hours = (int(np.diff(measured, prepend=-1).max()) - 1) * live.grid.step_seconds / 3600
    if hours > LONGEST_GAP_HOURS:
        raise ForecastError(f"no demand was measured for {hours:.0f} h, too long to go on from: train again")


def refreshed(entry: WorkloadForecast, live: Live, now: datetime) -> WorkloadForecast:
    """The entry as of now: same shape, table from the newest bucket on.

    Args:
        entry: Of the artifact.
        live: Its state after the newest demand.
        now: When it is issued.

    Returns:
        An entry whose `valid_until` stays: a refresh does not make the fits younger. Its table holds arrays.
    """
    steps = len(entry.table.q50)
    lead = live.misses[0].steps if live.misses else 1
    return replace(
        entry,
        issued_at=now,
        data_until=live.until,
        table=packed_table_of(live, steps, lead, entry.workload),
    )


def refresh(
    entry: WorkloadForecast, start: datetime, values: Sequence[float | None], now: datetime
) -> WorkloadForecast:
    """All of it in one call, for those who keep no state. See `observe`."""
    live = live_of(entry)
    ahead = len(entry.table.q50) + (live.misses[0].steps if live.misses else 1)
    return refreshed(entry, observe(live, start, values, ahead), now)


__all__ = ["Live", "live_of", "observe", "refresh", "refreshed"]
