"""Which commands does `piqc` have, and how do they end? Each command's module is imported only when it runs."""

import errno
import importlib
import os
import re
import sys
import traceback
from importlib.metadata import version
from typing import Any

import click

from piqc_pipeline.errors import EXIT_FAILED, PiqcError

COMMANDS = {
    "scan": ("scan", "Report GPU workloads, waste and dollars of a cluster."),
    "test-connection": ("scan", "Test each permission that a scan needs."),
    "version": ("scan", "Print the version."),
    "trend": ("history", "Show waste over time from stored scans."),
    "history": ("history", "Fetch, import, show, export, generate and prune load history."),
    "train": ("forecast", "Train and promote forecasts without Dagster."),
    "predict": ("forecast", "Print the next interval's predicted load."),
    "backtest": ("forecast", "Score every forecast on a trace, rolling."),
    "model": ("forecast", "List promoted artifacts and roll back."),
    "plan": ("scaling", "Print the replica plan of the next hours."),
    "replay": ("scaling", "Score scaling policies on a trace, closed loop."),
    "lint": ("scaling", "Find faults in ScaledObjects and HPAs."),
    "diff": ("scaling", "Compare written manifests with the live objects."),
    "serve": ("serve", "Run the capacity predictor service."),
    "settings": ("settings", "Print the effective settings and their origin."),
    "completion": ("scan", "Print the completion script of a shell."),
    "demo": ("demo", "Run the whole pipeline on the shipped demo."),
}

_GLUED = re.compile(r"(-[a-zA-Z])=(.+)", re.DOTALL)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class _ReaderGone(Exception):
    """Who read stdout has ended; click would make it a failure."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that `--help` stays fast."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Arguments as kubectl takes them: `-o=json` is `-o json`."""
        end = args.index("--") if "--" in args else len(args)
        split = [_GLUED.fullmatch(arg) for arg in args[:end]]
        given = [part for arg, found in zip(args, split, strict=False) for part in (found.groups() if found else [arg])]
        return super().parse_args(ctx, given + args[end:])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order of the user's questions."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, from the module that COMMANDS names."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"piqc_pipeline.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name.replace("-", "_") + "_command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """The command's result."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of `--help`, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("piqc_pipeline"), prog_name="piqc")
@click.option("--debug", is_flag=True, help="Show tracebacks and debug logs on stderr.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """What GPUs on Kubernetes waste, what tomorrow will need, and the manifests that scale them.

    Results go to stdout, talk to stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 done with parts unknown,
    4 waste above --fail-on-waste.
    """
    ctx.ensure_object(dict)["debug"] = debug


def main() -> None:
    """Run the command line and end the process with its exit code."""
    _open_closed_streams()
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except PiqcError as error:
        _show(error)
        code = error.exit_code
    except (BrokenPipeError, _ReaderGone):
        # The reader went away (`piqc scan | head`); nothing more can be shown, and that is no failure of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:  # noqa: BLE001 - the shell's last resort: one sentence, never a traceback by default
        full = isinstance(error, OSError) and error.errno in _NO_ROOM
        _show(error, prefix="cannot write the result: " if full else f"internal error ({type(error).__name__}): ")
        code = EXIT_FAILED
    sys.exit(code or 0)


def _open_closed_streams() -> None:
    """A stream that the caller closed (`piqc … >&-`) goes nowhere, and no file that is opened later takes its place."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))


def _show(error: Exception, prefix: str = "") -> None:
    if "--debug" in sys.argv:
        traceback.print_exc()
    from piqc_pipeline.report.text import printable

    # A message may quote a file's header or a server's answer: other people's text, escape sequences among it.
    click.echo("\n".join(printable(line) for line in f"piqc: {prefix}{error}".split("\n")), err=True)


if __name__ == "__main__":
    main()
