"""`piqc scan`, `piqc test-connection`, `piqc version`, `piqc completion`: what runs, what is wasted, may we read it?"""

import gc
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from piqc_pipeline.cli.number import Number
from piqc_pipeline.cli.scan_outputs import bundles, contribute, keep, save, say, show, write_bundles
from piqc_pipeline.cli.scan_request import FORMATS, Request, dry_run, understand
from piqc_pipeline.cli.workloads import named_namespaces
from piqc_pipeline.errors import (
    EXIT_FAILED,
    EXIT_UNKNOWN_PARTS,
    EXIT_WASTE_ABOVE_LIMIT,
    ClusterError,
    NamespacesMissing,
    UsageError,
)

if TYPE_CHECKING:
    from piqc_pipeline.cluster import Progress, ScanOptions
    from piqc_pipeline.facts.snapshot import ClusterSnapshot
    from piqc_pipeline.report.scan_result import ScanResult

_FILE = click.Path(dir_okay=False, path_type=Path)


def _where_options(command: Any) -> Any:
    """Options that name a cluster, as kubectl names them."""
    for option in reversed(
        [
            click.option("--kubeconfig", type=_FILE, help="Kubeconfig file; else KUBECONFIG, then ~/.kube/config."),
            click.option("--context", help="Context of the kubeconfig; else its current one."),
            click.option(
                "--mode",
                type=click.Choice(["auto", "remote", "incluster", "dry-run"]),
                default="auto",
                show_default=True,
                help="remote: kubeconfig; incluster: service account; dry-run: touch no cluster, say what is read.",
            ),
            click.option("--timeout", type=Number(0, 600, min_open=True), metavar="SECONDS",
                         help="Time limit of one request or exec.  [default: 30]"),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def _debug_option(command: Any) -> Any:
    return click.option("--debug", is_flag=True, help="Show tracebacks and debug logs on stderr.")(command)


@click.command("scan", short_help="Report GPU workloads, waste and dollars of a cluster.")
@_where_options
@click.option("--all-contexts", is_flag=True, help="Scan the cluster of every context, in one report.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    help="Report workloads of this namespace; repeatable. Capacity stays cluster-wide. One that does not exist is "
    "told (exit 3), none that exists is an error (exit 2).",
)
@click.option("-l", "--selector", help="Report workloads whose pods match this label selector.")
@click.option(
    "--from-dump",
    type=_FILE,
    metavar="FILE",
    help="Read a recorded cluster: `kubectl get nodes,pods,... -A -o json`. Touches no cluster.",
)
@click.option(
    "--cluster-name", "--cluster-id", "cluster_name", help="Name of the cluster in ids; else the context's cluster."
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="How the report is shown.  [default: table]")
@click.option(
    "-o",
    "--output",
    metavar="FORMAT|DIR|-",
    help="A format, as in kubectl; or with --format json or yaml DIR, for one ModelSpec file a workload; `-` (the "
    "default) prints the report.",
)
@click.option("--combined", is_flag=True, help="With -o DIR: one file for all ModelSpecs.")
@click.option("--output-piqc", is_flag=True, help="Write the facts bundle piqc-facts.json to DIR (else ./output).")
@click.option(
    "--coverage", is_flag=True, help="Add the monitoring coverage to the table; json and yaml always have it."
)
@click.option(
    "--collect-runtime/--no-collect-runtime",
    default=None,
    help="Read the metrics of inference engines.  [default: collect]",
)
@click.option("--no-exec", is_flag=True, help="Run nothing inside pods.")
@click.option("--no-logs", is_flag=True, help="Read no pod logs (none are ever read).")
@click.option(
    "--aggregate/--no-aggregate", default=True, show_default=True, help="One row a workload, or one row a pod."
)
@click.option("--prometheus-url", help="Prometheus that scrapes the GPUs; asked before any pod is.")
@click.option("--workers", type=click.IntRange(1, 256), help="Pods asked at the same time.  [default: 10]")
@click.option(
    "--deadline",
    type=Number(0, 86_400, min_open=True),
    metavar="SECONDS",
    help="Time limit of the whole scan; what was read by then is reported.  [default: 300]",
)
@click.option(
    "--prices", type=_FILE, metavar="FILE", help="TOML file with your own prices by product, label or node pool."
)
@click.option("--gpu-cost", type=float, metavar="USD", help="Every accelerator costs this an hour.")
@click.option("--node-cost", type=float, metavar="USD", help="Every accelerator that nobody holds costs this an hour.")
@click.option("--fail-on-waste", type=Number(0), metavar="USD", help="Exit 4 when more is wasted a day.")
@click.option(
    "--store", metavar="LOCATION", help="Keep the scan in this history store; else PIQC_HISTORY_STORE, else nowhere."
)
@click.option("--save", is_flag=True, help="Keep what was read in DATA_DIR/facts, for `piqc train` and `piqc plan`.")
@click.option("--push-url", metavar="URL", help="POST the facts bundle to this address; a failed push is exit 1.")
@click.option("--push-token-file", type=_FILE, metavar="FILE", help="File with the bearer token for --push-url.")
@click.option("--api-key", hidden=True)
@click.option(
    "--contribute-benchmarks", is_flag=True, help="Write an anonymized benchmark record to a file and show it."
)
@click.option("--contribute-url", metavar="URL", help="Post that record to this address.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is read.")
@_debug_option
def scan_command(**given: Any) -> int:
    """Report GPU workloads, waste and dollars of a cluster; read-only.

    The cluster is found as kubectl finds it. Exit codes: 0 done, 3 done but a read failed or was refused, 4 waste above
    --fail-on-waste, 1 failed, 2 usage.
    """
    _log(given["verbose"], given["debug"])
    request = understand(given)
    if given["mode"] == "dry-run":
        click.echo(dry_run(request))
        return 0
    results = _scan(request)
    return _deliver(request, results)


def _scan(request: Request) -> "list[ScanResult]":
    from piqc_pipeline import cluster
    from piqc_pipeline.report.per_pod import per_pod
    from piqc_pipeline.report.scan_result import scan_result

    if request.given["from_dump"]:
        snapshots = [
            cluster.read_dump(request.given["from_dump"], request.now, request.options.cluster_name, request.options)
        ]
    elif request.given["all_contexts"]:
        snapshots = _every_context(request)
    else:
        with _progress() as progress:
            snapshots = [cluster.read_live(request.options, request.now, progress)]
    gc.freeze()  # a snapshot of 5,000 pods holds no cycles; walking it again and again takes 0.8 s of the rest
    if not request.given["aggregate"]:
        snapshots = [per_pod(snapshot) for snapshot in snapshots]
    return [scan_result(snapshot, request.prices) for snapshot in snapshots]


def _every_context(request: Request) -> "list[ClusterSnapshot]":
    """One snapshot a context; a cluster that cannot be read, or not after Ctrl-C, is unknown, unless none can.

    Raises:
        ClusterError: No context could be read.
        NamespacesMissing: No cluster has any of the namespaces; some have them is no error, for the others.
    """
    from piqc_pipeline import cluster
    from piqc_pipeline.cluster.kubernetes import INTERRUPTED
    from piqc_pipeline.facts.snapshot import ClusterSnapshot, Unknown

    def unread(context: str, why: str) -> ClusterSnapshot:
        missing = Unknown(f"cluster of context {context}", why, read_failed=True)
        return ClusterSnapshot(context, context, request.now, None, None, (), unknown=(missing,))

    end = time.monotonic() + request.options.deadline_seconds
    snapshots: list[ClusterSnapshot] = []
    failures: list[ClusterError] = []
    missing: list[NamespacesMissing] = []
    contexts = cluster.list_contexts(request.options.kubeconfig)
    interrupted = False
    for context in contexts:
        if interrupted:
            snapshots.append(unread(context, INTERRUPTED))
            continue
        left = max(1.0, end - time.monotonic())
        options = replace(request.options, context=context, deadline_seconds=left, cluster_name=None)
        try:
            snapshot = _one_of_many(options, request.now, missing)
        except ClusterError as error:
            failures.append(error)
            snapshot = unread(context, str(error))
        except KeyboardInterrupt:
            if not snapshots:
                raise
            snapshot = replace(unread(context, INTERRUPTED), interrupted=True)
        interrupted = snapshot.interrupted
        if snapshot.cluster in {one.cluster for one in snapshots}:
            say(f"context {context} names the cluster {snapshot.cluster} again; it is counted once")
            continue
        snapshots.append(snapshot)
    if failures and len(failures) == len(contexts):
        raise failures[0]
    if missing and len(missing) == len(contexts):
        raise missing[0]
    return snapshots


def _one_of_many(options: "ScanOptions", now: datetime, missing: list[NamespacesMissing]) -> "ClusterSnapshot":
    """The cluster of a context; of one that has none of the namespaces the capacity, and `missing` gets the error."""
    from piqc_pipeline import cluster

    with _progress() as progress:
        try:
            return cluster.read_live(options, now, progress)
        except NamespacesMissing as error:
            missing.append(error)
            return cluster.read_live(replace(options, namespaces_expected=False), now, progress)


def _deliver(request: Request, results: "list[ScanResult]") -> int:
    """Show, write, keep and send; the exit code."""
    given, outputs = request.given, request.outputs
    show(results, outputs, request.now)
    store = given["store"] or request.settings.history_store
    found = bundles(results, request.now) if outputs.bundle or given["push_url"] or store else []
    if outputs.bundle:
        write_bundles(found, outputs)
    if store:
        keep(results, found, store)
    if given["save"]:
        save(results[0].snapshot, request.settings.data_dir)
    if outputs.benchmarks:
        contribute(results, outputs, given["contribute_url"], request.options.timeout_seconds)
    if given["push_url"]:
        from piqc_pipeline.report.push import push

        for bundle in found:
            push(
                given["push_url"], bundle.to_json(), request.token, request.options.timeout_seconds, "the facts bundle"
            )
        say("pushed the facts bundle")
    return _exit_code(results, given["fail_on_waste"])


def _exit_code(results: "list[ScanResult]", limit: float | None) -> int:
    from piqc_pipeline.report.wire import total

    failed = any(
        result.snapshot.read_failed or any(entry.read_failed for entry in result.waste.unknown) for result in results
    )
    if limit is not None:
        waste = total([result.waste.summary for result in results], ()).waste_usd_per_day
        if waste is not None and waste > limit:
            say(f"waste of ${waste:,.2f} a day is above the limit of ${limit:,.2f}")
            return EXIT_WASTE_ABOVE_LIMIT
        if waste is None:
            say(f"whether more than ${limit:,.2f} a day is wasted is unknown")
            return EXIT_UNKNOWN_PARTS
    return EXIT_UNKNOWN_PARTS if failed else 0


@contextmanager
def _progress() -> "Iterator[Progress | None]":
    """A progress bar on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from piqc_pipeline.report.text import printable

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("scanning", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=printable(what), completed=done, total=total or None)

        yield report


def _log(verbose: bool, debug: bool) -> None:
    level = logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", force=True)
    for noisy in ("urllib3", "httpx", "httpcore", "asyncio", "kubernetes"):
        logging.getLogger(noisy).setLevel(logging.INFO if debug else logging.WARNING)


@click.command("test-connection", short_help="Test each permission that a scan needs.")
@_where_options
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Namespace that would be scanned; repeatable.")
@_debug_option
def test_connection_command(debug: bool, namespaces: tuple[str, ...], **given: Any) -> int:
    """Ask the API server, permission by permission, what a scan may read, and print what is missing.

    Exit codes: 0 all granted, 3 an optional one is missing, 1 a required one is missing or nobody answers, 2 usage, a
    namespace that does not exist among it.
    """
    from piqc_pipeline import cluster
    from piqc_pipeline.report.text import printable
    from piqc_pipeline.settings import load_settings

    _log(False, debug)
    settings = load_settings()
    options = cluster.ScanOptions(
        kubeconfig=given["kubeconfig"] or settings.kubeconfig,
        context=given["context"] or settings.context,
        namespaces=named_namespaces(namespaces) or settings.namespace_list(),
        timeout_seconds=given["timeout"] or settings.request_timeout_seconds,
        mode=given["mode"],
    )
    if given["mode"] == "dry-run":
        click.echo("dry run: no cluster was touched")
        return 0
    checks = cluster.check_access(options)
    missing = [check for check in checks if check.allowed is not True]
    for check in checks:
        state = {True: "granted", False: "missing", None: "unknown"}[check.allowed]
        where = f" in {check.namespace}" if check.namespace else ""
        why = f": {check.purpose}" if check.allowed is not True else ""
        click.echo(printable(f"{state:8} {check.verb} {check.resource}{where} ({check.need}){why}"))
    required = [check for check in missing if check.need == "required"]
    click.echo(f"{len(checks) - len(missing)} of {len(checks)} permissions granted")
    if required:
        return EXIT_FAILED
    return EXIT_UNKNOWN_PARTS if missing else 0


@click.command("version")
def version_command() -> None:
    """Print the version."""
    click.echo(version("piqc_pipeline"))


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell: `source <(piqc completion bash)`."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = ctx.find_root()
    if found is None:
        raise UsageError(f"there is no completion for {shell}")
    click.echo(found(root.command, {}, "piqc", "_PIQC_COMPLETE").source())
