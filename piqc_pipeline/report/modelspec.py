"""What does a ModelSpec file of one workload hold? The reference's document (`modelspec.paralleliq.ai/v1`), filled.

Figures that are unknown are left out, never written as 0; costs and findings are in the report and the facts bundle.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from piqc_pipeline.facts.bundle import whole
from piqc_pipeline.facts.snapshot import Pod, Workload
from piqc_pipeline.report.scan_result import ScanResult
from piqc_pipeline.report.wire import runtime_document
from piqc_pipeline.waste import WorkloadFigures

API_VERSION = "modelspec.paralleliq.ai/v1"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def model_specs(results: Sequence[ScanResult]) -> list[tuple[str, dict[str, Any]]]:
    """(file stem, document) of every inference workload, ordered by id.

    Stems are `namespace_name`; where two workloads share one the kind, and then the cluster, goes into the stem.
    """
    entries = [
        (workload, result.waste.by_workload[workload.id], result)
        for result in results
        for workload in sorted(result.snapshot.workloads, key=lambda one: one.id)
        if workload.is_inference
    ]
    several = len(results) > 1
    stems = [_stem(workload, several, with_kind=False) for workload, _, _ in entries]
    named = []
    for stem, (workload, figures, result) in zip(stems, entries, strict=True):
        if stems.count(stem) > 1:
            stem = _stem(workload, several, with_kind=True)
        named.append((stem, _document(workload, figures, _pods(result, workload), result)))
    return named


def _pods(result: ScanResult, workload: Workload) -> list[Pod]:
    return [pod for pod in result.snapshot.pods or () if pod.workload_id == workload.id and pod.holds]


def _stem(workload: Workload, several: bool, *, with_kind: bool) -> str:
    parts = [workload.namespace, *([workload.kind.lower()] if with_kind else []), workload.name]
    if several:
        parts.insert(0, workload.cluster)
    return _UNSAFE.sub("-", "_".join(parts)).lstrip(".-")[:200] or "workload"


def _document(workload: Workload, figures: WorkloadFigures, pods: Sequence[Pod], result: ScanResult) -> dict[str, Any]:
    model, engine = workload.model, workload.engine
    document = {
        "apiVersion": API_VERSION,
        "kind": "ModelSpec",
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "id": workload.id,
            "labels": workload.labels,
            "collectedAt": result.snapshot.taken_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        },
        "model": {
            "name": model.name,
            "servedName": model.served_name,
            "parameters": _whole(model.parameters_total),
            "activeParameters": _whole(model.parameters_active),
            "quantization": model.quantization,
            "tokenizer": model.tokenizer,
        },
        "engine": {
            "name": engine.name,
            "version": engine.version,
            "confidence": engine.confidence,
            "score": round(engine.score, 2),
            "role": engine.role,
            "evidence": list(engine.evidence),
        },
        "inference": {
            "dtype": model.dtype,
            "maxModelLen": model.max_model_len,
            "tensorParallelSize": model.tensor_parallel,
            "pipelineParallelSize": model.pipeline_parallel,
            "dataParallelSize": model.data_parallel,
            "expertParallel": model.expert_parallel,
            "maxNumSeqs": model.max_num_seqs,
            "maxNumBatchedTokens": model.max_num_batched_tokens,
            "gpuMemoryUtilization": model.gpu_memory_utilization,
            "kvCacheDtype": model.kv_cache_dtype,
            "enableChunkedPrefill": model.chunked_prefill,
            "enforceEager": model.enforce_eager,
            "trustRemoteCode": model.trust_remote_code,
            "kvRole": model.kv_role,
            "kvConnector": model.kv_connector,
            "lmcacheEnabled": model.lmcache_enabled,
        },
        "resources": {
            "replicas": figures.replicas,
            "gpuCount": _whole(figures.accelerator_count),
            "gpus": list(_devices(figures, pods)),
            "cpu": workload.cpu_request,
            "memory": workload.memory_request,
        },
        "endpoints": [{"port": workload.http_port, "protocol": "HTTP"}] if workload.http_port else [],
        "kubernetes": {
            "kind": workload.kind,
            "apiVersion": workload.api_version,
            "namespace": workload.namespace,
            "images": list(workload.images),
            "pods": [pod.name for pod in pods],
            "nodes": sorted({pod.node for pod in pods if pod.node}),
            "replicasWanted": workload.replicas_wanted,
            "podSpecSnapshot": workload.pod_spec,
        },
        "runtimeState": {
            "vllm" if engine.name == "vllm" else "engine": runtime_document(workload.runtime),
            "gpuUtilizationPct": None if figures.utilization_pct is None else round(figures.utilization_pct, 2),
            "collectionMethod": figures.utilization_source,
        },
        "collection": {
            "tool": "piqc_pipeline",
            "cluster": workload.cluster,
            "unknown": [{"what": entry.what, "why": entry.why} for entry in figures.unknown],
        },
    }
    pruned = _without_unknown(document)
    assert isinstance(pruned, dict)
    return pruned


def _devices(figures: WorkloadFigures, pods: Sequence[Pod]) -> Iterable[dict[str, Any]]:
    """One row a device that answered, else one row for the product."""
    seen = False
    for pod in pods:
        for reading in pod.readings:
            seen = True
            yield {
                "pod": pod.name,
                "index": reading.index,
                "product": reading.product or figures.accelerator,
                "utilizationPct": reading.utilization_pct,
                "memoryUsedMiB": reading.memory_used_mib,
                "memoryTotalMiB": reading.memory_total_mib,
                "temperatureC": reading.temperature_celsius,
                "powerDrawW": reading.power_watts,
                "source": reading.source,
            }
    if not seen and figures.accelerator_count:
        yield {"product": figures.accelerator, "count": _whole(figures.accelerator_count)}


def _without_unknown(value: object) -> object:
    """The same document without nulls and empty objects."""
    if isinstance(value, dict):
        pruned = {key: _without_unknown(entry) for key, entry in value.items()}
        return {key: entry for key, entry in pruned.items() if entry is not None and entry != {}}
    if isinstance(value, list | tuple):
        return [_without_unknown(entry) for entry in value]
    return value


def _whole(value: float | None) -> float | None:
    return None if value is None else whole(value)
