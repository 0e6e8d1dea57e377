"""Small made-up demand for the forecast's tests; every shape is stated by its name."""

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.forecast.series import DemandSeries

START = datetime(2025, 1, 6, tzinfo=UTC)
"""A Monday."""


def daily_wave(days: float = 10, step_seconds: int = 600, noise: float = 0.02, seed: int = 7) -> NDArray[np.float64]:
    """3 replicas on average, 2 to 4 over the day, with a little noise."""
    size = round(days * 86_400 / step_seconds)
    hours = np.arange(size) * step_seconds / 3600
    wave = 3 + np.sin(2 * np.pi * hours / 24)
    return np.maximum(0.0, wave + np.random.default_rng(seed).normal(0, noise, size))


def series_of(
    demand: NDArray[np.float64],
    workload: str = "c/ns/Deployment/web",
    step_seconds: int = 600,
    replicas: float | None = 5,
) -> DemandSeries:
    ready = None if replicas is None else np.full(len(demand), float(replicas))
    return DemandSeries(workload, START, step_seconds, np.asarray(demand, dtype=np.float64), ready)
