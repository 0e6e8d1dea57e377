"""What is expected in each bucket of the next two days? The forecast table, quantiles included."""

from datetime import UTC, datetime

import numpy as np

from piqc_pipeline.forecast.ensemble import REFERENCES
from piqc_pipeline.forecast.grid import Floats, event_factors
from piqc_pipeline.forecast.intervals import Calibrated, Calibration, scale_of
from piqc_pipeline.forecast.model import ForecastTable
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.rolling import Replay, targets

ADAPTING_DAYS = 1.5
"""The adaptive level starts this long before it is used."""

LOW, HIGH = 0.1, 0.9
SPREAD_DAYS = 7


def tabulate(
    played: Replay, ensemble: Floats, calibration: Calibration, policy: TrainPolicy, workload: str
) -> tuple[ForecastTable, Calibrated]:
    """The table from the end of the series on, and the calibrated q90 of the past lead windows.

    Args:
        played: The replay; its last origin is the end of the series.
        ensemble: Combined short paths.
        calibration: Of the lead window.
        policy: For the table's length.
        workload: For known events.
    """
    grid = played.grid
    end = int(played.origins[-1])
    steps = grid.steps(policy.table_hours * 3600)
    lead = calibration.steps
    origin = np.array([end])
    total = steps + lead
    paths = np.full((1, total, len(played.names)), np.nan)
    for position, name in enumerate(played.names):
        if name in played.last:
            paths[:, :, position] = played.last[name].predict(origin, total)
    path = played.combine(origin, paths, without=REFERENCES)[0]
    largest = float(calibration.largest[-1])
    point, peak = residual_quantiles(played, lead, largest)
    bucket = played.buckets.index_of(steps)
    scale = scale_of(path[:steps], largest)
    q50 = path[:steps]
    lower = np.maximum(0.0, q50 + np.minimum(0.0, point[0][bucket]) * scale)
    q90 = np.maximum(q50, q50 + point[1][bucket] * scale)
    peaks = np.max(np.lib.stride_tricks.sliding_window_view(path, lead)[:steps], axis=1)
    peak_scale = scale_of(peaks, largest)
    peak_q50 = np.maximum(0.0, peaks + peak[0][bucket] * peak_scale)
    peak_q90 = peaks + peak[1][bucket] * peak_scale
    first = max(0, len(calibration.origins) - 1 - round(ADAPTING_DAYS * grid.day))
    high, middle = calibration.run(HIGH, first), calibration.run(0.5, len(calibration.origins) - 1)
    if np.isfinite(high.quantile[-1]):
        peak_q90[0] = high.quantile[-1]
    if np.isfinite(middle.quantile[-1]):
        peak_q50[0] = middle.quantile[-1]
    peak_q90 = np.maximum.reduce([peak_q90, peak_q50, np.zeros(steps)])
    factors = event_factors(grid.calendar, workload, grid.seconds(end + np.arange(steps)))
    columns = [_tidy(column * factors) for column in (q50, q90, lower, peak_q50, peak_q90)]
    start = datetime.fromtimestamp(grid.start_seconds + end * grid.step_seconds, UTC)
    return ForecastTable(start, grid.step_seconds, *columns), high


def residual_quantiles(played: Replay, lead: int, largest: float) -> tuple[Floats, Floats]:
    """Quantiles of normalized misses in each horizon bucket, of single buckets and of lead-window maxima.

    Returns:
        Two arrays of shape (2, buckets): q10 and q90 of the points, q50 and q90 of the maxima. Zero where nothing is
        known yet.
    """
    grid, buckets = played.grid, played.buckets
    newest = int(played.origins[-1])
    hourly = grid.steps(3600)
    origins = played.long_origins
    rows = np.flatnonzero((origins >= newest - SPREAD_DAYS * grid.day) & ((newest - origins) % hourly == 0))
    point, peak = np.zeros((2, buckets.count)), np.zeros((2, buckets.count))
    if not len(rows):
        return point, peak
    paths = played.combine(origins[rows], played.long[rows], without=REFERENCES)
    actual = targets(grid, origins[rows], buckets.horizon)
    misses = (actual - paths) / scale_of(paths, largest)
    wide = min(lead, buckets.horizon)
    view = np.lib.stride_tricks.sliding_window_view
    tops, came = view(paths, wide, axis=1).max(axis=-1), view(actual, wide, axis=1).max(axis=-1)
    peak_misses = (came - tops) / scale_of(tops, largest)
    for index, (begin, stop) in enumerate(zip(buckets.starts, buckets.ends, strict=True)):
        point[:, index] = _quantiles(misses[:, begin:stop], (LOW, HIGH), point[:, index - 1])
        peak[:, index] = _quantiles(peak_misses[:, begin:stop], (0.5, HIGH), peak[:, index - 1])
    return point, peak


def _quantiles(values: Floats, levels: tuple[float, float], otherwise: Floats) -> Floats:
    known = values[np.isfinite(values)]
    return np.quantile(known, levels) if len(known) else otherwise


def _tidy(column: Floats) -> tuple[float, ...]:
    """Six significant digits: a table of 1,000 workloads stays readable and small."""
    with np.errstate(divide="ignore"):
        digits = 5 - np.floor(np.log10(np.where(column > 0, column, 1.0)))
    factor = 10.0 ** np.clip(digits, -300, 300)
    return tuple((np.round(column * factor) / factor).tolist())
