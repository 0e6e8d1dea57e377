"""Does the shipped pod with Dagster start, load the pipeline and keep its daemons alive?

The claim is created as shipped; the pod gets an emptyDir in its place, since a throwaway cluster need not have storage.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from piqc_pipeline_tests.e2e.conftest import Images
from piqc_pipeline_tests.e2e.kube import Kube, until
from piqc_pipeline_tests.e2e.shipped import image, overlay

pytestmark = pytest.mark.e2e

SYSTEM = "piqc"


@pytest.fixture(scope="module")
def dagster(kube: Kube, images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    folder = tmp_path_factory.mktemp("dagster")
    in_memory = {"op": "replace", "path": "/spec/template/spec/volumes/0", "value": {"name": "data", "emptyDir": {}}}
    patch = {"target": {"kind": "Deployment", "name": "piqc-dagster"}, "patch": json.dumps([in_memory])}
    kube.run("apply", "-k", str(overlay(folder / "rbac", "rbac")))
    shipped = overlay(folder / "dagster", "dagster", images=[image("piqc", images.piqc)], patches=[patch])
    kube.run("apply", "-k", str(shipped))
    kube.rolled_out(SYSTEM, "deployment/piqc-dagster", 240)
    yield kube
    kube.run("delete", "-k", str(shipped), "--ignore-not-found", "--wait=true", check=False)


def ask(kube: Kube, query: str) -> dict[str, Any]:
    path = f"/api/v1/namespaces/{SYSTEM}/services/piqc-dagster:3000/proxy/graphql?query={quote(query, safe='')}"
    text = kube.run("get", "--raw", path, check=False)
    found: dict[str, Any] = json.loads(text).get("data") or {} if text.startswith("{") else {}
    return found


def test_the_webserver_shows_the_asset_graph(dagster: Kube) -> None:
    query = "{assetNodes {assetKey {path}}}"
    found = until(lambda: ask(dagster, query), lambda data: bool(data.get("assetNodes")), 120, "the code location")
    keys = {node["assetKey"]["path"][-1] for node in found["assetNodes"]}
    assert {"cluster_snapshot", "gpu_utilization", "demand_model", "keda_manifests", "capacity_report"} <= keys


def test_the_daemons_of_schedules_and_runs_are_alive(dagster: Kube) -> None:
    query = "{instance {daemonHealth {allDaemonStatuses {daemonType required healthy}}}}"

    def unhealthy() -> list[str] | None:
        statuses = ask(dagster, query).get("instance", {}).get("daemonHealth", {}).get("allDaemonStatuses")
        return (
            None
            if statuses is None
            else [one["daemonType"] for one in statuses if one["required"] and not one["healthy"]]
        )

    until(unhealthy, lambda names: names == [], 120, "healthy daemons", pause=3)
    assert (
        dagster.run("-n", SYSTEM, "get", "pvc", "piqc-data", "-o", "jsonpath={.spec.accessModes[0]}") == "ReadWriteOnce"
    )
