"""What do other programs read of a scan? `piqc-report.v1`, one JSON document for one or several clusters.

A figure that is not known is null, with an entry in `unknown`. No figure is computed here, except sums over clusters.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import orjson

from piqc_pipeline.coverage import CoverageReport
from piqc_pipeline.facts.bundle import whole
from piqc_pipeline.facts.snapshot import EngineRuntime, Latency, Unknown, Workload
from piqc_pipeline.report.scan_result import ScanResult
from piqc_pipeline.waste import BUCKETS, PendingPod, PoolCapacity, WasteSummary, WorkloadFigures
from piqc_pipeline.waste.efficiency import weighted_mfu_pct
from piqc_pipeline.waste.workloads import AGE_FLAG_HOURS

SCHEMA_VERSION = "piqc-report.v1"
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
DIGITS = 6
"""Decimals kept; cents and percentages need fewer, dollars of 1,000 tokens need these."""


def report_document(results: Sequence[ScanResult], now: datetime) -> dict[str, Any]:
    """The report of one cluster, or of several in one."""
    document: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "generatedAt": _time(now),
        "cluster": ", ".join(result.snapshot.cluster for result in results),
        "context": results[0].snapshot.context if len(results) == 1 else None,
        "takenAt": _time(min(result.snapshot.taken_at for result in results)),
        "workloads": [row for result in results for row in _workloads(result)],
        "capacity": None
        if all(result.waste.capacity is None for result in results)
        else [_pool(result, pool) for result in results for pool in result.waste.capacity or ()],
        "pending": [_pending(result, pod) for result in results for pod in result.waste.pending],
        "findings": [
            {
                "kind": one.kind,
                "subject": one.subject,
                "usdPerDay": _number(one.usd_per_day),
                "counted": one.counted,
                "accelerators": _number(one.accelerators),
                "confidence": one.confidence,
                "text": one.text,
            }
            for result in results
            for one in result.waste.findings
        ],
        "summary": summary_document(
            total([result.waste.summary for result in results], [one for r in results for one in r.waste.workloads])
        ),
        "unknown": [_unknown(entry) for result in results for entry in result.waste.unknown],
        "coverage": coverage_document(results[0].coverage)
        if len(results) == 1
        else [coverage_document(result.coverage) for result in results],
    }
    if len(results) > 1:
        document["clusters"] = [
            {
                "name": result.snapshot.cluster,
                "context": result.snapshot.context,
                "summary": summary_document(result.waste.summary),
            }
            for result in results
        ]
    return document


def report_json(results: Sequence[ScanResult], now: datetime) -> str:
    """The report as JSON text, ASCII only, ending in a line feed."""
    return as_json(report_document(results, now))


def as_json(document: object) -> str:
    """Indented JSON, ASCII only so that no terminal interprets it, ending in a line feed."""
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    return text if text.isascii() else _NOT_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], text)


def summary_document(summary: WasteSummary) -> dict[str, float | None]:
    """The totals under their names on the wire."""
    return {_camel(field.name): _number(getattr(summary, field.name)) for field in fields(summary)}


def coverage_document(coverage: CoverageReport) -> dict[str, Any]:
    """The coverage report."""
    return {
        "cluster": coverage.cluster,
        "layers": [
            {
                "name": layer.name,
                "checks": [
                    {
                        "name": check.name,
                        "state": check.state,
                        "found": check.found,
                        "of": check.of,
                        "confidence": _number(check.confidence),
                        "detail": check.detail,
                    }
                    for check in layer.checks
                ],
            }
            for layer in coverage.layers
        ],
    }


def total(summaries: Sequence[WasteSummary], workloads: Iterable[WorkloadFigures]) -> WasteSummary:
    """The totals over several clusters: sums of what is known, unknown where no cluster knows."""
    if len(summaries) == 1:
        return summaries[0]
    values: dict[str, float | None] = {}
    for field in fields(WasteSummary):
        known = [value for value in (getattr(one, field.name) for one in summaries) if value is not None]
        values[field.name] = round(math.fsum(known), 2) if known else None
    values["avg_mfu_pct"] = weighted_mfu_pct((one.mfu_pct, one.peak_flops) for one in workloads)
    return WasteSummary(**values)


def _workloads(result: ScanResult) -> Iterable[dict[str, Any]]:
    known = {workload.id: workload for workload in result.snapshot.workloads}
    for figures in result.waste.workloads:
        yield _workload(figures, known[figures.id])


def _workload(figures: WorkloadFigures, workload: Workload) -> dict[str, Any]:
    fit = figures.fit
    return {
        "id": figures.id,
        "cluster": figures.cluster,
        "kind": figures.kind,
        "namespace": figures.namespace,
        "name": figures.name,
        "inference": workload.is_inference,
        "engine": workload.engine.name,
        "engineConfidence": workload.engine.confidence,
        "engineScore": _number(workload.engine.score),
        "engineVersion": workload.engine.version,
        "engineRole": workload.engine.role,
        "engineEvidence": list(workload.engine.evidence),
        "model": workload.model.name or workload.model.served_name,
        "servedModel": workload.model.served_name,
        "parametersTotal": _number(workload.model.parameters_total),
        "parametersActive": _number(workload.model.parameters_active),
        "quantization": workload.model.quantization,
        "accelerator": figures.accelerator,
        "acceleratorCount": _number(figures.accelerator_count),
        "devices": _number(figures.devices),
        "replicas": figures.replicas,
        "replicasWanted": workload.replicas_wanted,
        "replicasReady": workload.replicas_ready,
        "topology": None
        if workload.topology is None
        else {
            "groups": workload.topology.groups,
            "podsPerGroup": workload.topology.pods_per_group,
            "nodes": workload.topology.nodes,
            "tensorParallel": workload.model.tensor_parallel,
            "pipelineParallel": workload.model.pipeline_parallel,
            "dataParallel": workload.model.data_parallel,
            "expertParallel": workload.model.expert_parallel,
        },
        "autoscaler": None
        if workload.autoscaler is None
        else {
            "kind": workload.autoscaler.kind,
            "name": workload.autoscaler.name,
            "minReplicas": workload.autoscaler.min_replicas,
            "maxReplicas": workload.autoscaler.max_replicas,
            "metricTypes": list(workload.autoscaler.metric_types),
        },
        "utilizationPct": _number(figures.utilization_pct),
        "utilizationMinPct": _number(figures.utilization_min_pct),
        "utilizationMaxPct": _number(figures.utilization_max_pct),
        "utilizationDevices": figures.utilization_devices_seen,
        "utilizationSource": figures.utilization_source,
        "mfuPct": _number(figures.mfu_pct),
        "tokensPerSecond": _number(figures.generation_tokens_per_second),
        "usdPer1kTokens": _number(figures.usd_per_1k_tokens),
        "usdPerHour": _number(figures.usd_per_hour),
        "idleUsdPerDay": _number(figures.idle_usd_per_day),
        "tierUsdPerDay": _number(figures.tier_usd_per_day),
        "misplacementUsdPerDay": _number(figures.misplaced_usd_per_day),
        "fit": fit.verdict if fit else None,
        "fitDetail": None
        if fit is None
        else {
            "neededGibPerDevice": _number(fit.needed_gib_per_device),
            "availableGibPerDevice": _number(fit.available_gib_per_device),
            "smallerProduct": fit.smaller_product,
            "smallerUsdPerHour": _number(fit.smaller_usd_per_hour),
            "evidence": fit.evidence,
            "confidence": fit.confidence,
        },
        "ageHours": _number(figures.age_hours),
        "ageFlagged": figures.age_hours is not None and figures.age_hours >= AGE_FLAG_HOURS,
        "images": list(workload.images),
        "runtime": runtime_document(workload.runtime),
        "unknown": [_unknown(entry) for entry in figures.unknown],
    }


def runtime_document(runtime: EngineRuntime | None) -> dict[str, Any] | None:
    """What an engine says of itself; None when nobody asked."""
    if runtime is None:
        return None
    return {
        "healthy": runtime.healthy,
        "source": runtime.source,
        "servedModels": list(runtime.served_models),
        "requestsRunning": _number(runtime.requests_running),
        "requestsWaiting": _number(runtime.requests_waiting),
        "generationTokensPerSecond": _number(runtime.generation_tokens_per_second),
        "promptTokensPerSecond": _number(runtime.prompt_tokens_per_second),
        "kvCacheUsagePct": _number(runtime.kv_cache_usage_pct),
        "prefixCacheHitPct": _number(runtime.prefix_cache_hit_pct),
        "timeToFirstToken": _latency(runtime.time_to_first_token),
        "timePerOutputToken": _latency(runtime.time_per_output_token),
        "endToEnd": _latency(runtime.end_to_end),
        "promptTokensP50": _number(runtime.prompt_tokens_p50),
        "promptTokensP95": _number(runtime.prompt_tokens_p95),
        "generationTokensP50": _number(runtime.generation_tokens_p50),
        "generationTokensP95": _number(runtime.generation_tokens_p95),
        "requestsPerSecond": _number(runtime.requests_per_second),
        "batchP95": _number(runtime.batch_p95),
    }


def _latency(latency: Latency | None) -> dict[str, float | None] | None:
    if latency is None:
        return None
    return {
        "p50Ms": _number(latency.p50_ms),
        "p95Ms": _number(latency.p95_ms),
        "p99Ms": _number(latency.p99_ms),
        "meanMs": _number(latency.mean_ms),
        "windowSeconds": _number(latency.window_seconds),
    }


def _pool(result: ScanResult, pool: PoolCapacity) -> dict[str, Any]:
    unplaced = pool.placement_unknown > 0
    counts: dict[str, float | None] = {}
    for bucket in BUCKETS:
        value: float | None = pool.count(bucket)
        if pool.installed is None or (unplaced and value == 0):
            value = None
        counts[_camel(bucket)] = _number(value)
    hourly = pool.installed_usd_per_hour
    return {
        "cluster": result.snapshot.cluster,
        "node": pool.node,
        "resource": pool.resource,
        "vendor": pool.vendor,
        "accelerator": pool.product,
        "sharing": pool.sharing,
        "installed": _number(pool.installed),
        **counts,
        "devicesPerUnit": _number(pool.devices_per_unit),
        "usdPerHour": _number(hourly),
        "usdPerUnitHour": _number(pool.usd_per_unit_hour),
        "priceSource": pool.price_source,
        "reason": pool.reason,
    }


def _pending(result: ScanResult, pod: PendingPod) -> dict[str, Any]:
    return {
        "cluster": result.snapshot.cluster,
        "namespace": pod.namespace,
        "name": pod.name,
        "workload": pod.workload_id,
        "accelerators": _number(pod.accelerators),
        "resource": pod.resource,
        "reason": pod.reason,
        "waitingHours": _number(pod.waiting_hours),
        "waitsForAccelerators": pod.waits_for_accelerators,
    }


def _unknown(entry: Unknown) -> dict[str, Any]:
    return {"what": entry.what, "why": entry.why, "readFailed": entry.read_failed}


def _number(value: float | None) -> float | None:
    """A finite number, whole where it is whole; None otherwise."""
    if value is None or not math.isfinite(value):
        return None
    return whole(round(value, DIGITS))


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
