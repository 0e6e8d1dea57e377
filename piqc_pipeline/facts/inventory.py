"""Which facts may be known of a workload, and why is one of them not there?

How facts are derived belongs to `build.py`. A fact that is missing has its reason beside it: what was not stated, not
read, or what nobody can tell at all.
"""

from collections.abc import Collection, Sequence

from piqc_pipeline.facts.bundle import MissingFacts
from piqc_pipeline.facts.snapshot import Subject, Unknown, Workload

VLLM_INSIDE = ("vllm", "llm-d")
"""Engines whose arguments and metrics are vLLM's own."""

_STATED = "not stated in its arguments or environment; the engine's default applies"
_NO_ENGINE = "no inference engine was recognized"
_NO_METRICS = "its engine's metrics do not tell it"

INVENTORY: tuple[tuple[str, Subject | None, str], ...] = (
    ("runtime.engineType", None, _NO_ENGINE),
    ("runtime.engineVersion", None, "its image has no tag that names a version"),
    ("runtime.dtype", None, _STATED),
    ("runtime.tensorParallel", None, _STATED),
    ("vllm.dtype", None, _STATED),
    ("vllm.tensorParallelSize", None, _STATED),
    ("vllm.pipelineParallelSize", None, _STATED),
    ("vllm.maxModelLen", None, _STATED),
    ("vllm.maxNumSeqs", None, _STATED),
    ("vllm.enableChunkedPrefill", None, _STATED),
    ("vllm.kvRole", None, "no KV transfer is configured"),
    ("vllm.kvConnector", None, "no KV transfer is configured"),
    ("vllm.gpuMemoryUtilization", None, _STATED),
    ("lmcache.enabled", None, "neither its arguments nor its environment name LMCache"),
    ("model.maxModelLen", None, _STATED),
    ("model.name", "model", "neither its arguments, its environment nor its answers name one"),
    ("model.quantization", None, "neither its arguments nor its model's name state one"),
    ("model.architecture", None, "its model's name is of no family that is known"),
    ("model.parameters", "parameters", "its model's name states no size"),
    ("model.parameterCount", "parameters", "its model's name states no size"),
    ("deployment.parallelismStrategy", None, "neither tensor nor pipeline parallelism above 1 is stated"),
    ("hardware.gpuType", "product", "neither labels nor devices name the product"),
    ("hardware.gpuCount", "devices held", "its pods hold an amount that cannot be read"),
    ("hardware.gpuMemoryGB", "memory", "neither labels, devices nor the catalog tell the memory"),
    ("hardware.supportsFastBf16", "product", "the catalog has no row of its accelerators"),
    ("hardware.interconnect", "product", "the catalog has no row of its accelerators"),
    ("obs.gpu.utilAvgPct", "utilization", "no source tells how busy its accelerators are"),
    ("obs.gpu.memUtilAvgPct", "utilization", "no source tells used and total memory of its accelerators"),
    ("obs.gpu.memBandwidthUtilPct", "utilization", "neither an exporter nor a tool that was read tells it"),
    ("obs.gpu.temperatureC", "utilization", "neither an exporter nor a tool that was read tells it"),
    ("obs.gpu.powerDrawW", "utilization", "neither an exporter nor a tool that was read tells it"),
    ("obs.gpu.tensorActivePct", None, "no exporter with profiling metrics (DCGM_FI_PROF_*) was read"),
    ("obs.gpu.dramActivePct", None, "no exporter with profiling metrics (DCGM_FI_PROF_*) was read"),
    ("obs.gpu.smActivePct", None, "no exporter with profiling metrics (DCGM_FI_PROF_*) was read"),
    (
        "obs.cpu.utilAvgPct",
        None,
        "no metrics server tells it, or its containers state neither a CPU limit nor a request",
    ),
    ("obs.cpu.iowaitAvgPct", None, "the kernel counts it by machine, and not by container"),
    ("obs.vllm.tokensPerSec", "tokens", _NO_METRICS),
    ("obs.tps.avg", "tokens", _NO_METRICS),
    ("obs.vllm.promptTokensPerSec", None, _NO_METRICS),
    ("obs.vllm.requestsRunning", "requests running", _NO_METRICS),
    ("obs.vllm.requestsWaiting", None, _NO_METRICS),
    ("obs.vllm.kvCacheUsagePct", "cache use", _NO_METRICS),
    ("obs.vllm.prefixCacheHitRate", None, "its engine's metrics do not tell it, or prefix caching is off"),
    ("obs.tpot.p95Ms", None, _NO_METRICS),
    ("obs.requestLatency.p95Ms", None, _NO_METRICS),
    ("obs.requestLatency.p99Ms", None, _NO_METRICS),
    ("obs.promptTokens.p50", None, _NO_METRICS),
    ("obs.promptTokens.p95", None, _NO_METRICS),
    ("obs.generationTokens.p50", None, _NO_METRICS),
    ("obs.generationTokens.p95", None, _NO_METRICS),
    ("obs.effectiveBatch.p95", None, "a percentile needs a distribution over time, and its engine exports none"),
    ("obs.rps.avg", None, "no request ended between two reads of its engine's counters"),
    ("k8s.replicas", None, "its owner does not say"),
    ("k8s.cpuRequest", None, "its container requests no CPU"),
    ("k8s.memoryRequest", None, "its container requests no memory"),
    ("k8s.ageHours", "age", "its owner does not say when it was made"),
    ("endpoint.httpPort", None, "no port is declared, and its engine has no usual one"),
    ("autoscaling.enabled", None, "not every kind of autoscaler was read"),
    ("autoscaling.metricType", None, "no autoscaler that was read sets its replicas"),
    ("placement.nodeCount", "placement", "none of its pods stands on a node"),
    ("node.gpuCount", "node capacity", "the nodes of its pods were not read"),
)
"""Each key of a workload; what an `Unknown` that explains its absence is about; why it is absent else."""


def missing_facts(workload: Workload, known: Collection[str], unknown: Sequence[Unknown]) -> tuple[MissingFacts, ...]:
    """Every fact of the inventory that is not known, by reason, in the inventory's order.

    Args:
        workload: The workload.
        known: Keys of the facts that are known.
        unknown: What the scan and the waste report say is unknown of this workload.
    """
    reasons: dict[str, list[str]] = {}
    for key, about, otherwise in INVENTORY:
        if key not in known:
            reasons.setdefault(_why(workload, key, about, otherwise, unknown), []).append(key)
    return tuple(MissingFacts(why=why, keys=tuple(keys)) for why, keys in reasons.items())


def why_missing(workload: Workload, key: str, unknown: Sequence[Unknown]) -> str:
    """Why one fact of the inventory is missing."""
    about, otherwise = next((about, why) for name, about, why in INVENTORY if name == key)
    return _why(workload, key, about, otherwise, unknown)


def _why(workload: Workload, key: str, about: Subject | None, otherwise: str, unknown: Sequence[Unknown]) -> str:
    of_engine = key.startswith(("runtime.", "vllm.", "model.", "lmcache.", "deployment."))
    of_metrics = otherwise == _NO_METRICS or key.startswith(("obs.vllm.", "obs.effectiveBatch", "obs.rps"))
    if not workload.is_inference and (of_engine or of_metrics):
        return _NO_ENGINE
    if key.startswith(("vllm.", "obs.vllm.")) and workload.engine.name not in VLLM_INSIDE:
        return f"its engine is {workload.engine.name}, not vLLM"
    if of_metrics:
        said = [entry.why for entry in unknown if entry.about == "engine metrics"]
        if said:
            return said[0]
        if workload.runtime is None:
            return "its engine's metrics were not read"
    found = [entry.why for entry in unknown if about is not None and entry.about == about]
    return found[0] if found else otherwise
