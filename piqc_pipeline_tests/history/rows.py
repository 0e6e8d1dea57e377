"""Small literal rows of `gpu_utilization` for the tests of history."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from piqc_pipeline.history.samples import conform, empty_history

DAY = datetime(2025, 1, 6, tzinfo=UTC)
"""A Monday."""
NEXT_DAY = DAY + timedelta(days=1)


def rows(
    values: list[float | None],
    *,
    workload: str = "prod/inference/Deployment/chat",
    start: datetime = DAY,
    step_seconds: int = 300,
    **columns: Any,
) -> pl.DataFrame:
    """One row a value, one bucket after the other; other columns as given."""
    if not values:
        return empty_history()
    frame = pl.DataFrame(
        {
            "cluster": workload.split("/")[0],
            "workload": workload,
            "ts": [start + timedelta(seconds=step_seconds * i) for i in range(len(values))],
            "step_seconds": step_seconds,
            "utilization": pl.Series(values, dtype=pl.Float64),
            "source": "prometheus",
        }
    )
    return conform(frame.with_columns(**{name: pl.lit(value) for name, value in columns.items()}))
