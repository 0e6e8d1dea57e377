"""Figures of one workload: over all pods, billed by request, with what is unknown told and not guessed."""

from datetime import timedelta

import pytest

from piqc_pipeline.facts.snapshot import EngineRuntime, Pod, Topology, Unknown, Workload
from piqc_pipeline.waste import WorkloadFigures, assess, load_prices
from piqc_pipeline_tests.waste.clusters import NOW, cluster, node, pod, pool, readings, workload

PRICES = load_prices()


def figures(pods: list[Pod], of: Workload | None = None, **node_more: object) -> WorkloadFigures:
    names = sorted({one.node for one in pods if one.node})
    snapshot = cluster([node(name, **node_more) for name in names], pods, [of or workload()])  # type: ignore[arg-type]
    (found,) = assess(snapshot, PRICES).workloads
    return found


def why(found: WorkloadFigures, what: str) -> str:
    return "; ".join(entry.why for entry in found.unknown if what in entry.what)


def test_utilization_is_the_mean_over_pods_and_devices_with_its_spread() -> None:
    found = figures([pod("a", "n0", 8, percents=(100, *(0,) * 7)), pod("b", "n1", 8, percents=(95,) * 8)])
    # (100 + 8 x 95) / 16
    assert found.utilization_pct == pytest.approx(53.75)
    assert (found.utilization_min_pct, found.utilization_max_pct) == (0, 100)
    # 16 x 4.00 x 24 x (1 - 0.5375)
    assert found.idle_usd_per_day == pytest.approx(710.4)


def test_a_pod_that_sees_more_than_it_requested_is_billed_for_its_request() -> None:
    found = figures([pod("a", "n", 1, percents=(5,) * 8)])
    assert (found.usd_per_hour, found.accelerator_count, found.utilization_pct) == (4.0, 1, 5)


def test_which_of_unlike_devices_is_its_own_is_unknown() -> None:
    found = figures([pod("a", "n", 1, percents=(5, 90))])
    assert found.utilization_pct is None
    assert "which are its own" in why(found, "utilization")


def test_an_unmeasured_replica_is_unknown_and_neither_idle_nor_busy() -> None:
    found = figures([pod("a", "n", 1, percents=(50,)), pod("b", "n", 1)])
    assert found.utilization_pct == 50
    assert found.idle_usd_per_day == pytest.approx(48.0)
    assert "no source states it" in why(found, "utilization of 1 pod(s)")


def test_a_lost_device_is_told() -> None:
    found = figures([pod("a", "n", 8, percents=(50,) * 7)])
    assert found.utilization_devices_seen == 7
    assert why(found, "utilization") == "1 of its 8 devices did not answer"


def test_a_refused_read_is_marked_as_one() -> None:
    refused = Unknown("utilization of pod inference/a", "exec is forbidden", read_failed=True, about="utilization")
    found = figures([pod("a", "n", 1, unknown=(refused,))])
    (entry,) = [entry for entry in found.unknown if entry.what.startswith("utilization")]
    assert (entry.why, entry.read_failed) == ("exec is forbidden", True)


def test_an_exporter_counts_before_exec_for_the_same_pod() -> None:
    both = readings(10.0) + readings(90.0, source="dcgm")
    found = figures([pod("a", "n", 1, readings=both)])
    assert (found.utilization_pct, found.utilization_source) == (90, "dcgm")


def test_the_use_of_a_shared_device_belongs_to_nobody_in_particular() -> None:
    shared = pool(8, "Tesla-T4", units_per_device=8.0, sharing="time-slicing")
    found = figures([pod("a", "n", 1, percents=(50,)), pod("b", "n", 1, percents=(50,))], pools=(shared,))
    assert found.utilization_pct is None
    assert found.usd_per_hour == pytest.approx(0.45)
    assert "shared" in why(found, "utilization")


def test_different_products_are_billed_each_at_its_own_price() -> None:
    snapshot = cluster([node("a", 1), node("b", 1, "Tesla-T4")], [pod("p", "a", 1), pod("q", "b", 1)], [workload()])
    (found,) = assess(snapshot, PRICES).workloads
    assert found.usd_per_hour == pytest.approx(4.45)
    assert found.accelerator == "NVIDIA-H100-80GB-HBM3, Tesla-T4"


def test_one_unpriced_replica_leaves_the_cost_unknown() -> None:
    snapshot = cluster([node("a", 1), node("b", 1, "NVIDIA-H200")], [pod("p", "a", 1), pod("q", "b", 1)], [workload()])
    (found,) = assess(snapshot, PRICES).workloads
    assert found.usd_per_hour is None
    assert why(found, "cost") == "no price of NVIDIA-H200; add it with --prices"


def test_the_rate_of_one_replica_is_set_against_the_cost_of_that_one() -> None:
    found = figures([pod("a", "n", 1, tokens=100.0), pod("b", "n", 1)], workload(billions=8))
    # 4.00 / (100 x 3600) x 1000
    assert found.usd_per_1k_tokens == pytest.approx(4.0 / 360)
    # 2 x 8e9 x 100 / 989.4e12
    assert found.mfu_pct == pytest.approx(0.1617, abs=1e-4)


def test_a_group_of_pods_is_one_replica_and_its_leader_speaks_for_it() -> None:
    pods = [
        pod(f"ds-{group}-{rank}", f"n{group}{rank}", 8, group=str(group), tokens=1000.0 if rank == 0 else None)
        for group in range(2)
        for rank in range(2)
    ]
    of = workload("w", billions=671, parameters_active=37e9, topology=Topology(2, 2, 4), gpus_per_replica=16)
    found = figures(pods, of)
    assert (found.replicas, found.accelerator_count, found.usd_per_hour) == (2, 32, 128.0)
    assert found.usd_per_1k_tokens == pytest.approx(128.0 / (2000 * 3.6))


def test_a_mixture_of_experts_multiplies_with_its_active_parameters() -> None:
    found = figures([pod("a", "n", 1, tokens=1000.0)], workload(billions=30.5, parameters_active=3.3e9))
    assert found.mfu_pct == pytest.approx(2 * 3.3e9 * 1000 / 989.4e12 * 100)


def test_an_impossible_share_is_unknown() -> None:
    found = figures([pod("a", "n", 1, tokens=1e9)], workload(billions=70))
    assert found.mfu_pct is None
    assert "above 100 %" in why(found, "MFU")


def test_rates_of_the_workload_count_where_no_pod_has_one() -> None:
    said = EngineRuntime(healthy=None, source="prometheus", generation_tokens_per_second=360.0)
    found = figures([pod("a", "n", 1)], workload(billions=8, runtime=said))
    assert found.generation_tokens_per_second == 360.0


def test_age_is_the_owners() -> None:
    found = figures([pod("a", "n", 1)], workload(created_at=NOW - timedelta(days=60)))
    assert found.age_hours == 1440


def test_a_workload_that_holds_nothing_costs_nothing() -> None:
    found = figures([pod("a", None, 4)])
    assert (found.usd_per_hour, found.idle_usd_per_day, found.replicas) == (0.0, 0.0, 0)
    assert why(found, "use, tokens and fit") == "none of its pods stands on a node"


def test_pods_without_a_request_have_no_known_cost() -> None:
    found = figures([pod("a", "n", 0)])
    assert found.usd_per_hour is None
    assert why(found, "cost") == "its pods request no accelerator"


def test_devices_used_without_a_request_are_unknown_in_number_and_cost() -> None:
    stowaway = pod("a", "n", 0, readings=readings(*(60.0,) * 8))
    report = assess(cluster([node("n")], [stowaway], [workload()]), PRICES)
    (found,) = report.workloads
    assert (found.accelerator_count, found.devices, found.usd_per_hour) == (None, None, None)
    assert report.summary.spend_usd_per_hour is None
    assert report.summary.unallocated_usd_per_day == 0.0


@pytest.mark.parametrize(
    ("of", "what"),
    [
        pytest.param(workload(is_inference=False), "model, tokens, MFU and fit", id="no-engine"),
        pytest.param(workload(model_name="org/secret"), "parameters", id="no-size"),
        pytest.param(workload(billions=671, parameters_active=None), "active parameters", id="no-active-size"),
        pytest.param(workload(created_at=None), "age", id="no-age"),
    ],
)
def test_what_hangs_on_the_identity_is_unknown_with_its_reason(of: Workload, what: str) -> None:
    assert why(figures([pod("a", "n", 1)], of), f"{what} of {of.id}")


def test_an_unnamed_product_is_unknown_with_its_reason() -> None:
    found = figures([pod("a", "n", 1)], product=None)
    assert found.accelerator is None
    assert "no label names the product" in why(found, "accelerator of")


def test_a_slice_has_the_memory_of_its_profile() -> None:
    slices = pool(
        7, "NVIDIA-A100-SXM4-80GB", resource="nvidia.com/mig-1g.10gb", units_per_device=7.0, sharing="mig",
        profile="1g.10gb",
    )  # fmt: skip
    found = figures([pod("a", "n", 1, resource="nvidia.com/mig-1g.10gb")], workload(billions=8), pools=(slices,))
    assert found.memory_gib_per_device == pytest.approx(9.5)
    assert found.fit is not None
    assert found.fit.verdict == "does not fit"
    assert found.usd_per_hour == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("product", "installed", "link"),
    [
        ("NVIDIA-H100-80GB-HBM3", 8, "NVSwitch"),
        ("NVIDIA-H100-80GB-HBM3", 4, "NVLink"),
        ("Tesla-V100-SXM2-16GB", 8, "NVLink"),
        ("NVIDIA-L40S", 8, "PCIe"),
        ("never-heard-of", 8, None),
    ],
)
def test_the_interconnect_follows_board_and_count(product: str, installed: int, link: str | None) -> None:
    assert figures([pod("a", "n", 1)], units=installed, product=product).interconnect == link


def test_a_busy_card_is_not_wasted_on_a_model_that_a_slower_one_could_not_serve() -> None:
    small = workload(billions=8, tensor_parallel=1)
    busy = figures([pod("a", "n", 1, percents=(95,))], small)
    calm = figures([pod("a", "n", 1, percents=(10,))], small)
    assert busy.fit is not None
    assert calm.fit is not None
    assert busy.fit.verdict == calm.fit.verdict == "oversized"
    assert busy.misplaced_usd_per_day == 0.0
    # 10 % of an H100 is 82 % of an L4: 0.10 x (4.00 - 0.80) x 24
    assert calm.misplaced_usd_per_day == pytest.approx(7.68)
