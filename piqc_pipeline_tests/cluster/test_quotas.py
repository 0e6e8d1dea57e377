"""ResourceQuotas on accelerators and pods, from recordings and from a server that may refuse them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from piqc_pipeline.cluster import read_live
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.facts.snapshot import Quota
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Fault
from piqc_pipeline_tests.cluster.clusters import NOW, node, pod, scan


def quota(hard: dict[str, Any], used: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    status = {"hard": hard, **({"used": used} if used is not None else {})}
    meta = {"name": "gpus", "namespace": "inference"}
    return {"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard, **spec}, "status": status}


@pytest.mark.parametrize(
    ("hard", "used", "rows"),
    [
        pytest.param(
            {"requests.nvidia.com/gpu": "16", "limits.cpu": "64"},
            {"requests.nvidia.com/gpu": "4"},
            [("nvidia.com/gpu", 16, 4)],
            id="GPUs, and nothing of the CPUs",
        ),
        pytest.param(
            {"requests.nvidia.com/mig-1g.10gb": "7", "requests.amd.com/gpu": 8, "requests.example.com/fpga": "1"},
            {},
            [("amd.com/gpu", 8, None), ("nvidia.com/mig-1g.10gb", 7, None)],
            id="other vendors and slices; not counted yet is unknown, not 0",
        ),
        pytest.param({"pods": "10"}, {"pods": "3"}, [("pods", 10, 3)], id="the number of pods"),
        pytest.param({"count/pods": "1k"}, {"count/pods": "3"}, [("pods", 1000, 3)], id="the object count of pods"),
        pytest.param(
            {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "2"},
            None,
            [("gpu.nvidia.com.deviceclass.resource.k8s.io/devices", 2, None)],
            id="devices of claims by their class",
        ),
        pytest.param(
            {"requests.nvidia.com/gpu": "many"},
            {"requests.nvidia.com/gpu": "-1"},
            [("nvidia.com/gpu", None, None)],
            id="no quantities are unknown",
        ),
    ],
)
def test_quotas_on_accelerators_and_pods_are_kept(
    tmp_path: Path, hard: dict[str, Any], used: dict[str, Any] | None, rows: list[tuple[str, float, float]]
) -> None:
    snapshot = scan(tmp_path, node("n0"), pod("p"), quota(hard, used))
    assert snapshot.quotas is not None
    assert [(row.resource, row.hard, row.used) for row in snapshot.quotas] == rows


def test_a_quota_that_counts_some_pods_only_says_so(tmp_path: Path) -> None:
    snapshot = scan(tmp_path, node("n0"), pod("p"), quota({"pods": "1"}, {"pods": "0"}, scopes=["BestEffort"]))
    assert snapshot.quotas == (Quota("inference", "gpus", "pods", 1.0, 0.0, scoped=True),)


def test_a_recording_without_quotas_does_not_say_that_there_are_none(tmp_path: Path) -> None:
    snapshot = scan(tmp_path, node("n0"), pod("p"))
    assert snapshot.quotas is None and not snapshot.read_failed


def test_quotas_that_may_not_be_listed_are_a_refused_read_and_the_rest_is_told(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    options = ScanOptions(kubeconfig=api.kubeconfig(tmp_path), allow_exec=False, collect_runtime=False)
    api.items.append(quota({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "8"}))
    assert read_live(options, NOW).quotas == (Quota("inference", "gpus", "nvidia.com/gpu", 8.0, 8.0),)
    api.faults.append(Fault("/resourcequotas", status=403))
    snapshot = read_live(replace(options), NOW)
    assert snapshot.quotas is None and len(snapshot.workloads) == 1
    (entry,) = [entry for entry in snapshot.unknown if entry.read_failed]
    assert entry.what == "resourcequotas: how much a namespace may still take"
    assert "grant `list resourcequotas`" in entry.why
