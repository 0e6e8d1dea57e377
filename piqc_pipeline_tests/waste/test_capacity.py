"""In which bucket each accelerator is: one bucket each, summing to what is installed."""

import pytest

from piqc_pipeline.facts.snapshot import UNREAD_CLAIM, ClusterSnapshot, PodRequest
from piqc_pipeline.facts.taints import Toleration
from piqc_pipeline.waste import BUCKETS, PoolCapacity, load_prices
from piqc_pipeline.waste.capacity import count_capacity, holdings
from piqc_pipeline_tests.waste.clusters import cluster, node, pod, pool, readings, workload

PRICES = load_prices()


def buckets(snapshot: ClusterSnapshot) -> dict[str, dict[str, float]]:
    return {
        one.node: {bucket: one.count(bucket) for bucket in BUCKETS if one.count(bucket)} for one in counted(snapshot)
    }


def counted(snapshot: ClusterSnapshot) -> tuple[PoolCapacity, ...]:
    found = count_capacity(snapshot, PRICES)
    assert found is not None
    return found


def test_free_accelerators_of_a_healthy_node_are_dark() -> None:
    assert buckets(cluster([node("a")], [pod("p", "a", 3)])) == {"a": {"allocated": 3, "dark": 5}}


CORDON_TAINT = {"taints": ("node.kubernetes.io/unschedulable:NoSchedule",), "cordoned": True}


@pytest.mark.parametrize(
    ("state", "bucket"),
    [
        pytest.param({"cordoned": True}, "cordoned", id="cordoned"),
        pytest.param(CORDON_TAINT, "cordoned", id="cordoned-with-its-taint"),
        pytest.param({"ready": False}, "not_ready", id="not-ready"),
        pytest.param({"taints": ("maintenance:NoExecute",)}, "tainted", id="tainted-for-maintenance"),
        pytest.param({"taints": ("nvidia.com/gpu=present:NoSchedule",)}, "dark", id="the-usual-gpu-taint"),
    ],
)
def test_free_accelerators_behind_a_node_state_are_not_dark(state: dict[str, object], bucket: str) -> None:
    assert buckets(cluster([node("a", **state)], [])) == {"a": {bucket: 8}}


SPOT = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"
TEAM = "team=vision:NoSchedule"


@pytest.mark.parametrize(
    ("taint", "tolerations", "bucket"),
    [
        pytest.param(TEAM, (Toleration("team", "vision", "NoSchedule"),), "dark", id="tolerated by value"),
        pytest.param(TEAM, (Toleration("team", exists=True),), "dark", id="tolerated by key, any effect"),
        pytest.param(TEAM, (Toleration(exists=True),), "dark", id="tolerates everything"),
        pytest.param(TEAM, (Toleration("team", "speech"),), "tainted", id="another value"),
        pytest.param(TEAM, (Toleration("team", "vision", "NoExecute"),), "tainted", id="another effect"),
        pytest.param(TEAM, (), "tainted", id="tolerated by nobody"),
        pytest.param(SPOT, (), "tainted", id="a conventional taint that nobody tolerates"),
        pytest.param("nvidia.com/gpu=present:NoSchedule", (), "dark", id="the resource's own taint"),
    ],
)
def test_a_taint_blocks_what_no_accelerator_pod_tolerates(
    taint: str, tolerations: tuple[Toleration, ...], bucket: str
) -> None:
    elsewhere = pod("p", "other", 8, tolerations=tolerations)
    unrelated = pod("exporter", "other", 0, tolerations=(Toleration(exists=True),))
    found = buckets(cluster([node("a", taints=(taint,)), node("other")], [elsewhere, unrelated]))
    assert found == {"a": {bucket: 8}, "other": {"allocated": 8}}


def test_a_workload_that_is_scaled_to_zero_tolerates_as_its_pods_would() -> None:
    asleep = workload("w", gpus_per_replica=1.0, tolerations=(Toleration("team", exists=True),))
    assert buckets(cluster([node("a", taints=(TEAM,))], [], [asleep])) == {"a": {"dark": 8}}


def test_conventional_taints_are_believed_where_no_accelerator_pod_can_tell() -> None:
    assert buckets(cluster([node("a", taints=(SPOT,))], [])) == {"a": {"dark": 8}}


def test_what_a_cordoned_node_runs_stays_allocated() -> None:
    assert buckets(cluster([node("a", cordoned=True)], [pod("p", "a", 6)])) == {"a": {"allocated": 6, "cordoned": 2}}


def test_a_broken_accelerator_is_paid_and_in_its_own_bucket() -> None:
    snapshot = cluster([node("a", allocatable_units=7)], [pod("p", "a", 7)])
    assert buckets(snapshot) == {"a": {"allocated": 7, "unhealthy": 1}}


def test_finished_pods_hold_nothing_and_a_terminating_one_still_holds() -> None:
    snapshot = cluster(
        [node("a")],
        [
            pod("done", "a", 2, phase="Succeeded", holds=False),
            pod("broken", "a", 2, phase="Failed", holds=False),
            pod("ending", "a", 4, deleting=True),
        ],
    )
    assert buckets(snapshot) == {"a": {"allocated": 4, "dark": 4}}


def _six_of_eight() -> ClusterSnapshot:
    nodes = [node(f"n{place}") for place in range(3)]
    pods = [pod(f"six-{place}", f"n{place}", 6) for place in range(3)]
    return cluster(nodes, [*pods, pod("needs-four", None, 4)])


def test_free_accelerators_that_no_shape_can_use_are_fragmented() -> None:
    assert buckets(_six_of_eight()) == {f"n{place}": {"allocated": 6, "fragmented": 2} for place in range(3)}


@pytest.mark.parametrize("product", ["Tesla-T4", "NVIDIA-H100-80GB-HBM3"])
def test_a_notebook_with_one_gpu_elsewhere_hides_no_fragment(product: str) -> None:
    base = _six_of_eight()
    snapshot = cluster(
        [*(base.nodes or ()), node("nb", 1, product)],
        [*(base.pods or ()), pod("notebook", "nb", 1, workload="c/x/Pod/n")],
    )
    assert buckets(snapshot)["n0"] == {"allocated": 6, "fragmented": 2}


def test_a_waiting_pod_that_would_fit_makes_free_accelerators_useful() -> None:
    base = _six_of_eight()
    snapshot = cluster(list(base.nodes or ()), [*(base.pods or ()), pod("needs-two", None, 2)])
    assert buckets(snapshot)["n0"] == {"allocated": 6, "dark": 2}


def test_without_a_waiting_pod_the_smallest_running_shape_decides() -> None:
    sixes = [pod(f"six-{place}", f"n{place}", 6) for place in range(2)]
    nodes = [node(f"n{place}") for place in range(3)]
    assert buckets(cluster(nodes, sixes))["n0"] == {"allocated": 6, "fragmented": 2}
    assert buckets(cluster(nodes, [*sixes, pod("single", "n2", 1)]))["n0"] == {"allocated": 6, "dark": 2}


def test_a_node_that_nothing_runs_on_is_dark_even_where_shapes_are_larger() -> None:
    snapshot = cluster([node("big"), node("small", 4)], [pod("eight", "big", 8), pod("waits", None, 8)])
    assert buckets(snapshot)["small"] == {"dark": 4}


def test_shares_of_one_device_are_one_device_and_one_price() -> None:
    shared = pool(8, "Tesla-T4", units_per_device=8.0, sharing="time-slicing")
    snapshot = cluster([node("a", pools=(shared,))], [pod("p", "a", 1), pod("q", "a", 1)])
    (one,) = counted(snapshot)
    assert (one.installed, one.shared, one.dark) == (1, 1, 0)
    assert one.installed_usd_per_hour == 0.45
    assert [held.devices for held in holdings(snapshot, (one,))] == [0.5, 0.5]


def test_an_unused_shared_device_is_dark_once() -> None:
    shared = pool(16, "Tesla-T4", units_per_device=8.0, sharing="time-slicing")
    assert buckets(cluster([node("a", pools=(shared,))], [pod("p", "a", 1)])) == {"a": {"shared": 1, "dark": 1}}


def test_slices_spread_the_price_of_one_card() -> None:
    slices = pool(7, "NVIDIA-A100-SXM4-80GB", resource="nvidia.com/mig-1g.10gb", units_per_device=7.0, sharing="mig")
    snapshot = cluster(
        [node("a", pools=(slices,))], [pod(name, "a", 1, resource="nvidia.com/mig-1g.10gb") for name in ("p", "q")]
    )
    (one,) = counted(snapshot)
    assert (one.installed, one.allocated, one.dark) == (7, 2, 5)
    assert one.installed_usd_per_hour == pytest.approx(3.50)
    assert one.usd_per_hour("dark") == pytest.approx(2.50)


def test_fractions_of_a_device_fill_devices_that_belong_to_nobody_alone() -> None:
    parts = [pod(name, "a", 0.5, sharing="fraction") for name in ("p", "q", "r")]
    assert buckets(cluster([node("a", 4)], parts)) == {"a": {"shared": 2, "dark": 2}}


@pytest.mark.parametrize(
    ("parts", "per_device", "shared"),
    [
        pytest.param((2.0,), None, 2, id="four NeuronCores are two chips"),
        pytest.param((2.5, 0.5), None, 3, id="two and a half, and the half beside them"),
        pytest.param((50.0,), 100.0, 100, id="half of a card that is counted in hundredths"),
        pytest.param((150.0, 50.0), 100.0, 200, id="one and a half, and the half beside them, in hundredths"),
    ],
)
def test_parts_of_several_devices_fill_all_of_them(
    parts: tuple[float, ...], per_device: float | None, shared: float
) -> None:
    units = 4 if per_device is None else 400
    holders = [pod(f"p{place}", "a", part, sharing="fraction") for place, part in enumerate(parts)]
    found = buckets(cluster([node("a", units, units_per_device=per_device or 1.0)], holders))
    assert found == {"a": {"shared": shared, "dark": units - shared}}


def test_devices_that_an_unread_claim_may_hold_are_not_dark() -> None:
    claimed = pod("claimed", "a", None, resource=UNREAD_CLAIM)
    nodes = [node("a", 4, resource="gpu.nvidia.com"), node("b", 4, resource="gpu.nvidia.com")]
    assert buckets(cluster(nodes, [claimed])) == {"a": {"placement_unknown": 4}, "b": {"dark": 4}}


def test_no_pod_holds_more_than_its_node_has() -> None:
    snapshot = cluster([node("a", 8)], [pod("p", "a", 4000)])
    (held,) = holdings(snapshot, counted(snapshot))
    assert (held.units, held.devices) == (4000, 8)


def test_accelerators_used_without_a_request_are_not_dark() -> None:
    stowaway = pod("all", "a", 0, readings=readings(*(60.0,) * 8))
    assert buckets(cluster([node("a")], [stowaway])) == {"a": {"shared": 8}}


def test_an_idle_look_at_all_devices_makes_none_of_them_used() -> None:
    watcher = pod("exporter", "a", 0, readings=readings(*(0.0,) * 8))
    assert buckets(cluster([node("a")], [watcher])) == {"a": {"dark": 8}}


def test_an_unread_request_leaves_that_node_unknown_and_no_other() -> None:
    claim = pod("claim", "a", None)
    snapshot = cluster([node("a"), node("b")], [claim])
    assert buckets(snapshot) == {"a": {"placement_unknown": 8}, "b": {"dark": 8}}


def test_an_unread_quantity_leaves_that_pool_unknown_and_no_other() -> None:
    found = counted(cluster([node("a", None), node("b")], [pod("p", "b", 1)]))
    assert [(one.node, one.installed) for one in found] == [("a", None), ("b", 8)]


def test_a_node_without_a_label_takes_the_name_that_its_devices_state() -> None:
    says = pod("p", "a", 1, readings=readings(50.0, product="NVIDIA H100 80GB HBM3"))
    (one,) = counted(cluster([node("a", 8, None)], [says]))
    assert (one.product, one.usd_per_unit_hour) == ("NVIDIA H100 80GB HBM3", 4.0)


def test_devices_that_disagree_name_nothing() -> None:
    one = pod("p", "a", 1, readings=readings(50.0, product="NVIDIA H100 80GB HBM3"))
    two = pod("q", "a", 1, readings=readings(50.0, product="Tesla T4"))
    (found,) = counted(cluster([node("a", 8, None)], [one, two]))
    assert found.product is None


def test_pods_that_hold_more_than_is_there_do_not_make_more() -> None:
    over = cluster([node("a", 2)], [pod("p", "a", 8, requests=(PodRequest("nvidia.com/gpu", 8),))])
    assert buckets(over) == {"a": {"allocated": 2}}


def test_free_accelerators_may_have_a_price_of_their_own() -> None:
    found = count_capacity(cluster([node("a")], [pod("p", "a", 6)]), PRICES.with_flat(2.0, 0.5))
    assert found is not None
    assert found[0].installed_usd_per_hour == pytest.approx(6 * 2.0 + 2 * 0.5)
