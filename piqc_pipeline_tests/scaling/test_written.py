"""Manifests read back from the disk."""

from pathlib import Path

import pytest

from piqc_pipeline.errors import ManifestInvalid
from piqc_pipeline.scaling.written import unreachable, written_objects


def scaled(metric_type: str, target: str, most: int = 5) -> dict[str, object]:
    trigger = {
        "type": "metrics-api",
        "name": "forecast",
        "metricType": metric_type,
        "metadata": {"url": "http://predictor/v1", "targetValue": target},
    }
    return {"spec": {"maxReplicaCount": most, "triggers": [trigger]}}


def test_a_count_of_replicas_against_target_1_reaches_the_maximum() -> None:
    assert list(unreachable(scaled("AverageValue", "1"))) == []


def test_a_target_of_75_asks_for_one_replica_where_five_are_allowed() -> None:
    # ceil(5 / 75) = 1: AverageValue divides by the target, whatever runs.
    assert list(unreachable(scaled("AverageValue", "75"))) == [
        "trigger forecast asks for 1 replicas at most and 5 are allowed"
    ]


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid, match="materialize keda_manifests first"):
        written_objects(tmp_path / "none")


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [1")
    with pytest.raises(ManifestInvalid, match="broken.yaml"):
        written_objects(tmp_path)
