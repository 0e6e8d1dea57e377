"""What would be changed, seen without changing anything."""

import pytest
import yaml

from piqc_pipeline.errors import ManifestInvalid
from piqc_pipeline.scaling.diff import Change, as_text, compare, written_documents
from piqc_pipeline.scaling.overlay import render, write_overlay
from piqc_pipeline_tests.scaling.plans import POLICY, plan

NAME = "inference/ScaledObject/chat-8b"


def written():
    return yaml.safe_load(render([plan()], POLICY)["inference/chat-8b.scaledobject.yaml"])


def served():
    """As the API server gives it back: with defaults, status and its own fields."""
    body = written()
    body["metadata"] |= {"uid": "u", "resourceVersion": "1", "generation": 2}
    body["spec"]["cooldownPeriod"] = 300
    body["status"] = {"conditions": []}
    return body


def test_what_the_server_adds_is_no_difference():
    assert compare(NAME, written(), served()).state == "same"


def test_a_changed_field_is_named_with_both_values():
    live = served()
    live["spec"]["maxReplicaCount"] = 4
    found = compare(NAME, written(), live)
    assert (found.state, found.changes) == ("changed", (Change("spec.maxReplicaCount", 4, 12),))
    assert "  spec.maxReplicaCount\n  - 4\n  + 12" in as_text([found])


def test_an_added_trigger_is_one_difference():
    live = served()
    live["spec"]["triggers"].append({"type": "cron"})
    assert [change.path for change in compare(NAME, written(), live).changes] == ["spec.triggers"]


def test_a_missing_and_an_unread_object_are_told_apart():
    assert compare(NAME, written(), None).state == "missing"
    assert compare(NAME, written(), None, "forbidden").state == "unread"


@pytest.mark.parametrize(
    ("ours", "theirs", "same"), [("0", 0, True), (1, "1", True), (True, "true", False), ("a", "b", False)]
)
def test_quantities_are_equal_in_either_form(ours, theirs, same):
    assert (compare("x", {"a": ours}, {"a": theirs}).state == "same") is same


def test_text_from_the_cluster_is_not_interpreted():
    assert "\x1b" not in as_text([compare("x", {"a": "1"}, {"a": "\x1b[31mred"})])


def test_the_overlays_own_list_says_what_is_compared(tmp_path):
    write_overlay(render([plan()], POLICY), tmp_path / "m")
    found = written_documents(tmp_path / "m")
    assert [body["kind"] for body in found] == ["ScaledObject", "PrometheusRule", "ConfigMap"]
    # Each names its namespace, so that nothing is looked for in `default`.
    assert [body["metadata"]["namespace"] for body in found] == ["inference", "piqc", "piqc"]
    assert found[-1]["data"]["limits.json"] == (tmp_path / "m" / "limits.json").read_text()


def test_a_folder_without_manifests_says_how_to_write_them(tmp_path):
    with pytest.raises(ManifestInvalid, match="piqc plan --write"):
        written_documents(tmp_path)


@pytest.mark.parametrize("text", ["[", "- a\n", "resources: [gone.yaml]\n"])
def test_a_broken_overlay_is_one_sentence(tmp_path, text):
    (tmp_path / "kustomization.yaml").write_text(text)
    with pytest.raises(ManifestInvalid):
        written_documents(tmp_path)
