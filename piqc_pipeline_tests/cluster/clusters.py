"""Small clusters for tests: Kubernetes objects as literal dictionaries, and a scan of them without any server."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from piqc_pipeline.cluster import read_dump
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.facts.snapshot import ClusterSnapshot, Node, Pod, Workload

NOW = datetime(2025, 1, 20, tzinfo=UTC)
CREATED = "2025-01-19T18:00:00Z"
VLLM = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--tensor-parallel-size", "1"]


def node(
    name: str,
    gpus: str | None = "8",
    product: str | None = "NVIDIA-H100-80GB-HBM3",
    *,
    labels: dict[str, str] | None = None,
    extra: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    ready: bool = True,
    spec: dict[str, Any] | None = None,
) -> dict[str, Any]:
    capacity = {"cpu": "64", **({"nvidia.com/gpu": gpus} if gpus is not None else {}), **(extra or {})}
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**({"nvidia.com/gpu.product": product} if product else {}), **(labels or {})},
            "creationTimestamp": "2024-12-01T00:00:00Z",
        },
        "spec": spec or {},
        "status": {
            "capacity": capacity,
            "allocatable": {**capacity, **(allocatable or {})},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }


def container(
    name: str = "vllm",
    image: str = "vllm/vllm-openai:v0.8.5",
    gpus: int | None = 1,
    *,
    args: list[str] | None = None,
    resource: str = "nvidia.com/gpu",
    **more: Any,
) -> dict[str, Any]:
    amounts = {resource: str(gpus)} if gpus else {}
    found: dict[str, Any] = {
        "name": name,
        "image": image,
        "resources": {"requests": amounts, "limits": amounts},
        "ports": [{"containerPort": 8000}],
    }
    if args:
        found["args"] = args
    return {**found, **more}


def pod(
    name: str,
    containers: list[dict[str, Any]] | None = None,
    on: str | None = "n0",
    owner: tuple[str, str] | None = None,
    *,
    phase: str = "Running",
    labels: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    namespace: str = "inference",
    created: str = CREATED,
) -> dict[str, Any]:
    references = [{"kind": owner[0], "name": owner[1], "controller": True, "apiVersion": "apps/v1"}] if owner else []
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "labels": labels or {},
            "creationTimestamp": created,
            "ownerReferences": references,
            **(meta or {}),
        },
        "spec": {
            "containers": containers or [container(args=VLLM)],
            **({"nodeName": on} if on else {}),
            **(spec or {}),
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
            **(status or {}),
        },
    }


def controller(kind: str, name: str, owner: tuple[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    references = [{"kind": owner[0], "name": owner[1], "controller": True, "apiVersion": "x/v1"}] if owner else []
    meta = {"name": name, "namespace": "inference", "creationTimestamp": CREATED, "ownerReferences": references}
    return {"kind": kind, "apiVersion": "apps/v1", "metadata": meta, "spec": spec}


def smi(*rows: tuple[str, object], total: object = 81559, used: object = 70000) -> str:
    """What nvidia-smi prints: one (name, utilization) a GPU."""
    return "".join(
        f"{at}, GPU-0000{at}, {name}, [N/A], {total}, {used}, {busy}, 20, 55, 320.50, 700.00\n"
        for at, (name, busy) in enumerate(rows)
    )


def scan(
    folder: Path,
    *items: dict[str, Any],
    answers: dict[str, dict[str, Any]] | None = None,
    options: ScanOptions | None = None,
    window: float = 0,
) -> ClusterSnapshot:
    """Read these objects as a recording named `c`, with what pods answered."""
    (folder / "c.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    (folder / "c-answers.json").write_text(json.dumps({"windowSeconds": window, "pods": answers or {}}))
    return read_dump(folder / "c.json", NOW, options=options)


def only_node(snapshot: ClusterSnapshot) -> Node:
    assert snapshot.nodes is not None
    (found,) = snapshot.nodes
    return found


def pods(snapshot: ClusterSnapshot) -> dict[str, Pod]:
    assert snapshot.pods is not None
    return {item.name: item for item in snapshot.pods}


def workloads(snapshot: ClusterSnapshot) -> dict[str, Workload]:
    return {item.id.removeprefix("c/inference/"): item for item in snapshot.workloads}


def only_workload(snapshot: ClusterSnapshot) -> Workload:
    (found,) = snapshot.workloads
    return found
