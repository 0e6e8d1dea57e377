"""The shell around every command: one sentence and an exit code, whatever happens below."""

import errno
import shlex
import subprocess
import sys
from importlib import import_module

import click
import pytest

from piqc_pipeline.cli import main as shell
from piqc_pipeline.errors import NotConfigured


def run_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> int:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(shell, "cli", failing)
    monkeypatch.setattr(sys, "argv", ["piqc"])
    with pytest.raises(SystemExit) as exit_:
        shell.main()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def test_a_known_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(monkeypatch, NotConfigured("no cluster is configured")) == 2
    assert capsys.readouterr().err == "piqc: no cluster is configured\n"


def test_an_unknown_error_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, ZeroDivisionError("division by zero")) == 1
    assert capsys.readouterr().err == "piqc: internal error (ZeroDivisionError): division by zero\n"


def test_a_terminal_obeys_nothing_that_a_message_quotes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, NotConfigured("it has the column \x1b]0;title\x07\nsecond line")) == 2
    assert capsys.readouterr().err == "piqc: it has the column \\x1b]0;title\\x07\nsecond line\n"


def test_usage_errors_exit_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_with(monkeypatch, click.UsageError("no such option")) == 2


@pytest.mark.parametrize("name", list(shell.COMMANDS))
def test_every_listed_command_exists(name: str) -> None:
    module = import_module(f"piqc_pipeline.cli.{shell.COMMANDS[name][0]}")
    command = getattr(module, name.replace("-", "_") + "_command")
    assert command.get_short_help_str()


@pytest.mark.cli
def test_unknown_command_is_a_usage_error() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "piqc_pipeline.cli.main", "scna"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert "No such command 'scna'" in ended.stderr


def test_a_full_disk_behind_the_output_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, OSError(errno.ENOSPC, "No space left on device")) == 1
    assert capsys.readouterr().err == "piqc: cannot write the result: [Errno 28] No space left on device\n"


@pytest.mark.cli
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(closed: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m piqc_pipeline.cli.main completion bash {closed}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bool(ended.stdout) == (" >&-" not in f" {closed}")
