"""How do the tests install what the project ships? Kustomize overlays over `k8s/`, with the test's images."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from piqc_pipeline.forecast.artifact import promote, write_candidate
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.train import train
from piqc_pipeline_tests.e2e.kube import Kube
from piqc_pipeline_tests.k8s.rendering import ROOT

STEP_SECONDS = 300


def overlay(folder: Path, base: str, **fields: Any) -> Path:
    """A kustomization in `folder` over a base of `k8s/`; JSON is YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    body = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **fields}
    body["resources"] = [os.path.relpath((ROOT / "k8s" / base).resolve(), folder.resolve())]
    (folder / "kustomization.yaml").write_text(json.dumps(body))
    return folder


def image(name: str, reference: str) -> dict[str, str]:
    """The kustomize entry that puts a test's image in the place of a shipped name."""
    repository, _, tag = reference.rpartition(":")
    return {"name": name, "newName": repository, "newTag": tag}


def trained(folder: Path, workload: str, demand: float, now: datetime) -> Path:
    """A promoted artifact: two days of nearly even demand that end now."""
    end = datetime.fromtimestamp(now.timestamp() // STEP_SECONDS * STEP_SECONDS, UTC)
    rows = 4 * 86_400 // STEP_SECONDS
    values = demand + 0.05 * np.random.default_rng(3).standard_normal(rows)
    series = DemandSeries(
        workload,
        end - timedelta(seconds=STEP_SECONDS * rows),
        STEP_SECONDS,
        values,
        np.full(rows, np.ceil(demand / 0.8)),
        gpus_per_replica=1.0,
    )
    candidate = train([series], end, TrainPolicy(with_prophet=False))
    assert candidate.workloads[workload].accepted, candidate.workloads[workload].reasons
    write_candidate(candidate, folder / "candidate")
    return promote(folder / "candidate", folder)


def publish_model(kube: Kube, namespace: str, artifact: Path) -> None:
    """The artifact as the ConfigMap that the shipped Deployment mounts."""
    files = [f"--from-file={artifact / name}" for name in ("predictor.json", "predictor.json.sha256")]
    text = kube.run("create", "configmap", "capacity-predictor-model", *files, "--dry-run=client", "-o", "json")
    kube.apply(json.loads(text), namespace=namespace)
