"""How does a living state take in many buckets at once? By one replay of them, in a few milliseconds for a whole day.

`live.Live.observe` goes bucket by bucket, half a millisecond or more each: right for one that has just come, slow for a
predictor that was restarted hours after the training run.
"""

from dataclasses import replace

import numpy as np

from piqc_pipeline.forecast.ensemble import KEPT, PROPHET_MEMBERS, members_of
from piqc_pipeline.forecast.grid import Bools, Floats, fill_gaps
from piqc_pipeline.forecast.live import Live
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.rolling import Resumed, replay
from piqc_pipeline.forecast.windows import lead_windows, misses_at_end

FROM_BUCKETS = 12
"""Fewer are taken in one by one: a replay costs as much as about ten of them."""


def can_catch_up(live: Live) -> bool:
    """Whether a replay can go on from the state: two nights, finished paths at every distance, open windows."""
    windows = all(len(miss.peaks) == miss.steps for miss in live.misses)
    return len(live.nights) > 1 and windows and bool((live.losses.weights.max(axis=1) > 0).all())


def catch_up(live: Live, values: Floats, known: Bools) -> Live:
    """The state after some more buckets, oldest first; the same as one by one, up to rounding.

    Args:
        live: The state; `can_catch_up` holds.
        values: Demand; where not measured, whatever (the last value is carried).
        known: Where it was measured.
    """
    carried = fill_gaps(np.concatenate([live.grid.values[-1:], np.where(known, values, np.nan)]))[1:]
    marks = np.concatenate([live.grid.known, known])
    grid = replace(live.grid, values=np.concatenate([live.grid.values, carried]), known=marks, usable=marks)
    nights = {night.cutoff: Night(grid, night.cutoff, night.seasons, night.coefficients) for night in live.nights[-2:]}
    members = members_of(KEPT if PROPHET_MEMBERS[0] in live.names else replace(KEPT, prophet=None))
    played = replay(
        grid,
        members,
        tuple(nights),
        len(grid.values),
        max(miss.steps for miss in live.misses),
        kept=nights,
        resumed=Resumed(live.losses, live.floor, (), live.end),
    )
    ensemble = played.combine(played.origins, played.short)
    windows = [lead_windows(played, ensemble, miss.steps, miss, live.largest) for miss in live.misses]
    return replace(
        live,
        grid=grid,
        losses=played.losses_at_end(played.chosen()),
        misses=tuple(misses_at_end(*window) for window in windows),
        largest=float(max(live.largest, carried.max(initial=0.0))),
    )
