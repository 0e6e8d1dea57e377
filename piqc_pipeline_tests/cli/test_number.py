"""Is a number on the command line a number, in every command?"""

import click
import pytest

from piqc_pipeline.cli.main import cli
from piqc_pipeline.cli.number import Number


def test_a_number_in_its_range_is_taken() -> None:
    assert Number(0, 1).convert("0.5", None, None) == 0.5


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "NaN", "1e999", "2", "x"])
def test_what_is_no_number_in_the_range_is_refused(text: str) -> None:
    for limits in (Number(0, 1), Number(0)):
        if text != "2" or limits.max is not None:
            with pytest.raises(click.BadParameter, match="no number|not in the range|not a valid float"):
                limits.convert(text, None, None)


def options(command: click.Command) -> list[tuple[str, click.Parameter]]:
    inner = (
        [command.get_command(click.Context(command), name) for name in command.commands]
        if isinstance(command, click.Group) and command.commands
        else []
    )
    found = [(command.name or "", option) for option in command.params]
    return found + [pair for one in inner if one is not None for pair in options(one)]


def test_every_number_of_every_command_refuses_nan() -> None:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    ranges = [
        (name, option)
        for command in commands
        if command is not None
        for name, option in options(command)
        if isinstance(option.type, click.FloatRange)
    ]
    assert len(ranges) > 10
    assert [(name, option.name) for name, option in ranges if not isinstance(option.type, Number)] == []
