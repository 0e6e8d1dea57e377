"""The README as a newcomer follows it: every command exists, and those that need no cluster run on the demo.

What needs a cluster, a browser or Dagster's command line is run by the tests named in ELSEWHERE.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from piqc_pipeline.cli import main as shell

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "export": "settings of a shell",
    "kubectl": "needs a cluster: e2e/",
    "piqc scan": "needs a cluster: cluster/",
    "piqc scan -n inference --no-exec": "needs a cluster: cluster/",
    "piqc scan --format json -o -": "needs a cluster: cluster/",
    "piqc scan --fail-on-waste 500": "needs a cluster: cluster/",
    "piqc scan --save --store piqc-data/history.duckdb": "needs a cluster: cluster/",
    "piqc test-connection": "needs a cluster: cluster/",
    "piqc diff": "needs a cluster: e2e/",
    ".venv/bin/piqc demo --ui": "needs a browser: defs/",
}


def readme_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = (line.split("#")[0].strip() for block in blocks for line in block.splitlines())
    return [line for line in lines if line]


COMMANDS = readme_commands()


def runs_here(command: str) -> bool:
    return command not in ELSEWHERE and command.split()[0] not in {*ELSEWHERE, "make"}


def outside_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PIQC_", "DAGSTER_"))}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("newcomer")
    ended = subprocess.run(
        [sys.executable, "-m", "piqc_pipeline.cli.main", "demo"],
        cwd=folder, env=outside_environment(), capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    return folder, ended


@pytest.mark.cli
@pytest.mark.parametrize(
    "shown",
    [
        pytest.param("$2,033.95 /day", id="idle dollars of the sample cluster"),
        pytest.param("$3,907.15 /day", id="its total"),
        pytest.param("MAE of 30-minute forecasts", id="the forecast's error"),
        pytest.param("SMA-60", id="beside its references"),
        pytest.param("REPLICA PLAN", id="the plan"),
        pytest.param("observed alone", id="and who stays reactive"),
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


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("make ")])
def test_make_commands_of_the_readme_are_run_by_ci(command: str) -> None:
    assert re.search(rf"^{command}$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("command", [line for line in COMMANDS if re.match(r"(\.venv/bin/)?piqc ", line)])
def test_piqc_commands_of_the_readme_parse(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("cluster.json", "load.parquet", "load.csv"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    name, *rest = shlex.split(command)[1:]
    found = shell.cli.get_command(shell.click.Context(shell.cli), name)
    assert found, f"no command {name}"
    found.make_context(name, rest)


@pytest.mark.cli
@pytest.mark.parametrize("command", [line for line in COMMANDS if runs_here(line)])
def test_offline_commands_of_the_readme_run_on_the_demo(
    demo: tuple[Path, subprocess.CompletedProcess[str]], command: str
) -> None:
    folder = demo[0]
    data = ROOT / "piqc_pipeline/data"
    shutil.copy(data / "cluster.json", folder)
    load = pl.read_parquet(data / "load.parquet").filter(pl.col("workload") == "inference/bge")
    load.select("ts", pl.col("workload").alias("series_id"), pl.col("offered_rate").alias("value")).write_parquet(
        folder / "load.parquet"
    )
    rows = load.tail(12).with_columns(pl.lit("demo/inference/Deployment/bge").alias("workload"))
    rows.select("ts", "workload", pl.lit(1.5).alias("demand_replicas")).write_csv(folder / "load.csv")
    command = re.sub(r"^piqc", f"{sys.executable} -m piqc_pipeline.cli.main", command)
    environment = outside_environment() | {"PIQC_CLUSTER": "demo", "PIQC_DATA_DIR": "piqc-data"}
    if not (folder / "piqc-data").exists():
        (folder / "piqc-data").symlink_to("piqc-demo")
    ended = subprocess.run(
        ["bash", "-O", "globstar", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout


def test_the_readme_shows_commands() -> None:
    assert len(COMMANDS) > 10
