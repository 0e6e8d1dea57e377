"""States of clusters and their right reading: who holds what, who waits, who is one workload."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from piqc_pipeline.facts.snapshot import Topology
from piqc_pipeline.facts.taints import Toleration
from piqc_pipeline_tests.cluster.clusters import (
    VLLM,
    container,
    controller,
    node,
    only_workload,
    pod,
    pods,
    scan,
    smi,
    workloads,
)

H100 = "NVIDIA H100 80GB HBM3"


def amounts(snapshot: object, name: str) -> dict[str, float | None]:
    return {request.resource: request.units for request in pods(snapshot)[name].requests}  # type: ignore[arg-type]


def test_what_has_ended_holds_nothing_and_what_ends_or_starts_still_holds(tmp_path: Path) -> None:
    snapshot = scan(
        tmp_path,
        node("n0"),
        pod("done", phase="Succeeded"),
        pod("failed", phase="Failed"),
        pod("creating", phase="Pending", status={"conditions": [{"type": "PodScheduled", "status": "True"}]}),
        pod("ending", meta={"deletionTimestamp": "2025-01-19T23:59:00Z"}),
        pod("lost", phase="Unknown"),
    )
    found = pods(snapshot)
    assert {name: item.holds for name, item in found.items()} == {"creating": True, "ending": True, "lost": True}
    assert found["ending"].deleting and not found["ending"].ready


def test_pods_wait_for_their_own_reason(tmp_path: Path) -> None:
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    no_room = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    }
    snapshot = scan(
        tmp_path,
        node("n0"),
        pod("big", on=None, phase="Pending", status=no_room),
        pod("gated", on=None, phase="Pending", spec={"schedulingGates": [{"name": "quota"}]}),
        pod("new", on=None, phase="Pending", status={"conditions": []}),
    )
    reasons = {name: item.waiting_reason for name, item in pods(snapshot).items()}
    assert reasons == {"big": f"Unschedulable: {message}", "gated": "SchedulingGated", "new": "Pending"}


def test_init_containers_and_native_sidecars_follow_the_effective_request(tmp_path: Path) -> None:
    plain = container("app", "app:1", None)
    side = {**container("side", gpus=1), "restartPolicy": "Always"}
    warm = container("warm", "busybox:1", 4)
    snapshot = scan(
        tmp_path,
        node("n0"),
        pod("init", [plain], spec={"initContainers": [warm]}),
        pod("sidecar", [plain], spec={"initContainers": [side]}),
        pod("both", [container(gpus=2)], spec={"initContainers": [side, warm]}),
        pod("sum", [container(gpus=2), container("b", gpus=3)], spec={"initContainers": [side]}),
        pod("limits", [container(gpus=None, resources={"limits": {"nvidia.com/gpu": "4"}})]),
    )
    key = "nvidia.com/gpu"
    assert amounts(snapshot, "init") == {key: 4.0}
    assert amounts(snapshot, "sidecar") == {key: 1.0}
    assert amounts(snapshot, "both") == {key: 5.0}, "the warm-up runs beside the sidecar: 1 + 4 is more than 2 + 1"
    assert amounts(snapshot, "sum") == {key: 6.0}
    assert amounts(snapshot, "limits") == {key: 4.0}


def test_the_container_is_chosen_by_its_request_and_not_by_its_place(tmp_path: Path) -> None:
    proxy = container("istio-proxy", "istio/proxyv2:1.22", None)
    found = only_workload(scan(tmp_path, node("n0"), pod("p", [proxy, container(gpus=2, args=["--model", "a/b-32B"])])))
    assert (found.engine.name, found.model.name) == ("vllm", "a/b-32B")


def test_an_unreadable_request_is_an_unknown_amount_and_not_none(tmp_path: Path) -> None:
    odd = container(gpus=None, resources={"requests": {"nvidia.com/gpu": "two"}})
    snapshot = scan(tmp_path, node("n0"), pod("odd", [odd]))
    assert amounts(snapshot, "odd") == {"nvidia.com/gpu": None}
    assert pods(snapshot)["odd"].unknown and only_workload(snapshot).gpus_per_replica is None


def test_a_deployment_and_a_statefulset_of_one_name_are_two(tmp_path: Path) -> None:
    snapshot = scan(
        tmp_path,
        node("n0"),
        controller("Deployment", "llm", replicas=1),
        controller("ReplicaSet", "llm-abc", ("Deployment", "llm")),
        pod("llm-abc-1", owner=("ReplicaSet", "llm-abc")),
        pod("llm-0", owner=("StatefulSet", "llm")),
        pod("my-model-x1", owner=("ReplicaSet", "my-model")),
    )
    assert sorted(workloads(snapshot)) == ["Deployment/llm", "ReplicaSet/my-model", "StatefulSet/llm"]


def test_owners_are_followed_to_the_top(tmp_path: Path) -> None:
    knative = {"serving.kserve.io/inferenceservice": "isvc"}
    ray = {"ray.io/cluster": "rc", "ray.io/node-type": "worker", "ray.io/originated-from-crd": "RayService"}
    snapshot = scan(
        tmp_path,
        node("n0"),
        controller("CronJob", "nightly"),
        {**controller("Job", "nightly-1", ("CronJob", "nightly"), parallelism=2)},
        pod("nightly-1-x", owner=("Job", "nightly-1")),
        pod("isvc-predictor-x", owner=("ReplicaSet", "isvc-predictor-1"), labels=knative),
        pod("rc-w", owner=("RayCluster", "rc"), labels={**ray, "ray.io/originated-from-cr-name": "svc"}),
        controller("StatefulSet", "lab", ("Notebook", "lab"), replicas=1),
        pod("lab-0", [container(image="jupyter:1")], owner=("StatefulSet", "lab")),
        pod("static", meta={"ownerReferences": [{"kind": "Node", "name": "n0", "controller": True}]}),
        pod("ds-1", owner=("DaemonSet", "ds")),
        pod("ds-2", owner=("DaemonSet", "ds")),
    )
    found = workloads(snapshot)
    assert sorted(found) == [
        "CronJob/nightly",
        "DaemonSet/ds",
        "InferenceService/isvc",
        "Notebook/lab",
        "Pod/static",
        "RayService/svc",
    ]
    assert found["DaemonSet/ds"].replicas_ready == 2 and not found["Notebook/lab"].is_inference


def test_owners_that_own_each_other_end_somewhere(tmp_path: Path) -> None:
    loop = [controller("Job", "a", ("CronJob", "b")), controller("CronJob", "b", ("Job", "a"))]
    assert len(workloads(scan(tmp_path, node("n0"), *loop, pod("p", owner=("Job", "a"))))) == 1


def test_two_groups_of_two_nodes_are_one_workload_of_two_replicas(tmp_path: Path) -> None:
    args = ["--model", "deepseek-ai/DeepSeek-R1", "--tensor-parallel-size", "8", "--pipeline-parallel-size", "2"]
    items = [node(f"n{n}") for n in range(4)]
    for group in range(2):
        for rank in range(2):
            labels = {
                "leaderworkerset.sigs.k8s.io/name": "ds",
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
                "leaderworkerset.sigs.k8s.io/worker-index": str(rank),
            }
            name = f"ds-{group}" + ("-1" if rank else "")
            owner = ("StatefulSet", f"ds-{group}" if rank else "ds")
            items.append(pod(name, [container(gpus=8, args=args)], f"n{group * 2 + rank}", owner, labels=labels))
    found = only_workload(scan(tmp_path, *items))
    assert found.id == "c/inference/LeaderWorkerSet/ds"
    assert (found.replicas_ready, found.gpus_per_replica) == (2, 16.0)
    assert found.topology == Topology(groups=2, pods_per_group=2, nodes=4)
    assert (found.model.tensor_parallel, found.model.pipeline_parallel) == (8, 2)


def test_age_is_that_of_the_owner_and_not_of_restarted_pods(tmp_path: Path) -> None:
    old = controller("Deployment", "old", replicas=1)
    old["metadata"]["creationTimestamp"] = "2024-11-21T00:00:00Z"
    replica_set = controller("ReplicaSet", "old-abc", ("Deployment", "old"))
    found = only_workload(
        scan(tmp_path, node("n0"), old, replica_set, pod("old-abc-1", owner=("ReplicaSet", "old-abc")))
    )
    assert found.created_at is not None and found.created_at.isoformat() == "2024-11-21T00:00:00+00:00"


def test_a_rollout_shows_the_new_model_and_says_that_two_run(tmp_path: Path) -> None:
    new = [container(gpus=8, args=["--model", "new-70B", "--tensor-parallel-size", "8"])]
    snapshot = scan(
        tmp_path,
        node("n0"),
        node("n1"),
        controller("Deployment", "roll", replicas=1),
        controller("ReplicaSet", "roll-1", ("Deployment", "roll")),
        controller("ReplicaSet", "roll-2", ("Deployment", "roll")),
        pod(
            "roll-1-a",
            [container(args=["--model", "old-7B"])],
            owner=("ReplicaSet", "roll-1"),
            created="2025-01-01T00:00:00Z",
        ),
        pod("roll-2-a", new, "n1", owner=("ReplicaSet", "roll-2"), created="2025-01-19T00:00:00Z"),
    )
    found = only_workload(snapshot)
    assert (found.model.name, found.gpus_per_replica) == ("new-70B", 8.0)
    assert any("2 revisions" in entry.why for entry in found.unknown)


def test_a_deployment_scaled_to_zero_is_still_known(tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"app": "z"}}, "spec": {"containers": [container(gpus=2, args=VLLM)]}}
    zero = controller("Deployment", "z", replicas=0, template=template)
    found = only_workload(scan(tmp_path, node("n0"), zero, pod("other", [container(image="nginx:1", gpus=None)])))
    assert (found.replicas_wanted, found.replicas_ready, found.gpus_per_replica) == (0, 0, 2.0)
    assert found.engine.name == "vllm"


def test_a_privileged_pod_is_billed_for_what_it_requests(tmp_path: Path) -> None:
    tool = {"tools": {"nvidia-smi": smi(*[(H100, at) for at in range(8)])}}
    found = pods(scan(tmp_path, node("n0"), pod("priv"), answers={"inference/priv": tool}))["priv"]
    assert [request.units for request in found.requests] == [1.0]
    assert found.readings == () and "it sees 8 accelerators and holds 1" in found.unknown[0].why


def test_a_pod_that_sees_all_devices_without_request_is_told(tmp_path: Path) -> None:
    sneaky = container(gpus=None, args=VLLM, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    tool = {"tools": {"nvidia-smi": smi(*[(H100, 60)] * 8)}}
    found = pods(scan(tmp_path, node("n0"), pod("sneaky", [sneaky]), answers={"inference/sneaky": tool}))["sneaky"]
    assert found.requests == () and found.visible_devices == "all" and len(found.readings) == 8
    assert "without a request" in found.unknown[0].why


def test_a_pod_cannot_invent_accelerators_by_its_environment(tmp_path: Path) -> None:
    env = [{"name": "FAKE_GPU_COUNT", "value": "100"}, {"name": "FAKE_GPU_MODEL", "value": "H100"}]
    found = pods(scan(tmp_path, node("n0"), pod("fake", [container(args=VLLM, env=env)])))["fake"]
    assert [request.units for request in found.requests] == [1.0] and found.readings == ()


def test_utilization_is_that_of_every_gpu_of_every_replica(tmp_path: Path) -> None:
    answers = {
        "inference/a": {"tools": {"nvidia-smi": smi((H100, 100), *[(H100, 0)] * 7)}},
        "inference/b": {"tools": {"nvidia-smi": smi(*[(H100, 95)] * 8)}},
    }
    both = [pod(name, [container(gpus=8, args=VLLM)], "n0", ("StatefulSet", "s")) for name in ("a", "b")]
    found = pods(scan(tmp_path, node("n0"), *both, answers=answers))
    readings = [r.utilization_pct or 0 for item in found.values() for r in item.readings]
    assert sum(readings) / len(readings) == (100 + 8 * 95) / 16


def test_a_gpu_that_was_not_seen_is_unknown_and_the_seen_ones_count(tmp_path: Path) -> None:
    tool = {"tools": {"nvidia-smi": smi((H100, 40))}}
    found = pods(scan(tmp_path, node("n0"), pod("p", [container(gpus=2)]), answers={"inference/p": tool}))["p"]
    assert len(found.readings) == 1 and "1 of the 2 accelerators" in found.unknown[0].why


def test_no_secret_is_in_a_snapshot(tmp_path: Path) -> None:
    leaky = container(
        args=[*VLLM, "--api-key", "sk-live-CANARY-ARG"],
        env=[
            {"name": "HF_TOKEN", "value": "hf_CANARY_ENV"},
            {"name": "AWS_SECRET_ACCESS_KEY", "value": "CANARY_AWS"},
            {"name": "PLAIN", "value": "CANARY_PLAIN"},
        ],
    )
    template = {"spec": {"containers": [leaky]}}
    snapshot = scan(
        tmp_path, node("n0"), controller("Deployment", "d", template=template, replicas=0), pod("p", [leaky])
    )
    assert "CANARY" not in repr(snapshot)
    names = [row["name"] for row in workloads(snapshot)["Pod/p"].pod_spec["containers"][0]["env"]]  # type: ignore[index]
    assert names == ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PLAIN"]


def test_cordoned_unready_and_tainted_nodes_are_told_apart(tmp_path: Path) -> None:
    taint = {"taints": [{"key": "maintenance", "effect": "NoExecute"}, {"key": "soft", "effect": "PreferNoSchedule"}]}
    snapshot = scan(
        tmp_path, node("a"), node("b", spec={"unschedulable": True}), node("c", ready=False), node("d", spec=taint)
    )
    states = {item.name: (item.ready, item.cordoned, item.taints) for item in snapshot.nodes or ()}
    assert states == {
        "a": (True, False, ()),
        "b": (True, True, ()),
        "c": (False, False, ()),
        "d": (True, False, ("maintenance=:NoExecute",)),
    }


def test_tolerations_and_the_node_selector_of_a_pod_are_kept(tmp_path: Path) -> None:
    rows = [
        {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    ]
    spec = {"tolerations": rows, "nodeSelector": {"pool": "big"}}
    snapshot = scan(tmp_path, node("n0"), pod("p", spec=spec))
    kept = (Toleration("sku", "gpu", "NoSchedule"), Toleration("nvidia.com/gpu", exists=True))
    assert pods(snapshot)["p"].tolerations == kept
    found = only_workload(snapshot)
    assert found.tolerations == kept and found.pod_spec["nodeSelector"] == {"pool": "big"}
    assert found.pod_spec["tolerations"][0] == rows[0]  # type: ignore[index]


def test_text_of_the_cluster_is_passed_on_and_never_interpreted(tmp_path: Path) -> None:
    found = only_workload(scan(tmp_path, node("n0"), pod("p", [container(args=["--model", "a[/b]-7B"])])))
    assert found.model.name == "a[/b]-7B"


_CELL = st.none() | st.text(max_size=6) | st.integers(-5, 20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    capacity=_CELL,
    request=_CELL,
    phase=st.sampled_from(["Running", "Pending", "Succeeded", "odd"]),
    name=st.text(max_size=8),
)
def test_no_object_makes_the_scan_fail(
    tmp_path: Path, capacity: object, request: object, phase: str, name: str
) -> None:
    odd = container(gpus=None, resources={"requests": {"nvidia.com/gpu": request}}, image=name)
    item = node("n0")
    item["status"]["capacity"]["nvidia.com/gpu"] = capacity
    snapshot = scan(tmp_path, item, pod("p", [odd], phase=phase), pod("q"))
    assert "q" in pods(snapshot)
    for found in snapshot.nodes or ():
        assert all(pool.capacity_units is None or pool.capacity_units >= 0 for pool in found.pools)


@pytest.mark.parametrize("kind", ["dra", "slices"])
def test_devices_held_by_claims_are_counted(tmp_path: Path, kind: str) -> None:
    results = [{"driver": "gpu.nvidia.com", "pool": "n0", "device": f"gpu-{n}", "request": "g"} for n in range(2)]
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "two", "namespace": "inference"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "name": "p"}]},
    }
    product = {"productName": {"string": "NVIDIA H100 80GB HBM3"}}
    devices = [{"name": f"gpu-{n}", "attributes": product, "capacity": {"memory": {"value": "80Gi"}}} for n in range(8)]
    offer = {
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": "n0", "pool": {"name": "n0"}, "devices": devices},
    }
    user = pod(
        "p", [container(gpus=None, args=VLLM)], spec={"resourceClaims": [{"name": "g", "resourceClaimName": "two"}]}
    )
    item = node("n0", None, labels={"nvidia.com/gpu.count": "8"})
    snapshot = scan(tmp_path, item, claim, user, *([offer] if kind == "slices" else []))
    assert amounts(snapshot, "p") == {"gpu.nvidia.com": 2.0}
    assert snapshot.nodes is not None
    (found,) = snapshot.nodes[0].pools
    assert (found.resource, found.capacity_units, found.allocatable_units) == ("gpu.nvidia.com", 8, 8)


def test_a_claim_that_was_not_read_is_an_unknown_amount(tmp_path: Path) -> None:
    spec = {"resourceClaims": [{"name": "g", "resourceClaimName": "two"}]}
    snapshot = scan(tmp_path, node("n0", None), pod("p", [container(gpus=None, args=VLLM)], spec=spec))
    assert list(amounts(snapshot, "p").values()) == [None]
    assert snapshot.read_failed


DCGM = container("e", "nvcr.io/nvidia/k8s/dcgm-exporter:3.3", None, ports=[{"containerPort": 9400}])


def test_devices_without_pod_labels_are_those_of_the_one_pod_that_holds_the_whole_node(tmp_path: Path) -> None:
    page = "".join(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{n}",UUID="GPU-{n}",pod=""}} {n}\n' for n in range(2))
    answers = {"monitoring/dcgm": {"pages": {"9400/metrics": page}}}
    exporter = pod("dcgm", [DCGM], namespace="monitoring")
    whole = scan(tmp_path, node("n0", "2"), exporter, pod("p", [container(gpus=2, args=VLLM)]), answers=answers)
    assert [r.utilization_pct for r in pods(whole)["p"].readings] == [0.0, 1.0]
    both = [pod(name, [container(gpus=1, args=VLLM)]) for name in ("p", "q")]
    halves = pods(scan(tmp_path, node("n0", "2"), exporter, *both, answers=answers))
    assert halves["p"].readings == () == halves["q"].readings, "which is whose is not told"


def test_a_fraction_has_the_readings_of_the_card_that_a_placeholder_holds_for_it(tmp_path: Path) -> None:
    # run-ai/fake-gpu-operator: the exporter names runai-reservation-gpu-..., not the workload that uses the card.
    group = {"runai-gpu-group": "g1"}
    holder = pod("runai-reservation-gpu-x", [container(image="reserve")], labels=group, namespace="runai-reservation")
    sharer = pod("frac", [container(gpus=None, args=VLLM)], labels=group, meta={"annotations": {"gpu-fraction": "0.5"}})
    page = (
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-7a",namespace="runai-reservation",pod="runai-reservation-gpu-x"} 30\n'
        'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-5f",namespace="",pod=""} 0\n'
    )
    answers = {"monitoring/dcgm": {"pages": {"9400/metrics": page}}}
    found = pods(
        scan(tmp_path, node("n0", "2"), holder, sharer, pod("dcgm", [DCGM], namespace="monitoring"), answers=answers)
    )
    assert [r.utilization_pct for r in found["frac"].readings] == [30.0]


def test_the_workers_of_a_ray_cluster_tell_what_their_replicas_do(tmp_path: Path) -> None:
    ray = {"ray.io/is-ray-node": "yes", "ray.io/cluster": "rc"}
    items = [node("n0")]
    answers: dict[str, Any] = {}
    for name, kind, page in (
        ("head", "head", "ray_serve_num_http_requests_total 3\n"),
        ("w0", "worker", 'ray_vllm_num_requests_running{WorkerId="a"} 2\nray_vllm_kv_cache_usage_perc 0.25\n'),
        ("w1", "worker", 'ray_vllm_num_requests_running{WorkerId="b"} 3\nray_vllm_kv_cache_usage_perc 0.75\n'),
    ):
        image = container(image="rayproject/ray-llm:2.49.0", gpus=0 if kind == "head" else 1, args=["ray start"])
        items.append(pod(name, [image], labels={**ray, "ray.io/node-type": kind}, owner=("RayCluster", "rc")))
        answers[f"inference/{name}"] = {"pages": {"8080/metrics": page}}
    runtime = only_workload(scan(tmp_path, *items, answers=answers)).runtime
    assert runtime is not None
    assert (runtime.requests_running, runtime.kv_cache_usage_pct) == (5.0, 50.0)
