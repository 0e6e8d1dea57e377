"""`piqc plan`, `piqc replay`, `piqc lint`, `piqc diff`: how many replicas, under which policy, in which manifests?"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from piqc_pipeline.cli.duration import Duration
from piqc_pipeline.cli.number import Number
from piqc_pipeline.cli.output import format_option
from piqc_pipeline.cli.tables import Side, print_sentence, print_table
from piqc_pipeline.cli.workloads import named_namespaces
from piqc_pipeline.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNKNOWN_PARTS, UsageError

if TYPE_CHECKING:
    from piqc_pipeline.scaling.fleet import FleetPlan
    from piqc_pipeline.scaling.replay import ReplayResult

DURATION = Duration()


@click.command("lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@format_option("table", "json", "sarif")
@click.option("--debug", is_flag=True, help="Show tracebacks and debug logs on stderr.")
def lint_command(files: tuple[str, ...], form: str, debug: bool) -> int:
    """Find faults in ScaledObjects and HPAs.

    FILE is YAML or JSON, a folder of such files, or - for standard input. Ends with 1 if any finding is an error.
    The annotation piqc.io/lint-ignore: RULE,RULE excuses an object.
    """
    from piqc_pipeline.scaling import lint_output
    from piqc_pipeline.scaling.lint import lint_files

    standard_input = sys.stdin.buffer.read(10_000_001) if "-" in files else None
    findings = lint_files(files, standard_input)
    if form == "json":
        click.echo(lint_output.as_json(findings))
    elif form == "sarif":
        click.echo(lint_output.as_sarif(findings, version("piqc_pipeline")))
    else:
        click.echo(lint_output.as_text(findings))
    return EXIT_FAILED if any(entry.severity == "error" for entry in findings) else EXIT_DONE


def _policy_options(command: Any) -> Any:
    for option in reversed(
        [
            click.option("--lead", type=DURATION, help="From decision to a ready replica, for instance 10m."),
            click.option("--min-replicas", type=click.IntRange(0, 10_000), help="Fewest replicas; 0 only where meant."),
            click.option("--max-replicas", type=click.IntRange(1, 10_000), help="Most replicas; else from capacity."),
            click.option("--quantile", type=Number(0.5, 0.999), help="Which demand counts as unlikely."),
            click.option(
                "--pair-ratio",
                metavar="LEAST:MOST",
                help="Prefill replicas a decode replica; else around what runs now.",
            ),
        ]
    ):
        command = option(command)
    return command


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@click.command("plan")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of facts and model; else PIQC_DATA_DIR.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    help="Plan workloads of this namespace; repeatable. It must have some.",
)
@click.option("--hours", type=Number(0.1, 48), default=6.0, show_default=True, help="How far to plan.")
@_policy_options
@click.option(
    "--mode", type=click.Choice(["observe", "shadow", "scale-out-only", "enforce"]), help="What manifests may do."
)
@click.option(
    "--prices", type=click.Path(path_type=Path), help="Your prices, TOML; else PIQC_PRICES_FILE, list prices."
)
@click.option("--write", "folder", type=click.Path(path_type=Path), help="Write the manifests to this folder.")
@click.option("--token-secret", help="Secret with the predictor's token, in each workload's namespace.")
@click.option("--cron-floor", is_flag=True, help="Add a cron trigger: a floor for the busy hours that needs no model.")
@click.option("--literal", is_flag=True, help="Also write the specification's literal form, under its warning.")
@format_option("table", "json")
@click.option("--debug", is_flag=True, help="Show tracebacks and debug logs on stderr.")
def plan_command(
    data_dir: Path | None,
    namespaces: tuple[str, ...],
    hours: float,
    lead: float | None,
    min_replicas: int | None,
    max_replicas: int | None,
    quantile: float | None,
    pair_ratio: str | None,
    mode: str | None,
    prices: Path | None,
    folder: Path | None,
    token_secret: str | None,
    cron_floor: bool,
    literal: bool,
    form: str,
    debug: bool,
) -> int:
    """Print the replica plan of the next hours.

    Reads the newest snapshot and the promoted forecast; with --write also writes the manifests. Nothing is applied.
    Workloads that no autoscaler can scale are named on stderr; the end is 3 if a failed read may be why.
    """
    from dataclasses import replace
    from datetime import timedelta

    from piqc_pipeline.facts.snapshot_file import read_snapshot
    from piqc_pipeline.forecast.artifact import load
    from piqc_pipeline.scaling import overlay
    from piqc_pipeline.scaling.cron import cron_floors
    from piqc_pipeline.scaling.fleet import plan_cluster
    from piqc_pipeline.scaling.options import options_from_settings
    from piqc_pipeline.scaling.policy import policy_from_settings
    from piqc_pipeline.settings import load_settings
    from piqc_pipeline.waste.prices import load_prices

    settings = load_settings(
        **_given(
            data_dir=data_dir,
            lead_time_seconds=lead,
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            quantile=quantile,
            pair_ratio=pair_ratio,
            scaling_mode=mode,
            prices_file=prices,
        )
    )
    policy = policy_from_settings(settings)
    artifact = load(settings.data_dir / "model" / "current")
    snapshot = read_snapshot(settings.data_dir / "facts" / "snapshot.json")
    horizon = timedelta(hours=max(hours, 24.0) if cron_floor else hours)
    fleet = plan_cluster(snapshot, artifact, policy, settings.clock(), load_prices(settings.prices_file), horizon)
    fleet = fleet.within(named_namespaces(namespaces)) if namespaces else fleet
    if folder is not None:
        options = options_from_settings(settings, snapshot.server_version, token_secret=token_secret)
        floors = cron_floors(fleet.plans, policy, settings.workload_timezone) if cron_floor else {}
        overlay.write_overlay(overlay.render(fleet.plans, policy, replace(options, literal=literal), floors), folder)
        click.echo(f"manifests written to {folder}; look at them with: kubectl kustomize {folder}", err=True)
    _show_plan(fleet, hours, form)
    for name, why in fleet.left_out.items():
        click.echo(f"not planned: {why}" if name in why else f"not planned: {name}: {why}", err=True)
    return EXIT_UNKNOWN_PARTS if fleet.unread else EXIT_DONE


def _show_plan(fleet: "FleetPlan", hours: float, form: str) -> None:
    import json

    if form == "json":
        from piqc_pipeline.scaling.wire import fleet_json

        click.echo(json.dumps(fleet_json(fleet), indent=2, allow_nan=False))
        return
    from piqc_pipeline.scaling.plan import BINDING_WORDS

    rows, reasons = [], []
    for plan in fleet.plans:
        step, limits = plan.now, plan.limits
        peak = max(plan.steps, key=lambda entry: entry.replicas, default=None)
        rows.append(
            [
                f"{limits.namespace}/{limits.name}",
                str(step.replicas) if step else "-",
                str(peak.replicas) if peak else "-",
                f"{peak.ts:%m-%d %H:%M}" if peak else "-",
                f"{limits.min_replicas}-{limits.max_replicas}",
                BINDING_WORDS[step.binding] if step and plan.accepted else "observed alone",
            ]
        )
        why = step.explain if step and plan.accepted else "stays reactive: " + "; ".join(plan.reasons)
        reasons.append(f"{limits.namespace}/{limits.name}: {why}")
    columns: dict[str, Side] = {"workload": "left", "now": "right", "peak": "right", "at (UTC)": "right"}
    print_table(f"replicas of the next {hours:g} h", {**columns, "limits": "right", "decided by": "left"}, rows)
    for reason in reasons:
        print_sentence(reason)
    for plan in fleet.plans:
        for short in plan.shortfalls:
            print_sentence(f"capacity shortfall: {short.explain}")
        for warning in plan.limits.warnings:
            print_sentence(f"note: {warning}")


@click.command("replay")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--lead", type=DURATION, default="10m", show_default=True, help="From decision to a ready replica.")
@click.option("--peak", type=Number(0, 100_000, min_open=True), help="Scale each series to this many replicas.")
@click.option("--min-replicas", type=click.IntRange(1, 10_000), help="Fewest replicas; else PIQC_MIN_REPLICAS.")
@click.option("--max-replicas", type=click.IntRange(1, 10_000), help="Most replicas; else headroom over the trace.")
@click.option("--quantile", type=Number(0.5, 0.999), help="Which demand counts as unlikely.")
@click.option("--gpus-per-replica", type=Number(0, 10_000, min_open=True), default=1.0, show_default=True)
@click.option("--usd-per-gpu-hour", type=Number(0, 10_000), help="Price of one accelerator, for dollars.")
@click.option(
    "--tolerance",
    type=Number(0, 0.5),
    default=0.0,
    show_default=True,
    help="The HPA's tolerance: 0 as the manifests set it from Kubernetes 1.35 on, 0.1 on older clusters.",
)
@click.option("--series", "wanted", multiple=True, help="Only series whose id holds this text; repeatable.")
@click.option("--no-faults", is_flag=True, help="Leave out the faults (outage, stale data, gap, burst, ...).")
@format_option("table", "json", help="json: piqc-replay.v1.")
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@click.option("--debug", is_flag=True, help="Show tracebacks and debug logs on stderr.")
def replay_command(
    trace: Path,
    lead: float,
    peak: float | None,
    min_replicas: int | None,
    max_replicas: int | None,
    quantile: float | None,
    gpus_per_replica: float,
    usd_per_gpu_hour: float | None,
    tolerance: float,
    wanted: tuple[str, ...],
    no_faults: bool,
    form: str,
    as_json: bool,
    debug: bool,
) -> int:
    """Score scaling policies on a trace, closed loop.

    TRACE is Parquet or CSV: ts, series_id, value; or a history file. Twelve policies run under the HPA's arithmetic on
    the second half of each series; the first half is only learned from.
    """
    import json
    from dataclasses import replace

    from piqc_pipeline.forecast.trace_file import read_trace
    from piqc_pipeline.scaling.policy import policy_from_settings
    from piqc_pipeline.scaling.replay import ReplayOptions, replay, to_json
    from piqc_pipeline.scaling.replay_trace import INJECTIONS
    from piqc_pipeline.settings import load_settings

    given = _given(min_replicas=min_replicas, max_replicas=max_replicas, quantile=quantile)
    policy = replace(policy_from_settings(load_settings(**given)), lead_seconds=lead)
    options = ReplayOptions(
        peak_replicas=peak,
        gpus_per_replica=gpus_per_replica,
        usd_per_gpu_hour=usd_per_gpu_hour,
        tolerance=tolerance,
        injections=() if no_faults else INJECTIONS,
    )
    found = read_trace(trace)
    chosen = [one for one in found if not wanted or any(text in one.workload for text in wanted)]
    if not chosen:
        raise UsageError(f"no series of {trace} holds {' or '.join(wanted)} in its id")
    with _counting(len(chosen)) as done:
        result = replay(chosen, policy, options, done)
    if as_json or form == "json":
        click.echo(json.dumps(to_json(result), indent=2, allow_nan=False))
    else:
        _show_replay(result)
    for name, why in result.skipped.items():
        click.echo(f"not replayed: {name}: {why}", err=True)
    return EXIT_DONE


@contextmanager
def _counting(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal's stderr; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=total)
        yield lambda name: bar.advance(task)


_POOLED = {
    "minutes_over_90_at_equal_gpu_hours": "minutes over 90 % of the forecast, over those of staying reactive at equal "
    "GPU-hours",
    "minutes_over_90_as_recommended": "the same of the policy recommended for each",
    "in_band_over_achievable": "minutes in band of the forecast, over the achievable ones",
}
_SCORES = ("GPU-h", "$", "min\n> 90 %", "runs\n> 10 min", "waiting min", "in band", "mean use", "moves /day")


def _show_replay(result: "ReplayResult") -> None:
    right: Side = "right"
    for one in result.series:
        rows = [
            [
                name + (" *" if name == one.recommendation.policy else ""),
                f"{score.gpu_hours:.0f}",
                "-" if score.usd is None else f"{score.usd:.0f}",
                str(score.minutes_over_90),
                str(score.runs_over_10),
                str(score.slo_minutes),
                _share(score.in_band),
                _share(score.mean_utilization),
                f"{score.moves_per_day:.0f}",
            ]
            for name, score in one.policies.items()
        ]
        title = f"{one.series}: {one.days} days, {one.least} to {one.most} replicas"
        print_table(title, {"policy": "left", **dict.fromkeys(_SCORES, right)}, rows)
        for note in one.notes:
            print_sentence(f"note: {note}")
        print_sentence(f"* recommended. In band achievable: {_share(one.achievable)}. {one.recommendation.why}\n")
    print_sentence("all series together:")
    for name, figures in result.pooled.items():
        value, low, high = figures["value"], figures["low"], figures["high"]
        shown = "not defined" if value is None else f"{value:.2f}"
        span = "" if low is None or high is None else f" (95 % interval {low:.2f} to {high:.2f})"
        print_sentence(f"{_POOLED[name]}: {shown}{span}")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


@click.command("diff")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Kubeconfig file; else as kubectl.")
@click.option("--context", help="Context of the kubeconfig; else its current one.")
@format_option("table", "json")
@click.option("--debug", is_flag=True, help="Show tracebacks and debug logs on stderr.")
def diff_command(folder: Path | None, kubeconfig: Path | None, context: str | None, form: str, debug: bool) -> int:
    """Compare written manifests with the live objects.

    FOLDER is the overlay; else DATA_DIR/manifests. Only fields that the manifests state are compared; nothing is
    changed. Ends with 0 if all are as written, 1 if something differs, 3 if an object could not be read.
    """
    import json
    from dataclasses import asdict

    from piqc_pipeline.cluster.live_objects import PLURALS, ObjectName, read_objects
    from piqc_pipeline.cluster.options import ScanOptions
    from piqc_pipeline.scaling import diff
    from piqc_pipeline.settings import load_settings

    settings = load_settings(**_given(kubeconfig=kubeconfig, context=context))
    written = diff.written_documents(folder or settings.data_dir / "manifests")
    names = [
        ObjectName(
            str(body["apiVersion"]),
            str(body["kind"]),
            str(body["metadata"].get("namespace") or diff.DEFAULT_NAMESPACE),
            str(body["metadata"]["name"]),
        )
        for body in written
        if body["kind"] in PLURALS
    ]
    options = ScanOptions(
        kubeconfig=settings.kubeconfig, context=settings.context, timeout_seconds=settings.request_timeout_seconds
    )
    live = read_objects(options, names)
    found = [diff.compare(str(one.name), body, one.body, one.unread) for body, one in zip(written, live, strict=True)]
    click.echo(json.dumps([asdict(entry) for entry in found], indent=2) if form == "json" else diff.as_text(found))
    if any(entry.state == "unread" for entry in found):
        return EXIT_UNKNOWN_PARTS
    return EXIT_FAILED if any(entry.state != "same" for entry in found) else EXIT_DONE
