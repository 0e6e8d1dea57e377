"""`piqc demo`: a newcomer sees waste, forecast errors, a plan and where the files lie; nothing else is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("newcomer")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIQC_", "DAGSTER_"))}
    ended = subprocess.run(
        [sys.executable, "-m", "piqc_pipeline.cli.main", "demo"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    return folder, ended


@pytest.mark.cli
@pytest.mark.parametrize(
    "shown",
    [
        pytest.param("$2,033.95 /day", id="idle dollars of the sample cluster"),
        pytest.param("$3,907.15 /day", id="its total"),
        pytest.param("MAE of 30-minute forecasts", id="the forecast's error"),
        pytest.param("last value", id="beside its references"),
        pytest.param("REPLICA PLAN", id="the plan"),
        pytest.param("observed trigger alone", id="and who stays reactive"),
        pytest.param("piqc-demo/manifests", id="where the manifests lie"),
        pytest.param("piqc demo --ui", id="how to open the UI"),
    ],
)
def test_the_demo_prints(demo: tuple[Path, subprocess.CompletedProcess[str]], shown: str) -> None:
    assert demo[1].returncode == 0, demo[1].stderr[-2000:]
    assert shown in demo[1].stdout


@pytest.mark.cli
def test_the_demo_writes_into_two_folders_only(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    assert sorted(path.name for path in demo[0].iterdir()) == ["dagster_home", "piqc-demo"]
    assert (demo[0] / "piqc-demo/manifests/kustomization.yaml").exists()


@pytest.mark.cli
def test_the_demo_keeps_talk_out_of_a_pipe(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    assert "\x1b[" not in demo[1].stdout
    assert "Warning" not in demo[1].stderr
    assert "elemetry" not in demo[1].stderr
