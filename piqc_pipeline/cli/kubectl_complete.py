"""What may come next after `kubectl piqc …`? kubectl asks the program `kubectl_complete-piqc` for it.

Protocol: one candidate a line, then a line `:N` with cobra's directive (kubernetes/kubectl: plugin completion; cobra:
`ShellCompDirective`). Completion of `piqc` itself is `piqc completion`.
"""

import sys
from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete

from piqc_pipeline.cli.main import cli

FILES_AS_USUAL = 0
NO_FILES = 4


def answer(words: Sequence[str]) -> str:
    """Candidates for the last of these words."""
    *before, incomplete = words or [""]
    found = ShellComplete(cli, {}, "piqc", "_PIQC_COMPLETE").get_completions(list(before), incomplete)
    plain = [item for item in found if item.type == "plain"]
    directive = NO_FILES if len(plain) == len(found) else FILES_AS_USUAL
    rows = [f"{item.value}\t{item.help}" if item.help else item.value for item in plain]
    return "\n".join([*rows, f":{directive}"])


def main() -> None:
    """Print the candidates for the words that kubectl gives as arguments."""
    click.echo(answer(sys.argv[1:]))
