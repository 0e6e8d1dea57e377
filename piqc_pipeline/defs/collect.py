"""What runs, what do we know of it, what does it cost, what can we not see? Assets of the group `collect`."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from piqc_pipeline import cluster
from piqc_pipeline.defs.display import numbers, table, verdict
from piqc_pipeline.defs.partitions import SINGLE_RUN
from piqc_pipeline.defs.resources import (
    HISTORY_POOL,
    NETWORK_RETRIES,
    OWNERS,
    Materialized,
    Pipeline,
    checks_of,
    one_sentence,
)
from piqc_pipeline.errors import DumpUnreadable
from piqc_pipeline.facts.bundle import SCHEMA_VERSION as BUNDLE_SCHEMA
from piqc_pipeline.facts.bundle import bundle_from_json, write_bundle, write_text
from piqc_pipeline.facts.snapshot import ClusterSnapshot
from piqc_pipeline.facts.snapshot_file import read_snapshot, write_snapshot
from piqc_pipeline.prometheus.access import access_from_settings
from piqc_pipeline.waste.figures import BUCKETS, HOURS_PER_DAY, PoolCapacity, WasteReport

if TYPE_CHECKING:
    from piqc_pipeline.report.scan_result import ScanResult

GROUP = "collect"
UNITS_TOLERANCE = 1e-6
"""Fractions of a device are sums of floats."""
CENT = 0.01
"""Printed sums are rounded to cents."""


def read_cluster(pipeline: Pipeline) -> ClusterSnapshot:
    """The cluster that `PIQC_CLUSTER` names: the demo, a recorded dump, or a live one.

    Raises:
        NotConfigured: No cluster was named.
        ClusterError: It cannot be read at all.
        NamespacesMissing: It has none of the namespaces that the settings name.
    """
    settings, now = pipeline.settings, pipeline.now
    source = settings.require_cluster()
    if source == "demo":
        return cluster.read_demo(now)
    options = cluster.ScanOptions(
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        namespaces=settings.namespace_list(),
        collect_runtime=settings.collect_runtime,
        allow_exec=settings.allow_exec,
        timeout_seconds=settings.request_timeout_seconds,
        deadline_seconds=settings.deadline_seconds,
        workers=settings.workers,
        cluster_name=settings.cluster_name,
        mode="incluster" if source == "incluster" else "remote",
        prometheus=access_from_settings(settings),
    )
    if source not in ("kubeconfig", "incluster"):
        return cluster.read_dump(Path(source), now, settings.cluster_name, options)
    return cluster.read_live(options, now)


@dg.asset(
    group_name=GROUP,
    kinds={"kubernetes", "json"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    retry_policy=NETWORK_RETRIES,
    check_specs=checks_of(
        "cluster_snapshot",
        {"nodes_readable": "Nodes could be read.", "permissions_complete": "No read was refused and none failed."},
        blocking=("nodes_readable",),
    ),
)
@one_sentence
def cluster_snapshot(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """Everything one scan saw of the cluster: nodes, accelerators, pods, inference workloads.

    Read-only. A read that was refused makes its figures unknown, with the reason; it never turns into a zero.
    """
    snapshot = read_cluster(pipeline)
    write_snapshot(snapshot, pipeline.snapshot_path)
    failed = [entry for entry in snapshot.unknown if entry.read_failed]
    nodes = None if snapshot.nodes is None else len(snapshot.nodes)
    return dg.MaterializeResult(
        metadata={
            **numbers(
                {
                    "nodes": nodes,
                    "accelerators": devices_installed(snapshot),
                    "pods": None if snapshot.pods is None else len(snapshot.pods),
                    "workloads": len(snapshot.workloads),
                    "reads_failed": len(failed),
                }
            ),
            "cluster": snapshot.cluster,
            "taken_at": snapshot.taken_at.isoformat(),
            "file": dg.MetadataValue.path(pipeline.snapshot_path),
            "unknown": table(["what", "why"], [[entry.what, entry.why] for entry in snapshot.unknown]),
        },
        check_results=[
            verdict(
                "nodes_readable",
                bool(nodes),
                measured=nodes,
                limit=1,
                unit="nodes, at least",
                says="Capacity, dark accelerators and prices come from the nodes.",
                blocking=True,
            ),
            verdict(
                "permissions_complete",
                not failed,
                measured=len(failed),
                limit=0,
                unit="failed reads, at most",
                says="; ".join(f"{entry.what}: {entry.why}" for entry in failed[:5]) or "Every read was answered.",
            ),
        ],
    )


def devices_installed(snapshot: ClusterSnapshot) -> float | None:
    """Physical accelerators of all nodes; None where the nodes, or how many one of them has, could not be read."""
    if snapshot.nodes is None:
        return None
    total = 0.0
    for pool in (pool for node in snapshot.nodes for pool in node.pools):
        if pool.capacity_units is None or not pool.units_per_device:
            return None
        total += pool.capacity_units / pool.units_per_device
    return total


@dg.asset(
    deps=[cluster_snapshot],
    group_name=GROUP,
    kinds={"json", "pydantic"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    pool=HISTORY_POOL,
    check_specs=checks_of(
        "facts_bundle",
        {
            "schema_valid": "The written file reads back as piqc-scan.v0.1.",
            "every_workload_has_accelerator": "Each inference workload's accelerator is known.",
        },
        blocking=("schema_valid",),
    ),
)
@one_sentence
def facts_bundle(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """Everything known of each workload, with its source and confidence, for other programs (`piqc-scan.v0.1`).

    Each scan is also kept in the history: its waste can be followed over weeks, and its readings fill what Prometheus
    lacks.
    """
    from piqc_pipeline.facts.build import build_bundle
    from piqc_pipeline.history.snapshots import observations_of
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.report.history_rows import facts_rows
    from piqc_pipeline.waste import priced_facts

    result = read_results(pipeline)
    bundle = build_bundle(result.snapshot, priced_facts(result.waste, result.snapshot), generated_at=pipeline.now)
    write_bundle(bundle, pipeline.bundle_path)
    written = pipeline.bundle_path.read_bytes()
    store = open_store(pipeline.settings.store_location())
    store.append_facts(facts_rows(result, written.decode()))
    store.append_observations(observations_of(result.snapshot))
    inference = [workload for workload in result.snapshot.workloads if workload.is_inference]
    figures = result.waste.by_workload
    dark = [one.id for one in inference if one.id not in figures or figures[one.id].accelerator is None]
    return dg.MaterializeResult(
        metadata={
            **numbers(
                {
                    "objects": len(bundle.objects),
                    "facts": sum(len(entry.facts) for entry in bundle.objects),
                    "facts_unknown": len(bundle.fact_errors),
                    "inference_workloads": len(inference),
                    "size_kib": len(written) / 1024,
                }
            ),
            "file": dg.MetadataValue.path(pipeline.bundle_path),
        },
        data_version=dg.DataVersion(hashlib.sha256(written).hexdigest()),
        check_results=[
            _schema_valid(written),
            verdict(
                "every_workload_has_accelerator",
                not dark,
                measured=len(dark),
                limit=0,
                unit="inference workloads without a known accelerator, at most",
                says=f"Unknown for {', '.join(dark[:5])}." if dark else f"Known for all {len(inference)}.",
            ),
        ],
    )


def _schema_valid(written: bytes) -> dg.AssetCheckResult:
    try:
        version: str = bundle_from_json(written).schema_version
        says = "The file reads back."
    except DumpUnreadable as error:
        version, says = "none", str(error)
    valid = version == BUNDLE_SCHEMA
    return verdict(
        "schema_valid", valid, measured=version, limit=BUNDLE_SCHEMA, unit="schema", says=says, blocking=True
    )


@dg.asset(
    deps=[cluster_snapshot],
    group_name=GROUP,
    kinds={"json"},
    owners=OWNERS,
    backfill_policy=SINGLE_RUN,
    pool=HISTORY_POOL,
    check_specs=checks_of(
        "waste_report",
        {
            "waste_not_above_installed_cost": "No more is wasted than is installed.",
            "every_accelerator_in_one_bucket": "No accelerator is counted twice.",
            "prices_known": "Every accelerator has a price.",
        },
        blocking=("waste_not_above_installed_cost", "every_accelerator_in_one_bucket"),
    ),
)
@one_sentence
def waste_report(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """What the accelerators cost and how much of it is wasted: idle, dark, fragmented, oversized.

    Every accelerator is in exactly one bucket. A price that nobody knows stays unknown and adds no dollar.
    """
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.report.history_rows import findings_rows
    from piqc_pipeline.report.wire import report_json

    result = read_results(pipeline)
    waste = result.waste
    path = pipeline.report_dir / "report.json"
    write_text(report_json([result], pipeline.now), path, "the waste report")
    open_store(pipeline.settings.store_location()).append_findings(findings_rows(result))
    summary = {name: value for name, value in vars(waste.summary).items() if name != "avg_mfu_pct"}
    return dg.MaterializeResult(
        metadata={
            **numbers(summary),
            **numbers({"avg_mfu_pct": waste.summary.avg_mfu_pct, "pending_pods": len(waste.pending)}),
            "workloads": table(
                ["workload", "accelerators", "utilization, %", "cost, $/h", "idle, $/day"],
                [
                    [one.id, one.accelerator_count, one.utilization_pct, one.usd_per_hour, one.idle_usd_per_day]
                    for one in waste.workloads
                ],
            ),
            "findings": table(
                ["finding", "$/day", "confidence"],
                [[one.text, one.usd_per_day, one.confidence] for one in waste.findings],
            ),
            "file": dg.MetadataValue.path(path),
        },
        check_results=waste_checks(waste),
    )


def read_results(pipeline: Pipeline) -> "ScanResult":
    """What the newest snapshot costs, wastes and hides.

    Raises:
        DumpUnreadable: There is no snapshot yet.
        PricesUnreadable: The price file has a row that cannot be read.
    """
    from piqc_pipeline.report.scan_result import scan_result
    from piqc_pipeline.waste import load_prices

    return scan_result(read_snapshot(pipeline.snapshot_path), load_prices(pipeline.settings.prices_file))


def waste_checks(waste: WasteReport) -> list[dg.AssetCheckResult]:
    """The three verdicts on a waste report."""
    pools = waste.capacity or ()
    wasted, installed = waste.summary.waste_usd_per_day, waste.summary.installed_usd_per_hour
    torn = [pool for pool in pools if pool.installed is not None and abs(_spread(pool)) > UNITS_TOLERANCE]
    unpriced = sorted({str(pool.product) for pool in pools if pool.installed and pool.usd_per_unit_hour is None})
    return [
        verdict(
            "waste_not_above_installed_cost",
            wasted is None or installed is None or wasted <= installed * HOURS_PER_DAY + CENT,
            measured=wasted,
            limit="unknown" if installed is None else installed * HOURS_PER_DAY,
            unit="USD a day, at most",
            says="Waste is part of what the installed accelerators cost.",
            blocking=True,
        ),
        verdict(
            "every_accelerator_in_one_bucket",
            not torn,
            measured=len(torn),
            limit=0,
            unit="pools whose buckets do not add up, at most",
            says="; ".join(f"{pool.resource} on {pool.node} is off by {_spread(pool):g}" for pool in torn[:5])
            or f"The buckets of {len(pools)} pools add up to what is installed.",
            blocking=True,
        ),
        verdict(
            "prices_known",
            not unpriced,
            measured=len(unpriced),
            limit=0,
            unit="products without a price, at most",
            says=f"No price for {', '.join(unpriced[:5])}: add it to the file that PIQC_PRICES_FILE names."
            if unpriced
            else "Every installed product has a price.",
        ),
    ]


def _spread(pool: PoolCapacity) -> float:
    return sum(pool.count(bucket) for bucket in BUCKETS) - (pool.installed or 0.0)


@dg.asset(deps=[cluster_snapshot], group_name=GROUP, kinds={"json"}, owners=OWNERS, backfill_policy=SINGLE_RUN)
@one_sentence
def coverage_report(pipeline: dg.ResourceParam[Pipeline]) -> Materialized:
    """What cannot be seen: which parts of the monitoring chain are missing, on how many nodes."""
    from piqc_pipeline.coverage import assess_coverage
    from piqc_pipeline.report.wire import coverage_document

    coverage = assess_coverage(read_snapshot(pipeline.snapshot_path))
    text = json.dumps(coverage_document(coverage), indent=2, allow_nan=False) + "\n"
    path = pipeline.report_dir / "coverage.json"
    write_text(text, path, "the coverage report")
    checks = [(layer.name, check) for layer in coverage.layers for check in layer.checks]
    return dg.MaterializeResult(
        metadata={
            **numbers(
                {
                    "parts_detected": sum(check.state == "detected" for _, check in checks),
                    "parts_missing": sum(check.state in ("partial", "absent") for _, check in checks),
                    "parts_unknown": sum(check.state is None for _, check in checks),
                }
            ),
            "coverage": table(
                ["layer", "part", "state", "detail"],
                [[layer, check.name, check.state, check.detail] for layer, check in checks],
            ),
            "file": dg.MetadataValue.path(path),
        }
    )
