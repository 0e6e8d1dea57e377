"""Does a scan say the same from outside, as the shipped Job, and from a recording; and what does exec add?"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from piqc_pipeline_tests.e2e.conftest import Images
from piqc_pipeline_tests.e2e.kube import Kube, deployment, restricted, until
from piqc_pipeline_tests.e2e.shipped import image, overlay

pytestmark = pytest.mark.e2e

CLUSTER = "e2e"
SYSTEM = "piqc"
KINDS = "nodes,pods,deployments,replicasets,statefulsets,daemonsets,jobs,cronjobs,services,hpa,scaledobjects"
NVIDIA_SMI = """#!/bin/sh
# Stands in for the driver's tool: one L4 a pod, busy 40 % of the time.
echo "0, GPU-$(hostname | cksum | cut -d ' ' -f 1), NVIDIA L4, [N/A], 23034, 18000, 40, 20, 55, 60.5, 72.0"
"""
Report = dict[str, Any]


@pytest.fixture(scope="module")
def state(kube: Kube, namespace: str, images: Images) -> Iterator[str]:
    """Two replicas with a stand-in nvidia-smi, a StatefulSet without one, and a pod that asks for too much."""
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    tool = {"name": "tool", "mountPath": "/usr/local/bin/nvidia-smi", "subPath": "nvidia-smi"}
    idle = ["python3", "-c", "import time; time.sleep(1e6)"]
    chat = restricted(images.predictor, idle, container={**gpu, "volumeMounts": [tool]})
    chat["volumes"] = [{"name": "tool", "configMap": {"name": "tool", "defaultMode": 0o755}}]
    greedy = restricted(images.pause, [], container={"resources": {"limits": {"nvidia.com/gpu": "16"}}})
    stateful = deployment("embed", 1, restricted(images.pause, [], container=gpu))
    stateful |= {"kind": "StatefulSet"}
    stateful["spec"]["serviceName"] = "embed"
    tools = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tool"}, "data": {"nvidia-smi": NVIDIA_SMI}}
    kube.apply(tools, deployment("chat", 2, chat), stateful, namespace=namespace)
    kube.rolled_out(namespace, "deployment/chat")
    kube.rolled_out(namespace, "statefulset/embed")
    # Only now: it asks for the whole node, and would get it if it came first.
    kube.apply(deployment("greedy", 1, greedy), namespace=namespace)
    until(lambda: kube.get("pods", "-n", namespace)["items"], lambda pods: len(pods) == 4, 60, "the greedy pod")
    _still(kube)
    yield namespace


def _still(kube: Kube) -> None:
    """Wait until no pod anywhere is on its way up or down, so that two scans can see the same.

    Pods of a namespace that is being deleted may not know yet.
    """

    def moving() -> list[str]:
        leaving = [
            one["metadata"]["name"] for one in kube.get("namespaces")["items"] if one["status"]["phase"] != "Active"
        ]
        pods = kube.get("pods", "-A")["items"]
        return leaving + [
            pod["metadata"]["name"]
            for pod in pods
            if pod["metadata"].get("deletionTimestamp")
            or (pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending")
        ]

    until(moving, lambda names: not names, 240, "pods at rest")


def scan(*options: str) -> Report:
    piqc = Path(sys.executable).with_name("piqc")
    command = [str(piqc), "scan", "--format", "json", "--cluster-name", CLUSTER, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report: Report = json.loads(done.stdout)
    return report


def job(kube: Kube, folder: Path, images: Images, *options: str) -> Report:
    """Run the shipped Job and read its log."""
    arguments = json.dumps(["scan", "--format", "json", "--cluster-name", CLUSTER, *options])
    patch = f'[{{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": {arguments}}}]'
    patches = [{"target": {"kind": "Job"}, "patch": patch}]
    kube.run("-n", SYSTEM, "delete", "job", "piqc-scan", "--ignore-not-found")
    kube.run("apply", "-k", str(overlay(folder, "scan", images=[image("piqc", images.piqc)], patches=patches)))
    kube.run("-n", SYSTEM, "wait", "job/piqc-scan", "--for=condition=Complete", "--timeout=150s")
    report: Report = json.loads(kube.run("-n", SYSTEM, "logs", "job/piqc-scan"))
    kube.run("-n", SYSTEM, "delete", "job", "piqc-scan")
    return report


def stable(report: Report, namespace: str) -> Report:
    """What two scans of one state must agree on: all but ages, and the words for what is unknown."""
    workloads = [
        {key: value for key, value in row.items() if key not in ("ageHours", "unknown")}
        for row in report["workloads"]
        if row["namespace"] == namespace
    ]
    pending = [{**row, "waitingHours": None} for row in report["pending"] if row["namespace"] == namespace]
    return {"workloads": workloads, "pending": pending, "capacity": report["capacity"], "summary": report["summary"]}


def test_outside_job_and_recording_agree(kube: Kube, state: str, images: Images, tmp_path: Path) -> None:
    kube.run("apply", "-k", str(overlay(tmp_path / "rbac", "rbac")))
    outside = stable(scan("--kubeconfig", str(kube.kubeconfig), "--no-exec"), state)
    dump = tmp_path / "cluster.json"
    dump.write_text(kube.run("get", KINDS, "-A", "-o", "json"))
    assert stable(scan("--from-dump", str(dump), "--no-exec"), state) == outside
    inside = job(kube, tmp_path / "job", images, "--no-exec", "--no-collect-runtime")
    assert stable(inside, state) == outside
    by_name = {row["name"]: row for row in outside["workloads"]}
    assert (by_name["chat"]["replicas"], by_name["chat"]["acceleratorCount"]) == (2, 2)
    assert (by_name["embed"]["kind"], by_name["embed"]["acceleratorCount"]) == ("StatefulSet", 1)
    assert by_name["chat"]["utilizationPct"] is None
    (waiting,) = outside["pending"]
    assert waiting["accelerators"] == 16 and waiting["waitsForAccelerators"] is True


def test_exec_reads_the_stand_in_from_outside_and_inside_once_granted(
    kube: Kube, state: str, images: Images, tmp_path: Path
) -> None:
    outside = stable(scan("--kubeconfig", str(kube.kubeconfig)), state)
    chat = next(row for row in outside["workloads"] if row["name"] == "chat")
    assert (chat["utilizationPct"], chat["utilizationDevices"], chat["utilizationSource"]) == (40, 2, "exec")
    for role in ("exec", "pods-proxy"):
        kube.run("apply", "-k", str(overlay(tmp_path / role, f"rbac/{role}")))
    try:
        assert stable(job(kube, tmp_path / "job", images), state) == outside
    finally:
        for role in ("exec", "pods-proxy"):
            kube.run("delete", "-k", str(tmp_path / role))


def test_shipped_service_account_can_read_and_do_nothing_else(kube: Kube, state: str, tmp_path: Path) -> None:
    kube.run("apply", "-k", str(overlay(tmp_path / "rbac", "rbac")))
    who = f"--as=system:serviceaccount:{SYSTEM}:piqc-scan"

    def may(*what: str) -> bool:
        return kube.run("auth", "can-i", *what, "-n", state, who, check=False).strip() == "yes"

    assert may("list", "pods") and may("list", "nodes") and may("list", "deployments.apps")
    for forbidden in (("get", "secrets"), ("create", "pods/exec"), ("delete", "pods"), ("patch", "deployments.apps")):
        assert not may(*forbidden), forbidden
