"""Which commands train, show, score and roll back forecasts? `piqc train`, `predict`, `backtest`, `model`."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from piqc_pipeline.cli.duration import Duration
from piqc_pipeline.cli.output import format_option
from piqc_pipeline.cli.tables import Side, print_sentence, print_table
from piqc_pipeline.cli.workloads import last_inventory, newest_row, short_name
from piqc_pipeline.errors import EXIT_DONE, EXIT_UNKNOWN_PARTS, HistoryError, UsageError

if TYPE_CHECKING:
    from piqc_pipeline.forecast.backtest import SeriesResult
    from piqc_pipeline.forecast.model import CandidateModel
    from piqc_pipeline.forecast.series import DemandSeries
    from piqc_pipeline.settings import Settings


DURATION = Duration(least_seconds=1)


@contextmanager
def _progress(total: int, what: str) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal's stderr; nothing in a pipe."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda name: bar.advance(task)


@click.command("train")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder for history and artifacts.")
@click.option(
    "--history-file", type=click.Path(path_type=Path), help="Parquet or CSV load history instead of the store."
)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes; else one a core.")
@click.option("--no-prophet", is_flag=True, help="Leave Prophet out of the ensemble.")
@click.option("--country", help="ISO code whose public holidays count.")
@click.option(
    "--events", type=click.Path(path_type=Path), help="CSV of known events: name,start,end[,workload,factor]."
)
@click.option("--keep", type=click.IntRange(1, 1000), default=10, show_default=True, help="Artifacts kept.")
@click.option("--no-promote", is_flag=True, help="Write the candidate only.")
@format_option("table", "json")
def train_command(
    data_dir: Path | None,
    history_file: Path | None,
    workers: int | None,
    no_prophet: bool,
    country: str | None,
    events: Path | None,
    keep: int,
    no_promote: bool,
    form: str,
) -> int:
    """Train on the stored history, judge each workload, promote what was accepted.

    A workload is accepted by its error over the last day against references fixed in advance. Ends with 0 if all were
    trained, 3 if some could not be, 1 if none was accepted; what was promoted before stays then.
    """
    from piqc_pipeline.forecast import artifact
    from piqc_pipeline.forecast.calendar import Calendar, read_events
    from piqc_pipeline.forecast.parallel import cores
    from piqc_pipeline.forecast.shards import train_in_processes
    from piqc_pipeline.forecast.train import policy_from

    settings = _settings(data_dir=data_dir, history_file=history_file)
    calendar = Calendar(settings.workload_timezone, country, read_events(events) if events else ())
    policy = policy_from(settings, calendar=calendar, with_prophet=not no_prophet)
    now = settings.clock()
    series = _history(settings)
    model = settings.data_dir / "model"
    previous = artifact.trained_before(model)
    count = min(workers or cores(), len(series)) or 1
    with _progress(len(series), "training") as progress:
        candidate = train_in_processes(series, now, policy, workers=count, progress=progress, previous=previous)
    artifact.write_candidate(candidate, model / artifact.CANDIDATE)
    _show_candidate(candidate, form)
    if not no_promote:
        current = artifact.promote(model / artifact.CANDIDATE, model, keep=keep)
        click.echo(f"promoted to {current}", err=True)
    return EXIT_UNKNOWN_PARTS if candidate.failed else EXIT_DONE


def _settings(**overrides: Any) -> "Settings":
    from piqc_pipeline.settings import load_settings

    return load_settings(**{name: value for name, value in overrides.items() if value is not None})


def _history(settings: "Settings") -> "list[DemandSeries]":
    """The stored history as series; an explicit file is read directly."""
    from datetime import timedelta

    from piqc_pipeline.forecast.series import series_from_history

    now, found = settings.clock(), ""
    start = now - timedelta(days=settings.train_days)
    if settings.history_file is not None:
        from piqc_pipeline.history.files import FileSource

        inventory = last_inventory(settings)
        frame = FileSource(settings.history_file).fetch(start, now, inventory, settings.bucket_seconds).frame
        series = series_from_history(frame)
    else:
        from piqc_pipeline.history.reading import by_workloads
        from piqc_pipeline.history.store import open_store

        store = open_store(settings.store_location())
        parts = by_workloads(store, start, now, settings.bucket_seconds)
        series = [one for rows in parts for one in series_from_history(rows)]
        found = "" if series else newest_row(store)
    if not series:
        raise HistoryError(
            f"no history to train on between {start:%Y-%m-%d} and {now:%Y-%m-%d %H:%M} UTC{found}: materialize "
            "gpu_utilization, or import a file with `piqc history import`"
        )
    return series


def _rows_of(candidate: "CandidateModel") -> list[dict[str, Any]]:
    """One row a workload: its verdict, its errors 30 minutes ahead over the last day, its drift."""
    from piqc_pipeline.forecast.model import LAST_DAY_30M

    rows: list[dict[str, Any]] = []
    for name, entry in candidate.workloads.items():
        figures = {model: score.get(LAST_DAY_30M) for model, score in entry.scores.items()}
        rows.append(
            {
                "workload": name,
                "accepted": entry.accepted,
                "confidence": entry.confidence,
                "mae_pp": {model: score.mae_pp for model, score in figures.items() if score},
                "rmse_pp": {model: score.rmse_pp for model, score in figures.items() if score},
                "mae_demand": {model: score.mae_demand for model, score in figures.items() if score},
                "coverage_q90": entry.coverage_q90,
                "reasons": list(entry.reasons),
                "drifted": entry.drift.drifted if entry.drift else None,
                "drift": entry.drift.detail if entry.drift else None,
            }
        )
    return rows


def _show_candidate(candidate: "CandidateModel", form: str) -> None:
    from piqc_pipeline.forecast.model import COMPARED, MODEL_LABELS

    rows = _rows_of(candidate)
    if form == "json":
        click.echo(json.dumps({"workloads": rows, "failed": dict(candidate.failed)}, indent=2))
        return
    shown = []
    for row in rows:
        # Points need ready replicas, which a plain file of load has not; demand's own unit still tells.
        errors, mark = (row["mae_pp"], "") if _in_points(row) else (row["mae_demand"], " r")
        coverage: Any = row["coverage_q90"]
        shown.append(
            [
                short_name(str(row["workload"])),
                "yes" if row["accepted"] else "no",
                *(_cell(errors.get(model)) + mark for model in COMPARED),
                "?" if coverage is None else f"{coverage:.0%}",
            ]
        )
    columns: dict[str, Side] = {"workload": "left", "accepted": "left"}
    columns |= {MODEL_LABELS[model]: "right" for model in COMPARED}
    title = "MAE of 30-minute forecasts over the last 24 h, points of utilization"
    print_table(title, {**columns, "coverage": "right"}, shown)
    if not all(_in_points(row) for row in rows):
        print_sentence("r: replicas, where it is not known how many were ready")
    for row in rows:
        reasons: Any = row["reasons"]
        if reasons:
            print_sentence(f"{row['workload']}: {'; '.join(reasons)}")
        if row["drifted"]:
            print_sentence(f"{row['workload']} has drifted: {row['drift']}")
    for name, reason in candidate.failed.items():
        print_sentence(f"{name} has no forecast: {reason}")


def _in_points(row: dict[str, Any]) -> bool:
    return any(value is not None for value in row["mae_pp"].values())


def _cell(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"


@click.command("predict")
@click.argument("workload", required=False)
@click.option("--horizon", type=DURATION, default="30m", show_default=True, help="How far ahead: 30m, 2h.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that holds the artifact.")
@format_option("table", "json")
def predict_command(workload: str | None, horizon: int, data_dir: Path | None, form: str) -> int:
    """Print what is expected up to the horizon, for one workload or all.

    WORKLOAD is an id, NAMESPACE/NAME or a name. Ends with 3 if there is no valid forecast of one.
    """
    from piqc_pipeline.forecast import artifact
    from piqc_pipeline.forecast.lookup import find_workloads, prediction

    settings = _settings(data_dir=data_dir)
    loaded = artifact.load(settings.data_dir / "model" / artifact.CURRENT)
    now = settings.clock()
    rows = [prediction(entry, now, horizon) for entry in find_workloads(loaded, workload)]
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
    else:
        _show_predictions(rows)
    return EXIT_UNKNOWN_PARTS if any(row["predicted"] is None for row in rows) else EXIT_DONE


def _show_predictions(rows: list[dict[str, Any]]) -> None:
    units = ", ".join(sorted({row["unit"] for row in rows}))
    shown = []
    for row in rows:
        told = row["predicted"] or {}
        figures = (f"{told[key]:.2f}" if told else "?" for key in ("q50", "q90", "peak_q90"))
        until = row["until"][5:16].replace("T", " ")
        shown.append([short_name(row["workload"]), until, *figures, "yes" if row["accepted"] else "no"])
    columns: dict[str, Side] = {"workload": "left", "at (UTC)": "right", "median": "right", "q90": "right"}
    title = f"predicted load in {units}" if units else "predicted load"
    print_table(title, {**columns, "peak q90": "right", "accepted": "left"}, shown)
    for row in rows:
        if row["notes"]:
            print_sentence(f"{row['workload']}: {'; '.join(row['notes'])}")


@click.command("backtest")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--horizon", "horizons", type=DURATION, multiple=True, help="Length of the scored paths; 30m and 5h.")
@click.option("--days", type=click.IntRange(1, 60), default=4, show_default=True, help="Days scored, the last ones.")
@click.option("--series", "only", multiple=True, help="Only these series.")
@click.option("--exclude", multiple=True, help="Leave these series out.")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes; else one a core.")
@click.option("--no-prophet", is_flag=True, help="Leave Prophet out: 20 times faster.")
@format_option("table", "json", help="json: JSON Lines, one object a series, then the pooled one.")
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
def backtest_command(
    file: Path,
    horizons: tuple[int, ...],
    days: int,
    only: tuple[str, ...],
    exclude: tuple[str, ...],
    workers: int | None,
    no_prophet: bool,
    form: str,
    as_json: bool,
) -> int:
    """Score ours and every reference on a trace, rolling.

    FILE is CSV or Parquet: `ts, series_id, value, unit`, a history file, or `ds, y`. Ends with 3 if none of its series
    could be scored.
    """
    from functools import partial

    from piqc_pipeline.forecast.backtest import BacktestOptions, backtest
    from piqc_pipeline.forecast.parallel import cores, in_order
    from piqc_pipeline.forecast.pooled import pooled
    from piqc_pipeline.forecast.trace_file import read_trace

    as_json = as_json or form == "json"
    options = BacktestOptions(days, horizons or BacktestOptions().horizons_seconds, not no_prophet)
    series = [one for one in read_trace(file) if (not only or one.workload in only) and one.workload not in exclude]
    if not series:
        raise UsageError(f"no series of {file} is left to score; check --series and --exclude")
    results: list[SeriesResult] = []
    with _progress(len(series), "scoring") as progress:
        for result in in_order(partial(backtest, options=options), series, min(workers or cores(), len(series))):
            results.append(result)
            progress(result.series_id)
            if as_json:
                click.echo(json.dumps(result.wire()))
                sys.stdout.flush()
    summary = pooled(results)
    if as_json:
        click.echo(json.dumps({"pooled": summary}))
    else:
        _show_backtest(results, summary)
    if not summary["series"]:
        shown = "" if len(results) == 1 else f", for instance {results[0].series_id}"
        click.echo(
            f"none of the {len(results)} series of {file} could be scored{shown}: {results[0].skipped}", err=True
        )
        return EXIT_UNKNOWN_PARTS
    return EXIT_DONE


def _ratio(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


def _show_backtest(results: "list[SeriesResult]", summary: dict[str, Any]) -> None:
    from rich.text import Text

    scored = [result for result in results if result.skipped is None]
    for label in scored[0].errors["ours"] if scored else ():
        models = list(scored[0].errors)
        shown = []
        for result in scored:
            figures = [mae if isfinite(mae := result.errors[model][label].mae) else None for model in models]
            best = min((mae for mae in figures if mae is not None), default=None)
            cells = [Text(_cell(mae), style="bold" if mae is not None and mae == best else "") for mae in figures]
            shown.append([Text(result.series_id), *cells])
        columns: dict[str, Side] = {model.replace("_", " "): "right" for model in models}
        title = f"{label}: mean absolute error, points of each series' maximum"
        print_table(title, {"series": "left", **columns}, shown)
        ratios = [
            [name.replace("_", " "), _ratio(one["ratio"]), f"{_ratio(one['low'])} to {_ratio(one['high'])}"]
            + [str(one[key]) for key in ("better", "same", "worse")]
            for name, one in summary["ratio"][label].items()
        ]
        columns = {title: "right" for title in ("ratio", "interval", "better", "same", "worse")}
        title = f"{label}: error of ours over that of ..., geometric mean with 90 % interval"
        print_table(title, {"reference": "left", **columns}, ratios)
    for window, cover in summary.get("coverage_q90", {}).items():
        middle = "unknown" if cover["median"] is None else f"{cover['median']:.1%}"
        print_sentence(
            f"q90 of the {window} maximum: median coverage {middle}, {cover['within_88_92']} of "
            f"{summary['series']} series within 88-92 %, pinball "
            f"{_ratio(summary['pinball_q90_ratio_to_last'][window])} x last value"
        )
    for result in results:
        if result.skipped is not None:
            print_sentence(f"{result.series_id}: skipped, {result.skipped}")


@click.group("model")
def model_command() -> None:
    """List promoted artifacts and roll back."""


@model_command.command("list")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that holds the artifacts.")
@format_option("table", "json")
def list_command(data_dir: Path | None, form: str) -> int:
    """Show the artifacts kept, newest first."""
    from piqc_pipeline.forecast import artifact

    kept = artifact.versions_in(_settings(data_dir=data_dir).data_dir / "model")
    if form == "json":
        rows = [
            {
                "version": one.version,
                "trained_at": one.trained_at.isoformat(),
                "accepted": one.accepted,
                "rejected": one.rejected,
                "drifted": one.drifted,
                "current": one.is_current,
            }
            for one in kept
        ]
        click.echo(json.dumps(rows, indent=2))
        return EXIT_DONE
    for one in kept:
        mark = "*" if one.is_current else " "
        click.echo(f"{mark} {one.version}  accepted {one.accepted}, rejected {one.rejected}, drifted {one.drifted}")
    if not kept:
        click.echo("no artifact was promoted yet; run `piqc train`", err=True)
    return EXIT_DONE


@model_command.command("rollback")
@click.argument("version", required=False)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that holds the artifacts.")
def rollback_command(version: str | None, data_dir: Path | None) -> int:
    """Put an older artifact back into use.

    VERSION is one of `piqc model list`; without it the one before.
    """
    from piqc_pipeline.forecast import artifact

    now_used = artifact.rollback(_settings(data_dir=data_dir).data_dir / "model", version)
    click.echo(f"in use: {now_used}")
    return EXIT_DONE
