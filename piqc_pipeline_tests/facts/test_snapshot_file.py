from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from piqc_pipeline.errors import DumpUnreadable, OutputUnwritable
from piqc_pipeline.facts.snapshot import (
    AcceleratorPool,
    AcceleratorReading,
    ClusterSnapshot,
    EngineIdentity,
    EngineRuntime,
    Latency,
    ModelIdentity,
    Node,
    Pod,
    PodRequest,
    Unknown,
    Workload,
)
from piqc_pipeline.facts.snapshot_file import read_snapshot, snapshot_from_json, snapshot_to_json, write_snapshot

NOW = datetime(2025, 1, 20, tzinfo=UTC)
MIG = AcceleratorPool("nvidia.com/mig-2g.10gb", "nvidia", "NVIDIA-A100-SXM4-40GB", 9.6, 1, 1, 3.5, "mig", "2g.10gb")
RUNTIME = EngineRuntime(True, "proxy", ("m",), requests_running=3.0, end_to_end=Latency(1.0, None, 9.5, 2.0))
SNAPSHOT = ClusterSnapshot(
    cluster="c",
    context=None,
    taken_at=NOW,
    nodes=(Node("n", {"a": "b"}, True, False, ("x=y:NoSchedule",), (MIG,), created_at=NOW),),
    pods=(
        Pod(
            "ns",
            "p",
            "u",
            "Running",
            "n",
            "c/ns/Deployment/d",
            True,
            True,
            (PodRequest("nvidia.com/gpu", 0.5, "fraction"),),
            NOW,
            readings=(AcceleratorReading("exec", "GPU-1", "0", utilization_pct=None),),
            runtime=RUNTIME,
        ),
    ),
    workloads=(
        Workload(
            id="c/ns/Deployment/d",
            cluster="c",
            namespace="ns",
            kind="Deployment",
            name="d",
            api_version="apps/v1",
            engine=EngineIdentity("vllm", 0.6, "medium", ("image vllm/vllm-openai",)),
            model=ModelIdentity("m", parameters_total=7e9),
            is_inference=True,
            replicas_wanted=1,
            replicas_ready=1,
            gpus_per_replica=0.5,
            images=("vllm/vllm-openai:v1",),
            created_at=NOW,
            pod_spec={"containers": [{"name": "a"}]},
            runtime=RUNTIME,
        ),
    ),
    unknown=(Unknown("price", "no such row"),),
)


def test_a_snapshot_survives_its_file(tmp_path: Path) -> None:
    write_snapshot(SNAPSHOT, tmp_path / "facts" / "snapshot.json")
    assert read_snapshot(tmp_path / "facts" / "snapshot.json") == SNAPSHOT


def test_unread_nodes_and_pods_stay_unread() -> None:
    unread = replace(SNAPSHOT, nodes=None, pods=None)
    back = snapshot_from_json(snapshot_to_json(unread))
    assert back.nodes is None and back.pods is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", snapshot_to_json(SNAPSHOT)[:-9]], ids=repr)
def test_a_text_that_is_no_snapshot_is_named_so(text: bytes) -> None:
    with pytest.raises(DumpUnreadable, match="cannot read the snapshot"):
        snapshot_from_json(text)


def test_another_schema_version_is_refused() -> None:
    with pytest.raises(DumpUnreadable, match="piqc-snapshot.v9"):
        snapshot_from_json(snapshot_to_json(SNAPSHOT).replace(b"piqc-snapshot.v1", b"piqc-snapshot.v9"))


def test_a_missing_snapshot_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DumpUnreadable, match="scan the cluster first"):
        read_snapshot(tmp_path / "none.json")


def test_a_folder_that_cannot_be_made_is_an_error_of_the_output(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputUnwritable, match="choose another folder"):
        write_snapshot(SNAPSHOT, tmp_path / "file" / "snapshot.json")


def test_a_failed_write_leaves_the_older_file_and_no_rest(tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").mkdir()
    with pytest.raises(OutputUnwritable):
        write_snapshot(SNAPSHOT, tmp_path / "snapshot.json")
    assert [entry.name for entry in tmp_path.iterdir()] == ["snapshot.json"]


def test_a_snapshot_of_a_version_without_subjects_is_read_and_one_with_them_is_read_there() -> None:
    told = replace(SNAPSHOT, unknown=(Unknown("scaledobjects", "forbidden", True, about="autoscalers"),))
    text = snapshot_to_json(told)
    assert b'{"what":"scaledobjects","why":"forbidden","read_failed":true,"about":"autoscalers"}' in text
    older = text.replace(b',"about":"autoscalers"', b"").replace(b'"interrupted":false,', b"")
    assert snapshot_from_json(older).unknown == (Unknown("scaledobjects", "forbidden", True),)
    newer = text.replace(b'"interrupted":false', b'"interrupted":false,"something_later":1')
    assert snapshot_from_json(newer) == told


@pytest.mark.parametrize("odd", [b"", b"llama", b"c/ns/Deployment/", b"ns/Deployment/d"])
def test_a_workload_without_a_whole_id_is_no_snapshot_of_ours(odd: bytes) -> None:
    text = snapshot_to_json(SNAPSHOT)
    with pytest.raises(DumpUnreadable, match="is no id of a workload"):
        snapshot_from_json(text.replace(b'"id":"c/ns/Deployment/d"', b'"id":"' + odd + b'"'))
    arn = b'"id":"arn:aws:eks:eu-1:1:cluster/c/ns/Deployment/d"'
    assert snapshot_from_json(text.replace(b'"id":"c/ns/Deployment/d"', arn)).workloads
