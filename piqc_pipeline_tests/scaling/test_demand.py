"""Demand in replicas, worked out by hand for each kind of replica."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.facts.snapshot import AcceleratorReading, EngineRuntime, PodRequest
from piqc_pipeline.scaling.demand import Device, demand_of, live_demand, mig_share
from piqc_pipeline_tests.scaling.test_limits import pod, snapshot, workload


def gpus(*activity):
    return [Device(value, f"pod-{index}") for index, value in enumerate(activity)]


def test_three_single_gpu_replicas_add_up():
    assert live_demand(gpus(0.5, 0.7, 0.9), 1, 3).replicas == pytest.approx(2.1)


def test_a_replica_of_four_gpus_counts_by_the_mean_of_its_devices():
    two = [Device(value, name) for name, value in [("a", 0.8)] * 4 + [("b", 0.6)] * 4]
    assert live_demand(two, 4, 8).replicas == pytest.approx(1.4)


def test_a_device_that_is_silent_is_not_idle():
    # Four of five answered with 2.4 in sum: 2.4 * 5/4.
    assert live_demand(gpus(0.6, 0.6, 0.6, 0.6, None), 1, 5).replicas == pytest.approx(3.0)


def test_too_few_answers_leave_demand_unknown_with_the_reason():
    found = live_demand(gpus(0.6, None, None), 1, 3)
    assert (found.replicas, found.reason) == (None, "only 1 of 3 devices answered")
    assert live_demand([], 1, 0).reason == "no replica is ready"


@pytest.mark.parametrize("sentinel", [9.2e18, -1.0, float("nan"), float("inf")])
def test_a_sentinel_counts_as_no_answer(sentinel):
    assert live_demand(gpus(0.5, sentinel), 1, 2).replicas is None


def test_saturation_and_waiting_requests_mark_demand_as_cut_off():
    assert live_demand(gpus(1.0, 0.96), 1, 2).censored
    assert live_demand(gpus(0.5), 1, 1, waiting_requests=3).censored
    assert not live_demand(gpus(0.5), 1, 1, waiting_requests=0).censored


def test_waiting_work_counts_where_the_rate_of_a_replica_is_known():
    # 240 requests within 120 s at 2 a second: one replica more.
    found = live_demand(gpus(1.0), 1, 1, waiting_requests=240, requests_per_second_per_replica=2)
    assert found.replicas == pytest.approx(2.0)


def test_devices_of_one_replica_that_differ_are_a_warning():
    found = live_demand([Device(0.9, "a"), Device(0.6, "a")], 2, 2)
    assert found.reason == "devices of replica a differ by 30 points: the mean hides one that is full"


@pytest.mark.parametrize(
    ("profile", "share"),
    [
        ("1g.10gb", 1 / 7),
        ("3g.40gb", 3 / 7),
        ("7g.80gb", 1.0),
        ("1c.3g.20gb", 1 / 7),
        ("MIG-2g.20gb", None),
        (None, None),
    ],
)
def test_a_mig_profile_stands_for_its_compute_slices(profile, share):
    assert mig_share(profile) == share


def reading(pct, profile=None):
    return AcceleratorReading("dcgm", utilization_pct=pct, profile=profile)


def test_a_snapshot_gives_demand_of_its_ready_pods():
    pods = (
        replace(pod("a", "n", 2), readings=(reading(50), reading(70))),
        replace(pod("b", "n", 2), readings=(reading(90), reading(90))),
        replace(pod("c", "n", 2), ready=False, readings=(reading(0), reading(0))),
    )
    # (0.5 + 0.7 + 0.9 + 0.9) / 2 devices a replica.
    assert demand_of(snapshot((), pods), workload()).replicas == pytest.approx(1.5)


def test_mig_instances_of_one_profile_count_by_instance():
    pods = tuple(replace(pod(name, "n", 1), readings=(reading(60, "1g.10gb"),)) for name in "abc")
    found = demand_of(snapshot((), pods), workload(gpus_per_replica=1.0))
    assert found.replicas == pytest.approx(1.8)


def test_a_group_of_pods_is_one_replica():
    pods = tuple(replace(pod(f"g-{i}", "n", 8), group="0", readings=(reading(75),) * 8) for i in range(2))
    assert demand_of(snapshot((), pods), workload(gpus_per_replica=16.0)).replicas == pytest.approx(0.75)


def test_time_sliced_devices_cannot_be_attributed():
    shared = replace(
        pod("a", "n", 1), requests=(PodRequest("nvidia.com/gpu", 1, "time-slicing"),), readings=(reading(90),)
    )
    found = demand_of(snapshot((), (shared,)), workload(gpus_per_replica=1.0))
    assert (found.replicas, "not attributable" in found.reason) == (None, True)


def test_waiting_requests_of_the_engine_are_seen():
    pods = (replace(pod("a", "n", 1), readings=(reading(50),)),)
    busy = workload(gpus_per_replica=1.0, runtime=EngineRuntime(True, "exec", requests_waiting=4))
    assert demand_of(snapshot((), pods), busy).censored


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 0.5))
def test_demand_grows_with_activity_and_is_never_above_the_replicas(activity, more):
    low = live_demand(gpus(*activity), 1, len(activity)).replicas
    high = live_demand(gpus(*(min(1.0, value + more) for value in activity)), 1, len(activity)).replicas
    assert low <= high + 1e-9
    assert high <= len(activity) + 1e-9
