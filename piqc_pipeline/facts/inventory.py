"""Which facts may be known of a workload, and why is one of them not there?

How facts are derived belongs to `build.py`. A fact that is missing has its reason beside it: what was not stated, not
read, or what nobody can tell at all.
"""

from collections.abc import Collection, Sequence

from piqc_pipeline.facts.bundle import MissingFacts
from piqc_pipeline.facts.snapshot import Unknown, Workload

VLLM_INSIDE = ("vllm", "llm-d")
"""Engines whose arguments and metrics are vLLM's own."""

_STATED = "not stated in its arguments or environment; the engine's default applies"
_NO_ENGINE = "no inference engine was recognized"
_NO_METRICS = "its engine's metrics do not tell it"

INVENTORY: tuple[tuple[str, str, str], ...] = (
    ("runtime.engineType", "", _NO_ENGINE),
    ("runtime.engineVersion", "", "its image has no tag that names a version"),
    ("runtime.dtype", "", _STATED),
    ("runtime.tensorParallel", "", _STATED),
    ("vllm.dtype", "", _STATED),
    ("vllm.tensorParallelSize", "", _STATED),
    ("vllm.pipelineParallelSize", "", _STATED),
    ("vllm.maxModelLen", "", _STATED),
    ("vllm.maxNumSeqs", "", _STATED),
    ("vllm.enableChunkedPrefill", "", _STATED),
    ("vllm.kvRole", "", "no KV transfer is configured"),
    ("vllm.kvConnector", "", "no KV transfer is configured"),
    ("vllm.gpuMemoryUtilization", "", _STATED),
    ("lmcache.enabled", "", "neither its arguments nor its environment name LMCache"),
    ("model.maxModelLen", "", _STATED),
    ("model.name", "model of", "neither its arguments, its environment nor its answers name one"),
    ("model.quantization", "", "neither its arguments nor its model's name state one"),
    ("model.architecture", "", "its model's name is of no family that is known"),
    ("model.parameters", "parameters of", "its model's name states no size"),
    ("model.parameterCount", "parameters of", "its model's name states no size"),
    ("deployment.parallelismStrategy", "", "neither tensor nor pipeline parallelism above 1 is stated"),
    ("hardware.gpuType", "accelerator of", "neither labels nor devices name the product"),
    ("hardware.gpuCount", "held by pod", "its pods hold an amount that cannot be read"),
    ("hardware.gpuMemoryGB", "fit of", "neither labels, devices nor the catalog tell the memory"),
    ("hardware.supportsFastBf16", "accelerator of", "the catalog has no row of its accelerators"),
    ("hardware.interconnect", "accelerator of", "the catalog has no row of its accelerators"),
    ("obs.gpu.utilAvgPct", "utilization of", "no source tells how busy its accelerators are"),
    ("obs.gpu.memUtilAvgPct", "utilization of", "no source tells used and total memory of its accelerators"),
    ("obs.gpu.memBandwidthUtilPct", "utilization of", "neither an exporter nor a tool that was read tells it"),
    ("obs.gpu.temperatureC", "utilization of", "neither an exporter nor a tool that was read tells it"),
    ("obs.gpu.powerDrawW", "utilization of", "neither an exporter nor a tool that was read tells it"),
    ("obs.gpu.tensorActivePct", "", "no exporter with profiling metrics (DCGM_FI_PROF_*) was read"),
    ("obs.gpu.dramActivePct", "", "no exporter with profiling metrics (DCGM_FI_PROF_*) was read"),
    ("obs.gpu.smActivePct", "", "no exporter with profiling metrics (DCGM_FI_PROF_*) was read"),
    ("obs.cpu.utilAvgPct", "", "no metrics server tells it, or its containers state neither a CPU limit nor a request"),
    ("obs.cpu.iowaitAvgPct", "", "the kernel counts it by machine, and not by container"),
    ("obs.vllm.tokensPerSec", "generated tokens per second of", _NO_METRICS),
    ("obs.tps.avg", "generated tokens per second of", _NO_METRICS),
    ("obs.vllm.promptTokensPerSec", "", _NO_METRICS),
    ("obs.vllm.requestsRunning", "requests running of", _NO_METRICS),
    ("obs.vllm.requestsWaiting", "", _NO_METRICS),
    ("obs.vllm.kvCacheUsagePct", "KV cache use of", _NO_METRICS),
    ("obs.vllm.prefixCacheHitRate", "", "its engine's metrics do not tell it, or prefix caching is off"),
    ("obs.tpot.p95Ms", "", _NO_METRICS),
    ("obs.requestLatency.p95Ms", "", _NO_METRICS),
    ("obs.requestLatency.p99Ms", "", _NO_METRICS),
    ("obs.promptTokens.p50", "", _NO_METRICS),
    ("obs.promptTokens.p95", "", _NO_METRICS),
    ("obs.generationTokens.p50", "", _NO_METRICS),
    ("obs.generationTokens.p95", "", _NO_METRICS),
    ("obs.effectiveBatch.p95", "", "a percentile needs a distribution over time, and its engine exports none"),
    ("obs.rps.avg", "", "no request ended between two reads of its engine's counters"),
    ("k8s.replicas", "", "its owner does not say"),
    ("k8s.cpuRequest", "", "its container requests no CPU"),
    ("k8s.memoryRequest", "", "its container requests no memory"),
    ("k8s.ageHours", "age of", "its owner does not say when it was made"),
    ("endpoint.httpPort", "", "no port is declared, and its engine has no usual one"),
    ("autoscaling.enabled", "", "not every kind of autoscaler was read"),
    ("autoscaling.metricType", "", "no autoscaler that was read sets its replicas"),
    ("placement.nodeCount", "use, tokens", "none of its pods stands on a node"),
    ("node.gpuCount", "capacity", "the nodes of its pods were not read"),
)
"""Each key of a workload; the words of an `Unknown` that explains its absence; why it is absent else."""


def missing_facts(workload: Workload, known: Collection[str], unknown: Sequence[Unknown]) -> tuple[MissingFacts, ...]:
    """Every fact of the inventory that is not known, by reason, in the inventory's order.

    Args:
        workload: The workload.
        known: Keys of the facts that are known.
        unknown: What the scan and the waste report say is unknown of this workload.
    """
    reasons: dict[str, list[str]] = {}
    for key, words, otherwise in INVENTORY:
        if key not in known:
            reasons.setdefault(_why(workload, key, words, otherwise, unknown), []).append(key)
    return tuple(MissingFacts(why=why, keys=tuple(keys)) for why, keys in reasons.items())


def why_missing(workload: Workload, key: str, unknown: Sequence[Unknown]) -> str:
    """Why one fact of the inventory is missing."""
    words, otherwise = next((words, why) for name, words, why in INVENTORY if name == key)
    return _why(workload, key, words, otherwise, unknown)


def _why(workload: Workload, key: str, words: str, otherwise: str, unknown: Sequence[Unknown]) -> str:
    of_engine = key.startswith(("runtime.", "vllm.", "model.", "lmcache.", "deployment."))
    of_metrics = otherwise == _NO_METRICS or key.startswith(("obs.vllm.", "obs.effectiveBatch", "obs.rps"))
    if not workload.is_inference and (of_engine or of_metrics):
        return _NO_ENGINE
    if key.startswith(("vllm.", "obs.vllm.")) and workload.engine.name not in VLLM_INSIDE:
        return f"its engine is {workload.engine.name}, not vLLM"
    if of_metrics:
        said = [entry.why for entry in unknown if entry.what.startswith("engine metrics of")]
        if said:
            return said[0]
        if workload.runtime is None:
            return "its engine's metrics were not read"
    found = [entry.why for entry in unknown if words and words in entry.what]
    return found[0] if found else otherwise
