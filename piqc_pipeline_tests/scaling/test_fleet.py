"""Which workloads of a cluster get a plan, and which do not."""

from dataclasses import replace
from datetime import timedelta

from piqc_pipeline.scaling.fleet import pair_plans, plan_fleet
from piqc_pipeline.scaling.plan import plan_workload
from piqc_pipeline_tests.scaling.plans import CHAT, NOW, POLICY, forecast, limits
from piqc_pipeline_tests.scaling.test_demand import reading
from piqc_pipeline_tests.scaling.test_limits import node, pod, snapshot, workload

OWN = (pod("own", "a", 2),)


def cluster(*workloads, pods=OWN):
    return replace(snapshot((node("a", 8), node("b", 8)), pods), workloads=workloads)


def test_each_inference_workload_is_planned_or_left_out_with_a_reason():
    daemon = workload(id="demo/inference/DaemonSet/agent", kind="DaemonSet", name="agent")
    job = workload(id="demo/inference/Job/train", kind="Job", name="train", is_inference=False)
    fleet = plan_fleet(cluster(workload(), daemon, job), {CHAT: forecast([4.4], [5.1])}, POLICY, NOW)
    assert [plan.workload for plan in fleet.plans] == [CHAT]
    assert list(fleet.left_out) == [daemon.id]
    assert "DaemonSet takes no replicas" in fleet.left_out[daemon.id]


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


def test_without_a_forecast_the_snapshots_own_readings_count_while_they_are_fresh():
    busy = (replace(pod("own", "a", 2), readings=(reading(90), reading(90))),)
    seen = plan_fleet(cluster(workload(), pods=busy), {}, POLICY, NOW)
    # 0.9 replicas at 80 %: two.
    assert (seen.plans[0].now.replicas, seen.plans[0].now.binding) == (2, "observed")
    late = plan_fleet(cluster(workload(), pods=busy), {}, POLICY, NOW + timedelta(hours=1))
    assert late.plans[0].now is None


def test_a_pair_of_roles_keeps_its_ratio_and_says_so():
    prefill = plan_workload(forecast([0.5], [0.5]), None, limits("d/n/Deployment/prefill", min_replicas=1), POLICY, NOW)
    decode = plan_workload(forecast([6.0], [6.0]), None, limits("d/n/Deployment/decode", min_replicas=1), POLICY, NOW)
    one, two = pair_plans(prefill, decode, 0.5, 1.0)
    assert (one.now.replicas, one.now.binding, two.now.replicas) == (4, "pair", 8)
    assert one.now.explain.startswith("4 replicas: decode has 8; 1 replica: ")
