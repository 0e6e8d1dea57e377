"""The smallest of maximum, quota, capacity and headroom decides, by its reason."""

from dataclasses import replace

import pytest

from piqc_pipeline.errors import ScaleUnknown, ScalingError, UsageError
from piqc_pipeline.facts.snapshot import (
    AcceleratorPool,
    ClusterSnapshot,
    EngineIdentity,
    ModelIdentity,
    Node,
    Pod,
    PodRequest,
    Quota,
    Topology,
    Workload,
)
from piqc_pipeline.facts.taints import Toleration
from piqc_pipeline.scaling.limits import limits_from_snapshot
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline_tests.scaling.plans import CHAT, NOW, POLICY

GPU = "nvidia.com/gpu"


def node(name, gpus, **fields):
    pool = AcceleratorPool(GPU, "nvidia", "H100", 80.0, gpus, gpus)
    return Node(name, **{"labels": {}, "ready": True, "cordoned": False, "taints": (), "pools": (pool,), **fields})


def pod(name, on, gpus, workload=CHAT):
    return Pod("inference", name, name, "Running", on, workload, True, True, (PodRequest(GPU, gpus),), NOW)


def workload(**fields):
    given = {
        "id": CHAT,
        "cluster": "demo",
        "namespace": "inference",
        "kind": "Deployment",
        "name": "chat-8b",
        "api_version": "apps/v1",
        "engine": EngineIdentity("vllm", 1.0, "high"),
        "model": ModelIdentity("m"),
        "is_inference": True,
        "replicas_wanted": 1,
        "replicas_ready": 1,
        "gpus_per_replica": 2.0,
        "images": (),
        "created_at": None,
        **fields,
    }
    return Workload(**given)


def snapshot(nodes, pods, **fields):
    return ClusterSnapshot("demo", None, NOW, nodes, pods, (), **fields)


def maximum(nodes, pods, **fields):
    found = limits_from_snapshot(snapshot(nodes, pods), workload(**fields), POLICY)
    return found.max_replicas


OWN = (pod("own", "a", 2),)


@pytest.mark.parametrize(
    ("nodes", "pods", "expected"),
    [
        pytest.param((node("a", 8), node("b", 8)), OWN, 8, id="sixteen GPUs, two a replica, own pod counts as free"),
        pytest.param((node("a", 3), node("b", 3)), OWN, 2, id="a replica does not span nodes"),
        pytest.param((node("a", 8), node("b", 8)), (*OWN, pod("x", "b", 5, "d/n/Job/t")), 5, id="others hold five"),
        pytest.param((node("a", 8), node("b", 8, cordoned=True)), OWN, 4, id="a cordoned node takes nothing"),
        pytest.param((node("a", 8), node("b", 8, ready=False)), OWN, 4, id="a node that is not ready takes nothing"),
        pytest.param(
            (node("a", 8), node("b", 8, taints=("team=ml:NoSchedule",))), OWN, 4, id="a taint nobody tolerates"
        ),
        pytest.param((node("a", 8), node("b", 8, taints=(f"{GPU}=present:NoSchedule",))), OWN, 8, id="the GPU taint"),
        pytest.param(
            (node("a", 8), node("b", 8, taints=("amd.com/gpu=:NoSchedule",))), OWN, 8, id="another vendor's own taint"
        ),
    ],
)
def test_capacity_counts_whole_replicas_on_nodes_that_admit_them(nodes, pods, expected):
    assert maximum(nodes, pods) == expected


def test_a_toleration_and_a_selector_of_the_pod_are_read():
    nodes = (node("a", 8, taints=("team=ml:NoSchedule",), labels={"pool": "big"}), node("b", 8))
    tolerated = (Toleration("team", "ml", "NoSchedule"),)
    assert maximum(nodes, OWN, pod_spec={"nodeSelector": {"pool": "big"}}, tolerations=tolerated) == 4


def test_a_group_needs_room_for_all_its_pods():
    # Two pods of 8 GPUs a group: three nodes of 8 carry one whole group.
    own = (pod("g-0", "a", 8), pod("g-0-1", "b", 8))
    nodes = (node("a", 8), node("b", 8), node("c", 8))
    group = {"kind": "LeaderWorkerSet", "gpus_per_replica": 16.0, "topology": Topology(1, 2, 2)}
    assert maximum(nodes, own, **group) == 1


@pytest.mark.parametrize(
    ("fields", "expected", "reason"),
    [
        pytest.param(
            {"highest_demand": 1.5}, 3, "1.2 times the highest demand seen or foreseen (1.50 replicas)", id="headroom"
        ),
        pytest.param({}, 4, "the cluster has schedulable accelerators for 4 replicas", id="capacity"),
    ],
)
def test_the_smallest_bound_is_the_maximum_and_says_why(fields, expected, reason):
    found = limits_from_snapshot(snapshot((node("a", 8),), OWN), workload(), POLICY, **fields)
    assert (found.max_replicas, found.max_reason) == (expected, reason)


def test_the_users_maximum_counts_too():
    found = limits_from_snapshot(snapshot((node("a", 8),), OWN), workload(), replace(POLICY, max_replicas=3))
    assert (found.max_replicas, found.max_reason) == (3, "max_replicas is set to 3")


def test_unread_nodes_leave_capacity_unknown_and_say_so():
    found = limits_from_snapshot(snapshot(None, OWN), workload(), POLICY)
    assert (found.schedulable_replicas, found.max_replicas) == (None, 100)
    assert found.warnings[0] == f"a limit of {CHAT} is unknown: nodes could not be read"
    assert "set one with --max-replicas" in found.warnings[1]


def test_fewer_places_than_the_minimum_keeps_the_minimum_and_warns():
    found = limits_from_snapshot(snapshot((node("a", 2),), OWN), workload(), replace(POLICY, min_replicas=2))
    assert (found.min_replicas, found.max_replicas) == (2, 2)
    assert "replicas will stay pending" in found.warnings[0]


def test_zero_is_allowed_only_with_its_warning():
    found = limits_from_snapshot(snapshot((node("a", 2),), OWN), workload(), replace(POLICY, min_replicas=0))
    assert found.min_replicas == 0
    assert "may go to zero" in found.warnings[0]


@pytest.mark.parametrize("fields", [{"kind": "DaemonSet"}, {"kind": "InferenceService"}])
def test_what_no_autoscaler_can_scale_is_an_error(fields):
    with pytest.raises(ScalingError, match="takes no replicas from an autoscaler"):
        limits_from_snapshot(snapshot((node("a", 8),), OWN), workload(**fields), POLICY)


@pytest.mark.parametrize(
    ("quota", "expected", "reason"),
    [
        # Eight allowed, six used, two of them by the workload itself: four are left to it, two a replica.
        pytest.param({}, 2, "quota team leaves 4 nvidia.com/gpu to it, 2 a replica", id="what others use is taken"),
        pytest.param({"used": 20}, None, None, id="over the quota: none is left"),
        pytest.param({"hard": 0, "used": 2}, None, None, id="a quota of zero"),
        pytest.param(
            {"resource": "pods", "hard": 3, "used": 1}, 3, "quota team leaves 3 pods to it, 1 a replica", id="pods"
        ),
        pytest.param({"namespace": "other", "hard": 0}, 4, None, id="another namespace"),
        pytest.param({"resource": "amd.com/gpu", "hard": 0}, 4, None, id="another resource"),
    ],
)
def test_a_quota_limits_what_it_counts(quota, expected, reason):
    given = Quota(**{"namespace": "inference", "name": "team", "resource": GPU, "hard": 8, "used": 6, **quota})
    seen = snapshot((node("a", 8),), OWN, quotas=(given,))
    if expected is None:
        with pytest.raises(ScalingError, match=r"quota team leaves 0 .*; raise the quota of namespace inference"):
            limits_from_snapshot(seen, workload(), POLICY)
        return
    found = limits_from_snapshot(seen, workload(), POLICY)
    assert found.max_replicas == expected
    assert reason is None or found.max_reason == reason


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"scoped": True}, "quota team on nvidia.com/gpu counts some pods only: it is left out"),
        ({"used": None}, "quota team on nvidia.com/gpu has no readable count"),
        ({"hard": None}, "quota team on nvidia.com/gpu has no readable count"),
    ],
)
def test_a_quota_that_says_nothing_certain_is_told(fields, why):
    quota = Quota(**{"namespace": "inference", "name": "team", "resource": GPU, "hard": 2, "used": 2, **fields})
    found = limits_from_snapshot(snapshot((node("a", 8),), OWN, quotas=(quota,)), workload(), POLICY)
    assert (found.max_replicas, found.warnings) == (4, (f"a limit of {CHAT} is unknown: {why}",))


def test_a_replica_takes_of_each_quota_what_it_requests_of_that_resource():
    # Two whole devices and one slice a replica: a quota of four slices, its own one used, leaves room for four.
    slices = "nvidia.com/mig-1g.10gb"
    own = replace(OWN[0], requests=(PodRequest(GPU, 2), PodRequest(slices, 1)))
    quota = Quota("inference", "team", slices, 4, 1)
    found = limits_from_snapshot(snapshot(None, (own,), quotas=(quota,)), workload(gpus_per_replica=3.0), POLICY)
    assert (found.max_replicas, found.max_reason) == (4, f"quota team leaves 4 {slices} to it, 1 a replica")


def test_a_quota_is_unknown_where_its_own_pods_amount_is():
    own = replace(OWN[0], requests=(PodRequest(GPU, None),))
    quota = Quota("inference", "team", GPU, 4, 2)
    found = limits_from_snapshot(snapshot(None, (own,), quotas=(quota,)), workload(), POLICY)
    assert f"a limit of {CHAT} is unknown: how many {GPU} its own pods hold could not be read" in found.warnings


@pytest.mark.parametrize(
    ("pools", "others", "why"),
    [
        pytest.param(
            {"allocatable_units": None}, (), "how many nvidia.com/gpu node a offers could not be read", id="node"
        ),
        pytest.param(
            {"sharing": "mps", "units_per_device": None},
            (),
            "how many units of node a share a device is unknown",
            id="slices",
        ),
        pytest.param(
            {},
            (pod("x", "a", None, "d/n/Job/t"),),
            "how many nvidia.com/gpu pod inference/x holds could not be read",
            id="pod",
        ),
    ],
)
def test_room_that_cannot_be_counted_is_unknown_with_its_reason(pools, others, why):
    strange = node("a", 8)
    strange = replace(strange, pools=(replace(strange.pools[0], **pools),))
    found = limits_from_snapshot(snapshot((strange,), (*OWN, *others)), workload(), POLICY)
    assert (found.schedulable_replicas, found.warnings[0]) == (None, f"a limit of {CHAT} is unknown: {why}")


@pytest.mark.parametrize(
    "fields",
    [{"u_mid": 1.5}, {"quantile": 1.0}, {"min_replicas": -1}, {"min_replicas": 5, "max_replicas": 4}, {"mode": "on"}],
)
def test_a_policy_that_cannot_be_meant_is_refused(fields):
    with pytest.raises(UsageError):
        ScalingPolicy(**fields)


def test_slices_of_a_device_shared_in_time_add_no_capacity():
    # Two devices shared four ways are eight slices, and capacity for two replicas.
    pool = AcceleratorPool(GPU, "nvidia", "T4", 16.0, 8, 8, units_per_device=4.0, sharing="time-slicing")
    assert maximum((node("a", 0, pools=(pool,)),), (pod("own", "a", 1),), gpus_per_replica=1.0) == 2


def test_an_owner_whose_count_was_not_read_is_no_daemonset() -> None:
    with pytest.raises(ScaleUnknown, match="asks for is unknown"):
        maximum((node("a", 8),), OWN, kind="ReplicaSet", replicas_wanted=None)
