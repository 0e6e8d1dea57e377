"""A pod that says what it is told: any metrics-api value, a Prometheus, a predictor. State is a file that tests write.

Runs in the cluster on the standard library alone; `program()` is its source.
"""

import json
from typing import Any

from piqc_pipeline_tests.e2e.kube import Kube, deployment, restricted, service, until

PROGRAM = r"""
import json, math, re, time, urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def state():
    try:
        with open("/state/state.json") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}

def series(demand):
    rows = []
    for key, figures in demand.items():
        namespace, name = key.split("/")
        for rule, value in figures.items():
            metric = {"__name__": rule, "namespace": namespace, "workload": name}
            rows.append((metric, value))
    return rows

class Teller(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        now = state()
        if url.path == "/state":
            return self.say(200, now)
        if url.path == "/metrics":
            return self.say(200, now.get("metrics", ""), "text/plain; version=0.0.4")
        if url.path.startswith("/value/"):
            value = now.get("values", {}).get(url.path.removeprefix("/value/"))
            return self.say(503, {"detail": "told to fail"}) if value == "error" else self.say(200, {"value": value})
        if url.path.startswith("/v1/desired/"):
            fake = now.get("fake", {"status": 503, "body": "{}"})
            return self.say(fake["status"], fake["body"], fake.get("type", "application/json"))
        if url.path.startswith("/api/v1/query"):
            if now.get("gone"):
                self.close_connection = True  # who kept a connection open loses it
                return None
            return self.prometheus(now.get("demand", {}), query)
        self.say(404, {"detail": "no such path"})

    do_POST = do_GET

    def prometheus(self, demand, query):
        text = query.get("query", "")
        if "start" in query:
            stamps = range(int(float(query["start"])), int(float(query["end"])) + 1, int(float(query["step"])))
            rows = [{"metric": m, "values": [[at, str(v)] for at in stamps]} for m, v in series(demand)
                    if m["__name__"] == "workload:gpu_demand:replicas"]
            return self.answer("matrix", rows)
        at = time.time()
        wanted = re.search(r'namespace="([^"]+)",workload="([^"]+)"', text)
        if wanted:
            found = state().get("keda", {}).get("/".join(wanted.groups()))
            share = float(re.search(r"/ ?([0-9.]+)", text)[1])
            value = None if found is None else math.ceil(found / share - 1e-9)
            rows = [] if value is None else [{"metric": {}, "value": [at, str(value)]}]
            return self.answer("vector", rows)
        rows = [{"metric": m, "value": [at, str(v)]} for m, v in series(demand)
                if text.startswith("{") or m["__name__"] == "workload:gpu_demand:replicas"]
        self.answer("vector", rows)

    def answer(self, kind, rows):
        self.say(200, {"status": "success", "data": {"resultType": kind, "result": rows}})

    def say(self, status, body, kind="application/json"):
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args):
        pass

ThreadingHTTPServer(("0.0.0.0", 8080), Teller).serve_forever()
"""

WRITE = """
import os, sys
with open("/state/new", "w") as file:
    file.write(sys.stdin.read())
os.replace("/state/new", "/state/state.json")
print("told")
"""


class Teller:
    """The pod, its Services and its state."""

    def __init__(self, kube: Kube, namespace: str, image: str) -> None:
        self.kube, self.namespace, self.state = kube, namespace, {}
        self.state: dict[str, Any]
        pod = restricted(image, ["python3", "/program/teller.py"], volumes=[])
        pod["containers"][0]["volumeMounts"] = [
            {"name": "program", "mountPath": "/program"},
            {"name": "state", "mountPath": "/state"},
        ]
        pod["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/state", "port": 8080}, "periodSeconds": 1}
        pod["volumes"] = [{"name": "program", "configMap": {"name": "teller"}}, {"name": "state", "emptyDir": {}}]
        kube.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "teller"},
                "data": {"teller.py": PROGRAM},
            },
            deployment("teller", 1, pod),
            service("teller", "teller"),
            service("prometheus", "teller"),
            namespace=namespace,
        )
        kube.rolled_out(namespace, "deployment/teller")

    @property
    def url(self) -> str:
        return f"http://teller.{self.namespace}.svc.cluster.local:8080"

    @property
    def prometheus_url(self) -> str:
        return f"http://prometheus.{self.namespace}.svc.cluster.local:8080"

    def tell(self, **state: Any) -> None:
        """Change parts of the state; returns once the pod says so."""
        self.state |= state
        command = ["-n", self.namespace, "exec", "-i", "deploy/teller", "--", "python3", "-c", WRITE]
        until(
            lambda: self.kube.run(*command, stdin=json.dumps(self.state), check=False).strip(),
            lambda said: said == "told",
            30,
            "telling the teller",
        )

    def prometheus_exists(self, exists: bool) -> None:
        """Point the Service named prometheus at the pod, or at nothing; connections that are kept open end."""
        self.kube.apply(service("prometheus", "teller" if exists else "nobody"), namespace=self.namespace)
        self.tell(gone=not exists)
