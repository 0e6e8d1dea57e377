"""`piqc demo`: the whole pipeline on the shipped input; what did it find, and where does it lie?"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from piqc_pipeline.cli.tables import Side, columns_to_fill, print_table

if TYPE_CHECKING:
    from piqc_pipeline.forecast.model import PredictorArtifact
    from piqc_pipeline.scaling.plan import ReplicaPlan

DAGSTER_YAML = "telemetry: {enabled: false}\nnux: {enabled: false}\n"
"""For a DAGSTER_HOME that has none: nothing is sent, no pop-up; the project's own folder has more."""
SUPERSEDED_WARNING = "ignore:Function `dev_command`"
"""Dagster would rather have `dg dev`, which is for projects of its own layout."""
DEMO_DIR = Path("piqc-demo")
PLAN_HOURS = (0, 1, 2, 3, 4, 5)


@click.command("demo")
@click.option("--ui", is_flag=True, help="Start Dagster's UI on the demo instead of printing.")
@click.option("--port", default=3000, show_default=True, type=click.IntRange(1, 65535), help="Port of the UI.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), default=DEMO_DIR, show_default=True,
    help="Folder for everything the demo writes.",
)  # fmt: skip
def demo_command(ui: bool, port: int, data_dir: Path) -> None:
    """Run the whole pipeline on the recorded cluster and two weeks of real LLM load.

    Nothing outside --data-dir and DAGSTER_HOME is written; no cluster is touched.
    """
    home = _dagster_home()
    if ui:
        _start_ui(home, data_dir, port)
        return
    from piqc_pipeline.defs.run_all import materialize_all
    from piqc_pipeline.settings import load_settings

    settings = load_settings(cluster="demo", data_dir=data_dir)
    with _progress() as tell:
        outcome = materialize_all(settings, progress=tell)
    _print_outcome(outcome)


def _dagster_home() -> Path:
    """The DAGSTER_HOME named, or `dagster_home/` here; made if it is not there."""
    home = Path(os.environ.setdefault("DAGSTER_HOME", str(Path("dagster_home").absolute())))
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        (home / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    return home


def _start_ui(home: Path, data_dir: Path, port: int) -> None:
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "PIQC_CLUSTER": "demo",
        "PIQC_DATA_DIR": str(data_dir.absolute()),
        "PYTHONWARNINGS": SUPERSEDED_WARNING,
    }
    click.echo(f"Dagster's UI opens at http://127.0.0.1:{port} (Ctrl-C ends it)", err=True)
    command = [sys.executable, "-m", "dagster", "dev", "-m", "piqc_pipeline.definitions", "-p", str(port)]
    # In this process's place: who ends `piqc` by its PID ends Dagster with it, and leaves no server behind.
    os.execve(sys.executable, command, environment)


class _progress:
    """Tells each step on stderr as it begins: one line on a terminal, silent in a pipe."""

    def __enter__(self) -> Any:
        from rich.console import Console

        console = Console(stderr=True)
        self._status = console.status("starting Dagster ...")
        if console.is_terminal:
            self._status.start()
        return lambda step: self._status.update(f"materializing {step} ...")

    def __exit__(self, *_: object) -> None:
        self._status.stop()


def _print_outcome(outcome: Any) -> None:
    from piqc_pipeline.defs.scaling import plan_of
    from piqc_pipeline.facts.snapshot_file import read_snapshot
    from piqc_pipeline.forecast.artifact import load
    from piqc_pipeline.report.scan_result import scan_result
    from piqc_pipeline.report.table import render
    from piqc_pipeline.waste.prices import load_prices

    pipeline = outcome.pipeline
    artifact = load(pipeline.artifact_dir)
    scan = scan_result(read_snapshot(pipeline.snapshot_path), load_prices(pipeline.settings.prices_file))
    terminal = sys.stdout.isatty()
    click.echo("WASTE")
    click.echo(render([scan], width=columns_to_fill(), color=terminal, encoding=sys.stdout.encoding or "utf-8"))
    _print_errors(artifact)
    click.echo()
    _print_plans(plan_of(pipeline).plans, artifact)
    click.echo()
    for name, sentence in outcome.failed_checks.items():
        click.echo(f"check {name}: {sentence}")
    folder = pipeline.settings.data_dir
    click.echo(
        f"\nFILES in {folder}\n"
        f"  manifests to look at, then apply: {pipeline.manifests_dir}  (kubectl apply -k, yours to do)\n"
        f"  report page:                      {pipeline.report_dir / 'index.html'}\n"
        f"  forecast with its model card:     {pipeline.artifact_dir}\n"
        f"  facts:                            {pipeline.bundle_path}\n"
        f"  history {outcome.first_day} to {outcome.last_day}: {pipeline.settings.store_location()}\n"
        f"UI: piqc demo --ui, then http://127.0.0.1:3000 (Dagster's asset graph with this run)"
    )


def _print_errors(artifact: "PredictorArtifact") -> None:
    from piqc_pipeline.forecast.model import COMPARED, LAST_DAY_30M, MODEL_LABELS

    rows = []
    for workload, forecast in artifact.workloads.items():
        errors = (forecast.scores.get(name, {}).get(LAST_DAY_30M) for name in COMPARED)
        cells = ["?" if error is None or error.mae_pp is None else f"{error.mae_pp:.2f}" for error in errors]
        rows.append([_short(workload), *cells, "yes" if forecast.accepted else "no"])
    figures: dict[str, Side] = {MODEL_LABELS[name]: "right" for name in COMPARED}
    title = "FORECAST: MAE of 30-minute forecasts, last 24 h, points of utilization"
    print_table(title, {"Workload": "left", **figures, "accepted": "left"}, rows)


def _print_plans(plans: "tuple[ReplicaPlan, ...]", artifact: "PredictorArtifact") -> None:
    from datetime import timedelta

    from piqc_pipeline.scaling.plan import BINDING_WORDS

    begin = min((plan.issued_at for plan in plans), default=artifact.trained_at)
    moments = [begin + timedelta(hours=hours) for hours in PLAN_HOURS]
    rows = []
    for plan in plans:
        if not plan.accepted:
            cells = ["-"] * len(moments)
            binding = "observed alone"
        else:
            cells = [str(max(plan.steps, key=lambda step: (step.ts <= moment, step.ts)).replicas) for moment in moments]
            share = plan.binding_share
            binding = BINDING_WORDS[max(share, key=lambda name: share[name])] if share else "nothing"
        rows.append([_short(plan.workload), *cells, f"{plan.limits.min_replicas}-{plan.limits.max_replicas}", binding])
    hours: dict[str, Side] = {f"{moment:%H:%M}": "right" for moment in moments}
    columns: dict[str, Side] = {"Workload": "left", **hours, "limits": "right", "decided by": "left"}
    print_table("REPLICA PLAN of the next hours (UTC)", columns, rows)


def _short(workload_id: str) -> str:
    return workload_id.rsplit("/", 1)[-1]
