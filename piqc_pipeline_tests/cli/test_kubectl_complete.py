"""`kubectl piqc <TAB>` offers what `piqc` has."""

from importlib.metadata import distribution

import pytest

from piqc_pipeline.cli.kubectl_complete import answer


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        pytest.param(["sc"], "scan", ":4", id="a command"),
        pytest.param(["scan", "--no-ex"], "--no-exec", ":4", id="an option"),
        pytest.param(["scan", "--format", "y"], "yaml", ":4", id="a value of a choice"),
        pytest.param(["scan", "--prices", ""], ":0", ":0", id="a file is completed as files are"),
        pytest.param(["scan", "--no-such-option="], ":4", ":4", id="nothing"),
    ],
)
def test_the_next_word_is_offered_and_files_only_where_a_file_is_wanted(
    words: list[str], first: str, last: str
) -> None:
    lines = answer(words).splitlines()
    assert (lines[0].partition("\t")[0], lines[-1]) == (first, last)


def test_all_commands_are_offered_for_no_word() -> None:
    offered = {line.partition("\t")[0] for line in answer([]).splitlines()}
    assert {"scan", "test-connection", "trend"} <= offered


def test_the_program_that_kubectl_asks_is_installed() -> None:
    scripts = {entry.name: entry.value for entry in distribution("piqc_pipeline").entry_points}
    assert scripts.get("kubectl-piqc") == "piqc_pipeline.cli.main:main"
