"""How busy will we be, how sure is that, and may it be used? Assets of the group `forecast`."""

import math
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from piqc_pipeline.defs.display import numbers, verdict
from piqc_pipeline.defs.partitions import SINGLE_RUN
from piqc_pipeline.defs.resources import OWNERS, Materialized, Pipeline, checks_of, one_sentence
from piqc_pipeline.defs.shards import join_shards, split_demand, train_one_shard
from piqc_pipeline.errors import PiqcError

if TYPE_CHECKING:
    from piqc_pipeline.forecast.model import CheckOutcome, PredictorArtifact, WorkloadForecast

GROUP = "forecast"
FRESH = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=36), warn_window=timedelta(hours=26))
"""A forecast may be used for 36 hours after its data end (`TrainPolicy.valid_hours`)."""
CHECKS = {
    "mae_below_10_pp": "The error 30 minutes ahead is at most 10 points of utilization, over the last 24 hours.",
    "rmse_recorded": "The root mean squared error is known.",
    "beats_reference": "The forecast is no worse than the last value, by more than 1 %.",
    "interval_coverage": "The 90 % level holds about nine times in ten.",
}
DRIFT = {"forecast_holds": "Demand since the last run came as the forecast in use then had said."}
BLOCKING = ("mae_below_10_pp", "beats_reference")


@dg.graph_asset(
    ins={"gpu_utilization": dg.AssetIn(dagster_type=dg.Nothing)},
    group_name=GROUP,
    kinds={"prophet", "numpy"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
)
def demand_model(gpu_utilization: Any) -> Any:
    """A forecast of each workload's demand, trained on the last weeks and judged on days it had not seen.

    Demand is utilization x ready replicas: utilization falls when replicas are added, so that a forecast of it would
    learn our own scaling. Each workload has its own verdict: one that fails stays reactive, the others are used.
    What follows in the run is held up only where none was accepted. Many workloads are trained by shard, side by side.
    """
    return join_shards(split_demand(gpu_utilization).map(train_one_shard).collect())


@dg.multi_asset_check(name="demand_model_checks", specs=checks_of("demand_model", CHECKS | DRIFT, blocking=BLOCKING))
def demand_model_checks(pipeline: dg.ResourceParam[Pipeline]) -> Iterator[dg.AssetCheckResult]:
    """Reads the verdicts of the candidate that was written last."""
    from piqc_pipeline.forecast.artifact import load

    try:
        candidate = load(pipeline.model_dir / "candidate")
    except PiqcError as error:
        for name in CHECKS | DRIFT:
            yield verdict(
                name, False, measured=None, limit="a candidate", unit="", says=str(error), blocking=name in BLOCKING
            )
        return
    for name in CHECKS:
        yield _over_workloads(name, candidate)
    yield _drift(candidate)


def _drift(candidate: "PredictorArtifact") -> dg.AssetCheckResult:
    """Warns where demand has left the forecast that was in use; unknown, and no failure, at the first run."""
    drifts = {name: entry.drift for name, entry in candidate.workloads.items() if entry.drift is not None}
    judged = [drift for drift in drifts.values() if drift.drifted is not None]
    left = {name: drift for name, drift in drifts.items() if drift.drifted}
    says = "; ".join(f"{name}: {drift.detail}" for name, drift in list(left.items())[:5])
    return verdict(
        "forecast_holds",
        not left,
        measured=len(left) if judged else None,
        limit=0,
        unit=f"drifted workloads, of {len(judged)} judged",
        says=says or ("All forecasts held." if judged else "No forecast of a run before has met a day of demand yet."),
    )


def _over_workloads(name: str, candidate: "PredictorArtifact") -> dg.AssetCheckResult:
    """One check over all workloads: it fails where one fails, and blocks only where no workload was accepted."""
    outcomes = {
        forecast.workload: check
        for forecast in candidate.workloads.values()
        for check in forecast.checks
        if check.name == name
    }
    failed = {workload: check for workload, check in outcomes.items() if check.passed is False}
    worst = _worst(outcomes.values())
    says = "; ".join(f"{workload}: {check.detail}" for workload, check in list(failed.items())[:5])
    return verdict(
        name,
        not failed and bool(outcomes),
        measured=worst.value if worst else None,
        limit=worst.limit if worst and worst.limit is not None else "recorded",
        unit=f"{worst.unit}, worst of {len(outcomes)} workloads" if worst else "no workload",
        says=says or f"All {len(outcomes)} workloads pass.",
        blocking=name in BLOCKING and not any(one.accepted for one in candidate.workloads.values()),
    )


def _worst(checks: "Iterable[CheckOutcome]") -> "CheckOutcome | None":
    """The failed check with the largest value, else the largest of all that were measured."""
    measured = [check for check in checks if check.value is not None]
    return max(measured, key=lambda check: (check.passed is False, check.value or 0.0), default=None)


@dg.asset(
    deps=[demand_model],
    group_name=GROUP,
    kinds={"json"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    freshness_policy=FRESH,
)
@one_sentence
def predictor_artifact(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """The forecast in use: what the predictor service, the plan and the manifests read.

    Promoted by one atomic rename, with its SHA-256 and a model card. A rejected candidate never replaces an accepted
    forecast, whether this runs with its training or alone.
    """
    from piqc_pipeline.forecast.artifact import load, promote

    current = promote(pipeline.model_dir / "candidate", pipeline.model_dir)
    artifact = load(current)
    ages = [(pipeline.now - forecast.issued_at).total_seconds() for forecast in artifact.workloads.values()]
    return dg.MaterializeResult(
        metadata={
            **numbers(
                {
                    "workloads": len(artifact.workloads),
                    "workloads_accepted": sum(forecast.accepted for forecast in artifact.workloads.values()),
                    "oldest_entry_hours": max(ages) / 3600,
                    "size_kib": (current / "predictor.json").stat().st_size / 1024,
                }
            ),
            "sha256": artifact.sha256,
            "model_card": dg.MetadataValue.md((current / "model_card.md").read_text(encoding="utf-8")),
            "folder": dg.MetadataValue.path(current),
        },
        data_version=dg.DataVersion(artifact.sha256),
    )


@dg.asset_check(
    asset=predictor_artifact, blocking=True, description="It loads by its hash and answers for every accepted workload."
)
def loads_and_predicts(pipeline: dg.ResourceParam[Pipeline]) -> dg.AssetCheckResult:
    """Loads the artifact as the service does, and asks each accepted forecast for now."""
    from piqc_pipeline.forecast.artifact import load

    began = time.perf_counter()
    try:
        artifact = load(pipeline.artifact_dir)
    except PiqcError as error:
        return verdict(
            "loads_and_predicts", False, measured=None, limit=0, unit="broken forecasts", says=str(error), blocking=True
        )
    milliseconds = (time.perf_counter() - began) * 1000
    broken = [name for name, entry in artifact.workloads.items() if entry.accepted and not _answers(entry, pipeline)]
    return verdict(
        "loads_and_predicts",
        not broken,
        measured=len(broken),
        limit=0,
        unit="broken forecasts, at most",
        says=f"No answer for now: {', '.join(broken)}" if broken else f"Loaded in {milliseconds:.0f} ms.",
        blocking=True,
    )


def _answers(forecast: "WorkloadForecast", pipeline: Pipeline) -> bool:
    position = forecast.table.index_at(pipeline.now)
    if position is None:
        return False
    median_, high = forecast.table.peak_q50[position], forecast.table.peak_q90[position]
    return math.isfinite(median_) and 0 <= median_ <= high < math.inf
