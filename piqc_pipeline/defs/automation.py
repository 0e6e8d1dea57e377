"""What runs when, without anybody pressing a button? Five jobs, three schedules.

Schedules are stopped until a user starts them: one that runs from the first minute makes every developer's instance
scan clusters.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import dagster as dg

from piqc_pipeline.defs.partitions import key_of
from piqc_pipeline.defs.resources import Pipeline

LATE_SAMPLES = timedelta(hours=1)
"""A tick fills the day of one hour ago, so that the first tick after midnight still completes the day before."""
MAX_RUNTIME_TAG = "dagster/max_runtime"
"""Seconds after which Dagster ends a run (run monitoring is on in `dagster_home/dagster.yaml`)."""

COLLECTED = dg.AssetSelection.assets("cluster_snapshot", "facts_bundle", "waste_report", "coverage_report")
FILLED = dg.AssetSelection.assets("gpu_utilization")
TRAINED = dg.AssetSelection.assets(
    "load_profile", "demand_model", "predictor_artifact", "scaling_replay", "keda_manifests", "capacity_report"
)


def _k8s(cpu: str, memory: str) -> Mapping[str, object]:
    """What a run's pod asks for where Dagster launches one pod a run; ignored on one machine."""
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    return {"container_config": {"resources": resources}, "job_spec_config": {"ttl_seconds_after_finished": 86_400}}


collect_job = dg.define_asset_job(
    "collect",
    COLLECTED,
    description="Read the cluster; write the facts, the waste report and what cannot be seen.",
    tags={MAX_RUNTIME_TAG: "1800", "dagster-k8s/config": _k8s("250m", "1Gi")},
)
history_job = dg.define_asset_job(
    "history",
    FILLED,
    description="Fill one day of the history; running it twice changes nothing.",
    tags={MAX_RUNTIME_TAG: "3600", "dagster-k8s/config": _k8s("500m", "2Gi")},
)
train_job = dg.define_asset_job(
    "train",
    TRAINED,
    description="Train, judge and promote the forecasts; render the manifests and the report.",
    tags={MAX_RUNTIME_TAG: "14400", "dagster-k8s/config": _k8s("2", "4Gi")},
)
everything_job = dg.define_asset_job(
    "everything",
    COLLECTED | FILLED | TRAINED,
    description="The whole graph for one day, or for a range in one run.",
    tags={MAX_RUNTIME_TAG: "21600", "dagster-k8s/config": _k8s("2", "4Gi")},
)
train_shards_job = dg.define_asset_job(
    "train_shards",
    TRAINED,
    description="As `train`, with a process a step: for hundreds of workloads, whose shards train side by side.",
    executor_def=dg.multiprocess_executor,
    tags={MAX_RUNTIME_TAG: "14400", "dagster-k8s/config": _k8s("4", "8Gi")},
)
JOBS = [collect_job, history_job, train_job, train_shards_job, everything_job]


def _tick(context: dg.ScheduleEvaluationContext) -> datetime:
    return context.scheduled_execution_time.astimezone(UTC)


@dg.schedule(job=collect_job, cron_schedule="5 * * * *", execution_timezone="UTC")
def collect_hourly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Reads the cluster every hour, at five past."""
    return dg.RunRequest(run_key=f"collect-{_tick(context):%Y-%m-%dT%H}")


@dg.schedule(job=history_job, cron_schedule="10 * * * *", execution_timezone="UTC")
def history_hourly(
    context: dg.ScheduleEvaluationContext, pipeline: dg.ResourceParam[Pipeline]
) -> dg.RunRequest | dg.SkipReason:
    """Refills, every hour at ten past, the day that it was one hour ago."""
    tick = _tick(context)
    day = key_of(tick - LATE_SAMPLES)
    if day > key_of(pipeline.now):
        return dg.SkipReason(
            f"the day {day} lies after {pipeline.now:%Y-%m-%dT%H:%MZ}, where PIQC_NOW or the demo stands"
        )
    return dg.RunRequest(run_key=f"history-{day}-{tick:%Y-%m-%dT%H}", partition_key=day)


@dg.schedule(job=train_job, cron_schedule="30 1 * * *", execution_timezone="UTC")
def train_daily(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Trains, judges and renders once a day, at 01:30 UTC, when yesterday is complete."""
    return dg.RunRequest(run_key=f"train-{_tick(context):%Y-%m-%d}")


SCHEDULES = [collect_hourly, history_hourly, train_daily]
