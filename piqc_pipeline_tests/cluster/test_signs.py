from pathlib import Path
from typing import Any

import pytest

from piqc_pipeline_tests.cluster.clusters import container, controller, node, only_workload, pod, scan, workloads


def service(name: str, selector: dict[str, str], **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "inference", "labels": labels}
    return {"kind": "Service", "metadata": meta, "spec": {"selector": selector, "ports": [{"port": 8000}]}}


def monitor(kind: str, labels: dict[str, str], namespace: str = "monitoring", **selector: Any) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": labels}, "namespaceSelector": selector}
    return {"kind": kind, "metadata": {"name": "m", "namespace": namespace}, "spec": spec}


POD = pod("p", labels={"app": "llm"})


def test_a_servicemonitor_selects_workloads_through_their_services(tmp_path: Path) -> None:
    items = [node("n0"), POD, service("llm", {"app": "llm"}, scrape="yes")]
    seen = scan(tmp_path, *items, monitor("ServiceMonitor", {"scrape": "yes"}, any=True)).signs
    assert seen.scraped_workload_ids == ("c/inference/Pod/p",) and seen.prometheus_operator is True
    by_pod_labels = scan(tmp_path, *items, monitor("ServiceMonitor", {"app": "llm"}, any=True)).signs
    assert by_pod_labels.scraped_workload_ids == (), "its selector is for Services, not for pods"


def test_a_monitor_looks_into_its_own_namespace_unless_it_says_otherwise(tmp_path: Path) -> None:
    items = [node("n0"), POD, service("llm", {"app": "llm"}, scrape="yes")]
    assert scan(tmp_path, *items, monitor("ServiceMonitor", {"scrape": "yes"})).signs.scraped_workload_ids == ()
    named = monitor("ServiceMonitor", {"scrape": "yes"}, matchNames=["inference"])
    assert scan(tmp_path, *items, named).signs.scraped_workload_ids == ("c/inference/Pod/p",)


def test_a_podmonitor_selects_pods(tmp_path: Path) -> None:
    found = scan(tmp_path, node("n0"), POD, monitor("PodMonitor", {"app": "llm"}, "inference")).signs
    assert found.scraped_workload_ids == ("c/inference/Pod/p",)


def test_without_monitors_it_is_unknown_who_is_scraped(tmp_path: Path) -> None:
    found = scan(tmp_path, node("n0"), POD).signs
    assert found.scraped_workload_ids is None and found.prometheus_operator is None


def test_parts_of_observability_are_found_on_their_nodes(tmp_path: Path) -> None:
    images = {
        "dcgm": "nvcr.io/nvidia/k8s/dcgm-exporter:3.3.5",
        "plugin": "nvcr.io/nvidia/k8s-device-plugin:v0.17",
        "nfd": "registry.k8s.io/nfd/node-feature-discovery:v0.17",
        "otel": "otel/opentelemetry-collector-contrib:0.1",
    }
    items = [pod(name, [container(name, image, None)], "n0") for name, image in images.items()]
    items.append(pod("starting", [container("d", images["dcgm"], None)], "n1", phase="Pending"))
    found = scan(tmp_path, node("n0"), node("n1"), *items).signs.components
    assert found == {
        "dcgm-exporter": ("n0",),
        "node-feature-discovery": ("n0",),
        "nvidia-device-plugin": ("n0",),
        "otel-collector": ("n0",),
    }


@pytest.mark.parametrize(
    ("name", "ports", "collector"),
    [
        ("otel-collector", [{"port": 4317}], True),
        ("tempo", [{"port": 4317, "name": "otlp-grpc"}], True),
        ("game", [{"port": 4318, "name": "tcp"}], False),
    ],
)
def test_a_collector_is_known_by_its_name_or_its_ports(
    tmp_path: Path, name: str, ports: list[dict[str, Any]], collector: bool
) -> None:
    item = {"kind": "Service", "metadata": {"name": name, "namespace": "m"}, "spec": {"ports": ports}}
    assert bool(scan(tmp_path, node("n0"), item).signs.otel_services) is collector


def autoscaler(kind: str, name: str, target: str, meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    reference = {"scaleTargetRef": {"kind": "Deployment", "name": target}}
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "inference", **(meta or {})},
        "spec": {**reference, **spec},
    }


SCALED = [
    node("n0"),
    controller("Deployment", "llm", replicas=1),
    controller("ReplicaSet", "llm-1", ("Deployment", "llm")),
    pod("llm-1-x", owner=("ReplicaSet", "llm-1")),
]


def test_an_hpa_is_seen_with_its_limits(tmp_path: Path) -> None:
    hpa = autoscaler("HorizontalPodAutoscaler", "h", "llm", maxReplicas=8, metrics=[{"type": "Pods"}])
    found = only_workload(scan(tmp_path, *SCALED, hpa)).autoscaler
    assert found is not None
    assert (found.kind, found.min_replicas, found.max_replicas) == ("HorizontalPodAutoscaler", 1, 8)
    assert found.metric_types == ("Pods",)


def test_a_scaledobject_counts_and_the_hpa_that_it_made_does_not(tmp_path: Path) -> None:
    scaled = autoscaler("ScaledObject", "s", "llm", maxReplicaCount=5, triggers=[{"type": "prometheus"}])
    owner = {"ownerReferences": [{"kind": "ScaledObject", "name": "s", "controller": True}]}
    made = autoscaler("HorizontalPodAutoscaler", "keda-hpa-s", "llm", owner, maxReplicas=5)
    snapshot = scan(tmp_path, *SCALED, scaled, made)
    assert [row.kind for row in snapshot.autoscalers] == ["ScaledObject"]
    found = only_workload(snapshot).autoscaler
    assert found is not None and (found.min_replicas, found.max_replicas) == (0, 5)


def test_an_autoscaler_of_another_object_is_not_the_workloads(tmp_path: Path) -> None:
    hpa = autoscaler("HorizontalPodAutoscaler", "h", "other", maxReplicas=8)
    assert workloads(scan(tmp_path, *SCALED, hpa))["Deployment/llm"].autoscaler is None
