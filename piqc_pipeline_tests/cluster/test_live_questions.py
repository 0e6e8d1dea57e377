"""What pods, exporters and ConfigMaps are asked in a scan of a small API server, and what if they may not be."""

import json
from pathlib import Path

from piqc_pipeline.cluster.accelerators.nvidia_smi import OLDER_COMMANDS
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Fault, Script
from piqc_pipeline_tests.cluster.clusters import VLLM, container, node, pod, pods, smi
from piqc_pipeline_tests.cluster.scanning import PAGE, failures, live


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


def test_a_driver_that_knows_no_mig_is_asked_once_more_without_it(api: ApiServerDouble, tmp_path: Path) -> None:
    refusal = 'Field "mig.mode.current" is not a valid field to query.\n'
    older = "0, GPU-aaaa1111, Tesla V100-SXM2-16GB, P0, 16160, 900, 35, 10, 40, 80.5, 300\n"
    for name in ("llm-abc-0", "llm-abc-1"):
        programs = {"nvidia-smi": (refusal, "", 2), " ".join(OLDER_COMMANDS[0]): (older, "", 0)}
        api.scripts[f"inference/{name}"] = Script(programs)
    (reading,) = pods(live(api, tmp_path, collect_runtime=False))["llm-abc-0"].readings
    assert (reading.product, reading.utilization_pct, reading.memory_total_mib) == ("Tesla V100-SXM2-16GB", 35, 16160)
    assert len(api.commands) == 4


def test_a_container_with_amd_smi_alone_is_read(api: ApiServerDouble, tmp_path: Path) -> None:
    gpu = {"gpu": 0, "usage": {"gfx_activity": {"value": 42, "unit": "%"}}}
    api.items = [node("n0", None, None, extra={"amd.com/gpu": "8"}), pod("p", [container(resource="amd.com/gpu")])]
    api.scripts["inference/p"] = Script({"sh": (json.dumps([gpu]), "", 0)})
    (reading,) = pods(live(api, tmp_path, collect_runtime=False))["p"].readings
    assert (reading.utilization_pct, reading.signal) == (42.0, "gfx_activity")
