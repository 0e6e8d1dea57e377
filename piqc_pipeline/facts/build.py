"""Which facts follow from a snapshot, each with its unit, source and confidence?

Dollars and hardware come from the waste report, which states its own facts (`PricedFacts`). Nothing is guessed: a
fact that is not known is left out, with its reason (`inventory.py`); a required one has a row in `factErrors` too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import Literal

from piqc_pipeline.facts.bundle import (
    ClusterRef,
    Fact,
    FactError,
    FactObject,
    FactsBundle,
    FactValue,
    FindingEntry,
    Scope,
    Tool,
    UnknownEntry,
    fact,
    whole,
)
from piqc_pipeline.facts.inventory import VLLM_INSIDE, missing_facts, why_missing
from piqc_pipeline.facts.snapshot import (
    ClusterSnapshot,
    Confidence,
    EngineRuntime,
    Latency,
    Pod,
    Unknown,
    Workload,
)

TOOL = "piqc_pipeline"

REQUIRED = (
    "runtime.engineType",
    "hardware.gpuType",
    "hardware.gpuCount",
    "hardware.gpuMemoryGB",
    "obs.gpu.utilAvgPct",
    "obs.gpu.memUtilAvgPct",
)
REQUIRED_OF_VLLM = (
    "runtime.dtype",
    "vllm.dtype",
    "runtime.tensorParallel",
    "vllm.tensorParallelSize",
    "model.maxModelLen",
    "vllm.maxModelLen",
    "vllm.maxNumSeqs",
)

FAMILIES = ("llama", "mixtral", "mistral", "qwen", "gemma", "deepseek", "phi", "falcon", "gpt-oss", "granite", "bge")
"""Families that model names carry; the architecture is stated with low confidence, because a name is no config."""


@dataclass(frozen=True)
class PricedFacts:
    """What a waste report states as facts.

    Attributes:
        of_workload: Facts by workload id.
        unknown_of_workload: What the report says is unknown of it, by workload id.
        objects: Nodes and pending pods.
        of_cluster: Totals.
    """

    of_workload: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    unknown_of_workload: Mapping[str, Sequence[Unknown]] = field(default_factory=dict)
    objects: tuple[FactObject, ...] = ()
    of_cluster: Mapping[str, Fact] = field(default_factory=dict)
    findings: tuple[FindingEntry, ...] = ()
    unknown: tuple[UnknownEntry, ...] = ()


def build_bundle(
    snapshot: ClusterSnapshot,
    priced: PricedFacts,
    *,
    generated_at: datetime | None = None,
    notes: Sequence[str] = (),
) -> FactsBundle:
    """The facts bundle of one scan; also where no workload exists.

    Args:
        snapshot: What the scan saw.
        priced: What the waste report of the same snapshot states as facts.
        generated_at: The instant taken as now; the snapshot's own if None.
        notes: Sentences for people, for instance that a scan was cut off.
    """
    pods: dict[str, list[Pod]] = {}
    for pod in sorted(snapshot.pods or (), key=lambda one: (one.namespace, one.name)):
        pods.setdefault(pod.workload_id, []).append(pod)
    objects, errors = [], []
    for workload in sorted(snapshot.workloads, key=lambda one: one.id):
        facts = {
            **_WorkloadFacts(snapshot, workload, pods.get(workload.id, [])).all(),
            **priced.of_workload.get(workload.id, {}),
        }
        unknown = [*workload.unknown, *priced.unknown_of_workload.get(workload.id, ())]
        errors.extend(_errors(workload, facts, unknown))
        objects.append(
            FactObject(
                workload_id=workload.id,
                kind=workload.kind,
                name=workload.name,
                namespace=workload.namespace,
                images=workload.images,
                facts=dict(sorted(facts.items())),
                missing=missing_facts(workload, facts, unknown),
                pod_spec_snapshot=workload.pod_spec or None,
            )
        )
    return FactsBundle(
        generated_at=generated_at or snapshot.taken_at,
        tool=Tool(name=TOOL, version=version(TOOL)),
        cluster=ClusterRef(context=snapshot.context, name=snapshot.cluster),
        scope=Scope(namespaces=snapshot.namespaces_scanned),
        objects=(*objects, *priced.objects),
        cluster_facts=dict(priced.of_cluster),
        findings=priced.findings,
        fact_errors=tuple(errors),
        unknown=priced.unknown,
        notes=tuple(notes),
    )


def _errors(workload: Workload, facts: Mapping[str, Fact], unknown: Sequence[Unknown]) -> list[FactError]:
    if not workload.is_inference:
        return []
    required = (*REQUIRED, *(REQUIRED_OF_VLLM if workload.engine.name == "vllm" else ()))
    return [
        FactError(workload_id=workload.id, fact_key=key, error=why_missing(workload, key, unknown))
        for key in required
        if key not in facts
    ]


class _WorkloadFacts:
    """Collects the facts of one workload, leaving out what is unknown."""

    def __init__(self, snapshot: ClusterSnapshot, workload: Workload, pods: Sequence[Pod]) -> None:
        self._snapshot = snapshot
        self._workload = workload
        self._pods = pods
        self._of_vllm = workload.engine.name in VLLM_INSIDE
        self._facts: dict[str, Fact] = {}

    def all(self) -> dict[str, Fact]:
        """Every fact that is known."""
        self._identity()
        self._arguments()
        self._kubernetes()
        self._devices()
        self._processors()
        if self._workload.runtime is not None:
            self._runtime(self._workload.runtime)
        return self._facts

    def _put(
        self,
        keys: str | tuple[str, ...],
        value: FactValue | None,
        *,
        type: str,
        method: str,
        confidence: Confidence,
        units: str | None = None,
        ref: str | None = None,
    ) -> None:
        if value is None:
            return
        if isinstance(value, float):
            value = whole(round(value, 4))
        for key in (keys,) if isinstance(keys, str) else keys:
            self._facts[key] = fact(
                value, at=self._snapshot.taken_at, type=type, method=method, ref=ref, confidence=confidence, units=units
            )

    def _identity(self) -> None:
        engine, model = self._workload.engine, self._workload.model
        evidence = "; ".join(engine.evidence) or None
        self._put(
            "runtime.engineType", engine.name, type="derived", method="weighted evidence",
            confidence=engine.confidence, ref=evidence,
        )  # fmt: skip
        self._put("runtime.engineVersion", engine.version, type="k8s_api", method="image tag", confidence="medium")
        self._put("runtime.role", engine.role, type="k8s_api", method="labels", confidence="medium")
        name = model.name or model.served_name
        stated = "; ".join(model.evidence) or None
        self._put("model.name", name, type="k8s_api", method="arguments", confidence="high", ref=stated)
        self._put("model.quantization", model.quantization, type="k8s_api", method="arguments or name",
                  confidence="medium", ref=stated)  # fmt: skip
        self._put("model.architecture", family(name), type="derived", method="model name", confidence="low")
        total, active = model.parameters_total, model.parameters_active
        said = None if total is None else f"{total / 1e9:g}B" if total >= 1e9 else f"{total / 1e6:g}M"
        size: dict[str, str] = {"type": "derived", "method": "published size or model name"}
        self._put("model.parameters", said, confidence="medium", ref=stated, **size)
        self._put("model.parameterCount", None if total is None else round(total), confidence="medium", **size)
        self._put("model.activeParameterCount", None if active is None else round(active), confidence="medium", **size)

    def _arguments(self) -> None:
        model = self._workload.model

        def put(keys: tuple[str, ...], value: FactValue | None, units: str | None = None) -> None:
            kept = tuple(key for key in keys if self._of_vllm or not key.startswith("vllm."))
            self._put(kept, value, type="k8s_api", method="arguments and environment", confidence="high", units=units)

        put(("runtime.dtype", "vllm.dtype"), model.dtype)
        put(("runtime.tensorParallel", "vllm.tensorParallelSize"), model.tensor_parallel)
        put(("runtime.pipelineParallel", "vllm.pipelineParallelSize"), model.pipeline_parallel)
        put(("runtime.dataParallel",), model.data_parallel)
        put(("runtime.expertParallel",), model.expert_parallel)
        put(("model.maxModelLen", "vllm.maxModelLen"), model.max_model_len, "tokens")
        put(("vllm.maxNumSeqs",), model.max_num_seqs)
        put(("vllm.maxNumBatchedTokens",), model.max_num_batched_tokens, "tokens")
        put(("vllm.enableChunkedPrefill",), model.chunked_prefill)
        put(("vllm.enforceEager",), model.enforce_eager)
        put(("vllm.kvRole",), model.kv_role)
        put(("vllm.kvConnector",), model.kv_connector)
        put(("vllm.kvCacheDtype",), model.kv_cache_dtype)
        put(("lmcache.enabled",), model.lmcache_enabled)
        share = model.gpu_memory_utilization
        put(("vllm.gpuMemoryUtilization",), None if share is None else round(share * 100, 2), "%")
        put(("deployment.parallelismStrategy",), parallelism(model.tensor_parallel, model.pipeline_parallel))

    def _kubernetes(self) -> None:
        workload = self._workload
        spec = {"type": "k8s_api", "method": "spec"}
        wanted = workload.replicas_wanted if workload.replicas_wanted is not None else workload.replicas_ready
        self._put("k8s.replicas", wanted, confidence="high", **spec)
        self._put("k8s.readyReplicas", workload.replicas_ready, type="k8s_api", method="pod conditions",
                  confidence="high")  # fmt: skip
        self._put("k8s.cpuRequest", workload.cpu_request, confidence="high", **spec)
        self._put("k8s.memoryRequest", workload.memory_request, confidence="high", **spec)
        if workload.created_at is not None:
            hours = max(0.0, (self._snapshot.taken_at - workload.created_at).total_seconds() / 3600)
            self._put("k8s.ageHours", round(hours, 2), type="k8s_api", method="creation of the topmost owner",
                      confidence="high", units="h")  # fmt: skip
        self._put("endpoint.httpPort", workload.http_port, type="k8s_api", method="container port", confidence="medium")
        self._autoscaling()
        if workload.topology is not None:
            self._put("topology.groups", workload.topology.groups, confidence="high", **spec)
            self._put("topology.podsPerGroup", workload.topology.pods_per_group, confidence="high", **spec)

    def _autoscaling(self) -> None:
        scaler = self._workload.autoscaler
        unread = not self._snapshot.autoscalers_read or any(
            entry.read_failed and entry.about in ("autoscalers", None) for entry in self._snapshot.unknown
        )
        if scaler is None and unread:
            return
        ref = None if scaler is None else f"{scaler.kind} {scaler.namespace}/{scaler.name}"

        def put(key: str, value: FactValue | None) -> None:
            method = "HorizontalPodAutoscalers and ScaledObjects"
            self._put(key, value, type="k8s_api", method=method, confidence="high", ref=ref)

        put("autoscaling.enabled", scaler is not None)
        if scaler is not None:
            put("autoscaling.metricType", ", ".join(scaler.metric_types) or None)
            put("autoscaling.minReplicas", scaler.min_replicas)
            put("autoscaling.maxReplicas", scaler.max_replicas)

    def _devices(self) -> None:
        readings = [reading for pod in self._pods if pod.holds for reading in pod.readings]
        for key, name, units in (
            ("obs.gpu.memBandwidthUtilPct", "memory_bandwidth_pct", "%"),
            ("obs.gpu.temperatureC", "temperature_celsius", "C"),
            ("obs.gpu.powerDrawW", "power_watts", "W"),
            ("obs.gpu.tensorActivePct", "tensor_active_pct", "%"),
            ("obs.gpu.dramActivePct", "dram_active_pct", "%"),
            ("obs.gpu.smActivePct", "sm_active_pct", "%"),
        ):
            known = [(getattr(one, name), one.source) for one in readings if getattr(one, name) is not None]
            if known:
                mean = sum(value for value, _ in known) / len(known)
                self._put(key, round(mean, 2), type=source_type(known[0][1]), units=units, confidence="medium",
                          method=f"mean over {len(known)} device(s)", ref=known[0][1])  # fmt: skip
        memory = [
            (one.memory_used_mib, one.memory_total_mib, one.source)
            for one in readings
            if one.memory_used_mib is not None and one.memory_total_mib
        ]
        if memory:
            share = sum(used / whole for used, whole, _ in memory) / len(memory) * 100
            self._put("obs.gpu.memUtilAvgPct", round(share, 2), type=source_type(memory[0][2]), units="%",
                      method=f"mean over {len(memory)} device(s)", ref=memory[0][2], confidence="medium")  # fmt: skip

    def _processors(self) -> None:
        """CPU time that the pods used, of what their containers may use."""
        told = [
            (pod.cpu_used_cores, pod.cpu_allowed_cores)
            for pod in self._pods
            if pod.holds and pod.cpu_used_cores is not None and pod.cpu_allowed_cores
        ]
        if told:
            share = 100 * sum(used for used, _ in told) / sum(allowed for _, allowed in told if allowed)
            self._put("obs.cpu.utilAvgPct", round(share, 2), type="metrics", units="%", ref="metrics.k8s.io",
                      method=f"of the CPU limit, else request, of {len(told)} pod(s)", confidence="medium")  # fmt: skip

    def _runtime(self, runtime: EngineRuntime) -> None:
        def put(keys: str | tuple[str, ...], value: float | bool | None, units: str | None = None,
                confidence: Confidence = "high", method: str = "engine metrics") -> None:  # fmt: skip
            self._put(
                keys, value, type="metrics", method=method, confidence=confidence, units=units, ref=runtime.source
            )

        said = "obs.vllm" if self._of_vllm else "obs.engine"
        put(f"{said}.healthy", runtime.healthy)
        put((f"{said}.tokensPerSec", "obs.tps.avg"), runtime.generation_tokens_per_second, "tokens/s")
        put(f"{said}.promptTokensPerSec", runtime.prompt_tokens_per_second, "tokens/s")
        put(f"{said}.requestsRunning", runtime.requests_running)
        put(f"{said}.requestsWaiting", runtime.requests_waiting)
        put(f"{said}.kvCacheUsagePct", runtime.kv_cache_usage_pct, "%")
        hits = runtime.prefix_cache_hit_pct
        put(f"{said}.prefixCacheHitRate", None if hits is None else hits / 100, "ratio")
        self._latency("obs.ttft", runtime.time_to_first_token, runtime)
        self._latency("obs.tpot", runtime.time_per_output_token, runtime)
        self._latency("obs.requestLatency", runtime.end_to_end, runtime)
        for key, value in (
            ("obs.promptTokens.p50", runtime.prompt_tokens_p50),
            ("obs.promptTokens.p95", runtime.prompt_tokens_p95),
            ("obs.generationTokens.p50", runtime.generation_tokens_p50),
            ("obs.generationTokens.p95", runtime.generation_tokens_p95),
        ):
            put(key, value, "tokens", "medium")
        put("obs.effectiveBatch.p95", runtime.batch_p95, None, "medium", "histogram of the engine's batches")
        put("obs.rps.avg", runtime.requests_per_second, "requests/s", "medium", "requests that ended between two reads")

    def _latency(self, key: str, latency: Latency | None, runtime: EngineRuntime) -> None:
        if latency is None:
            return
        window = latency.window_seconds
        method = "histogram since the engine started" if window is None else f"histogram over {window:g} s"
        for name, value in (
            ("p50Ms", latency.p50_ms),
            ("p95Ms", latency.p95_ms),
            ("p99Ms", latency.p99_ms),
            ("meanMs", latency.mean_ms),
        ):
            self._put(f"{key}.{name}", value, type="metrics", method=method, units="ms", ref=runtime.source,
                      confidence="low" if window is None else "medium")  # fmt: skip


def source_type(source: str) -> Literal["pod_exec", "metrics"]:
    """The wire's word for where a reading is from."""
    return "pod_exec" if source == "exec" else "metrics"


def parallelism(tensor: int | None, pipeline: int | None) -> str | None:
    """`tensor`, `pipeline` or `tensor+pipeline`; None where neither is above 1."""
    parts = [name for name, size in (("tensor", tensor), ("pipeline", pipeline)) if size is not None and size > 1]
    return "+".join(parts) or None


def family(name: str | None) -> str | None:
    """The family that a model's name carries."""
    last = (name or "").lower().rsplit("/", 1)[-1]
    return next((family for family in FAMILIES if family in last), None)
