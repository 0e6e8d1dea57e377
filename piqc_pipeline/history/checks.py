"""Can the table be trusted? Pure functions over a frame; each returns what was measured beside its limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

MAX_SCRAPE_INTERVAL_SECONDS = 30.0
"""The specification's limit; dcgm-exporter collects every 30 s by default."""
MAX_GAP_SHARE = 0.02
MIN_COVERAGE = 0.9


@dataclass(frozen=True)
class CheckResult:
    """One check.

    Attributes:
        name: `no_duplicate_samples`, `within_bounds`, `gaps`, `newest_sample_age`, `coverage`, `scrape_interval`.
        passed: None when there is nothing to measure.
        measured: In the unit of the limit; None when there is nothing to measure.
        limit: What the measured value may not pass.
        unit: Of both.
        detail: One sentence for a user.
    """

    name: str
    passed: bool | None
    measured: float | None
    limit: float
    unit: str
    detail: str


def no_duplicate_samples(frame: pl.DataFrame) -> CheckResult:
    """No minute of a workload is told twice: neither the same bucket, nor overlapping buckets of two widths."""
    ends = pl.col("ts") + pl.duration(seconds=pl.col("step_seconds"))
    ordered = frame.sort("cluster", "workload", "ts")
    overlap = ordered.filter(pl.col("ts") < ends.cum_max().shift(1).over("cluster", "workload"))
    detail = "every bucket occurs once"
    if overlap.height:
        row = overlap.row(0, named=True)
        first = f"{row['workload']} at {row['ts']:%Y-%m-%d %H:%M}"
        detail = f"{overlap.height} buckets overlap an earlier one, the first of {first}"
    return CheckResult("no_duplicate_samples", overlap.is_empty(), float(overlap.height), 0.0, "rows", detail)


def within_bounds(frame: pl.DataFrame) -> CheckResult:
    """Utilization is a share of 0..1, nothing is negative, NaN or infinite."""
    figures = (
        "utilization",
        "demand_replicas",
        "busy_gpus",
        "ready_replicas",
        "wanted_replicas",
        "offered_rate",
        "waiting_requests",
    )
    wrong = pl.any_horizontal((pl.col(name) < 0) | ~pl.col(name).is_finite() for name in figures).fill_null(False)
    bad = frame.filter(wrong | (pl.col("utilization") > 1).fill_null(False))
    detail = "all figures are possible"
    if bad.height:
        row = bad.row(0, named=True)
        detail = (
            f"{bad.height} rows hold impossible figures, the first of {row['workload']} at {row['ts']:%Y-%m-%d %H:%M}"
        )
    return CheckResult("within_bounds", bad.is_empty(), float(bad.height), 0.0, "rows", detail)


def gaps(frame: pl.DataFrame, start: datetime, end: datetime) -> CheckResult:
    """Share of the window that has no rows, of the worst workload, counted from its first row in the window."""
    if frame.is_empty():
        return CheckResult("gaps", None, None, MAX_GAP_SHARE, "share", "no rows in the window")
    inside = frame.filter((pl.col("ts") >= start) & (pl.col("ts") < end))
    covered = inside.group_by("workload").agg(
        pl.col("step_seconds").sum().alias("covered"),
        (pl.lit(end) - pl.col("ts").min()).dt.total_seconds().alias("due"),
    )
    worst = covered.with_columns((1 - pl.col("covered") / pl.col("due")).clip(0, 1).alias("missing")).sort(
        "missing", "workload", descending=[True, False]
    )
    if worst.is_empty():
        return CheckResult("gaps", None, None, MAX_GAP_SHARE, "share", "no rows in the window")
    row = worst.row(0, named=True)
    missing = float(row["missing"])
    detail = f"{missing:.1%} of the window of {row['workload']} has no rows"
    return CheckResult("gaps", missing <= MAX_GAP_SHARE, missing, MAX_GAP_SHARE, "share", detail)


def newest_sample_age(newest: datetime | None, now: datetime, limit_seconds: float) -> CheckResult:
    """How old the end of the newest bucket is."""
    if newest is None:
        return CheckResult("newest_sample_age", None, None, limit_seconds, "seconds", "the table is empty")
    age = max(0.0, (now - newest).total_seconds())
    detail = f"the newest sample ends {timedelta(seconds=round(age))} before now ({newest:%Y-%m-%d %H:%M} UTC)"
    return CheckResult("newest_sample_age", age <= limit_seconds, age, limit_seconds, "seconds", detail)


def coverage(frame: pl.DataFrame) -> CheckResult:
    """Share of the expected device samples that was seen, over all rows that know what to expect."""
    known = frame.filter(pl.col("samples_expected") > 0)
    if known.is_empty():
        return CheckResult("coverage", None, None, MIN_COVERAGE, "share", "no row knows how many samples to expect")
    share = float(known["samples_seen"].sum()) / float(known["samples_expected"].sum())
    detail = f"{share:.1%} of the expected samples were seen"
    return CheckResult("coverage", share >= MIN_COVERAGE, share, MIN_COVERAGE, "share", detail)


def scrape_interval(frame: pl.DataFrame) -> CheckResult:
    """Seconds between two samples of a device, of the slowest workload (median over its rows)."""
    known = frame.filter((pl.col("samples_expected") > 0) & (pl.col("devices_expected") > 0))
    if known.is_empty():
        return CheckResult(
            "scrape_interval",
            None,
            None,
            MAX_SCRAPE_INTERVAL_SECONDS,
            "seconds",
            "no row knows how often it was scraped",
        )
    seconds = pl.col("step_seconds") * pl.col("devices_expected") / pl.col("samples_expected")
    slowest = known.group_by("workload").agg(seconds.median().alias("seconds")).sort("seconds", "workload").tail(1)
    workload, measured = slowest.row(0)
    detail = f"the devices of {workload} are sampled every {measured:.0f} s"
    passed = measured <= MAX_SCRAPE_INTERVAL_SECONDS
    return CheckResult("scrape_interval", passed, float(measured), MAX_SCRAPE_INTERVAL_SECONDS, "seconds", detail)


def all_checks(
    frame: pl.DataFrame, start: datetime, end: datetime, newest: datetime | None, now: datetime, max_age_seconds: float
) -> list[CheckResult]:
    """Every check of a window, in the order of their weight."""
    return [
        no_duplicate_samples(frame),
        within_bounds(frame),
        gaps(frame, start, min(end, now)),
        newest_sample_age(newest, now, max_age_seconds),
        coverage(frame),
        scrape_interval(frame),
    ]


def worst_of(parts: Sequence[Sequence[CheckResult]]) -> list[CheckResult]:
    """Of each check the worst result of several parts of the table: what failed, else what is farthest off."""

    def badness(result: CheckResult) -> tuple[bool, float]:
        off = float("-inf") if result.measured is None else result.measured - result.limit
        return result.passed is False, -off if result.name == "coverage" and result.measured is not None else off

    return [max(same, key=badness) for same in zip(*parts, strict=True)]
