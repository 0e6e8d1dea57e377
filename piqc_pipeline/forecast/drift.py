"""Has demand left what was forecast? A stored forecast is compared with what came since.

The comparison is with the table as it was issued, not with its refreshes: it tells whether the nightly fits still
describe the workload, which a refresh hides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from piqc_pipeline.forecast.grid import Floats
from piqc_pipeline.forecast.model import DAYS_5H, ENSEMBLE, WorkloadForecast
from piqc_pipeline.forecast.series import DemandSeries

COMPARED_HOURS = 24.0
LEAST_POINTS = 12
DRIFT_RATIO = 2.0
"""Day-ahead errors reach twice the card's 5-hour error at the day's end; a whole day beyond it is a change."""


@dataclass(frozen=True)
class Drift:
    """A stored forecast beside what came.

    Attributes:
        workload: Id.
        points: Buckets compared, at most the first 24 h of the table.
        mae_demand: Mean absolute error of the table's median, demand units; None under `LEAST_POINTS` buckets.
        bias_demand: Mean of forecast minus demand: negative where demand was higher.
        expected_mae_demand: The card's error 5 hours ahead.
        yesterday_mae_demand: Error of the day before, repeated, on the same buckets; None where it was not measured.
        coverage_q90: Share of buckets at or under the table's q90.
        drifted: Whether the error is over `DRIFT_RATIO` times the expected one and worse than yesterday's; None if
            unknown.
        detail: One sentence for a person.
    """

    workload: str
    points: int
    mae_demand: float | None
    bias_demand: float | None
    expected_mae_demand: float | None
    yesterday_mae_demand: float | None
    coverage_q90: float | None
    drifted: bool | None
    detail: str


def drifts(stored: Mapping[str, WorkloadForecast], series: Iterable[DemandSeries]) -> list[Drift]:
    """One comparison for every series that has a stored forecast, sorted by workload."""
    found = [drift_of(stored[one.workload], one) for one in series if one.workload in stored]
    return sorted(found, key=lambda drift: drift.workload)


def drift_of(entry: WorkloadForecast, series: DemandSeries) -> Drift:
    """The stored forecast of a workload beside its demand."""
    table = entry.table
    steps = min(len(table.q50), round(COMPARED_HOURS * 3600 / table.step_seconds))
    median, high = np.array(table.q50[:steps]), np.array(table.q90[:steps])
    actual = _demand_at(series, table.start.timestamp(), table.step_seconds, steps)
    before = _demand_at(series, table.start.timestamp() - 86_400, table.step_seconds, steps)
    known = np.isfinite(actual)
    score = entry.scores.get(ENSEMBLE, {}).get(DAYS_5H)
    expected = score.mae_demand if score else None
    if known.sum() < LEAST_POINTS:
        detail = (
            f"only {int(known.sum())} buckets of demand came since {table.start:%Y-%m-%d %H:%M} UTC: too few to tell"
        )
        return Drift(entry.workload, int(known.sum()), None, None, expected, None, None, None, detail)
    error = median[known] - actual[known]
    mae = float(np.abs(error).mean())
    both = known & np.isfinite(before)
    yesterday = float(np.abs(before[both] - actual[both]).mean()) if both.any() else None
    covered = float((actual[known] <= high[known]).mean())
    drifted = None if expected is None else mae > DRIFT_RATIO * expected and (yesterday is None or mae > yesterday)
    verdict = "cannot be judged" if drifted is None else "has drifted" if drifted else "holds"
    detail = (
        f"the forecast of {table.start:%Y-%m-%d %H:%M} UTC {verdict}: wrong by {mae:.3g} {entry.unit} over "
        f"{int(known.sum())} buckets, {'unknown' if expected is None else format(expected, '.3g')} expected, "
        f"{'unknown' if yesterday is None else format(yesterday, '.3g')} by repeating the day before"
    )
    return Drift(
        entry.workload, int(known.sum()), mae, float(error.mean()), expected, yesterday, covered, drifted, detail
    )


def _demand_at(series: DemandSeries, start_seconds: float, step_seconds: int, steps: int) -> Floats:
    """Demand of the buckets from an instant on; NaN where none was measured or the series does not reach."""
    moments = start_seconds + step_seconds * np.arange(steps)
    index = np.floor((moments - series.start.timestamp()) / series.step_seconds + 1e-6).astype(np.int64)
    inside = (index >= 0) & (index < len(series.demand))
    result = np.full(steps, np.nan)
    result[inside] = series.demand[index[inside]]
    return result
