"""What does a team look at? The one page of everything. Asset of the group `report`."""

from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from piqc_pipeline.defs.collect import coverage_report, read_results, waste_report
from piqc_pipeline.defs.display import numbers
from piqc_pipeline.defs.history import load_profile
from piqc_pipeline.defs.partitions import SINGLE_RUN
from piqc_pipeline.defs.resources import HISTORY_POOL, OWNERS, Materialized, Pipeline, one_sentence
from piqc_pipeline.defs.scaling import keda_manifests, plan_of, scaling_replay
from piqc_pipeline.errors import ArtifactAltered, ArtifactMissing

if TYPE_CHECKING:
    from piqc_pipeline.forecast.model import PredictorArtifact
    from piqc_pipeline.scaling.plan import ReplicaPlan

GROUP = "report"


@dg.asset(
    deps=[waste_report, coverage_report, load_profile, scaling_replay, keda_manifests],
    group_name=GROUP,
    kinds={"html"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    pool=HISTORY_POOL,
)
@one_sentence
def capacity_report(context: dg.AssetExecutionContext, pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """One HTML page of waste, what cannot be seen, load, forecast and replica plan; it loads nothing from anywhere.

    Where no forecast can be used, the page says so and shows the rest.
    """
    from piqc_pipeline.facts.bundle import write_text
    from piqc_pipeline.forecast.artifact import load
    from piqc_pipeline.history.plots import MAX_PANELS, load_plot, week_plot
    from piqc_pipeline.history.reading import busiest, by_workloads
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.report.capacity_page import render

    settings, now = pipeline.settings, pipeline.now
    artifact: PredictorArtifact | None = None
    plans: tuple[ReplicaPlan, ...] = ()
    try:
        artifact, plans = load(pipeline.artifact_dir), plan_of(pipeline).plans
    except (ArtifactMissing, ArtifactAltered) as error:
        context.log.warning(str(error))
    start, store = now - timedelta(days=settings.train_days), open_store(settings.store_location())
    rows = busiest(by_workloads(store, start, now, settings.bucket_seconds), MAX_PANELS)
    zone = settings.workload_timezone
    plots = {"utilization over time": load_plot(rows, zone), "demand by weekday and hour": week_plot(rows, zone)}
    result = read_results(pipeline)
    page = render(result, artifact, plans, plots, now)
    path = pipeline.report_dir / "index.html"
    write_text(page, path, "the capacity report")
    return dg.MaterializeResult(
        metadata={
            **numbers(
                {
                    "waste_usd_per_day": result.waste.summary.waste_usd_per_day,
                    "workloads_accepted": sum(one.accepted for one in artifact.workloads.values()) if artifact else 0,
                    "workloads_planned": len(plans),
                    "size_kib": len(page) / 1024,
                }
            ),
            "page": dg.MetadataValue.url(path.absolute().as_uri()),
        }
    )
