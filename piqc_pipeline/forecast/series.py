"""What was the demand, on an even grid? History rows and foreign traces become `DemandSeries`, cleaned and noted.

Forecasting and scoring do not belong here; nor does reading Prometheus or the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]

SECONDS_PER_DAY = 86_400
STEPS_SECONDS = (60, 120, 180, 240, 300, 360, 600, 720, 900, 1200, 1800, 3600)
"""Steps that divide an hour or a day evenly; a foreign step is rounded up to the next of them."""

BREAK_DAYS = 45.0
"""A silence longer than this separates two histories: a stopped clock or another machine's, never a long weekend."""

LARGEST_DEMAND = 1e15
"""Values beyond it are a broken exporter (an unsigned wrap-around is 1.8e19), not load."""

ABSURD_FACTOR = 10_000.0
"""A value this many times above nearly all others of its series, and above 1, is a glitch too. Real bursts stay far
below: the worst value in 179 public series is 75 times the 99 % quantile of its own (AWS network input, NAB). Next to
nothing may grow by any factor: a service that idled begins to be used."""
NEARLY_ALL = 0.99
ENOUGH_TO_JUDGE = 100
"""Values above zero without which nobody can say what is high for a series."""

SMALLEST_DEMAND = 1e-50
"""Values under it are zero: errors in percent of them would be infinite."""


@dataclass(frozen=True)
class DemandSeries:
    """Demand of one workload on an even grid, oldest first.

    Attributes:
        workload: `cluster/namespace/Kind/name`, or the series' id in a foreign trace.
        start: Start of the first bucket (UTC).
        step_seconds: Width of a bucket; divides a day.
        demand: One value a bucket, NaN where none was measured; replica-equivalents at 100 % or `unit`.
        ready_replicas: Ready replicas a bucket, or None if unknown throughout.
        censored: Where demand was cut off by saturation, or None if unknown.
        unit: Unit of `demand`.
        gpus_per_replica: Accelerators of one replica; None if unknown.
        notes: What was cleaned, one sentence each.
    """

    workload: str
    start: datetime
    step_seconds: int
    demand: Floats
    ready_replicas: Floats | None = None
    censored: Bools | None = None
    unit: str = "replicas"
    gpus_per_replica: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def end(self) -> datetime:
        """End of the last bucket (UTC)."""
        return self.start + timedelta(seconds=self.step_seconds * len(self.demand))

    @property
    def steps_per_day(self) -> int:
        """Buckets of a day."""
        return SECONDS_PER_DAY // self.step_seconds

    def until(self, moment: datetime) -> "DemandSeries":
        """The buckets that ended at or before `moment`."""
        return self._slice(0, int((moment - self.start).total_seconds() // self.step_seconds))

    def last_days(self, days: float) -> "DemandSeries":
        """The newest `days` days."""
        return self._slice(max(0, len(self.demand) - round(days * self.steps_per_day)), len(self.demand))

    def _slice(self, first: int, stop: int) -> "DemandSeries":
        stop = max(0, min(stop, len(self.demand)))
        first = min(first, stop)
        cut = slice(first, stop)
        return DemandSeries(
            self.workload,
            self.start + timedelta(seconds=self.step_seconds * first),
            self.step_seconds,
            self.demand[cut],
            None if self.ready_replicas is None else self.ready_replicas[cut],
            None if self.censored is None else self.censored[cut],
            self.unit,
            self.gpus_per_replica,
            self.notes,
        )


def infer_step_seconds(stamps_seconds: Floats) -> int:
    """Width of a bucket, from sorted stamps: their median distance, rounded up to an even divisor of the day."""
    distances = np.diff(np.unique(stamps_seconds))
    if not len(distances):
        return 300
    median = float(np.median(distances))
    return next((step for step in STEPS_SECONDS if step >= median * 0.99), STEPS_SECONDS[-1])


def credible_up_to(high: float) -> float:
    """The largest value that counts as load where nearly all others are at most `high`."""
    return min(LARGEST_DEMAND, ABSURD_FACTOR * max(1.0, high))


def largest_credible(values: Floats) -> float:
    """The largest value that counts as load in a series; nearly all of those above zero tell what is high for it."""
    above = values[(values > 0) & (values <= LARGEST_DEMAND)]
    if len(above) < ENOUGH_TO_JUDGE:
        return LARGEST_DEMAND
    return credible_up_to(float(np.quantile(above, NEARLY_ALL)))


def on_grid(
    workload: str,
    stamps_seconds: Floats,
    demand: Floats,
    ready_replicas: Floats | None = None,
    censored: Bools | None = None,
    *,
    step_seconds: int | None = None,
    unit: str = "replicas",
    gpus_per_replica: float | None = None,
) -> DemandSeries:
    """Points in any order become a series on an even grid.

    Negative, infinite and absurd values count as not measured; several points in one bucket are averaged; stamps
    separated from the others by a silence of more than `BREAK_DAYS` are dropped (a clock that jumped), as are points
    without one. Each is noted.

    Args:
        workload: Id.
        stamps_seconds: Seconds since 1970, UTC; start of each bucket.
        demand: As long; NaN where unknown.
        ready_replicas: As long, or None.
        censored: As long, or None.
        step_seconds: Width of a bucket; inferred from the stamps if None.
        unit: Unit of demand.
        gpus_per_replica: Accelerators of one replica.
    """
    notes: list[str] = []
    usable = np.isfinite(stamps_seconds)
    if not usable.all():
        notes.append(f"{int((~usable).sum())} samples without a time were dropped")
    order = np.argsort(np.where(usable, stamps_seconds, 0.0), kind="stable")[: len(stamps_seconds)]
    order = order[usable[order]]
    stamps, values = stamps_seconds[order].astype(np.float64), demand[order].astype(np.float64)
    ready = None if ready_replicas is None else ready_replicas[order].astype(np.float64)
    cut_off = None if censored is None else censored[order].astype(np.float64)
    if not len(stamps):
        start = datetime(1970, 1, 1, tzinfo=UTC)
        return DemandSeries(workload, start, step_seconds or 300, np.empty(0), unit=unit, notes=("no sample",))

    absurd = np.isfinite(values) & ((values < 0) | (values > largest_credible(values)))
    if absurd.any():
        notes.append(f"{int(absurd.sum())} negative or absurd values count as not measured")
    values = np.where(absurd | ~np.isfinite(values), np.nan, np.where(values < SMALLEST_DEMAND, 0.0, values))

    kept = _longest_recent_run(stamps)
    if kept.stop - kept.start < len(stamps):
        notes.append(f"{len(stamps) - (kept.stop - kept.start)} samples dropped: more than {BREAK_DAYS:.0f} days away")
        stamps, values = stamps[kept], values[kept]
        ready = None if ready is None else ready[kept]
        cut_off = None if cut_off is None else cut_off[kept]

    step = step_seconds or infer_step_seconds(stamps)
    bucket = np.floor(stamps / step).astype(np.int64)
    first, size = int(bucket[0]), int(bucket[-1] - bucket[0]) + 1
    position = bucket - first
    repeated = len(position) - len(np.unique(position))
    if repeated:
        notes.append(f"{repeated} samples shared a bucket with another and were averaged")
    return DemandSeries(
        workload,
        datetime.fromtimestamp(first * step, UTC),
        step,
        _bucket_means(position, values, size),
        None if ready is None or not np.isfinite(ready).any() else _bucket_means(position, ready, size),
        None if cut_off is None else np.nan_to_num(_bucket_means(position, cut_off, size)) > 0,
        unit,
        gpus_per_replica,
        tuple(notes),
    )


def _bucket_means(position: NDArray[np.int64], values: Floats, size: int) -> Floats:
    known = np.isfinite(values)
    counts = np.bincount(position[known], minlength=size)
    sums = np.bincount(position[known], weights=values[known], minlength=size)
    means: Floats = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    return means


def _longest_recent_run(stamps: Floats) -> slice:
    """The newest stretch without a silence of `BREAK_DAYS` that holds at least a fifth of the samples."""
    breaks = np.flatnonzero(np.diff(stamps) > BREAK_DAYS * SECONDS_PER_DAY) + 1
    edges = [0, *breaks.tolist(), len(stamps)]
    runs = [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    large = [run for run in runs if (run.stop - run.start) * 5 >= len(stamps)]
    return (large or [max(runs, key=lambda run: run.stop - run.start)])[-1]


def series_from_history(frame: "pl.DataFrame", workloads: Sequence[str] | None = None) -> list[DemandSeries]:
    """The history table becomes one series a workload, sorted by id.

    Args:
        frame: Rows of `gpu_utilization`: `workload`, `ts`, `demand_replicas`, and where present `step_seconds`,
            `ready_replicas`, `gpus_per_replica`, `censored`.
        workloads: Only these ids; all if None.
    """
    wanted = None if workloads is None else set(workloads)
    result = []
    for (key,), rows in sorted(frame.partition_by("workload", as_dict=True).items(), key=lambda item: str(item[0])):
        if wanted is not None and str(key) not in wanted:
            continue
        step = _column(rows, "step_seconds")
        gpus = _column(rows, "gpus_per_replica")
        censored = _column(rows, "censored")
        result.append(
            on_grid(
                str(key),
                _seconds(rows, "ts"),
                _floats(rows, "demand_replicas"),
                _column(rows, "ready_replicas"),
                None if censored is None else np.nan_to_num(censored) > 0,
                step_seconds=None if step is None else _even_step(step),
                gpus_per_replica=None if gpus is None or not np.isfinite(gpus).any() else _last_finite(gpus),
            )
        )
    return result


def series_from_trace(frame: "pl.DataFrame") -> list[DemandSeries]:
    """A tidy trace (`ts`, `series_id`, `value`, `unit`) becomes one series an id, sorted by id; the step is inferred.

    Raises:
        KeyError: A column is missing; the message names it.
        ValueError: `ts` holds no timestamps, a row names no series, or a series mixes units; the message says what.
    """
    missing = {"ts", "series_id", "value"} - set(frame.columns)
    if missing:
        raise KeyError(", ".join(sorted(missing)))
    if not frame.schema["ts"].is_temporal():
        # Seconds or milliseconds of a plain number would be a guess.
        raise ValueError(f"column ts holds {frame.schema['ts']}; store timestamps (UTC) there")
    if nameless := frame["series_id"].null_count():
        raise ValueError(f"{nameless} of its {frame.height} rows have no series_id; name the series of each")
    result = []
    groups = frame.partition_by("series_id", as_dict=True, include_key=True)
    for (key,), rows in sorted(groups.items(), key=lambda item: str(item[0])):
        units = [str(unit) for unit in rows["unit"].unique().drop_nulls()] if "unit" in rows.columns else []
        if len(units) > 1:
            raise ValueError(f"series {key} mixes the units {' and '.join(sorted(units)[:3])}")
        unit = units[0] if units else "value"
        result.append(on_grid(str(key), _seconds(rows, "ts"), _floats(rows, "value"), unit=unit))
    return result


def _even_step(step: Floats) -> int:
    median = float(np.nanmedian(step))
    return next((even for even in STEPS_SECONDS if even >= median * 0.99), STEPS_SECONDS[-1])


def _last_finite(values: Floats) -> float:
    return float(values[np.isfinite(values)][-1])


def _seconds(rows: "pl.DataFrame", name: str) -> Floats:
    import polars as pl

    return rows[name].cast(pl.Datetime("us", "UTC"), strict=False).dt.epoch("us").cast(pl.Float64).to_numpy() / 1e6


def _floats(rows: "pl.DataFrame", name: str) -> Floats:
    import polars as pl

    return rows[name].cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()


def _column(rows: "pl.DataFrame", name: str) -> Floats | None:
    return _floats(rows, name) if name in rows.columns and rows[name].null_count() < rows.height else None
