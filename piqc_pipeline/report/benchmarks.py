"""Which figures may leave the cluster as a benchmark? Speed and hardware of each workload, and no name of anything.

No workload, namespace, cluster, image, node or model name, no label, no time of day. Sending is `push.py`'s, and only
to an address that the user typed.
"""

from collections.abc import Sequence
from typing import Any

from piqc_pipeline.report.scan_result import ScanResult
from piqc_pipeline.report.wire import runtime_document
from piqc_pipeline.waste.catalog import load_catalog

SCHEMA_VERSION = "piqc-benchmarks.v1"
SIGNIFICANT_DIGITS = 2
"""Sizes are rounded, so that a private model is not recognized by its exact parameter count."""

_KEPT_RUNTIME = (
    "requestsRunning",
    "requestsWaiting",
    "generationTokensPerSecond",
    "promptTokensPerSecond",
    "kvCacheUsagePct",
    "prefixCacheHitPct",
    "timeToFirstToken",
    "timePerOutputToken",
    "endToEnd",
)


def benchmark_record(results: Sequence[ScanResult]) -> dict[str, Any]:
    """The anonymized record of these scans."""
    rows = []
    catalog = load_catalog()
    for result in results:
        known = {workload.id: workload for workload in result.snapshot.workloads}
        for figures in result.waste.workloads:
            workload = known[figures.id]
            if not workload.is_inference or workload.engine.name == "unknown":
                continue
            product = catalog.find(figures.accelerator)
            runtime = runtime_document(workload.runtime) or {}
            rows.append(
                {
                    "engine": workload.engine.name,
                    "accelerator": product.name if product else None,
                    "acceleratorsPerReplica": workload.gpus_per_replica,
                    "replicas": figures.replicas,
                    "parametersTotal": _rounded(workload.model.parameters_total),
                    "parametersActive": _rounded(workload.model.parameters_active),
                    "dtype": workload.model.dtype,
                    "quantization": workload.model.quantization,
                    "tensorParallel": workload.model.tensor_parallel,
                    "pipelineParallel": workload.model.pipeline_parallel,
                    "maxModelLen": workload.model.max_model_len,
                    "utilizationPct": figures.utilization_pct,
                    "mfuPct": figures.mfu_pct,
                    **{key: runtime.get(key) for key in _KEPT_RUNTIME},
                }
            )
    rows.sort(key=repr)
    return {"schemaVersion": SCHEMA_VERSION, "workloads": rows}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS - 1}e}")
