"""What holds for every cluster, whatever it looks like: no dollar above the bill, one bucket each, unknown is not 0."""

import math
import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from piqc_pipeline.facts.snapshot import AcceleratorPool, ClusterSnapshot, Node, Pod
from piqc_pipeline.report.scan_result import scan_result
from piqc_pipeline.report.wire import report_json
from piqc_pipeline.waste import BUCKETS, assess, load_prices
from piqc_pipeline_tests.waste.clusters import NOW, cluster, node, pod, pool, workload

PRODUCTS = ["NVIDIA-H100-80GB-HBM3", "Tesla-T4", "NVIDIA-A100-SXM4-40GB", "NVIDIA-H200", None]
WORKLOADS = ["alpha", "beta"]


@st.composite
def pools(draw: st.DrawFn) -> AcceleratorPool:
    sharing = draw(st.sampled_from(["none", "none", "mig", "time-slicing"]))
    per_device = {"none": 1.0, "mig": 7.0, "time-slicing": 8.0}[sharing]
    units = draw(st.one_of(st.none(), st.integers(0, 16)))
    allocatable = None if units is None else draw(st.integers(0, units))
    return pool(
        units,
        draw(st.sampled_from(PRODUCTS)),
        units_per_device=draw(st.sampled_from([per_device, per_device, None])) if sharing != "none" else 1.0,
        sharing=sharing,
        allocatable_units=allocatable,
    )


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    return node(
        name,
        pools=(draw(pools()),),
        ready=draw(st.booleans()),
        cordoned=draw(st.booleans()),
        taints=draw(st.sampled_from([(), ("nvidia.com/gpu:NoSchedule",), ("maintenance:NoExecute",)])),
    )


@st.composite
def pods(draw: st.DrawFn, name: str, places: list[str]) -> Pod:
    units = draw(st.sampled_from([None, 0, 0.5, 1, 2, 4, 8]))
    percents = draw(st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=8))
    return pod(
        name,
        draw(st.sampled_from([None, *places, "gone"])),
        units,
        workload=f"c/inference/Deployment/{draw(st.sampled_from(WORKLOADS))}",
        percents=tuple(percents),
        tokens=draw(st.one_of(st.none(), st.floats(0, 1e5))),
        sharing="fraction" if units == 0.5 else "none",
    )


@st.composite
def snapshots(draw: st.DrawFn) -> ClusterSnapshot:
    places = [f"n{index}" for index in range(draw(st.integers(0, 4)))]
    drawn_nodes = [draw(nodes(name)) for name in places]
    drawn_pods = [draw(pods(f"p{index}", places)) for index in range(draw(st.integers(0, 6)))]
    size = draw(st.one_of(st.none(), st.floats(0.1, 1000)))
    return cluster(
        None if draw(st.integers(0, 9)) == 0 else drawn_nodes,
        None if draw(st.integers(0, 9)) == 0 else drawn_pods,
        [workload(name, billions=size) for name in WORKLOADS],
        unread_namespaces=draw(st.sampled_from([(), (), ("secret",)])),
    )


PRICE_LISTS = [load_prices(), load_prices().with_flat(2.0, None), load_prices().with_flat(3.0, 1.0)]
PRICE_LISTS += [load_prices().with_flat(0.3331, None), load_prices().with_flat(0.00417, 1 / 3)]


@settings(max_examples=80, deadline=None)
@given(snapshots(), st.sampled_from(PRICE_LISTS))
def test_waste_is_never_above_what_is_installed(snapshot: ClusterSnapshot, prices: object) -> None:
    summary = assess(snapshot, prices).summary  # type: ignore[arg-type]
    if summary.waste_usd_per_day is not None and summary.installed_usd_per_hour is not None:
        assert 0 <= summary.waste_usd_per_day <= 24 * summary.installed_usd_per_hour + 1e-6
    for field in ("idle_usd_per_day", "spend_usd_per_hour", "misplacement_usd_per_day", "fragmentation_usd_per_day"):
        value = getattr(summary, field)
        assert value is None or (value >= 0 and math.isfinite(value))


@settings(max_examples=80, deadline=None)
@given(snapshots())
def test_every_accelerator_is_in_exactly_one_bucket(snapshot: ClusterSnapshot) -> None:
    for one in assess(snapshot, PRICE_LISTS[0]).capacity or ():
        counts = [one.count(bucket) for bucket in BUCKETS]
        assert all(count >= 0 for count in counts)
        if one.installed is not None:
            assert abs(sum(counts) - one.installed) < 1e-9


@settings(max_examples=50, deadline=None)
@given(snapshots())
def test_no_failed_read_becomes_dollars(snapshot: ClusterSnapshot) -> None:
    for broken in (replace(snapshot, nodes=None), replace(snapshot, pods=None)):
        report = assess(broken, PRICE_LISTS[0])
        assert report.summary.unallocated_usd_per_day is None
        assert report.summary.waste_usd_per_day is None
        assert not [one for one in report.findings if one.kind in ("dark", "fragmentation") and one.usd_per_day]
        assert any(entry.read_failed for entry in report.unknown)


@settings(max_examples=30, deadline=None)
@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_answer_does_not_depend_on_the_order_of_reading(
    snapshot: ClusterSnapshot, shuffler: random.Random
) -> None:
    def mixed(items: tuple[object, ...] | None) -> tuple[object, ...] | None:
        return None if items is None else tuple(shuffler.sample(items, len(items)))

    other = replace(
        snapshot,
        nodes=mixed(snapshot.nodes),
        pods=mixed(snapshot.pods),
        workloads=mixed(snapshot.workloads),
    )  # type: ignore[arg-type]
    texts = [report_json([scan_result(one, PRICE_LISTS[0])], NOW) for one in (snapshot, other)]
    assert texts[0] == texts[1]


@settings(max_examples=30, deadline=None)
@given(snapshots())
def test_an_unmeasured_workload_is_unknown_and_not_idle(snapshot: ClusterSnapshot) -> None:
    blind = replace(
        snapshot, pods=None if snapshot.pods is None else tuple(replace(one, readings=()) for one in snapshot.pods)
    )
    for one in assess(blind, PRICE_LISTS[0]).workloads:
        assert one.utilization_pct is None
        assert one.idle_usd_per_day is None or one.devices == 0
