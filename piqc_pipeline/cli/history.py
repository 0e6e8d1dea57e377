"""`piqc history` and `piqc trend`: how does history come in and out, and how did waste run over time?"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import click

from piqc_pipeline.cli.number import Number
from piqc_pipeline.cli.output import STDOUT, form_and_place, format_option
from piqc_pipeline.cli.tables import Side, print_sentence, print_table
from piqc_pipeline.cli.workloads import last_inventory, newest_row, short_name
from piqc_pipeline.errors import HistoryError

if TYPE_CHECKING:
    from polars import DataFrame

    from piqc_pipeline.history.exports import Form

STORE_HELP = "History store; else PIQC_HISTORY_STORE, else DATA_DIR/history.duckdb."
EXPORTED = ("csv", "rows", "parquet")
STAMPS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"]


@click.group("history")
def history_command() -> None:
    """Fetch, import, show, export, generate and prune load history."""


@history_command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--store", help=STORE_HELP)
@click.option(
    "--unit", help="Unit of the values in place of what the file says: percent, share, requests/s, replicas, gpus."
)
@click.option("--capacity", type=Number(0, min_open=True), help="Rate that keeps one replica 100 % busy.")
@click.option("--skip-bad", is_flag=True, help="Import the good rows of a file that has bad ones.")
@click.option(
    "--force", is_flag=True, help="Take the file's workloads as it tells them on its days, though the store is fuller."
)
def import_command(
    file: Path, store: str | None, unit: str | None, capacity: float | None, skip_bad: bool, force: bool
) -> None:
    """Read FILE (CSV or Parquet) into the history.

    Columns: `ts, workload` and figures; or `ts, series_id, value, unit`; or the specification's `ds, y`. Times are UTC
    unless they carry an offset. Bad rows are put aside in FILE.bad.csv with their line numbers.
    """
    from piqc_pipeline.history.files import FileSource, counted
    from piqc_pipeline.history.imports import import_file
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.settings import load_settings

    settings = load_settings()
    location = store or settings.store_location()
    source = FileSource(file, unit=unit, capacity=capacity, skip_bad=skip_bad)
    with _progress("importing") as advance:
        done = import_file(
            open_store(location),
            source,
            last_inventory(settings),
            settings.bucket_seconds,
            settings.clock(),
            force=force,
            on_part=advance,
        )
    _warn(done.warnings)
    click.echo(
        f"{counted(done.rows_written, 'row')} of {counted(done.workloads, 'workload')} into {location}, "
        f"{counted(done.rows_kept, 'stored row')} kept"
    )


@history_command.command("fetch")
@click.option("--start", type=click.DateTime(STAMPS), help="First bucket, UTC; else two weeks before the end.")
@click.option("--end", type=click.DateTime(STAMPS), help="Instant after the last, UTC; else now.")
@click.option("--prometheus-url", help="Address of Prometheus; else PIQC_PROMETHEUS_URL. Credentials are settings.")
@click.option("--store", help=STORE_HELP)
@click.option("--force", is_flag=True, help="Take the answer as it is, though the store is fuller.")
def fetch_command(
    start: datetime | None, end: datetime | None, prometheus_url: str | None, store: str | None, force: bool
) -> None:
    """Fill the history from Prometheus, and from stored scans where it has nothing.

    Pods are joined to workloads by kube-state-metrics, else by the last scan in the data folder. A range may be fetched
    again, overlap, be interrupted, or be fetched twice at once: the rows are the same.
    """
    from piqc_pipeline.errors import NotConfigured
    from piqc_pipeline.history.files import counted
    from piqc_pipeline.history.fill import fill
    from piqc_pipeline.history.prometheus import PrometheusSource
    from piqc_pipeline.history.samples import days_between, floor_to
    from piqc_pipeline.history.snapshots import SnapshotSource
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.prometheus.access import access_from_settings
    from piqc_pipeline.settings import load_settings

    settings = load_settings(**({"prometheus_url": prometheus_url} if prometheus_url else {}))
    access = access_from_settings(settings)
    if access is None:
        raise NotConfigured("no Prometheus is named: give --prometheus-url, or set PIQC_PROMETHEUS_URL")
    now, location = settings.clock(), store or settings.store_location()
    last = end.replace(tzinfo=UTC) if end else now
    earliest = datetime.min.replace(tzinfo=UTC)
    first = start.replace(tzinfo=UTC) if start else last - min(timedelta(days=settings.train_days), last - earliest)
    if first >= last:
        raise click.UsageError(f"--start {first:%Y-%m-%dT%H:%M} is not before the end, {last:%Y-%m-%dT%H:%M}")
    if floor_to(first, settings.bucket_seconds) >= floor_to(last, settings.bucket_seconds):
        raise click.UsageError(
            f"no bucket of {settings.bucket_seconds} s ends from --start {first:%Y-%m-%dT%H:%M:%S} to the end, "
            f"{last:%Y-%m-%dT%H:%M:%S}: name a longer range"
        )
    opened, days = open_store(location), len(days_between(first, min(last, now)))
    with _progress("fetching") as advance:
        done = fill(
            opened,
            SnapshotSource(opened, PrometheusSource(access)),
            first,
            last,
            last_inventory(settings),
            settings.bucket_seconds,
            now,
            force=force,
            on_day=lambda: advance(1, days),
        )
    _warn(done.warnings)
    told = f"{counted(done.rows_written, 'row')} into {location}, {counted(done.rows_kept, 'stored row')} kept"
    click.echo(told)
    if not done.rows_written + done.rows_kept:
        raise HistoryError(
            f"Prometheus at {access.base} told of no workload from {first:%Y-%m-%dT%H:%M} to {last:%Y-%m-%dT%H:%M}: "
            "does it scrape a GPU exporter, and does it know whose the pods are (kube-state-metrics, or a scan)?"
        )


@history_command.command("profile")
@format_option("words", "csv")
@click.option("-w", "--workload", "workloads", multiple=True, help="Id or NAMESPACE/NAME; repeatable. Else all.")
@click.option("--days", type=click.IntRange(1, 3660), help="Last days to look at; else PIQC_TRAIN_DAYS.")
@click.option("--store", help=STORE_HELP)
def profile_command(form: str, workloads: Sequence[str], days: int | None, store: str | None) -> None:
    """Show how busy each workload was: mean, peak, night, weekly season, censored share."""
    from piqc_pipeline.history.profile import LoadProfile, load_profile
    from piqc_pipeline.history.reading import by_workloads
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.history.words import in_words
    from piqc_pipeline.settings import load_settings

    settings = load_settings()
    opened, now = open_store(store or settings.store_location()), settings.clock()
    ids = _ids(opened.workloads(), workloads) if workloads else None
    start = now - timedelta(days=days or settings.train_days)
    parts = by_workloads(opened, start, now, settings.bucket_seconds, ids)
    found = sum((load_profile(rows, settings.workload_timezone) for rows in parts), LoadProfile((), ()))
    if not found.profiles:
        raise HistoryError(
            f"no history is stored in {opened.location} since {start:%Y-%m-%d}{newest_row(opened)}: run "
            "`piqc history fetch` or `piqc history import`; --days looks further back"
        )
    if form == "csv":
        click.echo(found.to_csv(), nl=False)
    else:
        print_sentence("\n\n".join(in_words(one, settings.workload_timezone) for one in found.profiles))


@history_command.command("export")
@click.option(
    "--format",
    "form",
    type=click.Choice(EXPORTED),
    help="csv: the specification's gpu_util.csv (ds,y in percent); rows: every column as CSV; parquet.  "
    "[default: csv, of FILE.parquet parquet]",
)
@click.option("-w", "--workload", "workloads", multiple=True, help="Id or NAMESPACE/NAME; repeatable. Else all.")
@click.option("--start", type=click.DateTime(STAMPS), help="First instant, UTC.")
@click.option("--end", type=click.DateTime(STAMPS), help="Instant after the last, UTC.")
@click.option("-o", "--output", metavar="FILE|-", help="File to write; else stdout. Or the format, as in kubectl.")
@click.option("--store", help=STORE_HELP)
def export_command(
    form: str | None,
    workloads: Sequence[str],
    start: datetime | None,
    end: datetime | None,
    output: str | None,
    store: str | None,
) -> None:
    """Write the history as a file for other tools.

    Several workloads in one `csv` become their mean, weighted by accelerators.
    """
    from piqc_pipeline.history.exports import export
    from piqc_pipeline.history.files import counted
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.settings import load_settings

    opened = open_store(store or load_settings().store_location())
    if form is None and output is not None and output.endswith(".parquet"):
        form = "parquet"
    chosen, place = form_and_place(form, output, EXPORTED)
    target: Path | IO[bytes] = sys.stdout.buffer if place is None else Path(place)
    with _progress("exporting", show=place is not None) as advance:
        rows = export(
            opened,
            cast("Form", chosen),
            target,
            workloads=_ids(opened.workloads(), workloads) if workloads else None,
            start=start.replace(tzinfo=UTC) if start else None,
            end=end.replace(tzinfo=UTC) if end else None,
            on_day=lambda: advance(1, None),
        )
    if place is not None:
        click.echo(f"{counted(rows, 'row')} into {place}", err=True)


@history_command.command("generate")
@click.option(
    "--form",
    type=click.Choice(["samples", "openmetrics", "exporter"]),
    default="samples",
    show_default=True,
    help="samples: CSV ts,series_id,value,unit; openmetrics: for promtool; exporter: live, on accelerated time.",
)
@click.option("--days", type=Number(0, 366, min_open=True), default=14, show_default=True)
@click.option("--start", type=click.DateTime(STAMPS), help="First sample, UTC; else so that the load ends now.")
@click.option("--step", "step_seconds", type=click.IntRange(1, 3600), default=300, show_default=True, help="Seconds.")
@click.option("--seed", type=int, default=7, show_default=True)
@click.option("--high", type=Number(0, 1), default=0.75, show_default=True, help="Share busy by day.")
@click.option("--low", type=Number(0, 1), default=0.15, show_default=True, help="Share busy at night.")
@click.option("--weekend", type=Number(0, 1), default=0.5, show_default=True, help="Weekend's share of a workday.")
@click.option("--noise", type=Number(0, 0.5), default=0.03, show_default=True)
@click.option("--bursts", type=Number(0, 100), default=2.0, show_default=True, help="Bursts a day.")
@click.option("--gaps", type=click.IntRange(0, 1000), default=0, show_default=True, help="Stretches without samples.")
@click.option("--level-shift", type=Number(0.1, 10), default=1.0, show_default=True, help="Factor after the middle.")
@click.option("--timezone", default="UTC", show_default=True, help="IANA zone of the day.")
@click.option("--name", default="inference/generated", show_default=True, help="NAMESPACE/NAME of the workload.")
@click.option("--pods", type=click.IntRange(1, 1000), default=1, show_default=True, help="Pods of one GPU each.")
@click.option("--speed", type=Number(0.01, 100_000), default=60, show_default=True, help="Exporter: times the clock.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=9400, show_default=True, help="Exporter: port on loopback."
)
@click.option("-o", "--output", metavar="FILE|-", help="File to write; else stdout.")
def generate_command(
    form: str,
    days: float,
    start: datetime | None,
    step_seconds: int,
    seed: int,
    high: float,
    low: float,
    weekend: float,
    noise: float,
    bursts: float,
    gaps: int,
    level_shift: float,
    timezone: str,
    name: str,
    pods: int,
    speed: float,
    port: int,
    output: str | None,
) -> None:
    """Make up a typical inference load: busy days, quiet nights and weekends, seeded."""
    from piqc_pipeline.errors import UsageError
    from piqc_pipeline.history.generate import play, write_generated
    from piqc_pipeline.history.samples import floor_to
    from piqc_pipeline.history.typical_week import TypicalWeek
    from piqc_pipeline.settings import load_settings

    namespace, _, workload = name.partition("/")
    if not workload:
        raise UsageError(f"--name {name!r} names no namespace: write NAMESPACE/NAME")
    ends = load_settings().clock()
    shape = TypicalWeek(
        start=start.replace(tzinfo=UTC) if start else floor_to(ends - timedelta(days=days), step_seconds),
        days=days,
        step_seconds=step_seconds,
        seed=seed,
        high=high,
        low=low,
        weekend_factor=weekend,
        noise=noise,
        bursts_per_day=bursts,
        gaps=gaps,
        level_shift=level_shift,
        timezone=timezone,
    )
    place = Path(output) if output and output != STDOUT else sys.stdout
    if form == "exporter":
        play(shape, pods, namespace, workload, speed, port, lambda text: click.echo(text, err=True))
    else:
        write_generated(shape, form, pods, namespace, workload, place)


@history_command.command("prune")
@click.option("--keep-days", type=click.IntRange(1, 100_000), required=True, help="Days of history to keep.")
@click.option("--store", help=STORE_HELP)
def prune_command(keep_days: int, store: str | None) -> None:
    """Delete history, observations and scans older than some days, and make the store small again.

    Also merges the parts of each day. On object storage what is emptied stays as an object without rows of 2 KB: let a
    lifecycle rule of the bucket delete objects under 4 KB.
    """
    from piqc_pipeline.history.files import counted
    from piqc_pipeline.history.samples import day_of
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.settings import load_settings

    settings = load_settings()
    location = store or settings.store_location()
    opened = open_store(location)
    before = day_of(settings.clock()) - timedelta(days=keep_days)
    deleted = opened.prune(before)
    opened.compact()
    click.echo(f"{counted(deleted, 'row')} from before {before:%Y-%m-%d} deleted from {location}")


@click.command("trend")
@click.option("--store", help=STORE_HELP)
@click.option("--cluster", help="Only scans of this cluster.")
@format_option("table", "json", "csv")
def trend_command(store: str | None, cluster: str | None, form: str) -> None:
    """Show waste over time from stored scans: one line a scan."""
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.history.trend import trend_json, trend_of
    from piqc_pipeline.settings import load_settings

    location = store or load_settings().store_location()
    trend = trend_of(open_store(location), cluster)
    if form == "json":
        click.echo(trend_json(trend))
    elif form == "csv":
        click.echo(trend.write_csv(datetime_format="%Y-%m-%dT%H:%M:%SZ"), nl=False)
    else:
        _show_trend(trend, location)


def _show_trend(trend: "DataFrame", location: str) -> None:
    from piqc_pipeline.history.trend import changes

    columns: dict[str, Side] = {"cluster": "left", "taken at\nUTC": "right", "accel-\nerators": "right"}
    columns |= {"installed\n$/day": "right", "wasted\n$/day": "right", "wasted\n%": "right"}
    names = ("accelerators", "installed_usd_per_day", "wasted_usd_per_day", "wasted_pct")
    rows = [
        [row["cluster"], f"{row['taken_at']:%Y-%m-%d %H:%M}", *(_figure(row[name]) for name in names)]
        for row in trend.iter_rows(named=True)
    ]
    print_table(f"waste over time, {location}", columns, rows)
    for sentence in changes(trend):
        print_sentence(sentence)


def _warn(warnings: Sequence[str]) -> None:
    from piqc_pipeline.report.text import printable

    for warning in warnings:  # which may quote a server's words, or names of a file
        click.echo(f"piqc: {printable(warning)}", err=True)


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.1f}".removesuffix(".0")


def _ids(known: Sequence[str], names: Sequence[str]) -> list[str]:
    """Ids of the workloads that the names mean."""
    from piqc_pipeline.errors import UsageError

    ids = []
    for name in names:
        found = [workload for workload in known if workload == name or short_name(workload) == name]
        if len(found) != 1:
            how = "is not in the history" if not found else f"means {len(found)} workloads"
            raise UsageError(f"--workload {name!r} {how}; known: {', '.join(known[:10])}")
        ids += found
    return ids


@contextmanager
def _progress(what: str, *, show: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on a terminal, nothing in a pipe; advanced by steps done and, once known, their number."""
    if not (show and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, advance=done, total=total)
