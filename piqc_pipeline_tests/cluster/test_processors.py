"""CPU that pods use, by the metrics server, and may use, by their limits."""

from pathlib import Path
from typing import Any

import pytest

from piqc_pipeline.cluster import read_live
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Fault
from piqc_pipeline_tests.cluster.clusters import NOW, container, node, pod, pods, scan


def usage(name: str, *cpu: object) -> dict[str, Any]:
    containers = [{"name": f"c{at}", "usage": {"cpu": amount, "memory": "1Gi"}} for at, amount in enumerate(cpu)]
    return {"kind": "PodMetrics", "metadata": {"name": name, "namespace": "inference"}, "containers": containers}


def limited(limits: dict[str, str] | None, requests: dict[str, str] | None = None) -> dict[str, Any]:
    gpu = {"nvidia.com/gpu": "1"}
    resources = {"limits": {**gpu, **(limits or {})}, "requests": {**gpu, **(requests or {})}}
    return container(gpus=None, resources=resources)


@pytest.mark.parametrize(
    ("containers", "cpu", "used", "allowed"),
    [
        pytest.param([limited({"cpu": "8"})], ["250m"], 0.25, 8.0, id="a limit"),
        pytest.param([limited(None, {"cpu": "500m"})], ["123456789n"], 0.123456789, 0.5, id="a request, nanocores"),
        pytest.param([limited({"cpu": "2"}), limited({"cpu": "1"})], ["1", "1"], 2.0, 3.0, id="two containers add"),
        pytest.param([limited(None)], ["1"], 1.0, None, id="neither limit nor request"),
        pytest.param([limited({"cpu": "8"})], ["much"], None, None, id="no quantity is unknown"),
        pytest.param([limited({"cpu": "8"})], [], None, None, id="no container was measured"),
    ],
)
def test_cpu_use_and_what_it_is_a_share_of(
    tmp_path: Path, containers: list[dict[str, Any]], cpu: list[str], used: float | None, allowed: float | None
) -> None:
    found = pods(scan(tmp_path, node("n0"), pod("p", containers), usage("p", *cpu)))["p"]
    assert (found.cpu_used_cores, found.cpu_allowed_cores) == (used, allowed)


def test_a_metrics_server_is_asked_where_there_is_one_and_its_refusal_is_told(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    options = ScanOptions(kubeconfig=api.kubeconfig(tmp_path), allow_exec=False, rate_window_seconds=0)
    assert not read_live(options, NOW).read_failed
    api.groups = (*api.groups, "metrics.k8s.io")
    api.faults = [Fault("metrics.k8s.io", 403)]
    (entry,) = [entry for entry in read_live(options, NOW).unknown if entry.read_failed]
    assert entry.what == "pods.metrics.k8s.io: CPU use of pods" and "grant `list pods.metrics.k8s.io`" in entry.why
