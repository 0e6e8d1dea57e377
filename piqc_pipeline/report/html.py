"""What does one page show a team of its accelerators? Plain values in, one HTML file out that loads nothing.

Text is escaped by the template engine and control characters are written out; no figure is made here. What stands on
the page is chosen by `capacity_page.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from piqc_pipeline.report.plots import data_uri
from piqc_pipeline.report.text import printable

if TYPE_CHECKING:
    from jinja2 import Template

_STYLES = {
    **dict.fromkeys(("detected", "fits", "yes"), "good"),
    **dict.fromkeys(("partial", "oversized", "low"), "fair"),
    **dict.fromkeys(("absent", "does not fit", "no"), "bad"),
    **dict.fromkeys(("?", "unknown"), "none"),
}
"""Words that have a color wherever they fill a cell."""


@dataclass(frozen=True)
class Tile:
    """One figure in large print."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG with its title."""

    title: str
    png: bytes

    @property
    def uri(self) -> str:
        """The picture as text."""
        return data_uri(self.png)


@dataclass(frozen=True)
class Table:
    """Cells as text; `numbers` are the columns that are set to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    title: str
    says: str = ""
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class ReportInputs:
    """Everything that stands on the page, in order."""

    cluster: str
    taken_at: str
    written_at: str
    tiles: Sequence[Tile] = ()
    sections: Sequence[Section] = ()


def render_report(inputs: ReportInputs) -> str:
    """The page as HTML."""
    return _template().render(page=inputs, cell_style=lambda cell: _STYLES.get(cell, ""))


@lru_cache(maxsize=1)
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> str:
        """Whatever is not markup of our own is shown letter by letter."""
        return value if isinstance(value, Markup) else printable(value)

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=shown
    )
    return environment.from_string(
        files("piqc_pipeline.report").joinpath("templates/capacity.html.j2").read_text("utf-8")
    )
