"""The lists of a scan of a small API server on loopback: whole, and with everything that can go wrong with one."""

import json
import time
from pathlib import Path

import pytest

from piqc_pipeline.cluster import read_live
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.errors import ClusterUnreachable, CredentialsRefused, UsageError
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Fault, Script
from piqc_pipeline_tests.cluster.clusters import NOW, container, controller, pod, pods, smi
from piqc_pipeline_tests.cluster.scanning import PAGE, failures, held, live


def test_a_whole_cluster_is_read(api: ApiServerDouble, tmp_path: Path) -> None:
    for name in ("llm-abc-0", "llm-abc-1"):
        pages = {"8000/metrics": (200, PAGE), "8000/health": (200, "")}
        api.scripts[f"inference/{name}"] = Script({"nvidia-smi": (smi(*[("H100", 40)] * 4), "", 0)}, pages)
    snapshot = live(api, tmp_path)
    assert (snapshot.cluster, snapshot.context, snapshot.server_version) == ("c", "here", "v1.31.0")
    assert [w.id for w in snapshot.workloads] == ["c/inference/Deployment/llm"]
    assert held(snapshot) == 8 and not snapshot.read_failed
    assert {r.utilization_pct for p in pods(snapshot).values() for r in p.readings} == {40.0}
    runtime = snapshot.workloads[0].runtime
    assert runtime is not None and (runtime.source, runtime.requests_running) == ("proxy", 6.0)
    assert runtime.generation_tokens_per_second == 100.0


def test_lists_are_read_page_by_page_and_once(api: ApiServerDouble, tmp_path: Path) -> None:
    api.page_size = 1
    assert held(live(api, tmp_path, allow_exec=False, collect_runtime=False)) == 8
    assert api.count(r"^/api/v1/nodes") == 2 and api.count(r"^/api/v1/pods") == 2
    assert api.count("limit=500") == api.count("limit=") > 0


def test_a_list_that_expires_begins_again(api: ApiServerDouble, tmp_path: Path) -> None:
    api.page_size, api.expire_tokens = 1, 2
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert held(snapshot) == 8 and len(snapshot.nodes or ()) == 2 and not failures(snapshot)


def test_an_empty_page_before_the_end_drops_nothing_that_was_read(api: ApiServerDouble, tmp_path: Path) -> None:
    # Kubernetes API, `limit`: a page may have "zero items in the event all requested objects are filtered out".
    api.page_size, api.hollow_pages = 1, 3
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert held(snapshot) == 8 and len(snapshot.nodes or ()) == 2 and not failures(snapshot)


def test_no_exec_makes_no_exec_at_all(api: ApiServerDouble, tmp_path: Path) -> None:
    snapshot = live(api, tmp_path, allow_exec=False)
    assert api.commands == []
    assert "exec is switched off" in pods(snapshot)["llm-abc-0"].unknown[0].why


def test_dry_run_touches_no_cluster(api: ApiServerDouble, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dry-run touches no cluster"):
        live(api, tmp_path, mode="dry-run")
    assert api.seen == []


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault(r"^/api/v1/nodes", 403), "forbidden"),
        (Fault(r"^/api/v1/nodes", 500), "answered 500"),
        (Fault(r"^/api/v1/nodes", 410), "410"),
        (Fault(r"^/api/v1/nodes", body="<html>proxy error</html>"), "HTML: a proxy is in between"),
        (Fault(r"^/api/v1/nodes", body='{"items": ['), "cut off"),
        (Fault(r"^/api/v1/nodes", body='{"items": 3}'), "no list"),
        (Fault(r"^/api/v1/nodes", reset=True), "closed before an answer"),
        (Fault(r"^/api/v1/nodes", 429), "slow down"),
    ],
    ids=["403", "500", "410", "HTML", "cut off", "no list", "reset", "429"],
)
def test_nodes_that_cannot_be_read_are_unknown_and_the_rest_is_reported(
    api: ApiServerDouble, tmp_path: Path, fault: Fault, why: str
) -> None:
    api.faults = [fault]
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert snapshot.nodes is None and len(snapshot.workloads) == 1
    (entry,) = failures(snapshot)
    assert entry.what.startswith("nodes") and why in entry.why


@pytest.mark.parametrize(
    "fault", [Fault(r"^/api/v1/pods", 500), Fault(r"^/api/v1/pods", reset=True)], ids=["500", "reset"]
)
def test_pods_that_cannot_be_read_make_placement_unknown(api: ApiServerDouble, tmp_path: Path, fault: Fault) -> None:
    api.faults = [fault]
    snapshot = live(api, tmp_path)
    assert snapshot.pods is None and snapshot.workloads == () and snapshot.read_failed
    assert len(snapshot.nodes or ()) == 2


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(
            '{"kind":"Status","status":"Failure","code":403}', "with Status and no list", id="a failure as 200"
        ),
        pytest.param("{}", "with something and no list", id="an empty object"),
        pytest.param('{"items":' + "[" * 5000 + "]" * 5000 + "}", "nested deeper", id="nested without end"),
        pytest.param('{"items":[],"metadata":{"continue":"again"}}', "again and again", id="one page for ever"),
        pytest.param('{"items":[{"metadata"', "cut off", id="cut off"),
    ],
)
def test_an_answer_that_is_no_list_is_a_failed_read_and_not_an_empty_one(
    api: ApiServerDouble, tmp_path: Path, body: str, why: str
) -> None:
    api.faults = [Fault(r"^/api/v1/nodes", body=body)]
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert snapshot.nodes is None
    assert [entry.why for entry in failures(snapshot) if entry.what.startswith("nodes:") and why in entry.why]


def test_an_empty_list_may_be_null(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/nodes", body='{"kind":"NodeList","items":null}')]
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert snapshot.nodes == () and not snapshot.read_failed


def test_objects_of_odd_types_are_told_and_no_gpu_is_called_free(api: ApiServerDouble, tmp_path: Path) -> None:
    body = json.dumps({"items": [1, None, {"metadata": {"name": 5}, "spec": "x"}, *api.of("Pod", None)]})
    api.faults = [Fault(r"^/api/v1/pods", body=body)]
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert held(snapshot) == 8 and snapshot.unread_namespaces == ("*",)
    assert [entry.what for entry in failures(snapshot)] == ["3 of the pods: workloads, and which accelerators are free"]


def test_nodes_of_which_none_can_be_read_are_unknown_and_not_none(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/nodes", body='{"items":[1,{"metadata":{"name":5}}]}')]
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert snapshot.nodes is None and failures(snapshot)[0].what.startswith("2 of the nodes")


def test_a_server_that_asks_to_slow_down_is_asked_again_when_it_said(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/pods", 429, times=1, retry_after="1")]
    began = time.monotonic()
    assert held(live(api, tmp_path, allow_exec=False, collect_runtime=False)) == 8
    assert time.monotonic() - began >= 1


def test_pods_are_read_by_namespace_where_only_that_is_granted(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items.append({"kind": "Namespace", "metadata": {"name": "secret"}})
    api.faults = [Fault(r"^/api/v1/pods", 403), Fault(r"/namespaces/secret/pods", 403)]
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert held(snapshot) == 8 and snapshot.unread_namespaces == ("secret",)
    assert {entry.what for entry in failures(snapshot)} == {"pods in namespace secret", "which accelerators are free"}


def test_named_namespaces_are_read_where_not_even_their_names_can_be_listed(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    api.faults = [Fault(r"^/api/v1/pods", 403), Fault(r"^/api/v1/namespaces\?", 403)]
    snapshot = live(api, tmp_path, namespaces=("inference",), allow_exec=False, collect_runtime=False)
    assert len(snapshot.workloads) == 1 and snapshot.unread_namespaces == ("*",)


def test_pods_that_nowhere_can_be_listed_are_unknown(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"/pods\?", 403)]
    snapshot = live(api, tmp_path)
    assert snapshot.pods is None and any(entry.what.startswith("pods: ") for entry in failures(snapshot))


def test_refused_credentials_end_the_scan(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api", 401)]
    with pytest.raises(CredentialsRefused, match="log in again"):
        live(api, tmp_path)


@pytest.mark.parametrize(
    "fault",
    [Fault("/version", body="<html>login</html>"), Fault("/version", 500), Fault("/version", reset=True)],
    ids=["HTML", "500", "reset"],
)
def test_an_address_where_something_else_answers_is_told_at_once(
    api: ApiServerDouble, tmp_path: Path, fault: Fault
) -> None:
    api.faults = [fault]
    with pytest.raises(ClusterUnreachable, match="check the address"):
        live(api, tmp_path)


def test_an_address_where_nobody_answers_is_told_at_once(api: ApiServerDouble, tmp_path: Path) -> None:
    path = api.kubeconfig(tmp_path)
    path.write_text(path.read_text().replace(str(api.port), "1"))
    with pytest.raises(ClusterUnreachable, match="refused"):
        read_live(ScanOptions(kubeconfig=path, timeout_seconds=1), NOW)


def test_groups_that_the_server_has_not_are_no_lost_reads(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/apis/(keda.sh|ray.io|monitoring)", 403)]
    assert not failures(live(api, tmp_path, allow_exec=False, collect_runtime=False))
    api.groups = (*api.groups, "keda.sh")
    (entry,) = failures(live(api, tmp_path, allow_exec=False, collect_runtime=False))
    assert "grant `list scaledobjects.keda.sh`" in entry.why


def test_owners_are_followed_without_replicasets(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"/replicasets", 403)]
    for item in api.items:
        if item["kind"] == "Pod":
            item["metadata"]["labels"]["pod-template-hash"] = "abc"
    assert [w.kind for w in live(api, tmp_path, allow_exec=False, collect_runtime=False).workloads] == ["Deployment"]


def test_a_replicaset_without_deployment_is_asked_what_it_wants(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items += [
        controller("ReplicaSet", "lonely", replicas=3),
        controller("ReplicaSet", "of-nothing-here", replicas=9),
        pod("lonely-x", [container(gpus=1)], "n1", ("ReplicaSet", "lonely")),
    ]
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    wanted = {item.name: item.replicas_wanted for item in snapshot.workloads}
    assert wanted == {"llm": 2, "lonely": 3}
    assert api.count("fieldSelector") == 1


def test_the_order_of_everything_does_not_depend_on_timing(api: ApiServerDouble, tmp_path: Path) -> None:
    for n in range(2):
        api.scripts[f"inference/llm-abc-{n}"] = Script({"nvidia-smi": (smi(*[("H100", n)] * 4), "", 0)})
    first = live(api, tmp_path, workers=1)
    api.items.reverse()
    assert live(api, tmp_path, workers=8) == first


def test_only_what_was_asked_for_is_reported_and_placement_stays_whole(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items.append(pod("other", [container(gpus=2)], "n1", namespace="else"))
    snapshot = live(api, tmp_path, namespaces=("else",), allow_exec=False, collect_runtime=False)
    assert [w.namespace for w in snapshot.workloads] == ["else"] and held(snapshot) == 10
    picked = live(api, tmp_path, selector="app=llm", allow_exec=False, collect_runtime=False)
    assert [w.name for w in picked.workloads] == ["llm"]
