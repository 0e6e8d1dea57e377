"""The totals of a cluster: the specification's sample to the cent, and what stays unknown."""

from dataclasses import replace

import pytest

from piqc_pipeline.facts.snapshot import Unknown
from piqc_pipeline.waste import assess, load_prices
from piqc_pipeline_tests.waste.clusters import cluster, node, pod, sample_cluster, workload

PRICES = load_prices()


def test_the_sample_cluster_is_priced_to_the_cent() -> None:
    summary = assess(sample_cluster(), PRICES).summary
    assert summary.spend_usd_per_hour == 95.85
    assert summary.installed_usd_per_hour == 143.85
    assert summary.idle_usd_per_day == 2033.95
    assert summary.unallocated_usd_per_day == 1152.00
    assert summary.misplacement_usd_per_day == 721.20
    assert summary.fragmentation_usd_per_day == 0.0
    assert summary.total_leak_usd_per_day == 3907.15
    assert summary.total_leak_usd_per_year == 1426109.75


def test_waste_counts_no_dollar_twice() -> None:
    report = assess(sample_cluster(), PRICES)
    # Idle 2033.952 and dark 1152 share nothing; of the busy share the 8 H100 of each llama replica would do on L4 by
    # memory (4 % busy: 0.04 x 16 x (4.25 - 0.80) x 24) and mistral too (0.11 x (2.50 - 0.80) x 24).
    assert report.summary.waste_usd_per_day == pytest.approx(2033.952 + 1152 + 52.992 + 4.488, abs=0.01)
    assert report.summary.waste_usd_per_day == pytest.approx(
        sum(one.usd_per_day or 0 for one in report.findings if one.counted), abs=0.01
    )


def test_each_row_of_the_sample_costs_what_its_pods_hold() -> None:
    rows = assess(sample_cluster(), PRICES).by_workload
    assert {key.rsplit("/", 1)[1]: round(row.usd_per_hour or 0, 2) for key, row in rows.items()} == {
        "llama-70b": 68.00,
        "mistral-7b": 2.50,
        "codellama-34b": 17.00,
        "bge": 1.35,
        "unknown-runtime-7f3a2": 7.00,
    }
    assert rows["c/inference/Deployment/unknown-runtime-7f3a2"].idle_usd_per_day is None


def test_tokens_of_all_replicas_are_set_against_the_cost_of_all() -> None:
    llama = assess(sample_cluster(), PRICES).by_workload["c/inference/Deployment/llama-70b"]
    assert llama.generation_tokens_per_second == pytest.approx(448.6)
    assert llama.usd_per_1k_tokens == pytest.approx(68.0 / (448.6 * 3600) * 1000)
    # 2 x 70.6e9 x 448.6 / (16 x 989.4e12)
    assert llama.mfu_pct == pytest.approx(0.4001, abs=0.001)


def test_unread_nodes_leave_every_dollar_unknown() -> None:
    failed = Unknown("nodes", "forbidden", read_failed=True)
    report = assess(replace(sample_cluster(), nodes=None, unknown=(failed,)), PRICES)
    assert report.capacity is None
    assert report.summary.installed_usd_per_hour is None
    assert report.summary.unallocated_usd_per_day is None
    assert report.summary.spend_usd_per_hour is None
    assert report.summary.waste_usd_per_day is None
    assert failed in report.unknown


def test_unread_pods_make_no_accelerator_dark() -> None:
    report = assess(replace(sample_cluster(), pods=None, workloads=()), PRICES)
    assert report.summary.installed_usd_per_hour == 143.85
    assert report.summary.unallocated_usd_per_day is None
    assert report.summary.spend_usd_per_hour is None
    assert not [one for one in report.findings if one.kind == "dark"]


def test_one_unread_namespace_leaves_dark_unknown_but_keeps_what_is_held() -> None:
    snapshot = cluster(
        [node("full"), node("half")],
        [pod("a", "full", 8, percents=(90,) * 8)],
        [workload()],
        unread_namespaces=("secret",),
    )
    report = assess(snapshot, PRICES)
    assert report.summary.unallocated_usd_per_day is None
    assert report.summary.waste_usd_per_day is None
    assert report.summary.spend_usd_per_hour == 32.0
    assert report.summary.idle_usd_per_day == pytest.approx(76.80)


def test_an_all_dark_cluster_is_priced_although_nothing_runs() -> None:
    report = assess(cluster([node(f"n{place}") for place in range(10)], []), PRICES)
    assert report.summary.unallocated_usd_per_day == 7680.0
    assert report.summary.waste_usd_per_day == 7680.0
    assert report.summary.idle_usd_per_day == 0.0
    assert len([one for one in report.findings if one.kind == "dark"]) == 10


def test_a_product_without_a_price_is_unknown_and_never_free() -> None:
    report = assess(cluster([node("n", 2, "NVIDIA-H200")], [pod("a", "n", 1)], [workload()]), PRICES)
    assert report.summary.installed_usd_per_hour is None
    assert report.summary.spend_usd_per_hour is None
    assert report.summary.unallocated_usd_per_day is None
    assert [entry.what for entry in report.unknown if "H200" in entry.what] == ["price of NVIDIA-H200 on node n"]


def test_a_flat_price_scales_both_sides_of_the_tier_table() -> None:
    halved = assess(sample_cluster(), PRICES.with_flat(2.125, None)).by_workload["c/inference/Deployment/llama-70b"]
    # 4.25 halved, and the needed tier's 3.00 halved with it: (2.125 - 1.50) x 16 x 24.
    assert halved.tier_usd_per_day == pytest.approx(240.0)


def test_what_waits_is_told_with_its_reason_and_for_how_long() -> None:
    pending = assess(sample_cluster(), PRICES).pending
    assert [(row.name, row.accelerators, row.reason, round(row.waiting_hours or 0, 1)) for row in pending] == [
        ("pending-0", 8, "Unschedulable", 0.7)
    ]


def test_a_gated_pod_waits_for_its_gate_and_a_bound_one_still_starts() -> None:
    report = assess(
        cluster(
            [node("n")],
            [
                pod("gated", None, 2, waiting_reason="SchedulingGated"),
                pod("pulling", "n", 4, phase="Pending", ready=False),
            ],
        ),
        PRICES,
    )
    assert {row.name: row.waits_for_accelerators for row in report.pending} == {"gated": False, "pulling": False}
    assert not [one for one in report.findings if one.kind == "pending"]
    assert report.capacity is not None
    assert (report.capacity[0].allocated, report.capacity[0].dark) == (4, 4)
