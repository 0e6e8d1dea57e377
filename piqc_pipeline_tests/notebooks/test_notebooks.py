"""Every notebook runs from top to bottom and shows what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.cli
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_a_plot(notebook: Path, tmp_path: Path) -> None:
    executed = tmp_path / "executed.ipynb"
    ended = subprocess.run(
        [sys.executable, "-m", "jupyter", "execute", str(notebook), f"--output={executed}", "--timeout=300"],
        cwd=notebook.parent,
        env={**os.environ, "PIQC_DATA_DIR": str(tmp_path / "piqc-data"), "IPYTHONDIR": str(tmp_path / "ipython")},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    cells = nbformat.read(executed, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_committed_without_outputs(notebook: Path) -> None:
    cells = nbformat.read(notebook, as_version=4).cells
    assert [cell.outputs for cell in cells if cell.cell_type == "code" and cell.outputs] == []
