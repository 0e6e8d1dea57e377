"""How many replicas, which manifests, and would they have been safe? Assets of the group `scaling`."""

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from piqc_pipeline.defs.display import numbers, table, verdict
from piqc_pipeline.defs.forecast import predictor_artifact
from piqc_pipeline.defs.partitions import SINGLE_RUN
from piqc_pipeline.defs.resources import HISTORY_POOL, OWNERS, Materialized, Pipeline, checks_of, one_sentence
from piqc_pipeline.errors import PiqcError

if TYPE_CHECKING:
    from piqc_pipeline.scaling.fleet import FleetPlan

GROUP = "scaling"
REPLAY_DAYS = 14
"""Half of it is scored; a replay takes about 0.4 s a workload and scored day."""
MOST_REPLAYED = 25
"""Workloads that are replayed, those with the most busy accelerators; `piqc replay` takes any."""


def plan_of(pipeline: Pipeline) -> "FleetPlan":
    """The replica plan of every inference workload, from the newest snapshot and the forecast in use.

    The verdict of each workload lies in the artifact and is asked here again: a check of Dagster holds up only the run
    that it failed in.

    Raises:
        ArtifactMissing: Nothing was promoted yet.
        ArtifactAltered: The artifact is not what its hash says.
        DumpUnreadable: There is no snapshot.
    """
    from piqc_pipeline.facts.snapshot_file import read_snapshot
    from piqc_pipeline.forecast.artifact import load
    from piqc_pipeline.scaling.fleet import plan_cluster
    from piqc_pipeline.scaling.policy import policy_from_settings
    from piqc_pipeline.waste.prices import load_prices

    return plan_cluster(
        read_snapshot(pipeline.snapshot_path),
        load(pipeline.artifact_dir),
        policy_from_settings(pipeline.settings),
        pipeline.now,
        load_prices(pipeline.settings.prices_file),
    )


@dg.asset(
    deps=[predictor_artifact, "gpu_utilization"],
    group_name=GROUP,
    kinds={"numpy", "json"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    pool=HISTORY_POOL,
    check_specs=checks_of(
        "scaling_replay",
        {"no_worse_than_reactive": "At equal GPU-hours the forecast leaves no more minutes over 90 % than reacting."},
    ),
)
@one_sentence
def scaling_replay(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """Every scaling policy on the recorded demand, closed loop: what each would have cost, and left too hot.

    "Stay reactive" is one of the policies, and the answer where no other is better beyond chance. Faults (a dead
    predictor, a burst) are not part of it: `piqc replay` injects them.
    """
    from piqc_pipeline.facts.bundle import write_text
    from piqc_pipeline.forecast.artifact import load
    from piqc_pipeline.forecast.series import series_from_history
    from piqc_pipeline.history.reading import busiest, by_workloads
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.scaling.policy import policy_from_settings
    from piqc_pipeline.scaling.replay import ReplayOptions, replay, to_json

    settings, now = pipeline.settings, pipeline.now
    known = load(pipeline.artifact_dir).workloads
    store, start = open_store(settings.store_location()), now - timedelta(days=REPLAY_DAYS)
    rows = busiest(by_workloads(store, start, now, settings.bucket_seconds, list(known)), MOST_REPLAYED)
    replayed = set(rows["workload"])
    result = replay(series_from_history(rows), policy_from_settings(settings), ReplayOptions(injections=()))
    path = pipeline.replay_dir / "replay.json"
    write_text(json.dumps(to_json(result), indent=2, allow_nan=False) + "\n", path, "the replay's scores")
    ratio = result.pooled["minutes_over_90_at_equal_gpu_hours"]
    return dg.MaterializeResult(
        metadata={
            **numbers(
                {
                    "over_90_ratio_to_reactive": ratio["value"],
                    "in_band_over_achievable": result.pooled["in_band_over_achievable"]["value"],
                    "workloads": len(result.series),
                }
            ),
            "recommended": table(
                ["workload", "policy", "why"],
                [[one.series, one.recommendation.policy, one.recommendation.why] for one in result.series],
            ),
            "scores": table(
                ["workload", "policy", "GPU-hours", "minutes over 90 %", "5-minute means in 70-80 %, %", "moves a day"],
                [
                    [
                        one.series,
                        name,
                        score.gpu_hours,
                        score.minutes_over_90,
                        None if score.in_band is None else 100 * score.in_band,
                        score.moves_per_day,
                    ]
                    for one in result.series
                    for name, score in one.policies.items()
                ],
            ),
            "skipped": table(
                ["workload", "why"],
                [
                    *result.skipped.items(),
                    *((name, f"not among the {MOST_REPLAYED} busiest") for name in sorted({*known} - replayed)),
                ],
            ),
            "file": dg.MetadataValue.path(path),
        },
        check_results=[_no_worse(ratio)],
    )


def _no_worse(ratio: "Mapping[str, float | None]") -> dg.AssetCheckResult:
    """Fails only where the forecast is worse beyond chance: the whole interval of the ratio lies above 1."""
    value, low = ratio["value"], ratio["low"]
    return verdict(
        "no_worse_than_reactive",
        low is None or low <= 1,
        measured=low,
        limit=1,
        unit="low end of the 95 % interval of the ratio, at most",
        says="Neither policy was ever above 90 %."
        if value is None
        else f"The forecast's minutes over 90 % are {value:.2f} times those of reacting at equal GPU-hours.",
    )


@dg.asset(
    deps=[predictor_artifact, "facts_bundle"],
    group_name=GROUP,
    kinds={"yaml", "kubernetes"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
)
@one_sentence
def keda_manifests(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """ScaledObjects with a forecast and an observed trigger, both in replicas; an HPA variant beside them.

    Nothing is applied: look at them, then `kubectl apply -k`. A workload without an accepted forecast gets the
    observed trigger alone, with the reason. Where the artifact is missing or altered, nothing is written at all.
    """
    from piqc_pipeline.facts.snapshot_file import read_snapshot
    from piqc_pipeline.scaling.options import options_from_settings
    from piqc_pipeline.scaling.overlay import render, write_overlay
    from piqc_pipeline.scaling.policy import policy_from_settings

    settings = pipeline.settings
    fleet = plan_of(pipeline)
    options = options_from_settings(settings, read_snapshot(pipeline.snapshot_path).server_version)
    manifests = render(fleet.plans, policy_from_settings(settings), options)
    write_overlay(manifests, pipeline.manifests_dir)
    reactive = [plan for plan in fleet.plans if not plan.accepted]
    return dg.MaterializeResult(
        metadata={
            **numbers(
                {
                    "workloads": len(fleet.plans),
                    "workloads_reactive": len(reactive),
                    "workloads_left_out": len(fleet.left_out),
                    "replicas_planned_now": sum(plan.now.replicas for plan in fleet.plans if plan.now),
                    "capacity_shortfalls": sum(len(plan.shortfalls) for plan in fleet.plans),
                    "files": len(manifests),
                }
            ),
            "plan": table(
                ["workload", "now", "least", "most", "replicas now", "highest planned", "why"],
                [
                    [
                        plan.workload,
                        plan.now.replicas if plan.now else None,
                        plan.limits.min_replicas,
                        plan.limits.max_replicas,
                        plan.limits.replicas_now,
                        max((step.replicas for step in plan.steps), default=None),
                        plan.now.explain if plan.now else "; ".join(plan.reasons),
                    ]
                    for plan in fleet.plans
                ],
            ),
            "reactive": table(["workload", "why"], [[plan.workload, "; ".join(plan.reasons)] for plan in reactive]),
            "shortfalls": table(
                ["workload", "from", "accelerators missing", "USD an hour", "what to do"],
                [
                    [plan.workload, f"{gap.start:%Y-%m-%d %H:%M}", gap.gpus_short, gap.usd_per_hour, gap.explain]
                    for plan in fleet.plans
                    for gap in plan.shortfalls
                ],
            ),
            "left_out": table(["workload", "why"], list(fleet.left_out.items())),
            "folder": dg.MetadataValue.path(pipeline.manifests_dir),
        }
    )


MANIFEST_CHECKS = {
    "manifests_valid": "The API server would take every written object as it is.",
    "target_reachable": "Each trigger can ask for every count up to its maximum.",
    "replicas_within_limits": "What is written keeps to the limits of the plan.",
}


@dg.multi_asset_check(
    name="keda_manifest_checks",
    specs=checks_of("keda_manifests", MANIFEST_CHECKS, blocking=tuple(MANIFEST_CHECKS)),
)
def keda_manifest_checks(pipeline: dg.ResourceParam[Pipeline]) -> Iterator[dg.AssetCheckResult]:
    """Reads the written folder back, whoever wrote it, and holds it against schemas, arithmetic and the plan."""
    from piqc_pipeline.scaling.written import outside_limits, refused_because, unreachable, written_objects

    try:
        objects = written_objects(pipeline.manifests_dir)
        plans = {f"{plan.limits.namespace}/{plan.limits.name}": plan for plan in plan_of(pipeline).plans}
    except PiqcError as error:
        for name in MANIFEST_CHECKS:
            yield verdict(name, False, measured=None, limit=0, unit="faults", says=str(error), blocking=True)
        return
    scaled = {path: body for path, body in objects.items() if body["kind"] == "ScaledObject"}
    faults = {
        "manifests_valid": [f"{path}: {why}" for path, body in objects.items() for why in refused_because(body)],
        "target_reachable": [f"{path}: {why}" for path, body in scaled.items() for why in unreachable(body)],
        "replicas_within_limits": [why for body in scaled.values() for why in outside_limits(body, plans)],
    }
    for name, found in faults.items():
        yield verdict(
            name,
            not found,
            measured=len(found),
            limit=0,
            unit=f"faults in {len(objects)} objects, at most",
            says="; ".join(found[:5]) or MANIFEST_CHECKS[name],
            blocking=True,
        )
