"""Label sets are those of public samples: aicr (honorLabels true), the chart's default, run:ai, exporters of 2020."""

import pytest

from piqc_pipeline.history.attribution import Owners, device, gpus_of_device, holder, is_placeholder
from piqc_pipeline.history.inventory import WorkloadInventory

TARGET = {
    "container": "nvidia-dcgm-exporter",
    "namespace": "gpu-operator",
    "pod": "nvidia-dcgm-exporter-wqqqn",
    "service": "nvidia-dcgm-exporter",
    "job": "nvidia-dcgm-exporter",
}


@pytest.mark.parametrize(
    ("labels", "pod"),
    [
        (
            {"namespace": "dynamo", "pod": "vllm-agg-0-worker-s65j5", "container": "main"},
            ("dynamo", "vllm-agg-0-worker-s65j5"),
        ),
        (TARGET, None),
        ({**TARGET, "exported_pod": "chat-0", "exported_namespace": "prod"}, ("prod", "chat-0")),
        ({**TARGET, "exported_pod": "", "exported_namespace": ""}, None),
        ({"pod_name": "chat-0", "pod_namespace": "prod", "container_name": "main"}, ("prod", "chat-0")),
        ({"pod": "", "namespace": "", "container": ""}, None),
        ({}, None),
        ({"pod": "nvidia-dcgm-exporter-tl46n", "Hostname": "nvidia-dcgm-exporter-tl46n"}, None),
        ({"pod": "exporter-x", "namespace": "default", "container": "exporter", "service": "exporter"}, None),
        ({"pod": "runai-reservation-gpu-node-t4-kvltw", "namespace": "runai-reservation"}, None),
        ({"kubernetes_name": "nvidia-dcgm-exporter", "kubernetes_namespace": "gpu-operator"}, None),
        ({"namespace": "default", "pod": "dcgm-exporter-zxgzh", "container": "exporter"}, None),
    ],
    ids=[
        "plain",
        "idle gpu",
        "exported",
        "exported idle",
        "exporter 1.x",
        "empty",
        "none",
        "hostname",
        "by service",
        "runai",
        "vm",
        "l40s",
    ],
)
def test_the_holder_is_the_users_pod_and_never_the_exporters(
    labels: dict[str, str], pod: tuple[str, str] | None
) -> None:
    assert holder(labels) == pod


def test_a_reservation_of_a_fractional_scheduler_is_told_apart() -> None:
    assert is_placeholder({"pod": "runai-reservation-gpu-gpu-node-t4-kvltw"})
    assert not is_placeholder({"pod": "chat-0"})


def test_a_device_is_its_uuid_or_node_and_number_and_a_mig_instance_is_one_of_its_own() -> None:
    assert device({"UUID": "GPU-1", "gpu": "0"}) == "GPU-1"
    assert device({"UUID": "GPU-1", "GPU_I_ID": "7"}) == "GPU-1/7"
    assert device({"hostname": "n1", "gpu": "3"}) == device({"Hostname": "n1", "gpu": "3"}) == "n1/3"
    assert gpus_of_device({"GPU_I_PROFILE": "2g.10gb"}) == pytest.approx(2 / 7)
    assert gpus_of_device({}) == 1


CHAT = WorkloadInventory("prod/llm/Deployment/chat", "llm", "Deployment", "chat", pods=("chat-7c9f8d6b54-x2lqk",))
ROUTER = WorkloadInventory("prod/llm/Deployment/chat-router", "llm", "Deployment", "chat-router")
RANK = WorkloadInventory("prod/llm/StatefulSet/rank", "llm", "StatefulSet", "rank", pods=("rank-0",))
SERVED = WorkloadInventory(
    "prod/llm/InferenceService/bert", "llm", "InferenceService", "bert", pods=("bert-predictor-5d8c7b9f6d-bb9vz",)
)
INVENTORY = (CHAT, ROUTER, RANK, SERVED)


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("chat-7c9f8d6b54-x2lqk", CHAT.id),
        ("chat-65dbf9c8d7-zzz4q", CHAT.id),
        ("chat-router-65dbf9c8d7-zzz4q", ROUTER.id),
        ("rank-11", RANK.id),
        ("bert-predictor-789d5c6f4b-h8k2m", SERVED.id),
        ("my-trainer-x2x4z", None),
        ("stranger-65dbf9c8d7-zzz4q", None),
        ("chatter", None),
    ],
)
def test_pods_long_gone_are_joined_by_their_generated_names(pod: str, workload: str | None) -> None:
    assert Owners(INVENTORY).workload(("llm", pod)) == workload


def test_another_namespace_is_another_workload() -> None:
    assert Owners(INVENTORY).workload(("other", "chat-7c9f8d6b54-x2lqk")) is None


def test_two_workloads_with_one_prefix_are_not_guessed() -> None:
    twin = WorkloadInventory("prod/llm/StatefulSet/chat", "llm", "StatefulSet", "chat")
    assert Owners((CHAT, twin)).workload(("llm", "chat-65dbf9c8d7-zzz4q")) is None


def test_owners_of_kube_state_metrics_lead_to_the_topmost_known() -> None:
    pods = {
        ("llm", "odd-name"): ("ReplicaSet", "chat-abc"),
        ("llm", "gone"): ("Job", "train-1"),
        ("llm", "loop"): ("A", "a"),
    }
    above = {("llm", "ReplicaSet", "chat-abc"): ("Deployment", "chat"), ("llm", "A", "a"): ("A", "a")}
    owners = Owners(INVENTORY, pods, above)
    assert owners.workload(("llm", "odd-name")) == CHAT.id
    assert owners.workload(("llm", "gone")) == "prod/llm/Job/train-1"
    assert owners.workload(("llm", "loop")) == "prod/llm/A/a"
