"""Which workloads of a cluster get a plan, and which do not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from piqc_pipeline.errors import UsageError
from piqc_pipeline.facts.snapshot import EngineIdentity, Unknown
from piqc_pipeline.scaling.fleet import plan_fleet
from piqc_pipeline.waste.catalog import load_catalog
from piqc_pipeline.waste.prices import PriceList
from piqc_pipeline_tests.scaling.plans import CHAT, NOW, POLICY, forecast
from piqc_pipeline_tests.scaling.test_demand import reading
from piqc_pipeline_tests.scaling.test_limits import node, pod, snapshot, workload

OWN = (pod("own", "a", 2),)


def role(name):
    return EngineIdentity("llm-d", 1.0, "high", role=name)


def cluster(*workloads, pods=OWN):
    return replace(snapshot((node("a", 8), node("b", 8)), pods), workloads=workloads)


def test_each_inference_workload_is_planned_or_left_out_with_a_reason():
    daemon = workload(id="demo/inference/DaemonSet/agent", kind="DaemonSet", name="agent")
    job = workload(id="demo/inference/Job/train", kind="Job", name="train", is_inference=False)
    fleet = plan_fleet(cluster(workload(), daemon, job), {CHAT: forecast([4.4], [5.1])}, POLICY, NOW)
    assert [plan.workload for plan in fleet.plans] == [CHAT]
    assert list(fleet.left_out) == [daemon.id]
    assert "DaemonSet takes no replicas" in fleet.left_out[daemon.id]
    assert not fleet.unread


def test_a_workload_whose_count_was_not_read_might_be_planned() -> None:
    unread = workload(
        id="demo/other/ReplicaSet/x", kind="ReplicaSet", namespace="other", name="x", replicas_wanted=None
    )
    whole = cluster(workload(), unread)
    broken = replace(whole, unknown=(Unknown("owners", "replicasets: 403", read_failed=True),))
    fleet = plan_fleet(broken, {CHAT: forecast([4.4], [5.1])}, POLICY, NOW)
    assert fleet.unread == {unread.id} == set(fleet.left_out)
    assert not fleet.within(["inference"]).unread
    assert not plan_fleet(whole, {CHAT: forecast([4.4], [5.1])}, POLICY, NOW).unread  # its owner is gone


def test_a_namespace_without_workloads_is_no_plan_but_an_error():
    fleet = plan_fleet(cluster(workload()), {CHAT: forecast([4.4], [5.1])}, POLICY, NOW)
    assert fleet.within(["inference"]) == fleet
    with pytest.raises(UsageError, match="is in namespace infernce; there are some in inference$"):
        fleet.within(["inference", "infernce"])


def test_the_maximum_keeps_headroom_over_what_was_seen_and_foreseen():
    # 1.2 * 4.0 / 0.8 = 6 replicas for the seen peak, though the forecast peaks at 1.1.
    (plan,) = plan_fleet(
        cluster(workload()), {CHAT: forecast([1.0], [1.1])}, POLICY, NOW, highest_demand={CHAT: 4.0}
    ).plans
    assert plan.limits.max_replicas == 6
    # 1.2 * 5.1 / 0.8 = 7.65: eight for the foreseen peak, though less was seen.
    (plan,) = plan_fleet(
        cluster(workload()), {CHAT: forecast([4.4], [5.1])}, POLICY, NOW, highest_demand={CHAT: 2.0}
    ).plans
    assert plan.limits.max_replicas == 8


def test_a_forecast_alone_sets_no_maximum():
    (plan,) = plan_fleet(cluster(workload()), {CHAT: forecast([1.0], [1.1])}, POLICY, NOW).plans
    assert plan.limits.max_replicas == 8  # sixteen GPUs, two a replica


def test_a_failed_training_is_the_reason_to_stay_reactive():
    (plan,) = plan_fleet(cluster(workload()), {}, POLICY, NOW, failed={CHAT: "no sample"}).plans
    assert (plan.accepted, plan.reasons) == (False, ("no sample",))


def test_a_load_that_was_imported_before_the_scan_is_named_with_what_to_do():
    forecasts = {"file/inference/Workload/chat-8b": forecast([1.0], [1.1])}
    (plan,) = plan_fleet(cluster(workload()), forecasts, POLICY, NOW).plans
    assert plan.reasons == (
        f"there is a forecast of file/inference/Workload/chat-8b and none of {CHAT}: "
        "import its load again now that the scan names it, then train",
    )
    elsewhere = {"file/other/Workload/chat-8b": forecast([1.0], [1.1]), "chat-8b": forecast([1.0], [1.1])}
    (plan,) = plan_fleet(cluster(workload()), elsewhere, POLICY, NOW).plans
    assert plan.reasons == ("no forecast exists for this workload",)


def test_without_a_forecast_the_snapshots_own_readings_count_while_they_are_fresh():
    busy = (replace(pod("own", "a", 2), readings=(reading(90), reading(90))),)
    seen = plan_fleet(cluster(workload(), pods=busy), {}, POLICY, NOW)
    # 0.9 replicas at 80 %: two.
    assert (seen.plans[0].now.replicas, seen.plans[0].now.binding) == (2, "observed")
    late = plan_fleet(cluster(workload(), pods=busy), {}, POLICY, NOW + timedelta(hours=1))
    assert late.plans[0].now is None


def test_what_is_short_is_named_with_hour_size_product_and_price():
    # Sixteen H100 carry eight replicas of two; 9.0 / 0.90 asks for ten, from the first step of ten minutes on.
    prices = PriceList(load_catalog(), products={"h100": 2.5})
    (plan,) = plan_fleet(cluster(workload()), {CHAT: forecast([8.0], [9.0])}, POLICY, NOW, prices=prices).plans
    (short,) = plan.shortfalls
    assert (short.replicas_wanted, short.gpus_short, short.usd_per_hour) == (10, 4.0, 10.0)
    assert "4 x H100 more, $10.00 an hour, ready before 00:00" in short.explain


def test_accelerators_that_stand_there_are_not_bought():
    capped = replace(POLICY, max_replicas=4)
    prices = PriceList(load_catalog(), products={"h100": 2.5})
    (plan,) = plan_fleet(cluster(workload()), {CHAT: forecast([4.0], [4.5])}, capped, NOW, prices=prices).plans
    (short,) = plan.shortfalls
    assert short.usd_per_hour is None
    assert "(max_replicas is set to 4): 2 x H100 more stand in the cluster; raise that limit" in short.explain


def test_the_roles_of_a_service_are_planned_as_a_pair():
    prefill = workload(id="demo/inference/Deployment/p", name="p", engine=role("prefill"), replicas_wanted=1)
    decode = workload(id="demo/inference/Deployment/d", name="d", engine=role("decode"), replicas_wanted=4)
    forecasts = {prefill.id: forecast([0.5], [0.5]), decode.id: forecast([6.0], [6.0])}
    # 6.0 / 0.80 = 8 decode replicas; one to four runs now, half of that at least: 8 / 8 = 1 prefill.
    two = plan_fleet(cluster(prefill, decode), forecasts, POLICY, NOW).plans
    assert [(plan.limits.name, plan.now.replicas, plan.now.binding) for plan in two] == [
        ("d", 8, "fc50"),
        ("p", 1, "fcq"),
    ]
    stated = replace(POLICY, pair_ratio=(0.5, 1.0))
    two = plan_fleet(cluster(prefill, decode), forecasts, stated, NOW).plans
    assert [(plan.now.replicas, plan.now.binding) for plan in two] == [(8, "fc50"), (4, "pair")]
    assert two[1].now.explain.startswith("4 replicas: d has 8; 1 replica: ")
    alone = plan_fleet(cluster(decode, replace(prefill, kind="DaemonSet")), forecasts, stated, NOW).plans
    assert [plan.limits.pair for plan in alone] == [None]
