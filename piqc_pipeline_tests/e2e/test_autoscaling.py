"""Do replicas follow the plan through KEDA, and what happens to them when the predictor or Prometheus fails?

The shipped predictor as pods, the manifests that `scaling.keda` writes, a workload that asks for a GPU a replica, and a
Prometheus that says what the tests tell it: to the predictor that demand is what it forecast, five replicas; to KEDA's
own trigger two replicas, unless a test raises them, so that the two can be told apart.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

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

SYSTEM = "piqc"
NAME = "chat-8b"
MAXIMUM = 8
DEMAND, LOW, HIGH = 4.0, 1.4, 5.4
"""Replicas at 100 %: what the forecast knows; observed low: 1.4 / 0.80 = 1.75, two; observed high: 6.75, seven."""
POLICY = ScalingPolicy(min_replicas=1, max_replicas=MAXIMUM, down_window_seconds=5, period_seconds=15, down_pct=100)


@dataclass
class World:
    """The running whole."""

    kube: Kube
    namespace: str
    teller: Teller
    manifests: Path
    before: list[dict[str, Any]] = field(default_factory=list)
    """What `piqc diff` said before the manifests were applied."""

    def diff(self) -> list[dict[str, Any]]:
        """What `piqc diff` says of the written manifests."""
        piqc = Path(sys.executable).with_name("piqc")
        command = [piqc, "diff", self.manifests, "--kubeconfig", self.kube.kubeconfig, "--format", "json"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
        found: list[dict[str, Any]] = json.loads(done.stdout)
        assert done.returncode == (0 if all(row["state"] == "same" for row in found) else 1), done.stderr
        return found

    def observe(self, demand: float | None) -> None:
        """What Prometheus says to KEDA's trigger; None: the series is gone, for the predictor too."""
        key = f"{self.namespace}/{NAME}"
        figures = {} if demand is None else {"workload:gpu_demand:replicas": DEMAND}
        self.teller.tell(keda={} if demand is None else {key: demand}, demand={key: figures})

    def replicas(self) -> int:
        found = self.kube.run("-n", self.namespace, "get", "deploy", NAME, "-o", "jsonpath={.spec.replicas}")
        return int(found)

    def answer(self) -> dict[str, Any]:
        """What the predictor says; an empty object while nobody answers."""
        path = f"/api/v1/namespaces/{SYSTEM}/services/capacity-predictor:8080/proxy/v1/desired/{self.namespace}/{NAME}"
        text = self.kube.run("get", "--raw", path, check=False)
        return json.loads(text) if text.startswith("{") else {}

    def plan(self) -> int:
        return int(until(self.answer, lambda body: "desired_replicas" in body, 60, "the predictor")["desired_replicas"])

    def reach(self, wanted: int, seconds: float, what: str) -> None:
        until(self.replicas, lambda count: count == wanted, seconds, what)

    @contextmanager
    def never(self, below: int, above: int = MAXIMUM) -> Iterator[None]:
        """Watch the replicas all the while; they never leave the range."""
        seen: list[int] = []
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                seen.append(self.replicas())
                done.wait(0.5)

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
        assert below <= min(seen) and max(seen) <= above, f"replicas went {seen}, allowed {below} to {above}"

    def predictor(self, replicas: int) -> None:
        self.kube.run("-n", SYSTEM, "scale", "deploy/capacity-predictor", f"--replicas={replicas}")

    def impostor(self, **fake: Any) -> None:
        """Something else answers at the predictor's address; the predictor's pods, and connections to them, end."""
        self.teller.tell(fake=fake)
        self.predictor(0)
        body = service("capacity-predictor", "teller")
        self.kube.apply({**body, "spec": {**body["spec"], "selector": {"app": "impostor"}}}, namespace=SYSTEM)


@pytest.fixture(scope="module")
def world(kube: Kube, namespace: str, images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    workload = f"e2e/{namespace}/Deployment/{NAME}"
    now = datetime.now(UTC)
    teller = Teller(kube, namespace, images.predictor)
    world = World(kube, namespace, teller, folder / "manifests")
    world.observe(LOW)
    pod = restricted(images.pause, [], container={"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    kube.apply(deployment(NAME, 1, pod), namespace=namespace)
    artifact = trained(folder / "model", workload, DEMAND, now)
    kube.run("apply", "-k", str(overlay(folder / "rbac", "rbac")))
    publish_model(kube, SYSTEM, artifact)
    settings = [
        f"PIQC_PROMETHEUS_URL={teller.prometheus_url}",
        "PIQC_REFRESH_SECONDS=5",
        f"PIQC_MAX_REPLICAS={MAXIMUM}",
    ]
    generator = [
        {"name": "capacity-predictor-settings", "namespace": SYSTEM, "behavior": "merge", "literals": settings}
    ]
    images_entry = [image("capacity-predictor", images.predictor)]
    kube.run("apply", "-k", str(overlay(folder / "p", "predictor", configMapGenerator=generator, images=images_entry)))
    _impostor_pod(kube, teller, images)
    kube.rolled_out(SYSTEM, "deployment/capacity-predictor")
    forecast = load(artifact).workloads[workload]
    limits = ReplicaLimits(workload, 1, MAXIMUM, gpus_per_replica=1.0)
    plan = plan_workload(forecast, LOW, limits, POLICY, now)
    options = ManifestOptions(prometheus_url=teller.prometheus_url, server_version="v1.36.3", recording_rules=False)
    write_overlay(render([plan], POLICY, options), world.manifests)
    world.before = world.diff()
    kube.run("apply", "-k", str(world.manifests))
    yield world
    kube.run("-n", namespace, "delete", "scaledobject", "--all", check=False)
    for applied in ("p", "manifests"):
        kube.run("delete", "-k", str(folder / applied), "--ignore-not-found", "--wait=false", check=False)


def _impostor_pod(kube: Kube, teller: Teller, images: Images) -> None:
    """A proxy in the predictor's namespace that passes everything on to the teller (a Service selects its own pods)."""
    program = f"""
import urllib.request, urllib.error
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Pass(BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            with urllib.request.urlopen("{teller.url}" + self.path, timeout=5) as got:
                status, kind, body = got.status, got.headers["content-type"], got.read()
        except urllib.error.HTTPError as error:
            status, kind, body = error.code, "text/plain", error.read()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
ThreadingHTTPServer(("0.0.0.0", 8080), Pass).serve_forever()
"""
    kube.apply(deployment("impostor", 1, restricted(images.predictor, ["python3", "-c", program])), namespace=SYSTEM)
    kube.rolled_out(SYSTEM, "deployment/impostor")


@pytest.fixture(autouse=True)
def healthy(world: World) -> None:
    """Every test starts from a world in which all answer and replicas stand where the plan says."""
    world.teller.prometheus_exists(True)
    world.observe(LOW)
    body = service("capacity-predictor", "x")
    selector = {"app.kubernetes.io/name": "capacity-predictor"}
    world.kube.apply({**body, "spec": {**body["spec"], "selector": selector}}, namespace=SYSTEM)
    world.predictor(2)
    world.kube.rolled_out(SYSTEM, "deployment/capacity-predictor")
    # "Back to the plan within a minute of its return": plan and replicas agree again.
    until(lambda: (world.answer().get("desired_replicas"), world.replicas()), lambda two: two[0] == two[1], 60, "plan")


def test_replicas_reach_the_plan(world: World) -> None:
    body = world.answer()
    assert body["binding"] in ("fcq", "fc50") and body["live"] is True
    # Demand stays near 4.0: 4.0 / 0.90 = 4.4 at least, and one replica more where the quantile is above 4.5.
    assert body["desired_replicas"] in (5, 6) and world.replicas() == body["desired_replicas"]
    observed = 2  # 1.4 / 0.80
    assert world.replicas() > observed


def test_diff_equals_what_the_server_holds(world: World) -> None:
    names = [f"{world.namespace}/ScaledObject/{NAME}", f"{SYSTEM}/ConfigMap/capacity-predictor-limits"]
    assert [(row["name"], row["state"]) for row in world.before] == [(name, "missing") for name in names]
    assert [(row["name"], row["state"]) for row in world.diff()] == [(name, "same") for name in names]
    world.kube.run("diff", "-k", str(world.manifests))  # exits 1 on any difference
    patch = '{"spec": {"maxReplicaCount": 7}}'
    world.kube.run("-n", world.namespace, "patch", "scaledobject", NAME, "--type=merge", "-p", patch)
    row, unchanged = world.diff()
    assert unchanged["state"] == "same"
    assert row["changes"] == [{"path": "spec.maxReplicaCount", "live": 7, "written": MAXIMUM}]
    world.kube.run("apply", "-k", str(world.manifests))
    assert {row["state"] for row in world.diff()} == {"same"}


def test_live_demand_above_the_forecast_lifts_replicas_and_lets_them_down_again(world: World) -> None:
    world.observe(HIGH)
    world.reach(7, 60, "replicas for live demand of 5.4")
    world.observe(LOW)


@pytest.mark.parametrize(
    "fake",
    [
        {"status": 503, "body": '{"reason": "stale"}'},
        {"status": 200, "body": "<html>Sign in</html>", "type": "text/html"},
        {"status": 200, "body": '{"desired_replicas": null}'},
    ],
    ids=["stale", "html", "null"],
)
def test_no_number_holds_what_stands_and_live_demand_still_lifts_it(world: World, fake: dict[str, Any]) -> None:
    stands = world.replicas()
    with world.never(below=stands):
        world.impostor(**fake)
        world.observe(HIGH)
        world.reach(7, 90, "replicas for live demand while the predictor gives no number")


def test_negative_forecast_counts_as_none_and_live_demand_decides(world: World) -> None:
    with world.never(below=2):
        world.impostor(status=200, body='{"desired_replicas": -3}')
        world.reach(2, 90, "replicas for live demand alone")
        world.observe(HIGH)
        world.reach(7, 60, "replicas for raised live demand")


def test_absurd_forecast_stops_at_the_maximum(world: World) -> None:
    with world.never(below=2):
        world.impostor(status=200, body='{"desired_replicas": 1000000000000}')
        world.reach(MAXIMUM, 60, "the maximum")
        time.sleep(10)


def test_predictor_killed(world: World) -> None:
    stands = world.replicas()
    with world.never(below=stands):
        world.predictor(0)
        world.observe(HIGH)
        world.reach(7, 90, "replicas for live demand while the predictor is gone")


def test_prometheus_gone(world: World) -> None:
    stands = world.replicas()
    with world.never(below=stands):
        world.teller.prometheus_exists(False)
        until(world.answer, lambda body: body.get("demand_now") is None, 60, "the predictor without live demand")
        time.sleep(30)
    assert world.answer()["desired_replicas"] >= stands


def test_observed_series_gone(world: World) -> None:
    stands = world.replicas()
    with world.never(below=stands):
        world.observe(None)
        time.sleep(30)


def test_predictor_and_prometheus_both_gone(world: World) -> None:
    stands = world.replicas()
    with world.never(below=stands):
        world.predictor(0)
        world.teller.prometheus_exists(False)
        time.sleep(30)


def test_rolling_update_of_the_predictor_under_load_loses_no_request(world: World, images: Images) -> None:
    url = f"http://capacity-predictor.{SYSTEM}.svc.cluster.local:8080/v1/desired/{world.namespace}/{NAME}"
    program = f"""
import json, time, urllib.request
lost, sent, end = [], 0, time.monotonic() + 40
while time.monotonic() < end:
    started = time.monotonic()
    try:
        with urllib.request.urlopen("{url}", timeout=5) as got:
            json.load(got)["desired_replicas"]
    except Exception as error:
        lost.append(repr(error))
    sent += 1
    time.sleep(max(0, 1 / 45 - (time.monotonic() - started)))
print(json.dumps({{"sent": sent, "lost": lost}}))
"""
    pod = {**restricted(images.predictor, ["python3", "-c", program]), "restartPolicy": "Never"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "caller"}}
    job["spec"] = {"backoffLimit": 0, "template": {"spec": pod}}  # type: ignore[assignment]
    world.kube.apply(job, namespace=world.namespace)
    wait = ["-n", world.namespace, "wait", "pod", "-l", "job-name=caller", "--for=condition=Ready", "--timeout=60s"]
    until(lambda: world.kube.run(*wait, check=False), bool, 60, "the caller")
    world.kube.run("-n", SYSTEM, "rollout", "restart", "deploy/capacity-predictor")
    world.kube.rolled_out(SYSTEM, "deployment/capacity-predictor")
    world.kube.run("-n", world.namespace, "wait", "job/caller", "--for=condition=Complete", "--timeout=90s")
    told = json.loads(world.kube.run("-n", world.namespace, "logs", "job/caller"))
    assert told["lost"] == [] and told["sent"] > 500


def test_new_model_is_taken_by_the_running_pods(world: World, tmp_path: Path) -> None:
    before = world.answer()["model"]
    workload = f"e2e/{world.namespace}/Deployment/{NAME}"
    publish_model(world.kube, SYSTEM, trained(tmp_path, workload, DEMAND + 0.01, datetime.now(UTC)))
    # The kubelet brings a changed ConfigMap into the pod within about a minute and a half.
    until(world.answer, lambda body: body.get("model", before) != before, 150, "the new model")
