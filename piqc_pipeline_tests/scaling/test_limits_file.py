"""Manifests and predictor read the same limits."""

from pathlib import Path

import pytest

from piqc_pipeline.errors import UsageError
from piqc_pipeline.scaling.limits import PairBound, ReplicaLimits
from piqc_pipeline.scaling.limits_file import limits_text, read_limits
from piqc_pipeline_tests.scaling.plans import CHAT, plan


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    pair = PairBound("demo/inference/Deployment/decode", 0.5, "1 prefill and 2 decode replicas run now")
    path.write_text(limits_text([plan(max_reason="the cluster has room for 12", pair=pair)]))
    found = read_limits(path)
    assert found == {
        CHAT: ReplicaLimits(CHAT, 2, 12, max_reason="the cluster has room for 12", pair=pair),
    }


def test_a_file_by_hand_needs_no_envelope(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text('{"inference/chat-8b": {"min_replicas": 2, "max_replicas": 12}}')
    found = read_limits(path)["inference/chat-8b"]
    assert (found.min_replicas, found.max_replicas, found.max_reason) == (2, 12, "set in limits.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "write JSON"),
        ("[]", "object"),
        ("[" * 100_000, "write JSON"),
        ('{"schemaVersion": "piqc-limits.v9", "workloads": {}}', "this program reads piqc-limits.v1"),
        ('{"a/b": {"min_replicas": 3, "max_replicas": 2}}', "a/b"),
        ('{"a/b": {"min_replicas": "1", "max_replicas": 2}}', "a/b"),
        ('{"a/b": {"min_replicas": true, "max_replicas": 2}}', "a/b"),
        ('{"a/b": {"min_replicas": 1, "max_replicas": 2, "pair": {"mate": "c", "per_mate": NaN}}}', "the pair of a/b"),
        ('{"a/b": 7}', "a/b"),
    ],
)
def test_limits_that_make_no_sense_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "limits.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_limits(path)
