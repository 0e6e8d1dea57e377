"""The recorded cluster that ships: five deployments, twelve GPUs that nobody uses, one pod that waits."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from piqc_pipeline.cluster import ScanOptions, read_demo, read_dump, read_live
from piqc_pipeline.cluster.recorded import demo_path
from piqc_pipeline.facts.snapshot_file import snapshot_from_json, snapshot_to_json
from piqc_pipeline.report.scan_result import scan_result
from piqc_pipeline.report.wire import report_document
from piqc_pipeline.waste import load_prices
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Script, serve

NOW = datetime(2025, 1, 20, tzinfo=UTC)
SNAPSHOT = read_demo(NOW)
BY_NAME = {workload.name: workload for workload in SNAPSHOT.workloads}


def test_the_demo_is_read_without_anything_unknown() -> None:
    assert SNAPSHOT.unknown == ()
    assert not SNAPSHOT.read_failed


def test_the_demo_has_38_gpus_and_26_are_held() -> None:
    assert SNAPSHOT.nodes is not None and SNAPSHOT.pods is not None
    assert sum(pool.capacity_units or 0 for node in SNAPSHOT.nodes for pool in node.pools) == 8 + 8 + 4 + 1 + 2 + 3 + 12
    held = sum(request.units or 0 for pod in SNAPSHOT.pods if pod.holds for request in pod.requests)
    assert held == 16 + 1 + 4 + 3 + 2


def test_each_deployment_of_the_demo_has_its_model_replicas_and_age() -> None:
    found = {
        name: (w.engine.name, w.model.name, w.replicas_ready, w.gpus_per_replica, NOW - (w.created_at or NOW))
        for name, w in BY_NAME.items()
        if w.kind == "Deployment"
    }
    assert found == {
        "llama-70b": ("vllm", "meta-llama/Llama-3-70B-Inst", 2, 8.0, timedelta(hours=6.5)),
        "mistral-7b": ("vllm", "mistral-7b-instruct", 1, 1.0, timedelta(hours=50)),
        "codellama-34b": ("vllm", "codellama-34b-staging", 1, 4.0, timedelta(hours=458)),
        "bge": ("vllm", "embedding-bge-large", 3, 1.0, timedelta(hours=14.2)),
        "unknown-runtime-7f3a2": ("unknown", None, 1, 2.0, timedelta(hours=745)),
    }


def test_utilization_of_the_demo_is_what_nvidia_smi_printed() -> None:
    assert SNAPSHOT.pods is not None
    found = {pod.workload_id.rpartition("/")[2]: {r.utilization_pct for r in pod.readings} for pod in SNAPSHOT.pods}
    assert found["llama-70b"] == {4.0}
    assert found["bge"] == {82.0}
    assert found["codellama-34b"] == {0.0}
    assert found["unknown-runtime-7f3a2"] == set(), "its image has no nvidia-smi: unknown, not 0"


def test_throughput_of_a_workload_is_the_sum_over_its_replicas() -> None:
    runtime = BY_NAME["llama-70b"].runtime
    assert runtime is not None
    assert runtime.generation_tokens_per_second == 2 * 224.3
    assert runtime.kv_cache_usage_pct == 45.2
    assert runtime.prefix_cache_hit_pct == 37.0


def test_the_pending_pod_of_the_demo_says_why_it_waits() -> None:
    assert SNAPSHOT.pods is not None
    waiting = [pod for pod in SNAPSHOT.pods if not pod.holds]
    assert [(pod.name, pod.waiting_reason) for pod in waiting] == [("pending-llama-0", "Unschedulable")]


def test_the_demo_survives_a_file() -> None:
    assert snapshot_from_json(snapshot_to_json(SNAPSHOT)) == SNAPSHOT


def test_a_living_cluster_in_the_same_state_gives_the_same_report(tmp_path: Path) -> None:
    items = json.loads(demo_path().read_text())["items"]
    answers = json.loads(demo_path().with_name("cluster-answers.json").read_text())["pods"]
    scripts = {
        name: Script(
            {tool: (text, "", 0) for tool, text in told["tools"].items()},
            {page: (200, text) for page, text in told.get("pages", {}).items()},
        )
        for name, told in answers.items()
    }
    prices = load_prices()
    with serve(ApiServerDouble(items, scripts, groups=("apps", "monitoring.coreos.com"))) as api:
        options = ScanOptions(kubeconfig=api.kubeconfig(tmp_path), cluster_name="demo", rate_window_seconds=0.6)
        live = report_document([scan_result(read_live(options, NOW), prices)], NOW)
    recorded = report_document([scan_result(read_dump(demo_path(), NOW, "demo"), prices)], NOW)
    assert (live.pop("context"), recorded.pop("context")) == ("here", None)
    assert live == recorded
