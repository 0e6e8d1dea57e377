"""How many requests a second does the predictor answer, how fast, from how much memory?

    python -m benchmarks.predictor --json

prints one JSON object: `rps` (16 connections), `p99_ms` (one connection), `rss_mib` (after a refresh that moved each
workload to live demand), `reference_rps`, `ratio`. The reference is what the specification would do: Prophet's
`predict` for one row on every request (no uncertainty samples, its fastest way), through the same server and the same
client in the same run. The load comes from wrk where it is installed, else from a raw asyncio client. Rounds of both
servers alternate and the best of each is taken: what another program takes from the machine is no property of ours.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

STEP_SECONDS = 300
DAYS = 14
CONNECTIONS = 16
ROUNDS = 5
PATH = "/predict?workload=inference/w0007&horizon=30m"


def make_artifact(folder: Path, workloads: int, now: datetime) -> bytes:
    """Train one real series, give its forecast to `workloads` names; returns the pickled Prophet model."""
    import numpy as np

    from piqc_pipeline.forecast.artifact import write_candidate
    from piqc_pipeline.forecast.policy import TrainPolicy
    from piqc_pipeline.forecast.series import DemandSeries
    from piqc_pipeline.forecast.train import train

    rows = DAYS * 86_400 // STEP_SECONDS
    rng, day = np.random.default_rng(1), np.arange(rows) * STEP_SECONDS / 86_400
    noise = np.convolve(rng.normal(0, 0.6, rows), np.ones(6) / 6, "same")
    demand = np.maximum(4 + 3 * np.sin(2 * np.pi * (day - 0.3)) + noise, 0.1)
    until = datetime.fromtimestamp(now.timestamp() // STEP_SECONDS * STEP_SECONDS - 2 * STEP_SECONDS, UTC)
    start = until - timedelta(seconds=STEP_SECONDS * rows)
    name = "bench/inference/Deployment/w0000"
    series = DemandSeries(name, start, STEP_SECONDS, demand, np.ceil(demand / 0.75), gpus_per_replica=2.0)
    candidate = train([series], until, TrainPolicy())
    one = candidate.workloads[name]
    if not one.accepted:
        raise SystemExit(f"the benchmark's forecast was not accepted: {one.reasons}")
    names = [f"bench/inference/Deployment/w{i:04d}" for i in range(workloads)]
    write_candidate(replace(candidate, workloads={key: replace(one, workload=key) for key in names}), folder)
    return candidate.prophet_models[name]


class FakePrometheus(BaseHTTPRequestHandler):
    """Says that every workload's demand is three replicas."""

    workloads = 0

    def do_GET(self) -> None:  # noqa: N802, D102 - the base class' name
        query = dict(part.split("=", 1) for part in self.path.split("?", 1)[1].split("&"))
        rows = []
        for i in range(self.workloads):
            metric = {"__name__": "workload:gpu_demand:replicas", "namespace": "inference", "workload": f"w{i:04d}"}
            if "start" in query:
                stamps = range(round(float(query["start"])), round(float(query["end"])) + 1, int(query["step"]))
                rows.append({"metric": metric, "values": [[at, "3"] for at in stamps]})
            else:
                rows.append({"metric": metric, "value": [float(query["time"]), "3"]})
        kind = "matrix" if "start" in query else "vector"
        body = json.dumps({"status": "success", "data": {"resultType": kind, "result": rows}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:  # noqa: D102 - the base class' name
        return None


def reference_server(port: int, model_file: Path) -> None:
    """Serve Prophet's predict on every request, through the predictor's own HTTP protocol."""
    import pandas as pd
    import uvicorn

    from piqc_pipeline.predictor import bounds

    logging.getLogger("cmdstanpy").setLevel(logging.ERROR)
    model = pickle.loads(model_file.read_bytes())
    model.uncertainty_samples = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        moment = datetime.now(UTC).replace(tzinfo=None) + timedelta(minutes=30)
        frame = model.predict(pd.DataFrame({"ds": [moment]}))
        body = json.dumps({"predicted_util": float(frame["yhat"].iloc[0])}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(app, port=port, http=bounds.BoundedProtocol, lifespan="off", access_log=False, log_level="error")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], url: str, environ: dict[str, str] | None = None) -> Iterator[int]:
    """A server process that answers 200 at `url`; yields its PID."""
    process = subprocess.Popen(command, env={**os.environ, **(environ or {})}, stderr=subprocess.PIPE)
    drain = Thread(target=lambda: process.stderr and process.stderr.read(), daemon=True)
    try:
        drain.start()
        for _ in range(1800):
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
                break
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} ended at its start with {process.returncode}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


async def _connection(port: int, end: float, latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = f"GET {PATH} HTTP/1.1\r\nhost: bench\r\n\r\n".encode()
    clock = time.perf_counter
    while (started := clock()) < end:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server answered {head[:60]!r}")
        await reader.readexactly(int(re.search(rb"content-length: (\d+)", head, re.I)[1]))  # type: ignore[index]
        latencies.append(clock() - started)
    writer.close()


def load(port: int, connections: int, seconds: float) -> tuple[float, float]:
    """Requests per second and the 99th percentile of latency in milliseconds."""
    if wrk := shutil.which("wrk"):
        command = [wrk, "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency", f"http://127.0.0.1:{port}{PATH}"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in text:
            raise SystemExit(f"the server refused requests:\n{text}")
        value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", text).groups()  # type: ignore[union-attr]
        rps = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])  # type: ignore[index]
        return rps, float(value) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
    latencies: list[float] = []

    async def all_connections() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(_connection(port, end, latencies) for _ in range(connections)))

    asyncio.run(all_connections())
    return len(latencies) / seconds, 1000 * sorted(latencies)[int(0.99 * (len(latencies) - 1))]


def resident_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def wait_until_live(port: int) -> None:
    """Until every workload follows live demand."""
    for _ in range(600):
        page = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/workloads", timeout=30))
        if all(row["status"] == "ok" for row in page["workloads"]):
            return
        time.sleep(0.5)
    raise SystemExit("the predictor did not move every workload to live demand within five minutes")


def measure(workloads: int, seconds: float) -> dict[str, float]:
    """Both servers, alternating."""
    with tempfile.TemporaryDirectory() as folder:
        model, artifact = Path(folder) / "model.pkl", Path(folder) / "artifact"
        model.write_bytes(make_artifact(artifact, workloads, datetime.now(UTC)))
        FakePrometheus.workloads = workloads
        prometheus = ThreadingHTTPServer(("127.0.0.1", 0), FakePrometheus)
        Thread(target=prometheus.serve_forever, daemon=True).start()
        ours, theirs = free_port(), free_port()
        piqc = str(Path(sys.executable).with_name("piqc"))
        serve = [piqc, "serve", "--artifact", str(artifact), "--port", str(ours)]
        reference = [sys.executable, "-m", "benchmarks.predictor", "--reference", str(theirs), str(model)]
        url = f"http://127.0.0.1:{prometheus.server_address[1]}"
        with (
            running(serve, f"http://127.0.0.1:{ours}/readyz", {"PIQC_PROMETHEUS_URL": url}) as pid,
            running(reference, f"http://127.0.0.1:{theirs}/"),
        ):
            wait_until_live(ours)
            rows = []
            for _ in range(ROUNDS):
                rps, _ = load(ours, CONNECTIONS, seconds)
                reference_rps, _ = load(theirs, CONNECTIONS, seconds)
                _, p99_ms = load(ours, 1, seconds)
                rows.append((rps, reference_rps, p99_ms))
            rss = resident_mib(pid)
        prometheus.shutdown()
    rps, reference_rps = max(row[0] for row in rows), max(row[1] for row in rows)
    return {
        "rps": round(rps, 1),
        "p99_ms": round(min(row[2] for row in rows), 3),
        "rss_mib": round(rss, 1),
        "reference_rps": round(reference_rps, 2),
        "ratio": round(rps / reference_rps, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--workloads", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one round")
    parser.add_argument("--reference", nargs=2, metavar=("PORT", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.getLogger("cmdstanpy").setLevel(logging.ERROR)
    if options.reference:
        reference_server(int(options.reference[0]), Path(options.reference[1]))
        return
    figures = measure(options.workloads, options.seconds)
    if options.json:
        print(json.dumps(figures))
        return
    print(
        f"{figures['rps']:.0f} requests/s on {CONNECTIONS} connections; Prophet per request {figures['reference_rps']}"
    )
    print(f"ratio {figures['ratio']}; p99 {figures['p99_ms']} ms on one; {figures['rss_mib']} MiB resident")


if __name__ == "__main__":
    main()
