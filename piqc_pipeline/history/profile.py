"""How busy were we, in words and figures? Mean, peak, night, weekly season, outliers and gaps of each workload.

Plots are in `plots`; how rows come about in `rows`. Day and night are those of the workload's zone, with its daylight
saving, because load follows people's clocks.
"""

import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl

from piqc_pipeline.errors import UsageError

HIGH_UTILIZATION = 0.95
LOW_UTILIZATION = 0.05
"""Outliers: share above and below which a bucket is told with its span."""
NIGHT_HOURS = (0, 6)
"""From 00:00 to 05:59 on the workload's clock."""
BUSY_HOURS = (8, 20)
"""The specification's working day, on the workload's clock."""
PEAK_QUANTILE = 0.99
MIN_WEEKS_FOR_SEASON = 2.0
"""A weekly pattern needs two weeks: one cannot tell it from a trend."""


@dataclass(frozen=True)
class Span:
    """A stretch of time: `[start, end)`, and what happened in it."""

    workload: str
    kind: str
    """`high` (above 95 %), `low` (below 5 %) or `gap` (no rows)."""
    start: datetime
    end: datetime
    peak_utilization: float | None = None

    @property
    def hours(self) -> float:
        """Length in hours."""
        return (self.end - self.start).total_seconds() / 3600


@dataclass(frozen=True)
class WorkloadProfile:
    """Figures of one workload; None where the data cannot tell.

    Attributes:
        buckets: Rows with a utilization.
        covered_pct: Share of the span between first and last row that has rows.
        mean_pct, p99_pct, peak_pct: Utilization.
        peak_at: Start of the busiest bucket.
        night_pct, busy_hours_pct: Mean utilization from 00 to 06 and from 08 to 20 of the zone's clock.
        workday_weekend_ratio: Mean demand of workdays / mean demand of Saturdays and Sundays.
        daily_strength, weekly_strength: 0 (none) to 1 (all) of demand's variance that the hour of the day, and the
            weekday beside it, explain: 1 - Var(remainder) / Var(demand); Hyndman & Athanasopoulos, Forecasting, 4.3.
        mean_demand_replicas, peak_demand_replicas: Demand.
        censored_pct: Share of rows in which demand was cut off by saturation.
        censored_busy_pct: The same in the busy hours; above 5 % forecasts are lower bounds.
        high_hours, low_hours: Time above 95 % and below 5 %.
        gaps, gap_hours: Stretches without rows.
    """

    workload: str
    start: datetime
    end: datetime
    step_seconds: int
    buckets: int
    covered_pct: float
    mean_pct: float | None
    p99_pct: float | None
    peak_pct: float | None
    peak_at: datetime | None
    night_pct: float | None
    busy_hours_pct: float | None
    workday_weekend_ratio: float | None
    daily_strength: float | None
    weekly_strength: float | None
    mean_demand_replicas: float | None
    peak_demand_replicas: float | None
    censored_pct: float
    censored_busy_pct: float | None
    high_hours: float
    low_hours: float
    gaps: int
    gap_hours: float
    signal: str
    confidence: str


@dataclass(frozen=True)
class LoadProfile:
    """Profiles of all workloads and every outlier and gap, oldest first."""

    profiles: tuple[WorkloadProfile, ...]
    spans: tuple[Span, ...]

    def __add__(self, other: "LoadProfile") -> "LoadProfile":
        """The profiles of both."""
        return LoadProfile(self.profiles + other.profiles, _in_order(self.spans + other.spans))

    def to_frame(self) -> pl.DataFrame:
        """One row a workload."""
        names = [field.name for field in fields(WorkloadProfile)]
        return pl.DataFrame([asdict(profile) for profile in self.profiles], schema=names if not self.profiles else None)

    def to_csv(self) -> str:
        """One row a workload as CSV; unknown is empty."""
        stream = io.StringIO()
        stream.write(self.to_frame().write_csv(datetime_format="%Y-%m-%dT%H:%M:%SZ", float_precision=4))
        return stream.getvalue()

    def spans_csv(self) -> str:
        """One row an outlier or gap as CSV."""
        frame = pl.DataFrame(
            {
                "workload": [span.workload for span in self.spans],
                "kind": [span.kind for span in self.spans],
                "start": [span.start for span in self.spans],
                "end": [span.end for span in self.spans],
                "hours": [span.hours for span in self.spans],
                "peak_utilization": [span.peak_utilization for span in self.spans],
            },
            schema_overrides={"peak_utilization": pl.Float64},
        )
        return frame.write_csv(datetime_format="%Y-%m-%dT%H:%M:%SZ", float_precision=4)


def load_profile(frame: pl.DataFrame, timezone: str = "UTC") -> LoadProfile:
    """The profile of every workload in a history frame.

    Args:
        frame: Rows of `HISTORY_SCHEMA`.
        timezone: IANA zone in which the workloads' day begins.

    Raises:
        UsageError: There is no such zone.
    """
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise UsageError(
            f"there is no time zone {timezone!r}: name one as Europe/Berlin (PIQC_WORKLOAD_TIMEZONE)"
        ) from error
    profiles, spans = [], list[Span]()
    for (workload,), rows in frame.sort("workload", "ts").group_by("workload", maintain_order=True):
        own = spans_of(rows)
        spans += own
        profiles.append(_profile(str(workload), rows, own, timezone))
    return LoadProfile(tuple(profiles), _in_order(spans))


def _in_order(spans: Iterable[Span]) -> tuple[Span, ...]:
    return tuple(sorted(spans, key=lambda span: (span.start, span.workload, span.kind)))


def _profile(workload: str, rows: pl.DataFrame, spans: Sequence[Span], timezone: str) -> WorkloadProfile:
    local = pl.col("ts").dt.convert_time_zone(timezone)
    rows = rows.with_columns(local.dt.hour().alias("hour"), local.dt.weekday().alias("weekday"))
    busy = pl.col("hour").is_between(BUSY_HOURS[0], BUSY_HOURS[1] - 1)
    night = pl.col("hour").is_between(NIGHT_HOURS[0], NIGHT_HOURS[1] - 1)
    known = rows.filter(pl.col("utilization").is_not_null())
    step = int(rows["step_seconds"].mode().min())  # type: ignore[arg-type]
    start, end = rows["ts"][0], rows["ts"][-1] + timedelta(seconds=rows["step_seconds"][-1])
    peak = known.sort("utilization", "ts", descending=[True, False]).head(1)
    return WorkloadProfile(
        workload=workload,
        start=start,
        end=end,
        step_seconds=step,
        buckets=known.height,
        covered_pct=100 * float(rows["step_seconds"].sum()) / (end - start).total_seconds(),
        mean_pct=_pct(_mean(known["utilization"])),
        p99_pct=_pct(known["utilization"].quantile(PEAK_QUANTILE, "linear")),
        peak_pct=_pct(peak["utilization"][0] if peak.height else None),
        peak_at=peak["ts"][0] if peak.height else None,
        night_pct=_pct(_mean(known.filter(night)["utilization"])),
        busy_hours_pct=_pct(_mean(known.filter(busy)["utilization"])),
        workday_weekend_ratio=_workday_weekend(rows),
        daily_strength=_strength(rows, ["hour"], 1.0),
        weekly_strength=_strength(rows, ["hour", "weekday"], 7 * MIN_WEEKS_FOR_SEASON),
        mean_demand_replicas=_mean(rows["demand_replicas"]),
        peak_demand_replicas=_float(rows["demand_replicas"].max()),
        censored_pct=100 * float(rows["censored"].fill_null(False).mean() or 0),  # type: ignore[arg-type]
        censored_busy_pct=_pct(_mean(rows.filter(busy)["censored"].fill_null(False).cast(pl.Float64))),
        high_hours=_hours(known, pl.col("utilization") > HIGH_UTILIZATION),
        low_hours=_hours(known, pl.col("utilization") < LOW_UTILIZATION),
        gaps=sum(span.kind == "gap" for span in spans),
        gap_hours=sum(span.hours for span in spans if span.kind == "gap"),
        signal=str(rows["signal"].drop_nulls().mode().sort().first() or "unknown"),
        confidence=str(rows["confidence"].drop_nulls().mode().sort().first() or "low"),
    )


def spans_of(rows: pl.DataFrame) -> list[Span]:
    """Outliers and gaps of one workload's rows, sorted by time."""
    rows = rows.sort("ts")
    width = pl.duration(seconds=pl.col("step_seconds"))
    kind = (
        pl.when(pl.col("utilization") > HIGH_UTILIZATION)
        .then(pl.lit("high"))
        .when(pl.col("utilization") < LOW_UTILIZATION)
        .then(pl.lit("low"))
        .otherwise(pl.lit(""))
    )
    marked = rows.with_columns(kind.alias("kind"), (pl.col("ts") + width).alias("until"))
    previous = pl.col("until").shift(1)
    breaks = (pl.col("kind") != pl.col("kind").shift(1)).fill_null(True) | (pl.col("ts") > previous).fill_null(False)
    runs = (
        marked.with_columns(breaks.cum_sum().alias("run"))
        .filter(pl.col("kind") != "")
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("workload", "kind").first(),
            pl.col("ts").first(),
            pl.col("until").last(),
            pl.col("utilization").max(),
        )
    )
    spans = [
        Span(row["workload"], row["kind"], row["ts"], row["until"], row["utilization"])
        for row in runs.iter_rows(named=True)
    ]
    gaps = marked.with_columns(previous.alias("previous")).filter(pl.col("ts") > pl.col("previous"))
    spans += [Span(row["workload"], "gap", row["previous"], row["ts"]) for row in gaps.iter_rows(named=True)]
    return sorted(spans, key=lambda span: (span.start, span.kind))


def _workday_weekend(rows: pl.DataFrame) -> float | None:
    workday = _mean(rows.filter(pl.col("weekday") <= 5)["demand_replicas"])
    weekend = _mean(rows.filter(pl.col("weekday") > 5)["demand_replicas"])
    return workday / weekend if workday is not None and weekend else None


def _strength(rows: pl.DataFrame, groups: list[str], days: float) -> float | None:
    """Share of demand's variance that the groups' means explain beyond what fewer groups did; None when too short.

    For the week: what is left after the hour of the day is explained by weekday and hour.
    """
    known = rows.filter(pl.col("demand_replicas").is_not_null())
    if known.is_empty() or (known["ts"][-1] - known["ts"][0]) < timedelta(days=days) - timedelta(hours=1):
        return None
    demand = known["demand_replicas"].to_numpy()
    base = demand - known.select(pl.col("demand_replicas").mean().over("hour")).to_series().to_numpy()
    whole = demand - demand.mean() if groups == ["hour"] else base
    left = demand - known.select(pl.col("demand_replicas").mean().over(groups)).to_series().to_numpy()
    variance = float(np.var(whole))
    return max(0.0, 1.0 - float(np.var(left)) / variance) if variance > 1e-12 else 0.0


def _hours(rows: pl.DataFrame, condition: pl.Expr) -> float:
    return float(rows.filter(condition)["step_seconds"].sum()) / 3600


def _mean(values: pl.Series) -> float | None:
    return _float(values.mean())


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _pct(share: float | None) -> float | None:
    return None if share is None else 100 * share
