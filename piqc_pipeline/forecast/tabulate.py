"""What is expected in each bucket of the next two days? The forecast table, quantiles included."""

import math
from array import array

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
largest demand so far, or under the forecast itself. Where there is nothing to learn from, they reach it."""
DIGITS = 6


def table_of(live: Live, steps: int, lead: int, workload: str) -> ForecastTable:
    """The table from the newest bucket on, as it is kept: to six significant digits, 1,000 tables are small on disk."""
    columns = tidy(table_columns(live, steps, lead, workload))
    return ForecastTable(live.until, live.grid.step_seconds, *(tuple(column) for column in columns.tolist()))


def packed_table_of(live: Live, steps: int, lead: int, workload: str) -> ForecastTable:
    """The same in full, in arrays in place of tuples: a refresh makes thousands of numbers, a reader wants few."""
    columns = [array("d", column.tobytes()) for column in table_columns(live, steps, lead, workload)]
    return ForecastTable(live.until, live.grid.step_seconds, *columns)


def table_columns(live: Live, steps: int, lead: int, workload: str) -> Floats:
    """Numbers of a `ForecastTable`, in the order of its columns, from the newest bucket on; shape (6, steps).

    The first lead window has its own calibrated quantiles with the adaptive level; later buckets use the misses of
    their distance.

    Args:
        live: The state.
        steps: Length of the table.
        lead: Steps of the lead window; the state's first window.
        workload: For known events.
    """
    grid = live.grid
    path = live.path(steps + lead)
    q50 = path[:steps]
    peaks = q50
    for ahead in range(1, lead):
        peaks = np.maximum(peaks, path[ahead : steps + ahead])
    # Single buckets and lead windows, each with a lower and an upper quantile of its misses, go through it together.
    center = np.array((q50, peaks))
    bucket = Distances.of(grid.step_seconds).index_of(steps, live.point.shape[1])
    misses = np.array((live.point, live.peak)).swapaxes(0, 1).take(bucket, axis=2)
    low, high = center + misses * scale_of(center, live.largest)
    np.minimum(low[0], q50, out=low[0])
    lower, peak_q50 = np.maximum(low, 0.0)
    q90, peak_q90 = np.minimum(high, np.maximum(center, HEADROOM * live.largest))
    wider = NORMAL_WIDER
    if live.misses:
        miss = live.misses[0]
        # The level that gives 95 %: as far from the adapted one of 90 % as half of what that leaves out.
        levels = (MIDDLE, miss.level, 1 - (1 - miss.level) / 2)
        middle, upper, top = live.quantiles(miss.past, float(peaks[0]), levels)
        if math.isfinite(upper):
            peak_q50[0], peak_q90[0] = middle, upper
            if upper > middle and math.isfinite(top):
                wider = min(max((top - middle) / (upper - middle), 1.0), WIDEST)
    q90 = np.maximum(q90, q50)
    peak_q90 = np.maximum(peak_q90, np.maximum(peak_q50, q90))  # no maximum is below what it is the maximum of
    peak_q95 = peak_q50 + wider * (peak_q90 - peak_q50)
    columns = np.array((q50, q90, lower, peak_q50, peak_q90, peak_q95))
    if grid.calendar.events:
        columns = columns * event_factors(grid.calendar, workload, grid.seconds(live.end + np.arange(steps)))
    return columns


def tidy(columns: Floats) -> Floats:
    """Six significant digits."""
    digits = DIGITS - 1 - np.floor(np.log10(np.where(columns > 0, columns, 1.0)))
    factor = 10.0 ** np.clip(digits, -300, 300)
    rounded: Floats = np.round(columns * factor) / factor
    return rounded
