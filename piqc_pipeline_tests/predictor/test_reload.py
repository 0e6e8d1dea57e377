"""Is an artifact taken once, when it is whole?"""

from pathlib import Path

from piqc_pipeline.errors import ArtifactAltered
from piqc_pipeline.forecast.model import PredictorArtifact
from piqc_pipeline.predictor.reload import ArtifactWatch
from piqc_pipeline_tests.predictor.world import Folder, artifact


def test_same_files_are_loaded_once(tmp_path: Path) -> None:
    folder, loads = Folder(tmp_path / "m", artifact()), []

    def load(path: Path) -> PredictorArtifact:
        loads.append(path)
        return folder.load(path)

    watch = ArtifactWatch(folder.path, load)
    assert watch.look().artifact is not None
    assert watch.look().artifact is None and len(loads) == 1


def test_broken_files_are_tried_once_and_stay_refused(tmp_path: Path) -> None:
    folder, loads = Folder(tmp_path / "m", ArtifactAltered("cut off")), []

    def load(path: Path) -> PredictorArtifact:
        loads.append(path)
        return folder.load(path)

    watch = ArtifactWatch(folder.path, load)
    assert [watch.look().refused for _ in range(3)] == ["cut off"] * 3
    assert len(loads) == 1
    folder.put(artifact())
    look = watch.look()
    assert look.artifact is not None and look.refused is None


def test_same_hash_written_again_changes_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "m", artifact())
    watch = ArtifactWatch(folder.path, folder.load)
    watch.look()
    folder.put(artifact())
    assert watch.look().artifact is None


def test_missing_folder_is_refused_in_words(tmp_path: Path) -> None:
    def load(path: Path) -> PredictorArtifact:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    assert "No such file" in str(ArtifactWatch(tmp_path / "none", load).look().refused)
