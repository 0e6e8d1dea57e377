"""A name in a narrow column breaks behind its parts, and keeps every character."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from piqc_pipeline.report.fold import Folding


def lines(text: str, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    return ["".join(part.text for part in line).rstrip() for line in console.render_lines(Folding(Text(text)))]


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("16x H100-SXM4-80GB !", 14, ["16x H100-SXM4-", "80GB !"]),
        ("demo/inference/Deployment/bge", 16, ["demo/inference/", "Deployment/bge"]),
        ("unknown-runtime-7f3a2", 14, ["unknown-", "runtime-7f3a2"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("a-b", 10, ["a-b"]),
        ("", 10, [""]),
    ],
)
def test_a_name_breaks_behind_its_parts(text: str, width: int, expected: list[str]) -> None:
    assert (lines(text, width) or [""]) == expected


@given(st.text(st.characters(exclude_categories=("C", "Z", "M"))), st.integers(2, 30))
def test_no_character_is_lost_and_no_line_is_too_wide(text: str, width: int) -> None:
    found = lines(text, width)
    assert "".join(found) == text
    assert all(cell_len(line) <= width for line in found)
