"""Small clusters as literal snapshots: nodes, pods and workloads with just what a test needs."""

from datetime import UTC, datetime, timedelta
from typing import Any

from piqc_pipeline.facts.snapshot import (
    AcceleratorPool,
    AcceleratorReading,
    ClusterSnapshot,
    EngineIdentity,
    EngineRuntime,
    ModelIdentity,
    Node,
    ObservabilitySigns,
    Pod,
    PodRequest,
    Sharing,
    Workload,
)

NOW = datetime(2025, 1, 20, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def pool(units: int | None, product: str | None, **more: Any) -> AcceleratorPool:
    given: dict[str, Any] = {
        "resource": GPU,
        "vendor": "nvidia",
        "product": product,
        "memory_gib": None,
        "capacity_units": units,
        "allocatable_units": units,
    }
    return AcceleratorPool(**{**given, **more})


def node(name: str, units: int | None = 8, product: str | None = "NVIDIA-H100-80GB-HBM3", **more: Any) -> Node:
    """A node with one pool; keyword arguments of the pool and of the node may be mixed."""
    pool_keys = set(AcceleratorPool.__dataclass_fields__)
    pools = more.pop("pools", None)
    for_pool = {key: more.pop(key) for key in list(more) if key in pool_keys}
    given: dict[str, Any] = {"labels": {}, "ready": True, "cordoned": False, "taints": ()}
    pools = pools if pools is not None else (pool(units, product, **for_pool),)
    return Node(name=name, pools=pools, **{**given, **more})


def readings(
    *percents: float | None, product: str | None = None, source: Any = "exec"
) -> tuple[AcceleratorReading, ...]:
    return tuple(
        AcceleratorReading(source=source, index=str(place), utilization_pct=percent, product=product)
        for place, percent in enumerate(percents)
    )


def pod(
    name: str,
    on: str | None,
    units: float | None,
    *,
    workload: str = "c/inference/Deployment/w",
    percents: tuple[float | None, ...] = (),
    tokens: float | None = None,
    resource: str = GPU,
    sharing: Sharing = "none",
    **more: Any,
) -> Pod:
    given: dict[str, Any] = {
        "namespace": workload.split("/")[1],
        "uid": f"uid-{workload}-{name}",
        "phase": "Running" if on else "Pending",
        "ready": on is not None,
        "holds": on is not None,
        "requests": (PodRequest(resource, units, sharing),) if units != 0 else (),
        "created_at": NOW - timedelta(hours=6),
        "readings": readings(*percents),
        "runtime": None
        if tokens is None
        else EngineRuntime(healthy=True, source="exec", generation_tokens_per_second=tokens),
    }
    return Pod(name=name, node=on, workload_id=workload, **{**given, **more})


def workload(name: str = "w", kind: str = "Deployment", **more: Any) -> Workload:
    model_keys = set(ModelIdentity.__dataclass_fields__) - {"name"}
    for_model = {key: more.pop(key) for key in list(more) if key in model_keys}
    billions = more.pop("billions", None)
    if billions is not None:
        for_model.setdefault("parameters_total", billions * 1e9)
        for_model.setdefault("parameters_active", for_model["parameters_total"])
    given: dict[str, Any] = {
        "api_version": "apps/v1",
        "engine": EngineIdentity("vllm", 0.6, "medium"),
        "model": ModelIdentity(more.pop("model_name", None), **for_model),
        "is_inference": True,
        "replicas_wanted": 1,
        "replicas_ready": 1,
        "gpus_per_replica": None,
        "images": ("vllm/vllm-openai:v0.8.5",),
        "created_at": NOW - timedelta(hours=6),
    }
    return Workload(
        id=f"c/inference/{kind}/{name}", cluster="c", namespace="inference", kind=kind, name=name, **{**given, **more}
    )


def cluster(
    nodes: list[Node] | None, pods: list[Pod] | None = None, workloads: list[Workload] | None = None, **more: Any
) -> ClusterSnapshot:
    given: dict[str, Any] = {"cluster": "c", "context": None, "taken_at": NOW}
    return ClusterSnapshot(
        nodes=None if nodes is None else tuple(nodes),
        pods=None if pods is None else tuple(pods),
        workloads=tuple(workloads or ()),
        **{**given, **more},
    )


def sample_cluster() -> ClusterSnapshot:
    """The five deployments and twelve dark GPUs of the specification's sample table."""
    llama, mistral = "c/inference/Deployment/llama-70b", "c/inference/Deployment/mistral-7b"
    code, bge = "c/inference/Deployment/codellama-34b", "c/inference/Deployment/bge"
    other = "c/inference/Deployment/unknown-runtime-7f3a2"
    return cluster(
        [
            *(node(f"h100-{place}", 8, "H100-SXM4-80GB") for place in range(2)),
            node("h100-2", 4, "H100-SXM4-80GB"),
            node("a100-40-0", 1, "A100-SXM4-40GB"),
            node("a100-80-0", 2, "A100-SXM4-80GB"),
            *(node(f"t4-{place}", 1, "T4") for place in range(3)),
            node("dark-0", 8),
            node("dark-1", 4),
            Node("cpu-0", {}, True, False, (), ()),
        ],
        [
            *(
                pod(f"llama-{place}", f"h100-{place}", 8, workload=llama, percents=(4,) * 8, tokens=224.3)
                for place in range(2)
            ),
            pod("mistral-0", "a100-40-0", 1, workload=mistral, percents=(11,), tokens=95.1),
            pod("codellama-0", "h100-2", 4, workload=code, percents=(0,) * 4, tokens=0.0),
            *(pod(f"bge-{place}", f"t4-{place}", 1, workload=bge, percents=(82,), tokens=1875.0) for place in range(3)),
            pod("unknown-0", "a100-80-0", 2, workload=other),
            pod(
                "pending-0",
                None,
                8,
                workload="c/inference/ReplicaSet/pending-llama-66c",
                waiting_reason="Unschedulable",
                created_at=NOW - timedelta(hours=0.7),
            ),
        ],
        [
            workload(
                "llama-70b", billions=70.6, model_name="meta-llama/Llama-3-70B-Inst", tensor_parallel=8,
                dtype="bfloat16", max_model_len=8192, gpus_per_replica=8, replicas_wanted=2, replicas_ready=2,
                created_at=NOW - timedelta(hours=6.5),
            ),
            workload(
                "mistral-7b", billions=7.25, model_name="mistral-7b-instruct", tensor_parallel=1, dtype="bfloat16",
                max_model_len=8192, gpus_per_replica=1, created_at=NOW - timedelta(hours=50),
            ),
            workload(
                "codellama-34b", billions=33.7, model_name="codellama-34b-staging", tensor_parallel=4,
                dtype="bfloat16", max_model_len=8192, gpus_per_replica=4, created_at=NOW - timedelta(days=19, hours=2),
            ),
            workload(
                "bge", billions=0.335, model_name="embedding-bge-large", tensor_parallel=1, dtype="bfloat16",
                max_model_len=512, gpus_per_replica=1, replicas_wanted=3, replicas_ready=3,
                created_at=NOW - timedelta(hours=14.2),
            ),
            workload(
                "unknown-runtime-7f3a2", is_inference=False, engine=EngineIdentity("unknown", 0.1, "low"),
                gpus_per_replica=2, created_at=NOW - timedelta(days=31, hours=1),
            ),
        ],
        signs=ObservabilitySigns(
            components={
                "dcgm-exporter": (
                    "h100-0", "h100-1", "h100-2", "a100-40-0", "a100-80-0", "t4-0", "t4-1", "t4-2", "dark-0", "dark-1",
                )
            },
            prometheus_operator=True,
            scraped_workload_ids=("c/inference/Deployment/llama-70b",),
            otel_services=("monitoring/otel-collector",),
        ),
    )  # fmt: skip
