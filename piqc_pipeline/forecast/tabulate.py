"""What is expected in each bucket of the next two days? The forecast table, quantiles included."""

from datetime import UTC, datetime

import numpy as np

from piqc_pipeline.forecast.grid import Floats, event_factors
from piqc_pipeline.forecast.intervals import scale_of
from piqc_pipeline.forecast.live import Live
from piqc_pipeline.forecast.model import ForecastTable
from piqc_pipeline.forecast.spread import Distances

MIDDLE = 0.5
NORMAL_WIDER = 1.2835
"""Distance of the 95 % quantile from the median over that of the 90 % one, for a normal distribution."""
WIDEST = 3.0
"""Most of that ratio: a handful of large misses must not set the whole night's reserve."""
HEADROOM = 1.5
"""Past the lead window, where misses of a level shift weigh on a whole week, quantiles stay under this many times the
largest demand so far, or under the forecast itself."""
DIGITS = 6


def table_of(live: Live, steps: int, lead: int, workload: str, rounded: bool = True) -> ForecastTable:
    """The table from the newest bucket on.

    The first lead window has its own calibrated quantiles with the adaptive level; later buckets use the misses of
    their distance.

    Args:
        live: The state.
        steps: Length of the table.
        lead: Steps of the lead window; the state's first window.
        workload: For known events.
        rounded: To six significant digits, so that 1,000 tables stay small on disk.
    """
    grid = live.grid
    path = live.path(steps + lead)
    bucket = Distances.of(grid.step_seconds).index_of(steps, live.point.shape[1])
    q50 = path[:steps]
    scale = scale_of(q50, live.largest)
    lower = np.maximum(0.0, q50 + np.minimum(0.0, live.point[0][bucket]) * scale)
    highest = HEADROOM * live.largest
    q90 = np.maximum(q50, np.minimum(q50 + live.point[1][bucket] * scale, highest))
    peaks = path[:steps]
    for ahead in range(1, lead):
        peaks = np.maximum(peaks, path[ahead : steps + ahead])
    peak_scale = scale_of(peaks, live.largest)
    peak_q50 = np.maximum(0.0, peaks + live.peak[0][bucket] * peak_scale)
    peak_q90 = np.minimum(peaks + live.peak[1][bucket] * peak_scale, np.maximum(peaks, highest))
    wider = NORMAL_WIDER
    if live.misses:
        miss = live.misses[0]
        # The level that gives 95 %: as far from the adapted one of 90 % as half of what that leaves out.
        levels = (MIDDLE, miss.level, 1 - (1 - miss.level) / 2)
        middle, high, top = live.quantiles(miss, float(peaks[0]), levels)
        if np.isfinite(high):
            peak_q50[0], peak_q90[0] = middle, high
            if high > middle and np.isfinite(top):
                wider = min(max((top - middle) / (high - middle), 1.0), WIDEST)
    peak_q90 = np.maximum(np.maximum(peak_q90, peak_q50), 0.0)
    peak_q95 = peak_q50 + wider * (peak_q90 - peak_q50)
    columns = np.stack([q50, q90, lower, peak_q50, peak_q90, peak_q95])
    if grid.calendar.events:
        columns = columns * event_factors(grid.calendar, workload, grid.seconds(live.end + np.arange(steps)))
    if rounded:
        columns = tidy(columns)
    start = datetime.fromtimestamp(grid.start_seconds + live.end * grid.step_seconds, UTC)
    return ForecastTable(start, grid.step_seconds, *(tuple(column) for column in columns.tolist()))


def tidy(columns: Floats) -> Floats:
    """Six significant digits."""
    digits = DIGITS - 1 - np.floor(np.log10(np.where(columns > 0, columns, 1.0)))
    factor = 10.0 ** np.clip(digits, -300, 300)
    rounded: Floats = np.round(columns * factor) / factor
    return rounded
