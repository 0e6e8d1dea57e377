"""A folder of manifests appears whole, or not at all."""

import os

import pytest

from piqc_pipeline import atomic
from piqc_pipeline.errors import OutputUnwritable, ScalingError
from piqc_pipeline.scaling.overlay import write_overlay
from piqc_pipeline.scaling.yaml_text import MARKER

FILES = {"kustomization.yaml": f"{MARKER}\na: 1\n", "ns/a.yaml": f"{MARKER}\nb: 2\n"}


def content(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_stale_files_of_ours_are_gone_after_the_next_write(tmp_path):
    folder = tmp_path / "manifests"
    write_overlay(FILES, folder)
    write_overlay({"kustomization.yaml": FILES["kustomization.yaml"]}, folder)
    assert content(folder) == {"kustomization.yaml": FILES["kustomization.yaml"]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifests"]


def test_a_folder_with_a_file_of_the_user_is_not_replaced(tmp_path):
    folder = tmp_path / "manifests"
    write_overlay(FILES, folder)
    (folder / "mine.yaml").write_text("kind: Secret\n")
    with pytest.raises(ScalingError, match=r"holds mine\.yaml, which piqc did not write"):
        write_overlay({}, folder)
    assert "mine.yaml" in content(folder)


@pytest.mark.parametrize("name", ["../x.yaml", "/etc/x.yaml", "a/../../x.yaml"])
def test_a_path_cannot_leave_the_folder(tmp_path, name):
    with pytest.raises(ScalingError, match="leaves the folder"):
        write_overlay({name: ""}, tmp_path / "manifests")


def test_a_full_disk_leaves_what_stood_there(tmp_path, monkeypatch):
    folder = tmp_path / "manifests"
    write_overlay(FILES, folder)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputUnwritable, match="No space left on device; what stood there is untouched"):
        write_overlay({"kustomization.yaml": f"{MARKER}\nnew: 1\n"}, folder)
    assert content(folder) == FILES
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifests"]


def test_a_parent_that_is_a_file_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputUnwritable, match="cannot write manifests"):
        write_overlay(FILES, tmp_path / "file" / "manifests")


def test_without_an_exchange_of_names_the_folder_is_replaced_too(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_exchange", lambda one, two: False)
    folder = tmp_path / "manifests"
    write_overlay(FILES, folder)
    write_overlay({"b.yaml": f"{MARKER}\n"}, folder)
    assert list(content(folder)) == ["b.yaml"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifests"]
