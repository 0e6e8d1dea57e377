"""How does a command show rows? One plain table: names fold, figures never do, nothing of the text is interpreted."""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Side = Literal["left", "right"]
WIDTH_IN_A_PIPE = 10_000
"""Columns where there is no terminal and `COLUMNS` names none: a row is one line there, for `grep` and `awk`."""


def print_table(title: str, columns: Mapping[str, Side], rows: Iterable[Sequence["str | Text"]]) -> None:
    """Print rows under headings; those on the right hold figures.

    Args:
        title: What the table shows.
        columns: Heading and side of each column; a heading of figures breaks at its line breaks, else at its blanks.
        rows: A cell for each column, plain text or styled.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from piqc_pipeline.report.fold import Folding

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading, side in columns.items():
        if side == "right":
            broken = heading if "\n" in heading else heading.replace(" ", "\n")
            table.add_column(broken, justify=side, no_wrap=True)
        else:
            table.add_column(heading, min_width=max(map(len, heading.split())))
    for row in rows:
        cells = [cell if isinstance(cell, Text) else Text(cell) for cell in row]
        sides = columns.values()
        table.add_row(*(Folding(cell) if side == "left" else cell for cell, side in zip(cells, sides, strict=True)))
    print_sentence(title)
    console = _console()
    with console.capture() as shown:
        console.print(table)
    for line in shown.get().splitlines():
        click.echo(line.rstrip())


def print_sentence(text: str) -> None:
    """Print a sentence beside a table: wrapped between words on a terminal, a line of its own in a pipe."""
    _console().print(text, soft_wrap=not sys.stdout.isatty())


def columns_to_fill() -> int:
    """Columns that a row may take before it folds."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size((80, 24)).columns
    return WIDTH_IN_A_PIPE


def _console() -> "Console":
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, width=columns_to_fill())
