"""Where may a long name break in a narrow table? Behind `/`, `-`, `_`, `.` and blanks, else anywhere."""

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_PIECES = re.compile(r"[^/\-_. ]*[/\-_. ]+|[^/\-_. ]+")
WIDEST_PIECE = 14
"""Columns that a table leaves to the longest piece of a name; longer ones break anywhere."""


class Folding:
    """A cell whose text breaks where a name's parts end. Keeps styles; nothing of it is interpreted."""

    def __init__(self, text: Text) -> None:
        """Take the cell's text."""
        self.text = text

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Its lines, none wider than the column."""
        for line in self.text.divide(list(_breaks(self.text.plain, options.max_width))):
            line.rstrip()
            line.overflow, line.no_wrap = "fold", True
            yield line

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        """At least its longest piece, at most all in one line."""
        widest = max((cell_len(piece.rstrip()) for piece in _pieces(self.text.plain, WIDEST_PIECE)), default=0)
        return Measurement(widest, cell_len(self.text.plain)).with_maximum(options.max_width)


def _pieces(text: str, width: int) -> Iterator[str]:
    for piece in _PIECES.findall(text):
        yield from chop_cells(piece, width) if cell_len(piece.rstrip()) > width else [piece]


def _breaks(text: str, width: int) -> Iterator[int]:
    """Offsets at which a new line begins."""
    place = used = 0
    for piece in _pieces(text, max(1, width)):
        if used and used + cell_len(piece.rstrip()) > width:
            yield place
            used = 0
        place += len(piece)
        used += cell_len(piece)
