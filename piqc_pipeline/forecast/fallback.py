"""What is said when there is nothing to learn from? The last value, a wide interval, low confidence and the reason."""

from datetime import datetime, timedelta

import numpy as np

from piqc_pipeline.forecast.grid import Grid
from piqc_pipeline.forecast.model import DataCard, ForecastTable, WorkloadForecast
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.tabulate import HEADROOM

LEAST_HIGH = 1.0
"""At least so much, one busy replica: demand of nothing but zeros tells no width."""


def plain_forecast(
    series: DemandSeries, grid: Grid, now: datetime, policy: TrainPolicy, card: DataCard, reason: str
) -> WorkloadForecast:
    """A forecast that is never accepted: it shows what is known, and the plan stays reactive.

    Args:
        series: At least one sample.
        grid: The same, prepared.
        now: When it is made.
        policy: For the table's length.
        card: Of the data.
        reason: Why nothing better can be said.
    """
    last, largest = float(grid.values[-1]), float(np.max(grid.values))
    steps = grid.steps(policy.table_hours * 3600)
    high = max(largest * HEADROOM, LEAST_HIGH)
    return WorkloadForecast(
        workload=series.workload,
        accepted=False,
        reasons=(f"low confidence: {reason}",),
        confidence="low",
        step_seconds=grid.step_seconds,
        issued_at=now,
        data_until=series.end,
        valid_until=series.end + timedelta(hours=policy.valid_hours),
        lead_seconds=policy.lead_seconds,
        table=ForecastTable(
            series.end,
            grid.step_seconds,
            (last,) * steps,
            (high,) * steps,
            (0.0,) * steps,
            (last,) * steps,
            (high,) * steps,
        ),
        scores={},
        checks=(),
        coverage_q90=None,
        gpus_per_replica=series.gpus_per_replica,
        unit=series.unit,
        data=card,
        state=None,
    )
