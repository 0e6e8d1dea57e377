"""How are many workloads trained side by side? The steps behind `demand_model`, one mapped step a shard.

Pods of a run share no disk for Dagster's own values, so nothing passes between steps but the shard's key, which is part
of the step's name; everything else lies below the data folder, which all of them reach.
"""

import json
import math
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from piqc_pipeline.atomic import replacing
from piqc_pipeline.defs.display import numbers, picture, table
from piqc_pipeline.defs.resources import HISTORY_POOL, Pipeline, one_sentence
from piqc_pipeline.errors import ForecastError
from piqc_pipeline.facts.bundle import write_text

if TYPE_CHECKING:
    from piqc_pipeline.forecast.model import CandidateModel
    from piqc_pipeline.forecast.policy import TrainPolicy
    from piqc_pipeline.settings import Settings

LEFT_BEHIND = timedelta(days=1)
"""Shards of a run that failed longer ago than this are removed by the next one."""


class ShardConfig(dg.Config):
    """How demand is split.

    Attributes:
        workloads_per_shard: Workloads that one step trains: 100 take about 10 s, and a step's process 3 s to start.
    """

    workloads_per_shard: int = 100


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


def _folder(context: dg.OpExecutionContext, pipeline: Pipeline) -> Path:
    """Where the shards of this run lie; a run that was retried finds those of its first try."""
    return pipeline.model_dir / "shards" / (context.run.root_run_id or context.run_id)


@dg.op(ins={"gpu_utilization": dg.In(dg.Nothing)}, out=dg.DynamicOut(dg.Nothing), pool=HISTORY_POOL)
@one_sentence
def split_demand(
    context: dg.OpExecutionContext, config: ShardConfig, pipeline: dg.ResourceParam[Pipeline]
) -> list[dg.DynamicOutput[None]]:
    """Reads the last weeks of history once and writes the rows of each shard's workloads to a file."""
    keys = _write_shards(_folder(context, pipeline), pipeline, config.workloads_per_shard)
    return [dg.DynamicOutput(None, mapping_key=key) for key in keys]


def _write_shards(folder: Path, pipeline: Pipeline, size: int) -> list[str]:
    from piqc_pipeline.forecast.shards import shard_keys
    from piqc_pipeline.history.store import open_store

    settings, now = pipeline.settings, pipeline.now
    start, store = now - timedelta(days=settings.train_days), open_store(settings.store_location())
    workloads = store.workloads(start, now)
    if not workloads:
        raise ForecastError(
            f"cannot train: the history at {settings.store_location()} has no rows from {start:%Y-%m-%d} to "
            f"{now:%Y-%m-%d}; materialize gpu_utilization for these days first"
        )
    _forget_old(folder.parent, now)
    shards = {f"shard_{i}": keys for i, keys in enumerate(shard_keys(workloads, math.ceil(len(workloads) / size)))}
    write_text(json.dumps({"now": now.isoformat(), "shards": shards}), folder / "plan.json", "the shards' plan")
    for name, keys in shards.items():
        with replacing(folder / f"{name}.parquet") as partial:
            store.read(start, now, list(keys)).write_parquet(partial)
    return list(shards)


def _forget_old(shards: Path, now: datetime) -> None:
    for left in shards.glob("*") if shards.is_dir() else ():
        if now.timestamp() - left.stat().st_mtime > LEFT_BEHIND.total_seconds():
            shutil.rmtree(left, ignore_errors=True)


@dg.op(ins={"shard": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
@one_sentence
def train_one_shard(context: dg.OpExecutionContext, pipeline: dg.ResourceParam[Pipeline]) -> None:
    """Trains and judges the workloads of one shard; one that cannot be trained is named and holds back no other."""
    import polars as pl

    from piqc_pipeline.forecast.artifact import trained_before
    from piqc_pipeline.forecast.series import series_from_history
    from piqc_pipeline.forecast.shards import train_shard

    folder, name = _folder(context, pipeline), str(context.get_mapping_key())
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    rows = pl.read_parquet(folder / f"{name}.parquet")
    train_shard(
        plan["shards"][name],
        lambda keys: series_from_history(rows, list(keys)),
        datetime.fromisoformat(plan["now"]),
        train_policy(pipeline.settings),
        folder / name,
        trained_before(pipeline.model_dir),
    )


@dg.op(ins={"trained": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
@one_sentence
def join_shards(context: dg.OpExecutionContext, pipeline: dg.ResourceParam[Pipeline]) -> dg.Output[None]:
    """Makes one candidate of all shards, with its errors and its plot."""
    return dg.Output(None, metadata=_joined(_folder(context, pipeline), pipeline))


def _joined(folder: Path, pipeline: Pipeline) -> dict[str, dg.MetadataValue]:
    import polars as pl

    from piqc_pipeline.forecast.artifact import write_candidate
    from piqc_pipeline.forecast.plots import forecast_plot
    from piqc_pipeline.forecast.series import series_from_history
    from piqc_pipeline.forecast.shards import merge_shards

    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    paths = [path for name in plan["shards"] for path in sorted((folder / name).glob("shard-*.json"))]
    candidate = merge_shards(paths, datetime.fromisoformat(plan["now"]), train_policy(pipeline.settings))
    written = write_candidate(candidate, pipeline.model_dir / "candidate")
    rows = pl.concat([pl.read_parquet(folder / f"{name}.parquet") for name in plan["shards"]])
    plot = forecast_plot(series_from_history(rows), candidate.workloads)
    shutil.rmtree(folder, ignore_errors=True)
    headline = headline_of(candidate)
    return {
        **numbers({name: headline.pop(name) for name in ("mae_pp_ensemble", "rmse_pp_ensemble")}),
        "errors": errors_of(candidate),
        "rejected": table(
            ["workload", "why"],
            [[one.workload, "; ".join(one.reasons)] for one in candidate.workloads.values() if one.reasons],
        ),
        "forecast": picture("demand and its forecast", plot),
        **numbers(headline),
        "drift": drift_of_each(candidate),
        "not_trained": table(["workload", "why"], list(candidate.failed.items())),
        "trained_at": dg.MetadataValue.text(candidate.trained_at.isoformat()),
        "folder": dg.MetadataValue.path(written),
    }


def headline_of(candidate: "CandidateModel") -> dict[str, float | None]:
    """Figures that are plotted over time: medians over workloads, of each model and of the calibration; counts."""
    from statistics import median

    from piqc_pipeline.forecast.model import COMPARED, LAST_DAY_30M

    figures: dict[str, float | None] = {}
    forecasts = list(candidate.workloads.values())
    for model in COMPARED:
        scores = [one.scores[model][LAST_DAY_30M] for one in forecasts if LAST_DAY_30M in one.scores.get(model, {})]
        for figure in ("mae_pp", "rmse_pp", "mae_demand", "rmse_demand"):
            known = [value for score in scores if (value := getattr(score, figure)) is not None]
            figures[f"{figure}_{model}"] = median(known) if known else None
    covered = [one.coverage_q90 for one in forecasts if one.coverage_q90 is not None]
    figures["coverage_q90"] = median(covered) if covered else None
    figures["workloads_accepted"] = len(candidate.accepted)
    figures["workloads_rejected"] = len(candidate.rejected)
    judged = [one.drift.drifted for one in forecasts if one.drift and one.drift.drifted is not None]
    figures["workloads_drifted"] = sum(judged) if judged else None
    return figures


def errors_of(candidate: "CandidateModel") -> dg.MetadataValue:
    """The table of mean absolute errors 30 minutes ahead over the last 24 hours, in points of utilization."""
    from piqc_pipeline.forecast.model import COMPARED, LAST_DAY_30M, MODEL_LABELS

    rows: list[list[object]] = []
    for forecast in candidate.workloads.values():
        scores = [forecast.scores.get(model, {}).get(LAST_DAY_30M) for model in COMPARED]
        own = scores[0]
        rows.append(
            [
                forecast.workload,
                "yes" if forecast.accepted else "no",
                *(score.mae_pp if score else None for score in scores),
                own.rmse_pp if own else None,
                None if forecast.coverage_q90 is None else 100 * forecast.coverage_q90,
            ]
        )
    own_label, *others = (MODEL_LABELS[model] for model in COMPARED)
    return table(
        ["workload", "accepted", f"MAE, pp: {own_label}", *others, f"RMSE, pp: {own_label}", "q90 covers, %"], rows
    )


def drift_of_each(candidate: "CandidateModel") -> dg.MetadataValue:
    """The forecast of the run before beside what came, those that demand has left first."""
    rows = [
        [
            workload,
            {True: "yes", False: "no", None: "unknown"}[forecast.drift.drifted],
            forecast.drift.mae_demand,
            forecast.drift.expected_mae_demand,
            forecast.drift.inside_share,
        ]
        for workload, forecast in candidate.workloads.items()
        if forecast.drift is not None
    ]
    rows.sort(key=lambda row: row[1] != "yes")
    header = ["workload", "drifted", "MAE of a day ahead, replicas", "expected MAE, replicas", "share in q10-q90"]
    return table(header, rows) if rows else dg.MetadataValue.text("no forecast was in use before")
