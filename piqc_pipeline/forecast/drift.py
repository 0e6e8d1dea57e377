"""Has demand left what was forecast? A stored forecast is compared with what came since.

The comparison is with the table as it was issued, not with its refreshes: it tells whether the nightly fits still
describe the workload, which a refresh hides.
"""

import numpy as np

from piqc_pipeline.forecast.grid import Floats
from piqc_pipeline.forecast.model import DAYS_5H, ENSEMBLE, Drift, WorkloadForecast
from piqc_pipeline.forecast.series import DemandSeries

COMPARED_HOURS = 24.0
LEAST_POINTS = 12
DRIFT_RATIO = 2.0
"""Day-ahead errors reach twice the card's 5-hour error at the day's end; a whole day beyond it is a change."""

LEAST_INSIDE = 0.4
"""Of the buckets 80 % should lie between q10 and q90; misses of one day go together, so that a usual day has 60 %."""


def drift_of(entry: WorkloadForecast, series: DemandSeries) -> Drift:
    """The stored forecast of a workload beside its demand.

    It has drifted where the day's error is more than `DRIFT_RATIO` times what the card promised and fewer than
    `LEAST_INSIDE` of the buckets lie in the table's interval: the first alone is a restless day that the interval knew
    of, the second alone a tight interval around a small error.
    """
    table = entry.table
    steps = min(len(table.q50), round(COMPARED_HOURS * 3600 / table.step_seconds))
    median, high, low = (np.array(column[:steps]) for column in (table.q50, table.q90, table.lower))
    actual = _demand_at(series, table.start.timestamp(), table.step_seconds, steps)
    known = np.isfinite(actual)
    points = int(known.sum())
    score = entry.scores.get(ENSEMBLE, {}).get(DAYS_5H)
    expected = score.mae_demand if score else None
    since = f"{table.start:%Y-%m-%d %H:%M} UTC"
    if points < LEAST_POINTS:
        detail = f"only {points} buckets of demand came since {since}: too few to tell whether the forecast holds"
        return Drift(table.start, points, None, None, expected, None, None, detail)
    error = median[known] - actual[known]
    mae = float(np.abs(error).mean())
    inside = float(((actual[known] >= low[known]) & (actual[known] <= high[known])).mean())
    drifted = None if expected is None else mae > DRIFT_RATIO * expected and inside < LEAST_INSIDE
    verdict = "cannot be judged" if drifted is None else "was left by demand" if drifted else "holds"
    promised = "unknown" if expected is None else format(expected, ".3g")
    detail = (
        f"the forecast of {since} {verdict}: wrong by {mae:.3g} {entry.unit} over {points} buckets, "
        f"{promised} expected; "
        f"{inside:.0%} of them between q10 and q90, 80% expected"
    )
    return Drift(table.start, points, mae, float(error.mean()), expected, inside, drifted, detail)


def _demand_at(series: DemandSeries, start_seconds: float, step_seconds: int, steps: int) -> Floats:
    """Demand of the buckets from an instant on; NaN where none was measured or the series does not reach."""
    moments = start_seconds + step_seconds * np.arange(steps)
    index = np.floor((moments - series.start.timestamp()) / series.step_seconds + 1e-6).astype(np.int64)
    inside = (index >= 0) & (index < len(series.demand))
    result = np.full(steps, np.nan)
    result[inside] = series.demand[index[inside]]
    return result
