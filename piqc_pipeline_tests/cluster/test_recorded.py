import json
from collections.abc import Callable
from pathlib import Path

import pytest

from piqc_pipeline.cluster import read_dump
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.errors import DumpUnreadable
from piqc_pipeline_tests.cluster.clusters import NOW, container, controller, node, only_workload, pod, pods, scan, smi

PAGES = [
    "vllm:num_requests_running 2\nvllm:generation_tokens_total 1000\n",
    "vllm:num_requests_running 2\nvllm:generation_tokens_total 1500\n",
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b"   \n", "is empty"),
        (b'{"kind":"List","items":[{"kind":"Node"', "cut off"),
        (b"<html><body>login</body></html>", "is HTML"),
        (b"apiVersion: v1\nkind: List\n", "is it YAML"),
        (b'{"hello": 1}', "no list of Kubernetes objects"),
        (b'{"kind":"List","items":5}', "no list of Kubernetes objects"),
        (b'{"kind":"List","items":[{"kind":"Secret"}]}', "neither nodes nor pods"),
        (b"[]", "neither nodes nor pods"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"\x1f\x8b\x08\x00", "gunzip"),
        (b'{"kind":"NodeList","items":[]}\n{"kind":"PodList","items":[]}', "several JSON documents"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"items":' + b"[" * 100_000, "nested deeper"),
    ],
)
def test_a_file_that_is_no_recording_says_what_it_is_and_how_to_make_one(
    tmp_path: Path, text: bytes | None, words: str
) -> None:
    path = tmp_path / "dump.json"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(DumpUnreadable, match="kubectl get") as error:
        read_dump(path, NOW)
    assert words in str(error.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_recording_made_in_powershell_is_read(tmp_path: Path, encoding: str) -> None:
    scan(tmp_path, node("n0"), pod("p"))
    path = tmp_path / "c.json"
    path.write_bytes(path.read_text(encoding="utf-8").encode(encoding))
    assert list(pods(read_dump(path, NOW))) == ["p"]


def test_a_folder_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(DumpUnreadable, match="is a folder"):
        read_dump(tmp_path, NOW)


def test_recorded_answers_that_are_cut_off_are_told(tmp_path: Path) -> None:
    scan(tmp_path, node("n0"))
    (tmp_path / "c-answers.json").write_text('{"pods": ')
    with pytest.raises(DumpUnreadable, match="recorded answers"):
        read_dump(tmp_path / "c.json", NOW)


def test_the_name_of_the_file_is_the_cluster_unless_one_is_given(tmp_path: Path) -> None:
    scan(tmp_path, node("n0"), pod("p"))
    assert read_dump(tmp_path / "c.json", NOW).cluster == "c"
    assert only_workload(read_dump(tmp_path / "c.json", NOW, "prod")).id == "prod/inference/Pod/p"


@pytest.mark.parametrize("missing", ["nodes", "pods"])
def test_kinds_that_were_not_recorded_are_unknown_and_not_empty(tmp_path: Path, missing: str) -> None:
    snapshot = scan(tmp_path, pod("p") if missing == "nodes" else node("n0"))
    assert getattr(snapshot, missing) is None
    assert snapshot.read_failed and snapshot.unknown[0].why == f"the recording holds no {missing}"


def test_typed_lists_of_the_api_server_are_read_too(tmp_path: Path) -> None:
    item = node("n0")
    del item["kind"]
    (tmp_path / "nodes.json").write_text(json.dumps({"kind": "NodeList", "items": [item]}))
    assert [found.name for found in read_dump(tmp_path / "nodes.json", NOW).nodes or ()] == ["n0"]


@pytest.mark.parametrize("joined", [list, lambda lists: {"kind": "List", "items": lists}], ids=["jq -s", "a List"])
def test_lists_of_lists_are_read_with_the_kinds_of_their_lists(
    tmp_path: Path, joined: Callable[[list], object]
) -> None:
    # Items of a typed list do not repeat their kind; that of an owner is none of theirs.
    node_item, pod_item = node("n0"), pod("p", owner=("ReplicaSet", "w-7d9f8b6c5"))
    set_item = controller("ReplicaSet", "w-7d9f8b6c5", owner=("Deployment", "w"))
    lists = [
        {"kind": f"{item.pop('kind')}List", "items": [item]} for item in (node_item, pod_item, set_item)
    ]  # fmt: skip
    path = tmp_path / "c.json"
    path.write_text(json.dumps(joined(lists)))
    snapshot = read_dump(path, NOW)
    assert [found.name for found in snapshot.nodes or ()] == ["n0"] and list(pods(snapshot)) == ["p"]
    assert only_workload(snapshot).id == "c/inference/Deployment/w"


def test_nodes_of_which_none_can_be_read_are_unknown_and_not_none(tmp_path: Path) -> None:
    snapshot = scan(tmp_path, {"kind": "Node", "metadata": {"name": "n0", "labels": {"x": 5}}}, pod("p"))
    assert snapshot.nodes is None and snapshot.read_failed


def test_one_object_that_cannot_be_read_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    odd = {"kind": "Pod", "metadata": "no object"}
    snapshot = scan(tmp_path, node("n0"), odd, pod("p"))
    assert list(pods(snapshot)) == ["p"]
    assert [entry.what for entry in snapshot.unknown] == ["1 object of c.json"] and snapshot.read_failed


def test_a_recording_without_autoscalers_does_not_say_that_there_are_none(tmp_path: Path) -> None:
    assert scan(tmp_path, node("n0"), pod("p")).autoscalers_read is False
    hpa = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "namespace": "inference"}, "spec": {}}
    assert scan(tmp_path, node("n0"), pod("p"), hpa).autoscalers_read is True


def test_a_pod_that_cannot_be_read_may_hold_any_gpu(tmp_path: Path) -> None:
    whole = scan(tmp_path, node("n0"), pod("p"), {"kind": "Node", "metadata": 5})
    assert whole.read_failed and whole.unread_namespaces == ()
    assert scan(tmp_path, node("n0"), pod("p"), {"kind": "Pod", "metadata": 5}).unread_namespaces == ("*",)


def test_fields_of_another_type_than_usual_are_read(tmp_path: Path) -> None:
    item = node("n0")
    item["status"]["capacity"]["nvidia.com/gpu"] = 8
    item["metadata"]["labels"] = None
    found = scan(tmp_path, item).nodes
    assert found is not None and found[0].pools[0].capacity_units == 8


def test_two_recorded_pages_give_a_rate(tmp_path: Path) -> None:
    answers = {
        "inference/p": {
            "readThrough": "proxy",
            "tools": {"nvidia-smi": smi(("H100", 42))},
            "pages": {"8000/metrics": PAGES, "8000/health": "", "8000/v1/models": '{"data":[{"id":"a/b-7B"}]}'},
        }
    }
    snapshot = scan(tmp_path, node("n0"), pod("p", [container()]), answers=answers, window=10)
    found = only_workload(snapshot)
    assert found.runtime is not None and found.runtime.generation_tokens_per_second == 50.0
    assert (found.runtime.source, found.model.name, found.engine.confidence) == ("proxy", "a/b-7B", "high")
    assert pods(snapshot)["p"].readings[0].utilization_pct == 42.0


def test_a_pod_without_recorded_answer_is_unknown_and_that_is_no_failure(tmp_path: Path) -> None:
    snapshot = scan(tmp_path, node("n0"), pod("p"))
    assert pods(snapshot)["p"].unknown and not snapshot.read_failed


def test_a_selector_and_namespaces_keep_to_some_workloads(tmp_path: Path) -> None:
    items = [node("n0"), pod("a", labels={"app": "a"}), pod("b", labels={"app": "b"}), pod("c", namespace="else")]
    chosen = scan(tmp_path, *items, options=ScanOptions(selector="app in (a)"))
    assert [w.name for w in chosen.workloads] == ["a"] and len(chosen.pods or ()) == 3
    assert [w.name for w in scan(tmp_path, *items, options=ScanOptions(namespaces=("else",))).workloads] == ["c"]
