"""A small recorded cluster, as `kubectl get nodes,pods,deployments,replicasets -A -o json` writes it."""

import json
from pathlib import Path
from typing import Any

MADE = "2025-01-10T00:00:00Z"


def _meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": MADE, **more}


def _node(name: str, gpus: int) -> dict[str, Any]:
    quantities = {"cpu": "96", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta(name, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
        "spec": {},
        "status": {
            "capacity": quantities,
            "allocatable": quantities,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _owned(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def items(secret: str = "hf_CANARY") -> list[dict[str, Any]]:
    """One busy node, one dark one, and a Deployment with one pod of two GPUs."""
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.8.5",
        "args": ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--tensor-parallel-size", "2", "--api-key", secret],
        "env": [{"name": "HF_TOKEN", "value": secret}],
        "ports": [{"containerPort": 8000}],
        "resources": {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}},
    }
    labels = {"app": "llm"}
    space = {"namespace": "inference"}
    selector = {"matchLabels": labels}
    return [
        _node("busy", 2),
        _node("dark", 4),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": _meta("inference")},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _meta("llm", labels=labels, **space),
            "spec": {"replicas": 1, "selector": selector, "template": {"spec": {"containers": [container]}}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": _meta("llm-abc", ownerReferences=_owned("Deployment", "llm"), **space),
            "spec": {"replicas": 1, "selector": selector},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _meta("llm-abc-1", labels=labels, ownerReferences=_owned("ReplicaSet", "llm-abc"), **space),
            "spec": {"nodeName": "busy", "containers": [container]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        },
    ]


def write_dump(folder: Path, name: str = "cluster.json") -> Path:
    """The recording as a file."""
    path = folder / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items()}))
    return path
