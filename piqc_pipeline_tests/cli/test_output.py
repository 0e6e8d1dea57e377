"""`-o json` is a format in every command, as in kubectl; a place where a command writes files."""

import click
import pytest
from click.testing import CliRunner

from piqc_pipeline.cli.main import COMMANDS, cli
from piqc_pipeline.cli.output import form_and_place
from piqc_pipeline.errors import UsageError

FORMATS = ("table", "yaml", "json")


@pytest.mark.parametrize(
    ("form", "output", "meant"),
    [
        pytest.param(None, None, ("table", None), id="nothing"),
        pytest.param(None, "json", ("json", None), id="as in kubectl"),
        pytest.param("json", "json", ("json", None), id="twice the same"),
        pytest.param("json", "-", ("json", None), id="stdout"),
        pytest.param("yaml", "specs", ("yaml", "specs"), id="a folder"),
        pytest.param("yaml", "./json", ("yaml", "./json"), id="a folder that is called like a format"),
    ],
)
def test_a_format_or_a_place(form: str | None, output: str | None, meant: tuple[str, str | None]) -> None:
    assert form_and_place(form, output, FORMATS) == meant


def test_two_formats_are_refused() -> None:
    with pytest.raises(UsageError, match="--format yaml and -o json name two formats"):
        form_and_place("yaml", "json", FORMATS)


def commands(group: click.Group, context: click.Context) -> list[click.Command]:
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found += commands(command, context) if isinstance(command, click.Group) else [command] if command else []
    return found


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        pytest.param(["settings", "-o=json"], 0, id="an equals sign, as kubectl takes it"),
        pytest.param(["settings", "-ojson"], 0, id="nothing between"),
        pytest.param(["settings", "-o", "json"], 0, id="a blank between"),
        pytest.param(["settings", "--", "-o=json"], 2, id="an argument behind --"),
    ],
)
def test_a_short_option_and_its_value(given: list[str], meant: int) -> None:
    ended = CliRunner().invoke(cli, given)
    assert ended.exit_code == meant and ended.output.startswith("[" if meant == 0 else "Usage")


def test_every_command_with_formats_takes_them_after_o() -> None:
    with_formats = [
        command
        for command in commands(cli, click.Context(cli))
        if any("--format" in option.opts for option in command.params)
    ]
    without_o = [one.name for one in with_formats if not any("-o" in option.opts for option in one.params)]
    assert len(with_formats) > len(COMMANDS) / 2 and without_o == []
