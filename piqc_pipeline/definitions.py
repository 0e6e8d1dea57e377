"""What does Dagster load?

`dagster dev` finds this module through `pyproject.toml`, `-w workspace.yaml` and `-m` by its name. In all three that
name is the location's too, so that a run that one of them queued is started by another. The classic `Definitions`,
explicit and searchable: loading by folder needs a `pyproject.toml` beside the package at run time, which an installed
wheel does not have.
"""

from typing import Any

import dagster as dg

from piqc_pipeline.defs.automation import JOBS, SCHEDULES
from piqc_pipeline.defs.collect import cluster_snapshot, coverage_report, facts_bundle, waste_report
from piqc_pipeline.defs.forecast import demand_model, demand_model_checks, loads_and_predicts, predictor_artifact
from piqc_pipeline.defs.history import gpu_utilization, gpu_utilization_checks, load_profile
from piqc_pipeline.defs.partitions import days_of
from piqc_pipeline.defs.report import capacity_report
from piqc_pipeline.defs.resources import Pipeline, PipelineResource
from piqc_pipeline.defs.scaling import keda_manifest_checks, keda_manifests, scaling_replay
from piqc_pipeline.settings import load_settings

ASSETS = [
    cluster_snapshot,
    facts_bundle,
    waste_report,
    coverage_report,
    gpu_utilization,
    load_profile,
    demand_model,
    predictor_artifact,
    scaling_replay,
    keda_manifests,
    capacity_report,
]
CHECKS = [gpu_utilization_checks, demand_model_checks, loads_and_predicts, keda_manifest_checks]
"""Checks that can run alone; those that an asset makes itself are declared with it."""


def build_defs(pipeline: Pipeline | None = None, **overrides: Any) -> dg.Definitions:
    """The asset graph, its checks, jobs and schedules.

    Args:
        pipeline: What every step uses; if None, each step reads `PIQC_*` in its own process when it begins.
        overrides: Settings that stand above `PIQC_*`, where `pipeline` is None.

    Raises:
        UsageError: A setting cannot be read; the message names it.
    """
    days = days_of(pipeline.settings if pipeline else load_settings(**overrides))
    return dg.Definitions(
        assets=dg.map_asset_specs(
            lambda spec: spec.replace_attributes(partitions_def=days) if spec.partitions_def else spec, ASSETS
        ),
        asset_checks=CHECKS,
        jobs=JOBS,
        schedules=SCHEDULES,
        resources={"pipeline": pipeline or PipelineResource(overrides=overrides)},
        # A process a step would cost 1.7 s and the handing over of the DuckDB file, each time.
        executor=dg.in_process_executor,
    )


defs = build_defs()
