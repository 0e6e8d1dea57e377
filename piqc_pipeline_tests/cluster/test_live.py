"""A scan of a small API server on loopback, whole and with everything that can go wrong with one."""

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from piqc_pipeline.cluster import read_live
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.errors import ClusterUnreachable, CredentialsRefused, UsageError
from piqc_pipeline.facts.snapshot import ClusterSnapshot, Unknown
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Fault, Script
from piqc_pipeline_tests.cluster.clusters import NOW, VLLM, container, controller, node, pod, pods, smi

CONFIG = {"volumeMounts": [{"name": "c", "mountPath": "/etc/vllm"}]}
VOLUME = {"volumes": [{"name": "c", "configMap": {"name": "conf"}}]}
PAGE = 'vllm:num_requests_running{model_name="m"} 3\nvllm:avg_generation_throughput_toks_per_s{model_name="m"} 50\n'


def live(api: ApiServerDouble, folder: Path, **options: object) -> ClusterSnapshot:
    usual = ScanOptions(
        kubeconfig=api.kubeconfig(folder), timeout_seconds=2, deadline_seconds=20, rate_window_seconds=0
    )
    return read_live(replace(usual, **options), NOW)  # type: ignore[arg-type]


def failures(snapshot: ClusterSnapshot) -> list[Unknown]:
    return [entry for entry in snapshot.unknown if entry.read_failed]


def held(snapshot: ClusterSnapshot) -> float:
    return sum(r.units or 0 for item in snapshot.pods or () if item.holds for r in item.requests)


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


def test_an_answer_that_comes_drop_by_drop_costs_its_time_limit_only(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/nodes", drip=True)]
    began = time.monotonic()
    snapshot = live(api, tmp_path, timeout_seconds=0.5, allow_exec=False, collect_runtime=False)
    assert time.monotonic() - began < 8
    assert snapshot.nodes is None and "no answer within 0.5 s" in failures(snapshot)[0].why


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


def test_forbidden_exec_is_told_once_and_asked_once(api: ApiServerDouble, tmp_path: Path) -> None:
    api.exec_allowed, api.scripts = False, {}
    snapshot = live(api, tmp_path, workers=1)
    assert len(api.commands) == 1
    assert any("grant `create pods/exec`" in entry.why for entry in failures(snapshot))
    assert all(r.utilization_pct is None for p in pods(snapshot).values() for r in p.readings)


def test_metrics_are_read_by_exec_where_the_proxy_is_forbidden(api: ApiServerDouble, tmp_path: Path) -> None:
    api.proxy_allowed = False
    for name in ("llm-abc-0", "llm-abc-1"):
        api.scripts[f"inference/{name}"] = Script({"curl": (PAGE, "", 0), "nvidia-smi": (smi(("H100", 5)), "", 0)})
    runtime = live(api, tmp_path, workers=1).workloads[0].runtime
    assert runtime is not None and (runtime.source, runtime.requests_running) == ("exec", 6.0)
    assert api.count("/proxy/") == 1, "a permission that is not there is not asked for twice"


def test_forbidden_proxy_without_exec_is_a_refused_read(api: ApiServerDouble, tmp_path: Path) -> None:
    api.proxy_allowed = False
    snapshot = live(api, tmp_path, allow_exec=False)
    (entry,) = failures(snapshot)
    assert "grant `get pods/proxy`" in entry.why and "2 pods" in entry.what
    runtime = snapshot.workloads[0].runtime
    assert runtime is not None and runtime.healthy is None and runtime.requests_running is None


def test_an_engine_that_is_down_has_no_figures(api: ApiServerDouble, tmp_path: Path) -> None:
    sick = {"8000/metrics": (200, PAGE), "8000/health": (503, "unhealthy")}
    api.scripts = {"inference/llm-abc-0": Script(), "inference/llm-abc-1": Script(pages=sick)}
    runtime = live(api, tmp_path).workloads[0].runtime
    assert runtime is not None and runtime.healthy is False
    assert runtime.requests_running is None and runtime.generation_tokens_per_second is None


def test_the_loaded_model_fills_what_the_arguments_do_not_say(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items = [node("n0"), pod("solo", [container()])]
    pages = {
        "8000/metrics": (200, PAGE),
        "8000/health": (200, ""),
        "8000/v1/models": (200, '{"data":[{"id":"a/b-7B"}]}'),
    }
    api.scripts = {"inference/solo": Script(pages=pages)}
    model = live(api, tmp_path).workloads[0].model
    assert (model.name, model.parameters_total) == ("a/b-7B", 7e9)


def test_an_exporter_is_asked_before_any_exec(api: ApiServerDouble, tmp_path: Path) -> None:
    exporter = container("e", "nvcr.io/nvidia/k8s/dcgm-exporter:3.3", None, ports=[{"containerPort": 9400}])
    api.items.append(pod("dcgm-1", [exporter], "n0", namespace="gpu-operator"))
    lines = [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{n}",UUID="GPU-{n}",namespace="inference",pod="llm-abc-{n // 4}"}} {n}\n'
        for n in range(8)
    ]
    api.scripts["gpu-operator/dcgm-1"] = Script(pages={"9400/metrics": (200, "".join(lines))})
    found = pods(live(api, tmp_path))
    assert [r.utilization_pct for r in found["llm-abc-1"].readings] == [4.0, 5.0, 6.0, 7.0]
    assert {r.source for r in found["llm-abc-1"].readings} == {"dcgm"}
    assert not any(command[0].endswith("nvidia-smi") for command in api.commands)


EXPORTER = container("e", "nvcr.io/nvidia/k8s/dcgm-exporter:3.3", None, ports=[{"containerPort": 9400}])


def exporters_on_two_nodes(api: ApiServerDouble) -> None:
    """n0 runs llm-abc-0, n1 runs llm-abc-1; each has an exporter, behind one Service."""
    for n in range(2):
        next(item for item in api.items if item["metadata"]["name"] == f"llm-abc-{n}")["spec"]["nodeName"] = f"n{n}"
        api.items.append(pod(f"dcgm-{n}", [EXPORTER], f"n{n}", namespace="gpu-operator", labels={"app": "dcgm"}))
        page = "".join(
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="{at}",UUID="GPU-{n}{at}",Hostname="n{n}",namespace="inference",'
            f'pod="llm-abc-{n}"}} {20 + n}\n'
            for at in range(4)
        )
        api.scripts[f"gpu-operator/dcgm-{n}"] = Script(pages={"9400/metrics": (200, page)})
    spec = {"selector": {"app": "dcgm"}, "ports": [{"port": 9400, "name": "gpu-metrics"}]}
    api.items.append({"kind": "Service", "metadata": {"name": "dcgm", "namespace": "gpu-operator"}, "spec": spec})


def test_exporters_are_read_through_their_service_where_pods_may_not_be_asked(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    exporters_on_two_nodes(api)
    api.proxy_allowed = False
    found = pods(live(api, tmp_path, allow_exec=False))
    assert [r.utilization_pct for name in ("llm-abc-0", "llm-abc-1") for r in found[name].readings] == [20.0] * 4 + [
        21.0
    ] * 4
    assert api.count("/services/dcgm:9400/proxy/metrics") == 2


def test_exporters_in_a_namespace_out_of_reach_are_found_by_their_service(api: ApiServerDouble, tmp_path: Path) -> None:
    exporters_on_two_nodes(api)
    api.items[-1]["metadata"]["name"] = "nvidia-dcgm-exporter"
    api.items.append({"kind": "Namespace", "metadata": {"name": "gpu-operator"}})
    api.faults = [Fault(r"^/api/v1/pods", 403), Fault(r"^/api/v1/namespaces/gpu-operator/pods\?", 403)]
    found = pods(live(api, tmp_path, allow_exec=False))
    assert {r.utilization_pct for item in found.values() for r in item.readings} == {20.0, 21.0}


def test_a_service_that_may_not_be_asked_is_asked_once_and_the_pods_refusal_is_told(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    exporters_on_two_nodes(api)
    api.proxy_allowed = api.service_proxy_allowed = False
    snapshot = live(api, tmp_path, allow_exec=False)
    assert api.count("/services/dcgm:9400/proxy") == 1
    assert any("grant `get pods/proxy`" in entry.why for entry in failures(snapshot))


def test_what_prometheus_or_an_exporter_said_is_not_counted_twice(api: ApiServerDouble, tmp_path: Path) -> None:
    exporters_on_two_nodes(api)
    api.items.append(pod("other", [container("e", "dcgm-exporter:3.3", None)], "n0", labels={"app": "dcgm"}))
    api.scripts["inference/other"] = api.scripts["gpu-operator/dcgm-0"]
    assert len(pods(live(api, tmp_path, allow_exec=False))["llm-abc-0"].readings) == 4


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


def test_each_container_that_holds_a_gpu_is_asked_for_its_own(api: ApiServerDouble, tmp_path: Path) -> None:
    two = [container("a", args=VLLM), container("b", "my/other:1"), container("log", "fluent/bit:1", None)]
    api.items.append(pod("two", two, "n1"))
    for name, busy in (("a", 10), ("b", 90)):
        line = f"0, GPU-0000000{name}, H100, [N/A], 81559, 70000, {busy}, 20, 55, 320.50, 700.00\n"
        api.scripts[f"inference/two/{name}"] = Script({"nvidia-smi": (line, "", 0)})
    found = pods(live(api, tmp_path, collect_runtime=False))["two"]
    assert [r.utilization_pct for r in found.readings] == [10.0, 90.0]
    assert not any(entry.what.startswith("utilization") for entry in found.unknown)


def test_output_in_pieces_is_one_output(api: ApiServerDouble, tmp_path: Path) -> None:
    for name in ("llm-abc-0", "llm-abc-1"):
        api.scripts[f"inference/{name}"] = Script({"nvidia-smi": (smi(*[("H100", 37)] * 4), "", 0)}, chunk=7)
    found = pods(live(api, tmp_path, collect_runtime=False))
    assert [r.utilization_pct for r in found["llm-abc-0"].readings] == [37.0] * 4


def test_a_pod_whose_exec_hangs_costs_one_time_limit_and_not_the_others(api: ApiServerDouble, tmp_path: Path) -> None:
    api.scripts["inference/llm-abc-0"] = Script(hang=True)
    api.scripts["inference/llm-abc-1"] = Script({"nvidia-smi": (smi(*[("H100", 9)] * 4), "", 0)})
    began = time.monotonic()
    snapshot = live(api, tmp_path, timeout_seconds=1, collect_runtime=False)
    assert time.monotonic() - began < 4
    found = pods(snapshot)
    assert found["llm-abc-0"].readings == () and len(found["llm-abc-1"].readings) == 4
    assert "did not end within 1 s" in failures(snapshot)[0].why


def test_the_deadline_keeps_what_was_read(api: ApiServerDouble, tmp_path: Path) -> None:
    api.scripts = {f"inference/llm-abc-{n}": Script(hang=True) for n in range(2)}
    began = time.monotonic()
    snapshot = live(api, tmp_path, timeout_seconds=30, deadline_seconds=2, collect_runtime=False)
    assert time.monotonic() - began < 5
    assert held(snapshot) == 8 and len(snapshot.nodes or ()) == 2
    assert any("the deadline of 2 s has passed" in entry.why for entry in failures(snapshot))


def test_a_hanging_list_costs_its_time_limit_only(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/nodes", delay=20)]
    began = time.monotonic()
    snapshot = live(api, tmp_path, timeout_seconds=0.5, allow_exec=False, collect_runtime=False)
    assert time.monotonic() - began < 5
    assert snapshot.nodes is None and "no answer within 0.5 s" in failures(snapshot)[0].why


def test_ctrl_c_keeps_what_was_read_within_two_seconds(api: ApiServerDouble, tmp_path: Path) -> None:
    api.scripts = {f"inference/llm-abc-{n}": Script(hang=True) for n in range(2)}
    pressed: list[float] = []

    def press() -> None:
        while not api.commands:
            time.sleep(0.02)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    snapshot = live(api, tmp_path, timeout_seconds=30, collect_runtime=False)
    thread.join(5)
    assert time.monotonic() - pressed[0] < 2
    assert held(snapshot) == 8
    assert any(entry.why == "the scan was interrupted" for entry in failures(snapshot))


@pytest.mark.parametrize("where", ["/version", "/apis$", r"^/api/v1/nodes", "/configmaps/"])
def test_ctrl_c_waits_for_no_answer(api: ApiServerDouble, tmp_path: Path, where: str) -> None:
    api.items.append(pod("named", [container(args=["--config", "/etc/vllm/c.yaml"], **CONFIG)], spec=VOLUME))
    api.faults = [Fault(where, delay=20)]
    needed = (where, r"^/api/v1/pods") if "nodes" in where else (where,)

    def press() -> None:
        while not all(api.count(pattern) for pattern in needed):
            time.sleep(0.02)
        time.sleep(0.2)  # for the answers that are not delayed
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    began = time.monotonic()
    if where in ("/version", "/apis$"):
        with pytest.raises(KeyboardInterrupt):
            live(api, tmp_path, timeout_seconds=30, allow_exec=False)
    else:
        snapshot = live(api, tmp_path, timeout_seconds=30, allow_exec=False, collect_runtime=False)
        assert any(entry.why == "the scan was interrupted" for entry in failures(snapshot))
    assert time.monotonic() - began < 10
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_deadline_that_passes_before_the_first_answer_is_told(api: ApiServerDouble, tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match=r"the deadline of 0\.001 s has passed before it answered"):
        live(api, tmp_path, deadline_seconds=0.001)


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


def test_a_model_in_a_configmap_is_found_where_reading_it_is_granted(api: ApiServerDouble, tmp_path: Path) -> None:
    config = container(args=["--config", "/etc/vllm/c.yaml"], volumeMounts=[{"name": "v", "mountPath": "/etc/vllm"}])
    api.items = [
        node("n0"),
        pod("p", [config], spec={"volumes": [{"name": "v", "configMap": {"name": "conf"}}]}),
        {
            "kind": "ConfigMap",
            "metadata": {"name": "conf", "namespace": "inference"},
            "data": {"c.yaml": "model: a/b-8B\n"},
        },
    ]
    assert live(api, tmp_path, allow_exec=False, collect_runtime=False).workloads[0].model.name == "a/b-8B"
    api.faults = [Fault("/configmaps/", 403)]
    snapshot = live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert snapshot.workloads[0].model.name is None and not snapshot.read_failed


def test_only_configmap_keys_that_say_something_of_the_model_are_read(api: ApiServerDouble, tmp_path: Path) -> None:
    def variable(name: str, key: str) -> dict[str, object]:
        return {"name": name, "valueFrom": {"configMapKeyRef": {"name": "conf", "key": key}}}

    data = {"model": "a/b-8B", "tp": "4", "level": "debug"}
    api.items = [
        node("n0"),
        pod("p", [container(args=["-tp", "$(TP)"], env=[variable("MODEL_ID", "model"), variable("TP", "tp")])]),
        {"kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "inference"}, "data": data},
    ]
    model = live(api, tmp_path, allow_exec=False, collect_runtime=False).workloads[0].model
    assert (model.name, model.tensor_parallel) == ("a/b-8B", 4) and api.count("/configmaps/") == 1
    api.seen.clear()
    api.items[1] = pod("p", [container(env=[variable("LOG_LEVEL", "level")])])
    live(api, tmp_path, allow_exec=False, collect_runtime=False)
    assert api.count("/configmaps/") == 0
