"""What does one call of `piqc scan` mean? Options, settings and files checked before any cluster is touched."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from piqc_pipeline.cli.output import form_and_place
from piqc_pipeline.cli.scan_outputs import Outputs
from piqc_pipeline.cli.workloads import named_namespaces
from piqc_pipeline.errors import UsageError

if TYPE_CHECKING:
    from piqc_pipeline.cluster import ScanOptions
    from piqc_pipeline.settings import Settings
    from piqc_pipeline.waste import PriceList

FORMATS = ("table", "yaml", "json")


@dataclass(frozen=True)
class Request:
    """One call of `piqc scan`, understood."""

    given: dict[str, Any]
    settings: "Settings"
    options: "ScanOptions"
    prices: "PriceList"
    outputs: Outputs
    token: str | None
    now: datetime


def understand(given: dict[str, Any]) -> Request:
    """Check everything that can be checked before a cluster is touched.

    Raises:
        UsageError: Options that contradict each other or cannot be meant.
        PricesUnreadable: The price file cannot be read.
    """
    from piqc_pipeline.report.push import read_token
    from piqc_pipeline.settings import load_settings
    from piqc_pipeline.waste import load_prices

    settings = load_settings()
    form, place = form_and_place(given["form"], given["output"], FORMATS)
    given = {**given, "form": form, "output": place}
    _check(given)
    prices = load_prices(given["prices"] or settings.prices_file)
    prices = prices.with_flat(given["gpu_cost"], given["node_cost"])
    outputs = Outputs(
        form,
        Path(place) if place else None,
        given["combined"],
        given["output_piqc"],
        given["coverage"],
        given["contribute_benchmarks"],
    )
    token = read_token(given["push_token_file"])
    return Request(given, settings, _options(given, settings), prices, outputs, token, settings.clock())


def _check(given: dict[str, Any]) -> None:
    from piqc_pipeline.waste.prices import MAX_USD_PER_HOUR

    for name, option in (("gpu_cost", "--gpu-cost"), ("node_cost", "--node-cost")):
        value = given[name]
        if value is not None and not 0 <= value <= MAX_USD_PER_HOUR:
            raise UsageError(f"{option} {value:g} cannot be meant: give USD per accelerator and hour, 0 or more")
    if given["prometheus_url"]:
        from piqc_pipeline.settings import prometheus_address

        try:
            prometheus_address(given["prometheus_url"])
        except ValueError as error:
            raise UsageError(f"--prometheus-url cannot be used: {error}") from error
    if given["from_dump"] and (given["all_contexts"] or given["kubeconfig"] or given["context"]):
        raise UsageError(
            "--from-dump reads a file and no cluster: leave --kubeconfig, --context and --all-contexts away"
        )
    if given["save"] and (given["all_contexts"] or not given["aggregate"]):
        raise UsageError("--save keeps one cluster by workloads: leave --all-contexts and --no-aggregate away")
    if given["all_contexts"] and given["context"]:
        raise UsageError("--all-contexts and --context contradict each other: leave one away")
    if given["all_contexts"] and given["cluster_name"]:
        raise UsageError("--cluster-name names one cluster, --all-contexts scans several: leave one away")
    if given["combined"] and (given["form"] == "table" or given["output"] is None):
        raise UsageError("--combined joins the files of -o DIR: give --format json or yaml and -o DIR")
    files = given["output_piqc"] or given["contribute_benchmarks"]
    if given["output"] is not None and given["form"] == "table" and not files:
        raise UsageError(
            f"-o {given['output']} is no format ({', '.join(FORMATS)}); to write files to that folder give --format "
            "json or yaml, or --output-piqc"
        )
    if given["contribute_url"] and not given["contribute_benchmarks"]:
        raise UsageError("--contribute-url needs --contribute-benchmarks")
    if given["api_key"] is not None:
        raise UsageError(
            "--api-key shows the key to everybody who lists processes: write it to a file and give --push-token-file"
        )
    if given["push_token_file"] and not given["push_url"]:
        raise UsageError("--push-token-file needs --push-url")


def _options(given: dict[str, Any], settings: "Settings") -> "ScanOptions":
    from piqc_pipeline.cluster import ScanOptions
    from piqc_pipeline.prometheus.access import access_from_settings

    runtime = given["collect_runtime"]
    return ScanOptions(
        kubeconfig=given["kubeconfig"] or settings.kubeconfig,
        context=given["context"] or settings.context,
        namespaces=named_namespaces(given["namespaces"]) or settings.namespace_list(),
        selector=given["selector"],
        collect_runtime=settings.collect_runtime if runtime is None else runtime,
        allow_exec=settings.allow_exec and not given["no_exec"],
        timeout_seconds=given["timeout"] or settings.request_timeout_seconds,
        deadline_seconds=given["deadline"] or settings.deadline_seconds,
        workers=given["workers"] or settings.workers,
        cluster_name=given["cluster_name"] or settings.cluster_name,
        mode=given["mode"],
        prometheus=access_from_settings(settings, given["prometheus_url"]),
    )


def dry_run(request: Request) -> str:
    """What a scan would do, without asking any cluster."""
    from piqc_pipeline.report.text import printable

    options = request.options
    if request.given["from_dump"]:
        cluster = f"the file {request.given['from_dump']}"
    else:
        where = options.kubeconfig or "KUBECONFIG, else ~/.kube/config, else the service account"
        context = "every context" if request.given["all_contexts"] else options.context or "its current context"
        cluster = f"{context} of {where}"
    asked = [
        "list nodes, pods, workload owners, claims, quotas, services, autoscalers and monitors",
        *(["read the metrics of engines and exporters, and CPU use"] if options.collect_runtime else []),
        *(["run nvidia-smi and the like inside pods"] if options.allow_exec else []),
        *([f"ask Prometheus at {options.prometheus.base}"] if options.prometheus else []),
    ]
    spaces = ", ".join(options.namespaces) or "all namespaces"
    lines = [
        f"cluster: {cluster}",
        f"workloads of: {spaces}" + (f" with {options.selector}" if options.selector else ""),
        *(f"would: {entry}" for entry in asked),
        f"limits: {options.timeout_seconds:g} s a request, {options.deadline_seconds:g} s in all, "
        f"{options.workers} at once",
        "dry run: no cluster was touched",
    ]
    return "\n".join(printable(line) for line in lines)
