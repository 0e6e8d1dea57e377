"""Does the forecast keep utilization in its band while a real HPA scales a real service? A working day, faster.

    python -m loadtest.closed_loop --kubeconfig THROWAWAY.kubeconfig [--speed 25] [--from-hour 6.5 --to-hour 14.5]

Two Deployments of `inference_service`, one device a replica, stand side by side on a throwaway cluster with KEDA and
the Prometheus operator. Locust drives both through the same hours. `predictive` has the ScaledObject that
`scaling.keda` writes for an accepted forecast, with the predictor behind it; `reactive` the one it writes without.
Every duration is divided by `--speed`: windows, scrapes, the forecast's steps, and `--lead` by a wait before a replica
serves. Set the HPA's sync period to 15 s / speed. Figures are those of the day: minutes and hours are multiplied back.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from loadtest.cluster_objects import container, deployment, prometheus
from loadtest.fast_predictor import faster
from loadtest.typical_day import rps_at
from piqc_pipeline.forecast.artifact import write_candidate
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.train import train
from piqc_pipeline.scaling.limits import ReplicaLimits
from piqc_pipeline.scaling.options import ManifestOptions
from piqc_pipeline.scaling.overlay import LIMITS_CONFIG_MAP, render, write_overlay
from piqc_pipeline.scaling.plan import plan_workload
from piqc_pipeline.scaling.policy import policy_from_settings
from piqc_pipeline.settings import load_settings

NAMESPACE = "closed-loop"
NAMES = ("predictive", "reactive")
STEP_SECONDS = 300
HISTORY_DAYS = 14
NOISE = 0.05
BAND, OVER = (0.70, 0.80), 0.90


@dataclass(frozen=True)
class Loop:
    """One run's numbers.

    Attributes:
        kubeconfig: Of the throwaway cluster.
        speed: How many times as fast the day passes.
        hours: First and last hour of the day.
        lead_seconds: Of the day: what a replica takes to serve.
        peak_rps: Requests per second at the day's height (14:00 to 17:00).
        service_seconds: What a request holds a device for.
        most: Most replicas of each.
        image: `inference` target of the Dockerfile.
        prometheus_image: A Prometheus 3.
    """

    kubeconfig: Path
    speed: float
    hours: tuple[float, float]
    lead_seconds: float
    peak_rps: float
    service_seconds: float
    most: int
    image: str
    prometheus_image: str

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """Runs kubectl on that cluster, never the user's own."""
        found = Path(sys.executable).with_name("kubectl")
        command = [str(found) if found.exists() else "kubectl", "--kubeconfig", str(self.kubeconfig), *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(f"kubectl {' '.join(args[:6])}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, objects: Sequence[dict[str, Any]], namespace: str | None = NAMESPACE) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        where = ["-n", namespace] if namespace else []
        self.kubectl(*where, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def real(self, seconds: float) -> float:
        """Seconds here for seconds of the day."""
        return seconds / self.speed


def demand_at(loop: Loop, hour: float) -> float:
    """Replicas at 100 % that the typical day needs at an hour."""
    return rps_at(hour, loop.peak_rps) * loop.service_seconds


def artifact(loop: Loop, midnight: datetime, folder: Path) -> Any:
    """Trained on two weeks of the typical day with noise, then laid onto the faster clock."""
    end = datetime(2025, 1, 20, tzinfo=UTC)
    rows = HISTORY_DAYS * 86_400 // STEP_SECONDS
    hours = (np.arange(rows) + 0.5) * STEP_SECONDS / 3600
    noise = 1 + NOISE * np.random.default_rng(7).standard_normal(rows)
    demand = np.array([demand_at(loop, float(hour)) for hour in hours]) * noise
    workload = f"loadtest/{NAMESPACE}/Deployment/predictive"
    series = DemandSeries(
        workload, end - timedelta(days=HISTORY_DAYS), STEP_SECONDS, demand, np.ceil(demand / 0.8), gpus_per_replica=1.0
    )
    candidate = train([series], end, TrainPolicy(with_prophet=False, lead_seconds=round(loop.lead_seconds)))
    made = candidate.workloads[workload]
    if not made.accepted:
        raise SystemExit(f"the forecast was not accepted: {made.reasons}")
    step = round(loop.real(STEP_SECONDS))
    moved = replace(
        made,
        issued_at=midnight,
        data_until=midnight,
        valid_until=midnight + timedelta(seconds=loop.real(36 * 3600)),
        step_seconds=step,
        lead_seconds=round(loop.real(loop.lead_seconds)),
        table=replace(made.table, start=midnight, step_seconds=step),
    )
    write_candidate(replace(candidate, workloads={workload: moved}), folder)
    return moved


def install(loop: Loop, folder: Path, midnight: datetime) -> None:
    """Everything but the load; returns when all of it is ready."""
    loop.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true")
    loop.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}], None)
    forecast = artifact(loop, midnight, folder / "model")
    files = [f"--from-file={folder / 'model' / name}" for name in ("predictor.json", "predictor.json.sha256")]
    loop.kubectl("-n", NAMESPACE, "create", "configmap", "model", *files)
    settings = load_settings(max_replicas=loop.most, lead_time_seconds=loop.lead_seconds)
    policy = faster(policy_from_settings(settings), loop.speed)
    options = ManifestOptions(
        predictor_url=f"http://predictor.{NAMESPACE}.svc.cluster.local:8080",
        prometheus_url=f"http://prometheus-operated.{NAMESPACE}.svc.cluster.local:9090",
        server_version="v1.36.3",
        honor_labels=True,
    )
    now, plans = datetime.now(UTC), []
    for name in NAMES:
        limits = ReplicaLimits(f"loadtest/{NAMESPACE}/Deployment/{name}", 1, loop.most, gpus_per_replica=1.0)
        known = forecast if name == "predictive" else None
        plans.append(plan_workload(known, demand_at(loop, loop.hours[0]), limits, policy, now))
    files_of = render(plans, policy, options)
    rules = files_of["recording-rules.yaml"].replace("[2m]", "[5s]").replace("interval: 30s", "interval: 1s")
    write_overlay(files_of | {"recording-rules.yaml": rules}, folder / "manifests")
    loop.apply([*prometheus(NAMESPACE, loop.prometheus_image, "1s"), _pod_monitor(), *_services(loop)])
    for name in (*NAMES, "predictor"):
        loop.kubectl("-n", NAMESPACE, "rollout", "status", f"deploy/{name}", "--timeout=240s")
    loop.kubectl("-n", NAMESPACE, "wait", "prometheus/k8s", "--for=condition=Available", "--timeout=180s")
    loop.kubectl("apply", "-k", str(folder / "manifests"))


def _pod_monitor() -> dict[str, Any]:
    endpoint = {"port": "http", "path": "/metrics", "interval": "1s", "scrapeTimeout": "1s"}
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(NAMES)}]}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "inference"},
        "spec": {"selector": selector, "podMetricsEndpoints": [endpoint]},
    }


def _services(loop: Loop) -> list[dict[str, Any]]:
    first = max(1, int(np.ceil(demand_at(loop, loop.hours[0]) / 0.8)))
    serve = ["python3", "-m", "loadtest.inference_service", "--host", "0.0.0.0", "--window-seconds", "1"]
    serve += ["--service-seconds", str(loop.service_seconds), "--load-seconds", f"{loop.real(loop.lead_seconds):g}"]
    found = []
    for name in NAMES:
        main = container(loop.image, serve, health="/health", resources={"limits": {"nvidia.com/gpu": "1"}})
        found += deployment(name, first, main, 9000, terminationGracePeriodSeconds=10)
    predict = ["python3", "-m", "loadtest.fast_predictor", "--artifact", "/model", "--limits", "/limits/limits.json"]
    main = container(loop.image, [*predict, "--speed", f"{loop.speed:g}"], health="/readyz")
    main["env"] = [
        {"name": "PIQC_MAX_REPLICAS", "value": str(loop.most)},
        {"name": "PIQC_LEAD_TIME_SECONDS", "value": f"{loop.lead_seconds:g}"},
    ]
    main["volumeMounts"] = [{"name": "model", "mountPath": "/model"}, {"name": "limits", "mountPath": "/limits"}]
    volumes = [
        {"name": "model", "configMap": {"name": "model"}},
        {"name": "limits", "configMap": {"name": LIMITS_CONFIG_MAP, "optional": True}},
    ]
    return found + deployment("predictor", 1, main, 8080, volumes=volumes)


def drive(loop: Loop, folder: Path) -> dict[str, Any]:
    """Both Deployments through the same hours; what Locust says of each."""
    root = Path(__file__).parents[1]
    running = {}
    for name in NAMES:
        address = loop.kubectl("-n", NAMESPACE, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}")
        command = [str(Path(sys.executable).with_name("locust")), "-f", str(root / "loadtest" / "locustfile.py")]
        command += ["--headless", "--host", f"http://{address}:9000", "--json", "--skip-log", "--tokens", "1"]
        command += ["--day-seconds", f"{loop.real(86_400):g}", "--peak-rps", f"{loop.peak_rps:g}"]
        command += ["--from-hour", f"{loop.hours[0]:g}", "--to-hour", f"{loop.hours[1]:g}"]
        with (folder / f"{name}.json").open("w") as out:
            running[name] = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, cwd=root)
    for process in running.values():
        process.wait()
    return {name: json.loads((folder / f"{name}.json").read_text())[0] for name in NAMES}


def measured(loop: Loop, begin: float, end: float, text: str) -> np.ndarray:
    """One value a second of a PromQL query over the run; NaN where it has none."""
    base = f"/api/v1/namespaces/{NAMESPACE}/services/prometheus-operated:9090/proxy/api/v1/query_range"
    path = f"{base}?query={quote(text, safe='')}&start={begin:.0f}&end={end:.0f}&step=1"
    (series,) = json.loads(loop.kubectl("get", "--raw", path))["data"]["result"] or [{"values": []}]
    found = np.full(int(end) - int(begin) + 1, np.nan)
    for at, value in series["values"]:
        found[int(at) - int(begin)] = float(value)
    return found


def scores(loop: Loop, name: str, begin: float, end: float, said: dict[str, Any]) -> dict[str, float | None]:
    """The acceptance rules' figures in minutes and hours of the day."""
    pods = f'{{namespace="{NAMESPACE}",pod=~"{name}-.*"}}'
    busy = measured(loop, begin, end, f"sum(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pods})")
    serving = measured(loop, begin, end, f"count(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pods})")
    asked = measured(loop, begin, end, f"count(up{pods})")  # pods that have an address, those that still load included
    width = max(1, round(loop.real(300)))
    whole = len(busy) // width * width
    fives = np.nanmean((busy / serving)[:whole].reshape(-1, width), axis=1)
    demand = np.array([demand_at(loop, loop.hours[0] + at * loop.speed / 3600) for at in range(len(busy))])
    least = np.ceil(demand / BAND[1] - 1e-9)
    requests = int(said["num_requests"])
    times = {int(float(key)): int(count) for key, count in said["response_times"].items()}
    slow = sum(count for key, count in times.items() if key > 1000 * 10 * loop.service_seconds)
    return {
        "gpu_hours": round(float(np.nansum(asked)) * loop.speed / 3600, 2),
        "highest_replicas": float(np.nanmax(asked)),
        "minutes_over_90_by_5_minute_means": 5 * int((fives > OVER).sum()),
        "in_band_share": round(float(((fives >= BAND[0]) & (fives <= BAND[1])).mean()), 3),
        "in_band_achievable_share": round(float((demand / least >= BAND[0]).mean()), 3),
        "mean_utilization": round(float(np.nansum(busy) / np.nansum(serving)), 3),
        "requests": requests,
        "failed_requests": int(said["num_failures"]),
        "slow_requests_share": round(slow / max(1, requests), 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of a cluster that you can throw away")
    parser.add_argument("--speed", type=float, default=25.0, help="a day takes 86,400 s / speed (default: 58 min)")
    parser.add_argument("--from-hour", type=float, default=6.5)
    parser.add_argument("--to-hour", type=float, default=14.5)
    parser.add_argument("--lead", type=float, default=600.0, help="seconds of the day until a replica serves")
    parser.add_argument("--peak-rps", type=float, default=40.0)
    parser.add_argument("--service-seconds", type=float, default=0.125)
    parser.add_argument("--max-replicas", type=int, default=8)
    parser.add_argument("--image", default="localhost/inference:dev")
    parser.add_argument("--prometheus-image", default="localhost/prometheus:v3")
    given = parser.parse_args()
    hours = (given.from_hour, given.to_hour)
    loop = Loop(
        given.kubeconfig, given.speed, hours, given.lead, given.peak_rps, given.service_seconds, given.max_replicas,
        given.image, given.prometheus_image,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ready_after = 150.0
        begin = time.time() + ready_after
        install(loop, folder, datetime.fromtimestamp(begin - loop.real(hours[0] * 3600), UTC))
        time.sleep(max(0.0, begin - time.time()))
        begin = time.time()
        said = drive(loop, folder)
        end = time.time()
        found = {name: scores(loop, name, begin, end, said[name]) for name in NAMES}
    sys.stdout.write(
        json.dumps({"speed": loop.speed, "hours": hours, "lead_seconds": loop.lead_seconds, **found}, indent=2) + "\n"
    )
    loop.kubectl("-n", NAMESPACE, "delete", "scaledobject", "--all")
    loop.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    return 0


if __name__ == "__main__":
    sys.exit(main())
