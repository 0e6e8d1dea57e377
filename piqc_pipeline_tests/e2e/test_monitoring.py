"""Does a real Prometheus operator load the shipped rules and monitors, and does KEDA scale on what they record?

A stand-in for dcgm-exporter says how busy each pod's device is, as the real one does; everything from there to the
replicas is shipped: recording rules, alerts, the predictor with its PodMonitor, the ScaledObject of `scaling.keda`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from loadtest.cluster_objects import prometheus
from piqc_pipeline.forecast.artifact import load
from piqc_pipeline.scaling.limits import ReplicaLimits
from piqc_pipeline.scaling.options import ManifestOptions
from piqc_pipeline.scaling.overlay import render, write_overlay
from piqc_pipeline.scaling.plan import plan_workload
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline_tests.e2e.conftest import Images
from piqc_pipeline_tests.e2e.kube import Kube, deployment, restricted, service, until
from piqc_pipeline_tests.e2e.shipped import image, overlay, publish_model, trained
from piqc_pipeline_tests.e2e.teller import Teller

pytestmark = pytest.mark.e2e

NAME = "chat-8b"
FORESEEN = 0.4
"""Demand that the model knows: one replica, so that every further one is the rules' doing."""
MAXIMUM = 5
POLICY = ScalingPolicy(min_replicas=1, max_replicas=MAXIMUM, down_window_seconds=5, period_seconds=15)
SETTLED = 150
"""The kubelet hands a monitor's config on after about 50 s; scrapes and rules come every 30 s. Seconds."""


@dataclass
class Monitored:
    """A namespace with a Prometheus of its own."""

    kube: Kube
    namespace: str
    exporter: Teller

    def pods(self) -> list[str]:
        found = self.kube.get("-n", self.namespace, "pods", "-l", f"app={NAME}")["items"]
        return sorted(pod["metadata"]["name"] for pod in found if not pod["metadata"].get("deletionTimestamp"))

    def busy(self, activity: float, pods: list[str]) -> None:
        """What the exporter says of the pods' devices; the others are silent."""
        name = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
        rows = [
            f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}",namespace="{self.namespace}",pod="{pod}"}} {activity}'
            for gpu, pod in enumerate(pods)
        ]
        self.exporter.tell(metrics="\n".join([f"# TYPE {name} gauge", *rows, ""]))

    def prometheus(self, path: str) -> dict[str, Any]:
        base = f"/api/v1/namespaces/{self.namespace}/services/prometheus-operated:9090/proxy/api/v1"
        text = self.kube.run("get", "--raw", f"{base}/{path}", check=False)
        found: dict[str, Any] = json.loads(text)["data"] if text.startswith("{") else {}
        return found

    def query(self, text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.prometheus(f"query?query={quote(text, safe='')}").get("result", [])
        return found

    def value(self, text: str) -> float | None:
        found = self.query(text)
        return float(found[0]["value"][1]) if len(found) == 1 else None


@pytest.fixture(scope="module")
def monitored(
    kube: Kube, namespace: str, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Monitored]:
    if not kube.run("get", "crd", "prometheuses.monitoring.coreos.com", "--ignore-not-found"):
        pytest.skip("the cluster has no Prometheus operator (docs/e2e.md installs one)")
    folder = tmp_path_factory.mktemp("monitored")
    workload = f"e2e/{namespace}/Deployment/{NAME}"
    exporter = Teller(kube, namespace, images.predictor)
    monitored = Monitored(kube, namespace, exporter)
    kube.apply(deployment(NAME, 2, restricted(images.pause, [])), namespace=namespace)
    kube.rolled_out(namespace, f"deployment/{NAME}")
    monitored.busy(0.9, monitored.pods())
    kube.apply(*prometheus(namespace, images.prometheus, "5s"), *_exporter(), namespace=namespace)
    kube.run("apply", "-k", str(overlay(folder / "monitoring", "monitoring", namespace=namespace)))
    artifact = trained(folder / "model", workload, FORESEEN, datetime.now(UTC))
    publish_model(kube, namespace, artifact)
    url = f"http://prometheus-operated.{namespace}.svc.cluster.local:9090"
    settings = [f"PIQC_PROMETHEUS_URL={url}", "PIQC_REFRESH_SECONDS=5"]
    predictor = overlay(
        folder / "predictor",
        "predictor",
        namespace=namespace,
        images=[image("capacity-predictor", images.predictor)],
        configMapGenerator=[
            {"name": "capacity-predictor-settings", "namespace": "piqc", "behavior": "merge", "literals": settings}
        ],
    )
    kube.run("apply", "-k", str(predictor))
    kube.rolled_out(namespace, "deployment/capacity-predictor")
    limits = ReplicaLimits(workload, 1, MAXIMUM, max_reason="the test allows five", gpus_per_replica=1.0)
    plan = plan_workload(load(artifact).workloads[workload], None, limits, POLICY, datetime.now(UTC))
    options = ManifestOptions(
        predictor_url=f"http://capacity-predictor.{namespace}.svc.cluster.local:8080",
        prometheus_url=url,
        server_version="v1.36.3",
        recording_rules=False,  # those of k8s/monitoring are on trial
    )
    write_overlay(render([plan], POLICY, options), folder / "manifests")
    kube.run("apply", "-k", str(folder / "manifests"))
    yield monitored
    kube.run("-n", namespace, "delete", "scaledobject,prometheus", "--all", check=False)
    kube.run("delete", "clusterrole,clusterrolebinding", f"{namespace}-prometheus", "--ignore-not-found", check=False)


def _exporter() -> list[dict[str, Any]]:
    """The stand-in's Service and the ServiceMonitor, as dcgm-exporter's chart brings them."""
    exporter = service("dcgm-exporter", "teller", 9400)
    exporter["metadata"]["labels"] = {"app.kubernetes.io/name": "dcgm-exporter"}
    exporter["spec"]["ports"][0]["name"] = "metrics"
    monitor = {
        "selector": {"matchLabels": exporter["metadata"]["labels"]},
        "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "5s", "honorLabels": False}],
    }
    kind = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor"}
    return [exporter, {**kind, "metadata": {"name": "dcgm-exporter"}, "spec": monitor}]


def test_the_operator_loads_every_rule_and_prometheus_can_evaluate_it(monitored: Monitored) -> None:
    def states() -> dict[str, str]:
        groups = monitored.prometheus("rules").get("groups", [])
        return {
            f"{group['name']}/{rule['name']}": f"{rule['health']} {rule.get('lastError', '')}".strip()
            for group in groups
            for rule in group["rules"]
        }

    known = {
        "piqc-gpu-demand/workload:gpu_demand:replicas",
        "piqc-gpu-demand/workload:gpu_pods:count",
        "piqc-alerts/CapacityPredictorDown",
        "piqc-alerts/KedaScalerErrors",
    }
    until(states, lambda now: known <= set(now) and set(now.values()) == {"ok"}, SETTLED, "rules that evaluate")


def test_the_exporters_series_become_demand_of_the_workload(monitored: Monitored) -> None:
    selector = f'{{namespace="{monitored.namespace}",workload="{NAME}"}}'
    # Two pods at 0.9: demand 1.8 replicas on two.
    demand = until(
        lambda: monitored.value(f"workload:gpu_demand:replicas{selector}"),
        lambda value: value is not None and abs(value - 1.8) < 1e-6,
        SETTLED,
        "recorded demand",
    )
    assert demand == pytest.approx(1.8)
    assert monitored.value(f"workload:gpu_pods:count{selector}") == 2


def test_the_predictor_is_scraped_by_its_pod_monitor_under_the_workloads_names(monitored: Monitored) -> None:
    # Both pods say it; honorLabels keeps the workload's namespace.
    text = f'predicted_gpu_util{{namespace="{monitored.namespace}",workload="{NAME}"}}'
    rows = until(lambda: monitored.query(text), lambda found: len(found) == 2, SETTLED, "both pods of the predictor")
    assert all(0 < float(row["value"][1]) <= 100 for row in rows)
    assert monitored.value("min(piqc_predictor_artifact_loaded)") == 1
    assert monitored.query('ALERTS{alertname="CapacityPredictorDown",alertstate="firing"}') == []


def test_keda_scales_on_the_recorded_demand_and_the_predictor_follows_it_within_the_limits(
    monitored: Monitored, tmp_path: Path
) -> None:
    kube, namespace = monitored.kube, monitored.namespace

    def replicas() -> int:
        return int(kube.run("-n", namespace, "get", "deploy", NAME, "-o", "jsonpath={.spec.replicas}"))

    # 1.8 / 0.80 = 2.25: three replicas, by the rules alone (the model knows one).
    until(replicas, lambda count: count == 3, SETTLED, "replicas for the recorded demand")
    path = f"/api/v1/namespaces/{namespace}/services/capacity-predictor:8080/proxy/v1/desired/{namespace}/{NAME}"
    body = until(
        lambda: json.loads(kube.run("get", "--raw", path, check=False) or "{}"),
        lambda said: said.get("max_replicas") == MAXIMUM and said.get("demand_now") is not None,
        SETTLED,  # the kubelet brings the ConfigMap of the limits within a minute and a half
        "the predictor with live demand and the manifests' limits",
    )
    assert body["desired_replicas"] == 3 and body["demand_now"] == pytest.approx(1.8, abs=0.01)
    # Three pods, twice as busy as they can be kept: 3 x 1.0 / 0.80 = 3.75, four.
    monitored.busy(1.0, monitored.pods())
    until(replicas, lambda count: count >= 4, SETTLED, "replicas for raised demand")
