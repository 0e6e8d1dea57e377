"""What does a typical inference load look like? The specification's day as a seeded generator.

High from 8 to 20 o'clock, low at night, calmer weekends, noise, bursts, gaps and level shifts. Made-up load for tests,
demonstrations and load tests; never mixed with measured history.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl

from piqc_pipeline.errors import UsageError
from piqc_pipeline.history.openmetrics import GaugeSeries


@dataclass(frozen=True)
class TypicalWeek:
    """How the load runs.

    Attributes:
        start: First sample, aware UTC.
        days: Length.
        step_seconds: Distance of samples.
        seed: Same seed, same load.
        high, low: Share busy by day and at night.
        busy_hours: From and to on the zone's clock.
        ramp_hours: How long the morning's rise and the evening's fall take.
        weekend_factor: Load of Saturday and Sunday by day, as a share of a workday's.
        noise: Standard deviation of a noise with a memory of about half an hour.
        bursts_per_day: Short peaks of up to `burst_height` more.
        burst_height: Share.
        gaps: Stretches of one to six hours without samples.
        level_shift: Factor on everything after the middle of the span.
        timezone: IANA zone of the day.
    """

    start: datetime
    days: float = 14.0
    step_seconds: int = 300
    seed: int = 7
    high: float = 0.75
    low: float = 0.15
    busy_hours: tuple[float, float] = (8.0, 20.0)
    ramp_hours: float = 1.5
    weekend_factor: float = 0.5
    noise: float = 0.03
    bursts_per_day: float = 2.0
    burst_height: float = 0.25
    gaps: int = 0
    level_shift: float = 1.0
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.days <= 0 or self.step_seconds <= 0:
            raise UsageError("a generated load needs a positive number of days and a positive step")
        if not 0 <= self.low <= self.high <= 1:
            raise UsageError(f"low {self.low} and high {self.high} must be shares with low below high")
        if self.seed < 0:
            raise UsageError(f"the seed {self.seed} is below 0")
        try:
            zone = ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise UsageError(f"{self.timezone!r} is no zone that is known here, as Europe/Berlin is") from error
        try:
            for moment in (self.start, self.start + timedelta(days=self.days)):
                moment.astimezone(zone)
        except OverflowError as error:
            raise UsageError(
                f"{self.days:g} days from {self.start:%Y-%m-%d} on do not fit into the calendar: choose another start"
            ) from error


def typical_week(shape: TypicalWeek) -> pl.DataFrame:
    """Columns `ts` (UTC) and `utilization` (share 0..1); steps inside a gap have no row."""
    random = np.random.default_rng(shape.seed)
    steps = int(shape.days * 86_400 // shape.step_seconds)
    moments = [shape.start + timedelta(seconds=shape.step_seconds * step) for step in range(steps)]
    zone = ZoneInfo(shape.timezone)
    local = [moment.astimezone(zone) for moment in moments]
    hours = np.array([moment.hour + moment.minute / 60 + moment.second / 3600 for moment in local])
    weekend = np.array([moment.weekday() >= 5 for moment in local])
    first, last = shape.busy_hours
    day = _rise(hours, first, shape.ramp_hours) - _rise(hours, last, shape.ramp_hours)
    load = shape.low + (shape.high - shape.low) * day * np.where(weekend, shape.weekend_factor, 1.0)
    load = load + _noise(random, steps, shape) + _bursts(random, steps, shape)
    load = load * np.where(np.arange(steps) < steps // 2, 1.0, shape.level_shift)
    kept = ~_gaps(random, steps, shape)
    return pl.DataFrame(
        {"ts": pl.Series(moments, dtype=pl.Datetime("us", "UTC")), "utilization": np.clip(load, 0, 1)}
    ).filter(pl.Series(kept))


def _rise(hours: np.ndarray, at: float, width: float) -> np.ndarray:
    """0 before and 1 after the hour, a smooth step of the given width around it."""
    x = np.clip((hours - at) / max(width, 1e-6) + 0.5, 0, 1)
    return np.asarray(x * x * (3 - 2 * x))


def _noise(random: np.random.Generator, steps: int, shape: TypicalWeek) -> np.ndarray:
    memory = float(np.exp(-shape.step_seconds / 1800))
    shocks = random.normal(0, shape.noise * np.sqrt(1 - memory**2), steps)
    noise = np.zeros(steps)
    for step in range(1, steps):
        noise[step] = memory * noise[step - 1] + shocks[step]
    return noise


def _bursts(random: np.random.Generator, steps: int, shape: TypicalWeek) -> np.ndarray:
    bursts = np.zeros(steps)
    for _ in range(random.poisson(shape.bursts_per_day * shape.days)):
        begin = int(random.integers(0, steps))
        length = max(1, int(random.uniform(300, 1800) // shape.step_seconds))
        bursts[begin : begin + length] += random.uniform(0.3, 1.0) * shape.burst_height
    return bursts


def _gaps(random: np.random.Generator, steps: int, shape: TypicalWeek) -> np.ndarray:
    missing = np.zeros(steps, dtype=bool)
    for _ in range(shape.gaps):
        begin = int(random.integers(0, steps))
        missing[begin : begin + int(random.uniform(3600, 6 * 3600) // shape.step_seconds)] = True
    return missing


def dcgm_series(load: pl.DataFrame, pods: int, namespace: str, name: str) -> list[GaugeSeries]:
    """The load as `DCGM_FI_DEV_GPU_UTIL` of one GPU in each of some pods, all equally busy, in whole percent."""
    times = load["ts"].dt.epoch("ms").to_numpy() / 1000
    values = np.round(load["utilization"].to_numpy() * 100)
    return [
        GaugeSeries(
            {
                "gpu": str(pod),
                "UUID": f"GPU-generated-{pod}",
                "Hostname": "generated-node",
                "namespace": namespace,
                "pod": f"{name}-{pod}",
                "container": "server",
            },
            times.tolist(),
            values.tolist(),
        )
        for pod in range(pods)
    ]
