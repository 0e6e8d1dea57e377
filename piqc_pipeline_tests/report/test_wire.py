"""piqc-report.v1: stable names, null where unknown, no text that a terminal would act on."""

import json
from dataclasses import replace

from piqc_pipeline.facts.snapshot import EngineRuntime, Latency
from piqc_pipeline.report.per_pod import per_pod
from piqc_pipeline.report.scan_result import ScanResult, scan_result
from piqc_pipeline.report.wire import report_document, report_json
from piqc_pipeline.waste import load_prices
from piqc_pipeline_tests.waste.clusters import NOW, cluster, node, pod, sample_cluster, workload

PRICES = load_prices()


def sample() -> ScanResult:
    return scan_result(sample_cluster(), PRICES)


def test_the_summary_has_the_totals_of_the_sample_cluster() -> None:
    summary = report_document([sample()], NOW)["summary"]
    assert summary == {
        "spendUsdPerHour": 95.85,
        "installedUsdPerHour": 143.85,
        "idleUsdPerDay": 2033.95,
        "unallocatedUsdPerDay": 1152,
        "misplacementUsdPerDay": 721.2,
        "fragmentationUsdPerDay": 0,
        "totalLeakUsdPerDay": 3907.15,
        "totalLeakUsdPerYear": 1426109.75,
        "wasteUsdPerDay": 3243.43,
        "unavailableUsdPerDay": 0,
        "avgMfuPct": summary["avgMfuPct"],
    }


def test_the_report_has_the_agreed_names() -> None:
    document = report_document([sample()], NOW)
    assert document["schemaVersion"] == "piqc-report.v1"
    assert document["generatedAt"] == "2025-01-20T00:00:00Z"
    assert {"cluster", "workloads", "capacity", "pending", "summary", "unknown", "coverage"} <= set(document)
    assert {
        "id", "kind", "namespace", "name", "engine", "engineConfidence", "model", "parametersTotal",
        "parametersActive", "accelerator", "acceleratorCount", "replicas", "utilizationPct", "utilizationSource",
        "mfuPct", "usdPer1kTokens", "usdPerHour", "idleUsdPerDay", "fit", "ageHours", "runtime", "unknown",
    } <= set(document["workloads"][0])  # fmt: skip
    assert {
        "node", "accelerator", "installed", "allocated", "dark", "fragmented", "unhealthy", "cordoned", "notReady",
        "tainted", "shared",
    } <= set(document["capacity"][0])  # fmt: skip


def test_a_null_figure_has_an_entry_that_names_its_workload() -> None:
    rows = report_document([sample()], NOW)["workloads"]
    (row,) = [row for row in rows if row["name"] == "unknown-runtime-7f3a2"]
    assert row["utilizationPct"] is None
    assert row["idleUsdPerDay"] is None
    assert any(row["id"] in entry["what"] and entry["why"] for entry in row["unknown"])


def test_unread_nodes_are_null_and_not_an_empty_list() -> None:
    blind = scan_result(replace(sample_cluster(), nodes=None), PRICES)
    assert report_document([blind], NOW)["capacity"] is None


def test_unknown_placement_is_null_in_every_bucket() -> None:
    (row, *_) = report_document([scan_result(replace(sample_cluster(), pods=None), PRICES)], NOW)["capacity"]
    assert (row["installed"], row["placementUnknown"]) == (1, 1)
    assert {row[name] for name in ("allocated", "dark", "fragmented", "unhealthy", "shared")} == {None}


def test_two_clusters_stand_in_one_report_with_their_own_totals() -> None:
    other = replace(sample_cluster(), cluster="d", workloads=(), pods=())
    document = report_document([sample(), scan_result(other, PRICES)], NOW)
    assert document["cluster"] == "c, d"
    assert [entry["name"] for entry in document["clusters"]] == ["c", "d"]
    assert document["summary"]["installedUsdPerHour"] == 287.70
    assert document["summary"]["unallocatedUsdPerDay"] == 1152 + 143.85 * 24


def test_the_text_is_plain_ascii_and_loads_back() -> None:
    hostile = workload("w", model_name="a[/b]\x1b[31m\u202e\u009b-7B")
    text = report_json([scan_result(cluster([node("n")], [pod("a", "n", 1)], [hostile]), PRICES)], NOW)
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(text)["workloads"][0]["model"] == "a[/b]\x1b[31m\u202e\u009b-7B"


def test_what_an_engine_says_is_in_the_row_with_its_units() -> None:
    said = EngineRuntime(
        healthy=True, source="exec", requests_running=3, kv_cache_usage_pct=45.2,
        time_to_first_token=Latency(100.0, 500.0, float("nan"), 2.0),
    )  # fmt: skip
    snapshot = cluster([node("n")], [pod("a", "n", 1)], [workload(runtime=said)])
    runtime = report_document([scan_result(snapshot, PRICES)], NOW)["workloads"][0]["runtime"]
    assert (runtime["requestsRunning"], runtime["kvCacheUsagePct"]) == (3, 45.2)
    first = runtime["timeToFirstToken"]
    assert first == {"p50Ms": 100, "p95Ms": 500, "p99Ms": None, "meanMs": None, "windowSeconds": 2}


def test_one_row_a_pod_costs_the_same_in_sum() -> None:
    rows = report_document([scan_result(per_pod(sample_cluster()), PRICES)], NOW)
    assert rows["summary"]["spendUsdPerHour"] == 95.85
    assert rows["summary"]["idleUsdPerDay"] == 2033.95
    assert "c/inference/Pod/llama-1" in {row["id"] for row in rows["workloads"]}


def test_a_number_larger_than_json_readers_can_hold_is_still_a_number() -> None:
    runtime = EngineRuntime(healthy=True, source="proxy", requests_running=1e20, requests_waiting=3.0)
    snapshot = cluster([node("n")], [pod("p", "n", 1, runtime=runtime)], [workload(runtime=runtime)])
    text = report_json([scan_result(snapshot, PRICES)], NOW)
    told = json.loads(text)["workloads"][0]["runtime"]
    assert (told["requestsRunning"], told["requestsWaiting"]) == (1e20, 3)
