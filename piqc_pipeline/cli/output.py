"""What does `-o` mean? A format, as kubectl and helm have it; commands that write files also take their place."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from piqc_pipeline.errors import UsageError

STDOUT = "-"
Command = TypeVar("Command", bound=Callable[..., Any])


def format_option(*formats: str, help: str | None = None) -> Callable[[Command], Command]:
    """`-o json`, or `--format json` in full; the first format is the default."""
    return click.option(
        "-o", "--format", "form", type=click.Choice(formats), default=formats[0], show_default=True, help=help
    )


def form_and_place(form: str | None, output: str | None, formats: Sequence[str]) -> tuple[str, str | None]:
    """The format and the file or folder that `--format` and `-o` name together; None as place is stdout.

    Args:
        form: `--format`, None where it is not given.
        output: `-o`: one of the formats, a place, or `-`.
        formats: Those of the command; the first is the default.

    Raises:
        UsageError: Two formats are named.
    """
    if output is None or output not in formats:
        return form or formats[0], None if output == STDOUT else output
    if form not in (None, output):
        raise UsageError(
            f"--format {form} and -o {output} name two formats: leave one away; a place of that name is ./{output}"
        )
    return output, None
