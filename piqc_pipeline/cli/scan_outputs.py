"""Where do the results of a scan go: stdout, files, a store, an address that the user typed?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from piqc_pipeline.errors import HistoryError, OutputUnwritable

if TYPE_CHECKING:
    from piqc_pipeline.facts.bundle import FactsBundle
    from piqc_pipeline.facts.snapshot import ClusterSnapshot
    from piqc_pipeline.report.scan_result import ScanResult

DEFAULT_FOLDER = Path("output")


@dataclass(frozen=True)
class Outputs:
    """What the user asked for.

    Attributes:
        folder: `-o DIR`; None: results go to stdout, and files that must be files go to `./output`.
    """

    form: str
    folder: Path | None
    combined: bool = False
    bundle: bool = False
    coverage: bool = False
    benchmarks: bool = False

    @property
    def files(self) -> Path:
        """The folder of files that cannot go to stdout."""
        return self.folder or DEFAULT_FOLDER


def say(text: str) -> None:
    """A line of talk, on stderr, with nothing in it that a terminal acts on."""
    from piqc_pipeline.report.text import printable

    click.echo(printable(text), err=True)


def show(results: "Sequence[ScanResult]", outputs: Outputs, now: datetime) -> None:
    """Print the result, or write the files of `-o DIR`."""
    if outputs.form == "table":
        _show_table(results, outputs)
        return
    if outputs.folder is not None:
        _write_specs(results, outputs, outputs.folder)
        return
    from piqc_pipeline.report.wire import report_document, report_json

    if outputs.form == "json":
        click.echo(report_json(results, now), nl=False)
    else:
        click.echo(as_yaml(report_document(results, now)), nl=False)


def as_yaml(document: object) -> str:
    """YAML that loads back to the same document; ASCII only, so that a terminal interprets nothing."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=False, width=120)
    return text


def _show_table(results: "Sequence[ScanResult]", outputs: Outputs) -> None:
    import os
    import sys

    from piqc_pipeline.cli.tables import columns_to_fill
    from piqc_pipeline.report.table import render

    terminal = sys.stdout.isatty()
    text = render(
        results,
        width=columns_to_fill(),
        color=terminal and not os.environ.get("NO_COLOR"),
        encoding=getattr(sys.stdout, "encoding", None) or "ascii",
        coverage=outputs.coverage,
    )
    click.echo(text, nl=False, color=terminal)


def _write_specs(results: "Sequence[ScanResult]", outputs: Outputs, folder: Path) -> None:
    from piqc_pipeline.facts.bundle import write_text
    from piqc_pipeline.report.modelspec import model_specs
    from piqc_pipeline.report.wire import as_json

    specs = model_specs(results)
    ending = outputs.form
    if outputs.combined:
        documents = [document for _, document in specs]
        text = as_json(documents) if ending == "json" else "---\n".join(as_yaml(document) for document in documents)
        write_text(text, folder / f"modelspecs.{ending}", "the model specs")
        say(f"wrote {len(specs)} model specs to {folder / f'modelspecs.{ending}'}")
        return
    for stem, document in specs:
        text = as_json(document) if ending == "json" else as_yaml(document)
        write_text(text, folder / f"{stem}.{ending}", "a model spec")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputUnwritable(f"cannot make the folder {folder}: {error.strerror}; choose another with -o") from error
    say(f"wrote {len(specs)} model specs to {folder}")


def bundles(results: "Sequence[ScanResult]", now: datetime) -> "list[FactsBundle]":
    """The facts bundle of each cluster."""
    from piqc_pipeline.facts.build import build_bundle
    from piqc_pipeline.waste import priced_facts

    return [
        build_bundle(result.snapshot, priced_facts(result.waste, result.snapshot), generated_at=now)
        for result in results
    ]


def write_bundles(found: "Sequence[FactsBundle]", outputs: Outputs) -> None:
    """Write `piqc-facts.json`; of several clusters one each, in a folder of its name."""
    import re

    from piqc_pipeline.facts.bundle import write_bundle

    for bundle in found:
        folder = outputs.files
        if len(found) > 1:
            folder = folder / (re.sub(r"[^A-Za-z0-9._-]+", "-", bundle.cluster.name).lstrip(".-") or "cluster")
        write_bundle(bundle, folder / "piqc-facts.json")
        say(f"wrote {folder / 'piqc-facts.json'}")


def keep(results: "Sequence[ScanResult]", found: "Sequence[FactsBundle]", location: str) -> None:
    """Append the scan to the history store; a store that cannot be written is a warning, the scan goes on."""
    from piqc_pipeline.history.store import open_store
    from piqc_pipeline.report.history_rows import append

    try:
        store = open_store(location)
        for result, bundle in zip(results, found, strict=True):
            append(store, result, bundle.to_json())
    except (HistoryError, OSError) as error:
        say(f"warning: the scan was not kept in the history: {error}")


def save(snapshot: "ClusterSnapshot", data_dir: Path) -> None:
    """Write what was read where training and planning look for it."""
    from piqc_pipeline.facts.snapshot_file import write_snapshot

    path = data_dir / "facts" / "snapshot.json"
    write_snapshot(snapshot, path)
    say(f"wrote {path}")


def contribute(results: "Sequence[ScanResult]", outputs: Outputs, url: str | None, timeout_seconds: float) -> None:
    """Write the anonymized benchmark record, show it, and post it only to an address that the user typed."""
    from piqc_pipeline.facts.bundle import write_text
    from piqc_pipeline.report.benchmarks import benchmark_record
    from piqc_pipeline.report.wire import as_json

    text = as_json(benchmark_record(results))
    path = outputs.files / "piqc-benchmarks.json"
    write_text(text, path, "the benchmark record")
    say(f"wrote the benchmark record to {path}:")
    click.echo(text, err=True, nl=False)
    if url is not None:
        from piqc_pipeline.report.push import push

        push(url, text, None, timeout_seconds, "the benchmark record")
        say("posted the benchmark record to the address given")
