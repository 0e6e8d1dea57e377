"""How busy will we be, how sure is that, and may it be used? Assets of the group `forecast`."""

import math
import time
from collections.abc import Iterable
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

import dagster as dg

from piqc_pipeline.defs.display import numbers, picture, table, verdict
from piqc_pipeline.defs.partitions import SINGLE_RUN
from piqc_pipeline.defs.resources import HISTORY_POOL, OWNERS, Materialized, Pipeline, checks_of, one_sentence
from piqc_pipeline.errors import ForecastError, PiqcError

if TYPE_CHECKING:
    from piqc_pipeline.forecast.model import CandidateModel, CheckOutcome, WorkloadForecast
    from piqc_pipeline.forecast.policy import TrainPolicy
    from piqc_pipeline.settings import Settings

GROUP = "forecast"
MODELS = {
    "ensemble": "forecast",
    "prophet": "Prophet alone",
    "last_value": "last value",
    "same_time_yesterday": "same time yesterday",
    "sma_60": "60-minute mean",
}
"""The forecast and what it is measured against, as they are shown."""
CHECKS = {
    "mae_below_10_pp": "The error 30 minutes ahead is at most 10 points of utilization, over the last 24 hours.",
    "rmse_recorded": "The root mean squared error is known.",
    "beats_reference": "The forecast is no worse than the last value, by more than 1 %.",
    "interval_coverage": "The 90 % level holds about nine times in ten.",
}
BLOCKING = ("mae_below_10_pp", "beats_reference")


def train_policy(settings: "Settings") -> "TrainPolicy":
    """How to train, as the settings say."""
    from piqc_pipeline.forecast.calendar import Calendar
    from piqc_pipeline.forecast.policy import TrainPolicy

    return TrainPolicy(
        train_days=settings.train_days,
        lead_seconds=round(settings.lead_time_seconds),
        refresh_seconds=round(settings.refresh_seconds),
        calendar=Calendar(zone=settings.workload_timezone),
    )


@dg.asset(
    deps=["gpu_utilization"],
    group_name=GROUP,
    kinds={"prophet", "numpy"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    pool=HISTORY_POOL,
    check_specs=checks_of("demand_model", CHECKS, blocking=BLOCKING),
)
@one_sentence
def demand_model(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """A forecast of each workload's demand, trained on the last weeks and judged on days it had not seen.

    Demand is utilization x ready replicas: utilization falls when replicas are added, so that a forecast of it would
    learn our own scaling. Each workload has its own verdict: one that fails stays reactive, the others are used.
    What follows in the run is held up only where none was accepted.
    """
    from piqc_pipeline.forecast.artifact import write_candidate
    from piqc_pipeline.forecast.plots import forecast_plot
    from piqc_pipeline.forecast.series import series_from_history
    from piqc_pipeline.forecast.train import train
    from piqc_pipeline.history.store import open_store

    settings, now = pipeline.settings, pipeline.now
    start = now - timedelta(days=settings.train_days)
    rows = open_store(settings.store_location()).read(start, now)
    if rows.is_empty():
        raise ForecastError(
            f"cannot train: the history at {settings.store_location()} has no rows from {start:%Y-%m-%d} to "
            f"{now:%Y-%m-%d}; materialize gpu_utilization for these days first"
        )
    series = series_from_history(rows)
    candidate = train(series, now, train_policy(settings), previous=_promoted(pipeline))
    folder = write_candidate(candidate, pipeline.model_dir / "candidate")
    return dg.MaterializeResult(
        metadata={
            **numbers(_headline(candidate)),
            "errors": _errors(candidate.workloads.values()),
            "forecast": picture("demand and its forecast", forecast_plot(series, candidate.workloads)),
            "not_trained": table(["workload", "why"], list(candidate.failed.items())),
            "trained_at": candidate.trained_at.isoformat(),
            "folder": dg.MetadataValue.path(folder),
        },
        check_results=[_over_workloads(name, candidate) for name in CHECKS],
    )


def _promoted(pipeline: Pipeline) -> "dict[str, WorkloadForecast]":
    """The forecasts in use, whose fits of earlier nights are reused; none where there are none to trust."""
    from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing
    from piqc_pipeline.forecast.artifact import load

    try:
        return dict(load(pipeline.artifact_dir).workloads)
    except (ArtifactMissing, ArtifactAltered):
        return {}


def _headline(candidate: "CandidateModel") -> dict[str, float | None]:
    """Figures that are plotted over time: medians over workloads, and each workload's own error."""
    from piqc_pipeline.forecast.model import LAST_DAY_30M

    figures: dict[str, float | None] = {
        "workloads_accepted": len(candidate.accepted),
        "workloads_rejected": len(candidate.rejected),
    }
    forecasts = list(candidate.workloads.values())
    for model in MODELS:
        scores = [forecast.scores[model][LAST_DAY_30M] for forecast in forecasts if _scored(forecast, model)]
        for figure in ("mae_pp", "rmse_pp", "mae_demand", "rmse_demand"):
            known = [value for score in scores if (value := getattr(score, figure)) is not None]
            figures[f"{figure}_{model}"] = median(known) if known else None
    covered = [forecast.coverage_q90 for forecast in forecasts if forecast.coverage_q90 is not None]
    figures["coverage_q90"] = median(covered) if covered else None
    return figures


def _scored(forecast: "WorkloadForecast", model: str) -> bool:
    from piqc_pipeline.forecast.model import LAST_DAY_30M

    return LAST_DAY_30M in forecast.scores.get(model, {})


def _errors(forecasts: "Iterable[WorkloadForecast]") -> dg.MetadataValue:
    """The table of errors 30 minutes ahead over the last 24 hours, in points of utilization."""
    from piqc_pipeline.forecast.model import LAST_DAY_30M

    rows: list[list[object]] = []
    for forecast in forecasts:
        scores = [forecast.scores.get(model, {}).get(LAST_DAY_30M) for model in MODELS]
        own = scores[0]
        rows.append(
            [
                forecast.workload,
                "yes" if forecast.accepted else "no",
                *(score.mae_pp if score else None for score in scores),
                own.rmse_pp if own else None,
                own.mae_demand if own else None,
                forecast.coverage_q90,
                "; ".join(forecast.reasons),
            ]
        )
    header = ["workload", "accepted", *(f"MAE {shown}, pp" for shown in MODELS.values())]
    return table([*header, "RMSE forecast, pp", "MAE forecast, replicas", "coverage of q90", "why not"], rows)


def _over_workloads(name: str, candidate: "CandidateModel") -> dg.AssetCheckResult:
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
        blocking=name in BLOCKING and not candidate.accepted,
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
