"""`piqc plan`, `piqc replay`, `piqc lint`, `piqc diff`: how many replicas, under which policy, in which manifests?"""

import sys
from importlib.metadata import version
from typing import Any

import click

from piqc_pipeline.errors import EXIT_DONE, EXIT_FAILED

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A duration such as 90s, 10m, 2h or 600 (seconds)."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
        try:
            seconds = float(number) * _UNITS[unit]
        except ValueError:
            self.fail(f"{value!r} is no duration; write 90s, 10m or 2h", param, ctx)
        if not 0 <= seconds <= 86_400 * 30:
            self.fail(f"{value!r} is out of range; 0 to 30d", param, ctx)
        return seconds


@click.command("lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "form", type=click.Choice(["table", "json", "sarif"]), default="table", show_default=True)
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
