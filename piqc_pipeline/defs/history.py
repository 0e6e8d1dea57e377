"""How busy were we? The table of days, its checks, and the usual day and week. Assets of the group `history`."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from piqc_pipeline.defs.display import numbers, picture, table, verdict
from piqc_pipeline.defs.partitions import DAYS, SINGLE_RUN, until_now, window_of_tags
from piqc_pipeline.defs.resources import (
    HISTORY_POOL,
    NETWORK_RETRIES,
    OWNERS,
    Materialized,
    Pipeline,
    checks_of,
    one_sentence,
)
from piqc_pipeline.prometheus.access import access_from_settings

if TYPE_CHECKING:
    import polars as pl

    from piqc_pipeline.history.checks import CheckResult
    from piqc_pipeline.history.samples import HistorySource

GROUP = "history"
FRESH = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=6), warn_window=timedelta(hours=2))
"""Of materializations, whatever day they fill; how old the newest sample is belongs to `newest_sample_age`."""


class FillConfig(dg.Config):
    """What a user may say in the launchpad of one fill.

    Attributes:
        force: Take the source's answer as it is, even where the table holds fuller rows.
    """

    force: bool = False


def demo_load() -> Path:
    """The shipped two weeks of load."""
    return Path(str(files("piqc_pipeline").joinpath("data", "load.parquet")))


def source_of(pipeline: Pipeline) -> "HistorySource":
    """Where the history comes from: Prometheus, a file, or the demo's load.

    What scans saw fills the buckets that Prometheus lacks; not those of a file, whose buckets have their own width.

    Raises:
        NotConfigured: No source was named.
    """
    from piqc_pipeline.history.files import FileSource

    settings = pipeline.settings
    kind = settings.require_history_source()
    access = access_from_settings(settings)
    if kind == "prometheus" and access is not None:
        from piqc_pipeline.history.prometheus import PrometheusSource
        from piqc_pipeline.history.snapshots import SnapshotSource
        from piqc_pipeline.history.store import open_store

        return SnapshotSource(open_store(settings.store_location()), PrometheusSource(access))
    return FileSource(settings.history_file if kind == "file" and settings.history_file else demo_load())


@dg.asset(
    deps=["facts_bundle"],
    partitions_def=DAYS,
    group_name=GROUP,
    kinds={"duckdb", "polars", "prometheus"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    retry_policy=NETWORK_RETRIES,
    pool=HISTORY_POOL,
    freshness_policy=FRESH,
)
@one_sentence
def gpu_utilization(
    context: dg.AssetExecutionContext, config: FillConfig, pipeline: dg.ResourceParam[Pipeline]
) -> Materialized:
    """How busy each workload was, one row a workload and bucket: utilization, ready replicas, demand.

    A day, or a range of days in one run, is replaced in one transaction: running it twice changes nothing. An emptier
    answer, for instance after Prometheus dropped old data, never replaces fuller rows unless `force` is set.
    """
    from piqc_pipeline.facts.snapshot_file import read_snapshot
    from piqc_pipeline.history.fill import fill
    from piqc_pipeline.history.inventory import inventory_from_snapshot
    from piqc_pipeline.history.reading import by_workloads
    from piqc_pipeline.history.store import open_store

    settings, now = pipeline.settings, pipeline.now
    start, end = until_now(context.partition_time_window, now)
    store = open_store(settings.store_location())
    filled = fill(
        store,
        source_of(pipeline),
        start,
        end,
        inventory_from_snapshot(read_snapshot(pipeline.snapshot_path), settings.capacity_rates),
        settings.bucket_seconds,
        now,
        force=config.force,
    )
    for warning in filled.warnings:
        context.log.warning(warning)
    newest = store.newest()
    workloads = [row for rows in by_workloads(store, start, end, settings.bucket_seconds) for row in _by_workload(rows)]
    return dg.MaterializeResult(
        metadata={
            **numbers({"rows_written": filled.rows_written, "rows_kept": filled.rows_kept}),
            "dagster/row_count": sum(row[1] for row in workloads),
            "dagster/table_name": "gpu_utilization",
            "dagster/uri": settings.store_location(),
            "from": start.isoformat(),
            "to": end.isoformat(),
            "newest_sample": newest.isoformat() if newest else "none",
            "workloads": table(
                ["workload", "rows", "mean utilization, %", "mean demand, replicas", "signal", "confidence"],
                workloads,
            ),
            "warnings": table(["warning"], [[warning] for warning in filled.warnings]),
        }
    )


def _by_workload(rows: "pl.DataFrame") -> list[tuple[Any, ...]]:
    import polars as pl

    means = rows.group_by("workload").agg(
        pl.len(),
        pl.col("utilization").mean() * 100,
        pl.col("demand_replicas").mean(),
        pl.col("signal").mode().first(),
        pl.col("confidence").mode().first(),
    )
    return means.sort("workload").rows()


TABLE_CHECKS = {
    "no_duplicate_samples": "No minute of a workload is told twice.",
    "within_bounds": "Utilization is 0 to 1; nothing is negative or infinite.",
    "gaps": "The window has few holes.",
    "newest_sample_age": "The newest sample is recent.",
    "coverage": "Most of the expected device samples were seen.",
    "scrape_interval": "Devices are sampled often enough.",
}
UNMEASURED_IS_FINE = ("coverage", "scrape_interval")
"""A file of load does not say how many samples were expected."""


@dg.multi_asset_check(
    name="gpu_utilization_checks",
    specs=checks_of("gpu_utilization", TABLE_CHECKS, blocking=("no_duplicate_samples", "within_bounds")),
    pool=HISTORY_POOL,
)
def gpu_utilization_checks(
    context: dg.AssetCheckExecutionContext, pipeline: dg.ResourceParam[Pipeline]
) -> Iterator[dg.AssetCheckResult]:
    """Looks at the days that the run names; started alone, at the days that a training would use."""
    whole = (pipeline.now - timedelta(days=pipeline.settings.train_days), pipeline.now)
    start, end = window_of_tags(context.run.tags) or whole
    for result in _checked(pipeline, start, end):
        yield verdict(
            result.name,
            result.name in UNMEASURED_IS_FINE if result.passed is None else result.passed,
            measured=result.measured,
            limit=result.limit,
            unit=f"{result.unit}, {start:%Y-%m-%d} to {end:%Y-%m-%d %H:%M}",
            says=result.detail,
            blocking=result.name in ("no_duplicate_samples", "within_bounds"),
        )


@one_sentence
def _checked(pipeline: Pipeline, start: datetime, end: datetime) -> "list[CheckResult]":
    from piqc_pipeline.history.checks import all_checks, worst_of
    from piqc_pipeline.history.reading import by_workloads
    from piqc_pipeline.history.store import open_store

    settings = pipeline.settings
    store = open_store(settings.store_location())
    newest, oldest = store.newest(), settings.max_sample_age_seconds
    parts = by_workloads(store, start, end, settings.bucket_seconds)
    return worst_of([all_checks(rows, start, end, newest, pipeline.now, oldest) for rows in parts])


@dg.asset(
    deps=[gpu_utilization],
    group_name=GROUP,
    kinds={"polars", "csv"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    pool=HISTORY_POOL,
)
@one_sentence
def load_profile(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """The usual day and week of each workload: mean, peak, night, weekly season, outliers, with plots.

    Looks at the days that a training would use. Day and night are those of `PIQC_WORKLOAD_TIMEZONE`.
    """
    from piqc_pipeline.facts.bundle import write_text
    from piqc_pipeline.history import profile
    from piqc_pipeline.history.plots import MAX_PANELS, load_plot, week_plot
    from piqc_pipeline.history.reading import busiest, by_workloads
    from piqc_pipeline.history.samples import empty_history
    from piqc_pipeline.history.store import open_store

    settings, now, folder = pipeline.settings, pipeline.now, pipeline.profile_dir
    zone = settings.workload_timezone
    start, store = now - timedelta(days=settings.train_days), open_store(settings.store_location())
    found, shown = profile.LoadProfile((), ()), empty_history()
    for rows in by_workloads(store, start, now, settings.bucket_seconds):
        found, shown = found + profile.load_profile(rows, zone), busiest([shown, rows], MAX_PANELS)
    write_text(found.to_csv(), folder / "profile.csv", "the load profile")
    write_text(found.spans_csv(), folder / "outliers.csv", "the outliers")
    censored = [one.censored_busy_pct for one in found.profiles if one.censored_busy_pct is not None]
    return dg.MaterializeResult(
        metadata={
            **numbers(
                {
                    "workloads": len(found.profiles),
                    "outliers": sum(span.kind != "gap" for span in found.spans),
                    "gaps": sum(span.kind == "gap" for span in found.spans),
                    "censored_busy_pct_worst": max(censored, default=None),
                }
            ),
            "load": picture("utilization over time", load_plot(shown, zone)),
            "week": picture("demand by weekday and hour", week_plot(shown, zone)),
            "profile": table(
                ["workload", "mean, %", "peak, %", "night, %", "08-20 h, %", "workday / weekend", "weekly strength"],
                [
                    [
                        one.workload,
                        one.mean_pct,
                        one.peak_pct,
                        one.night_pct,
                        one.busy_hours_pct,
                        one.workday_weekend_ratio,
                        one.weekly_strength,
                    ]
                    for one in found.profiles
                ],
            ),
            "folder": dg.MetadataValue.path(folder),
        }
    )
