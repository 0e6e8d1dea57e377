"""How do the end-to-end tests talk to the throwaway cluster? kubectl on its own kubeconfig, never the user's."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from piqc_pipeline_tests.k8s.rendering import kubectl

T = TypeVar("T")


class Kube:
    """kubectl against one kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def run(self, *args: str, stdin: str | None = None, check: bool = True, timeout: float = 180) -> str:
        command = [kubectl(), "--kubeconfig", str(self.kubeconfig), *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: dict[str, Any], namespace: str | None = None) -> None:
        where = ["-n", namespace] if namespace else []
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.run(*where, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def get(self, *args: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("get", *args, "-o", "json"))
        return found

    def new_namespace(self, name: str, **labels: str) -> None:
        self.run("delete", "namespace", name, "--ignore-not-found", "--wait=true")
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def drop_namespace(self, name: str) -> None:
        self.run("delete", "namespace", name, "--ignore-not-found", "--wait=false", check=False)

    def rolled_out(self, namespace: str, what: str, seconds: int = 180) -> None:
        self.run("-n", namespace, "rollout", "status", what, f"--timeout={seconds}s", timeout=seconds + 20)


def until(look: Callable[[], T], good: Callable[[T], bool], seconds: float, what: str, pause: float = 1.0) -> T:
    """Look again and again until it is good; the last sight is in the failure's message."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if good(seen):
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds:.0f} s; last seen {seen!r}")
        time.sleep(pause)


def restricted(image: str, command: list[str], name: str = "main", **more: Any) -> dict[str, Any]:
    """A pod spec of one container that passes the restricted level."""
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **({"command": command} if command else {}),
        **more.pop("container", {}),
    }
    context = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"securityContext": context, "terminationGracePeriodSeconds": 1, "containers": [container], **more}


def deployment(name: str, replicas: int, pod: dict[str, Any], **labels: str) -> dict[str, Any]:
    """A Deployment of a pod spec."""
    own = {"app": name, **labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": own},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": own}, "spec": pod},
        },
    }


def service(name: str, app: str, port: int = 8080) -> dict[str, Any]:
    """A Service in front of the pods labeled `app`."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": [{"port": port, "targetPort": 8080}]},
    }
