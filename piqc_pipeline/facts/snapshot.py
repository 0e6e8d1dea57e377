"""What is running, on which accelerators, at one instant: the types of a cluster snapshot.

How they are read belongs to `piqc_pipeline.cluster`; what they cost to `piqc_pipeline.waste`.
Unknown is `None`, with an `Unknown` that says why beside it; never 0, never NaN.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from piqc_pipeline.facts.taints import Toleration

Confidence = Literal["high", "medium", "low"]
Sharing = Literal["none", "mig", "time-slicing", "mps", "fraction"]
Subject = Literal[
    "nodes",
    "pods",
    "autoscalers",
    "other objects",
    "node capacity",
    "devices held",
    "devices seen",
    "utilization",
    "engine metrics",
    "requests running",
    "cache use",
    "tokens",
    "model",
    "parameters",
    "product",
    "memory",
    "age",
    "placement",
]
"""What programs need to tell apart among the figures that are unknown."""


@dataclass(frozen=True)
class Unknown:
    """A figure nobody can state, and why.

    Attributes:
        what: The figure and its object, for instance `price of NVIDIA-X1 on node gpu-3`.
        why: One clause, for instance `not in the price table; add it with --prices`.
        read_failed: True when a read failed or was refused (exit code 3), False when nothing could have told (exit 0).
        about: What is unknown, for programs: they compare this, never the words of `what`. None where no program asks,
            and in files of the versions that had no such field: a failed read without it may have hidden anything.
    """

    what: str
    why: str
    read_failed: bool = False
    about: Subject | None = None


@dataclass(frozen=True)
class AcceleratorPool:
    """Accelerators of one resource key on one node.

    Attributes:
        resource: Resource key, for instance `nvidia.com/gpu` or `nvidia.com/mig-1g.10gb`.
        vendor: `nvidia`, `amd`, `intel`, `google`, `aws`.
        product: Name of the physical device as the node's labels print it, without the suffixes `-SHARED` and
            `-MIG-1g.10gb` (see `sharing` and `profile`), or of its cloud instance type; None where nothing names it.
        memory_gib: Memory of one unit, where a label states it.
        capacity_units: Units installed, broken ones included; None where the quantity cannot be read.
        allocatable_units: Units that pods may request.
        units_per_device: Units that share one physical device: 1 for whole GPUs, 8 for a T4 time-sliced 8 ways,
            7 for 1g MIG slices, 3.5 for 2g; None where units share a device and nothing says how many.
        sharing: How the units share a device.
        profile: MIG or partition profile of one unit, for instance `1g.10gb`.
        product_source: What named the product: `label` or `instance-type`.
        note: Why units cannot be used, where that is known: `no MIG instance is made of it`, `no device plugin`.
    """

    resource: str
    vendor: str
    product: str | None
    memory_gib: float | None
    capacity_units: int | None
    allocatable_units: int | None
    units_per_device: float | None = 1.0
    sharing: Sharing = "none"
    profile: str | None = None
    product_source: Literal["label", "instance-type"] | None = None
    note: str | None = None


@dataclass(frozen=True)
class Node:
    """A node as far as placement and price need it."""

    name: str
    labels: dict[str, str]
    ready: bool
    cordoned: bool
    taints: tuple[str, ...]
    """`key=value:effect` of NoSchedule and NoExecute taints, as printed by kubectl."""
    pools: tuple[AcceleratorPool, ...]
    instance_type: str | None = None
    created_at: datetime | None = None
    unknown: tuple[Unknown, ...] = ()


@dataclass(frozen=True)
class AcceleratorReading:
    """What one physical accelerator, or MIG instance, said of itself. None where it did not say."""

    source: Literal["dcgm", "prometheus", "engine", "exec"]
    uuid: str | None = None
    index: str | None = None
    product: str | None = None
    utilization_pct: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    sm_active_pct: float | None = None
    memory_bandwidth_pct: float | None = None
    """Share of time in which the device's memory was read or written (`utilization.memory`)."""
    power_limit_watts: float | None = None
    instance: str | None = None
    """MIG instance id or partition id on the device; None for a whole device."""
    profile: str | None = None
    signal: str = "utilization.gpu"
    confidence: Confidence = "medium"


@dataclass(frozen=True)
class Latency:
    """Percentiles and mean in milliseconds; None where the engine exports nothing that tells them."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    window_seconds: float | None = None
    """Between which two reads the observations fell; None: since the engine started."""
    mean_ms: float | None = None


@dataclass(frozen=True)
class EngineRuntime:
    """What an engine's own metrics say, for one pod or summed over the pods of a workload.

    Rates are tokens per second. `healthy` is None when nobody could ask.
    """

    healthy: bool | None
    source: Literal["exec", "proxy", "pod-ip", "prometheus", "recorded", "none"]
    served_models: tuple[str, ...] = ()
    requests_running: float | None = None
    requests_waiting: float | None = None
    generation_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    kv_cache_usage_pct: float | None = None
    prefix_cache_hit_pct: float | None = None
    time_to_first_token: Latency | None = None
    time_per_output_token: Latency | None = None
    end_to_end: Latency | None = None
    prompt_tokens_p50: float | None = None
    prompt_tokens_p95: float | None = None
    generation_tokens_p50: float | None = None
    generation_tokens_p95: float | None = None
    requests_per_second: float | None = None
    """Requests that ended between two reads."""
    batch_p95: float | None = None
    """95th percentile of the sequences in one step, where the engine exports their distribution."""
    unknown: tuple[Unknown, ...] = ()


UNREAD_CLAIM = "resource.k8s.io/claim"
"""What a pod requests by a claim that could not be read, or was not found; which devices, nobody knows."""


@dataclass(frozen=True)
class PodRequest:
    """Units of one accelerator resource that a pod's effective request holds on its node."""

    resource: str
    units: float | None
    """None where the quantity cannot be read (a ResourceClaim out of reach): what is free on that node is unknown."""
    sharing: Sharing = "none"


@dataclass(frozen=True)
class Pod:
    """A pod that requests, holds or visibly uses an accelerator, or serves an engine."""

    namespace: str
    name: str
    uid: str
    phase: str
    node: str | None
    workload_id: str
    ready: bool
    holds: bool
    """Bound to a node and neither Succeeded nor Failed: its request is taken."""
    requests: tuple[PodRequest, ...]
    created_at: datetime | None
    ready_at: datetime | None = None
    deleting: bool = False
    waiting_reason: str | None = None
    """For a pod that is not bound: `Unschedulable`, `SchedulingGated`, ...; the scheduler's message follows a colon."""
    readings: tuple[AcceleratorReading, ...] = ()
    runtime: EngineRuntime | None = None
    visible_devices: str | None = None
    """`NVIDIA_VISIBLE_DEVICES` where it opens devices that the pod did not request (`all`, or indices)."""
    group: str | None = None
    """Group of a multi-node workload (LeaderWorkerSet group index, Ray cluster) that this pod is part of."""
    cpu_used_cores: float | None = None
    """CPU that its containers used in the metrics server's last window; None where none told."""
    cpu_allowed_cores: float | None = None
    """Sum of its containers' CPU limits, of their requests where they have no limit; None where one has neither."""
    tolerations: tuple[Toleration, ...] = ()
    """Without those of a node's state (`node.kubernetes.io/...`), which Kubernetes adds to every pod."""
    unknown: tuple[Unknown, ...] = ()


@dataclass(frozen=True)
class EngineIdentity:
    """Which inference engine, how sure, and on what evidence."""

    name: str
    """`vllm sglang tgi triton tensorrt-llm nim tei ollama ray-serve kserve llm-d unknown`."""
    score: float
    confidence: Confidence
    evidence: tuple[str, ...] = ()
    version: str | None = None
    role: str | None = None
    """`prefill`, `decode`, `worker`, `leader`, ..."""
    backend: str | None = None
    """The engine inside another one: `vllm` inside KServe, llm-d, Ray Serve or NIM."""


@dataclass(frozen=True)
class ModelIdentity:
    """Which model, and what of its shape is known."""

    name: str | None
    served_name: str | None = None
    parameters_total: float | None = None
    """Parameters that weights need memory for."""
    parameters_active: float | None = None
    """Parameters that one token is multiplied with (fewer in a mixture of experts)."""
    dtype: str | None = None
    quantization: str | None = None
    max_model_len: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    expert_parallel: bool | None = None
    max_num_seqs: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str | None = None
    chunked_prefill: bool | None = None
    kv_role: str | None = None
    kv_connector: str | None = None
    lmcache_enabled: bool | None = None
    enforce_eager: bool | None = None
    max_num_batched_tokens: int | None = None
    trust_remote_code: bool | None = None
    tokenizer: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Autoscaler:
    """An object that sets a workload's replicas."""

    kind: Literal["HorizontalPodAutoscaler", "ScaledObject"]
    namespace: str
    name: str
    target_kind: str
    target_name: str
    min_replicas: int | None
    max_replicas: int | None
    metric_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topology:
    """Groups, nodes and parallelism of a workload that spans pods (LeaderWorkerSet, Ray, disaggregated roles)."""

    groups: int
    pods_per_group: int
    nodes: int


@dataclass(frozen=True)
class Workload:
    """An inference workload, or any other owner of accelerators, by its topmost owner.

    Attributes:
        id: `cluster/namespace/Kind/name`, everywhere.
        is_inference: False for owners that hold accelerators but serve no model as far as is known.
        replicas_wanted: From the owner's spec; None where it has no such field.
        replicas_ready: Ready pods, or ready groups.
        gpus_per_replica: Accelerator units that one replica (pod or group) requests.
    """

    id: str
    cluster: str
    namespace: str
    kind: str
    name: str
    api_version: str
    engine: EngineIdentity
    model: ModelIdentity
    is_inference: bool
    replicas_wanted: int | None
    replicas_ready: int
    gpus_per_replica: float | None
    images: tuple[str, ...]
    created_at: datetime | None
    labels: dict[str, str] = field(default_factory=dict)
    http_port: int | None = None
    cpu_request: str | None = None
    memory_request: str | None = None
    autoscaler: Autoscaler | None = None
    topology: Topology | None = None
    pod_spec: dict[str, object] = field(default_factory=dict)
    """The first pod's spec as far as is safe to show: no environment values, arguments redacted."""
    tolerations: tuple[Toleration, ...] = ()
    """Those of its newest pod, or of its template where it has no pod now."""
    runtime: EngineRuntime | None = None
    """Summed over the pods: rates and queues add, cache use is a mean, histograms add by `le`; None: nobody asked."""
    unknown: tuple[Unknown, ...] = ()


@dataclass(frozen=True)
class Quota:
    """How many accelerators, or pods, a namespace may have by one ResourceQuota, and has.

    Attributes:
        name: Name of the ResourceQuota; of several in a namespace each one holds.
        resource: Resource key as pods request it (`nvidia.com/gpu`), `pods`, or a device class's key
            (`gpu.nvidia.com.deviceclass.resource.k8s.io/devices`).
        hard: Units allowed; None where the quantity cannot be read.
        used: Units counted now; None where Kubernetes has not counted them yet.
        scoped: Whether it counts some pods only (by priority class, by deadline, ...).
    """

    namespace: str
    name: str
    resource: str
    hard: float | None
    used: float | None
    scoped: bool = False


@dataclass(frozen=True)
class ObservabilitySigns:
    """What the coverage report asks about, as found in the cluster."""

    components: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Component (`dcgm-exporter`, `nvidia-device-plugin`, `gpu-feature-discovery`, `node-feature-discovery`,
    `otel-collector`, `amd-metrics-exporter`, ...) to the nodes its ready pods stand on."""
    prometheus_operator: bool | None = None
    scraped_workload_ids: tuple[str, ...] | None = None
    """Workloads that a ServiceMonitor (through its Service) or a PodMonitor selects; None when monitors are unread."""
    otel_services: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterSnapshot:
    """Everything one scan saw of one cluster.

    Attributes:
        nodes: None when nodes could not be read: capacity, dark GPUs and prices are unknown then.
        pods: None when pods could not be read: no GPU may be called dark then. Every pod of the cluster that matters
            for placement is here, also those outside of `namespaces_scanned`; `workloads` holds those asked for only.
        unread_namespaces: Namespaces whose pods could not be read; placement is unknown where it is not empty. `*`
            stands for those that could not even be listed by name.
        unknown: Everything that could not be read or told, with the reason.
    """

    cluster: str
    context: str | None
    taken_at: datetime
    nodes: tuple[Node, ...] | None
    pods: tuple[Pod, ...] | None
    workloads: tuple[Workload, ...]
    namespaces_scanned: tuple[str, ...] | None = None
    """The namespaces asked for; None means all."""
    unread_namespaces: tuple[str, ...] = ()
    autoscalers: tuple[Autoscaler, ...] = ()
    autoscalers_read: bool = True
    """False where a recording holds no autoscaler of any kind: there may be none, or none was recorded."""
    quotas: tuple[Quota, ...] | None = None
    """Quotas on accelerators and on the number of pods, in order; None where ResourceQuotas were not read."""
    signs: ObservabilitySigns = field(default_factory=ObservabilitySigns)
    server_version: str | None = None
    interrupted: bool = False
    """True where the user stopped the scan, and what was read until then is here."""
    unknown: tuple[Unknown, ...] = ()

    @property
    def read_failed(self) -> bool:
        """True when any read failed or was refused (exit code 3)."""
        return any(entry.read_failed for entry in self.unknown)
