"""What does a page of metrics say? The text formats of Prometheus and OpenMetrics, one sample a line.

A line that cannot be read is counted and skipped; it never drops the rest (prometheus_client's parser ends at the
first one, which is why it is not used here; a test compares the two on pages that both can read). Format:
prometheus.io/docs/instrumenting/exposition_formats.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_PAGE_BYTES = 16 * 1024 * 1024
LARGEST = 1e200
"""A value beyond this is no measurement; below it, no sum or product of samples overflows."""
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(
    r'\s*(?:([a-zA-Z_:][a-zA-Z0-9_:.]*)|"((?:[^"\\]|\\.)*)")\s*(?:=\s*"((?:[^"\\]|\\.)*)")?\s*(,|\}|$)', re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_VALUE = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)|[+-]?[Ii]nf(?:inity)?|[+-]?[Nn]a[Nn]"
)
_TIMESTAMP = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_UNESCAPED = {"n": "\n", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. The value may be NaN or infinite, as it was written."""

    name: str
    labels: dict[str, str]
    value: float

    @property
    def usable(self) -> bool:
        """Whether the value is a number that can be reckoned with."""
        return abs(self.value) <= LARGEST


@dataclass
class Page:
    """All samples of a page, by name.

    Attributes:
        malformed: Lines that could not be read.
    """

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    malformed: int = 0

    def __iter__(self) -> Iterator[Sample]:
        """Every sample, in order of names as first seen."""
        for group in self.samples.values():
            yield from group

    def get(self, *names: str) -> list[Sample]:
        """Samples of the first of these names that has any."""
        return next((found for name in names if (found := self.samples.get(name))), [])

    def values(self, *names: str) -> list[float]:
        """Usable values of the first of these names that has any sample."""
        return [sample.value for sample in self.get(*names) if sample.usable]

    def total(self, *names: str) -> float | None:
        """Sum over all series; None where there is none, or one of them is no number."""
        found = self.get(*names)
        if not found or not all(sample.usable for sample in found):
            return None
        return math.fsum(sample.value for sample in found)

    def mean(self, *names: str) -> float | None:
        """Mean over all series; None where there is none, or one of them is no number."""
        total = self.total(*names)
        return None if total is None else total / len(self.get(*names))


def parse(text: str, prefixes: tuple[str, ...] = ()) -> Page:
    """The samples of a page.

    Args:
        text: The page.
        prefixes: Keep only names that start with one of these; all if empty.
    """
    page = Page()
    for line in text[:MAX_PAGE_BYTES].split("\n"):
        line = line.strip(" \t\r")
        if not line or line[0] == "#" or (prefixes and not line.startswith(prefixes) and line[0] != "{"):
            continue
        sample = parse_line(line)
        if sample is None:
            page.malformed += 1
        elif not prefixes or sample.name.startswith(prefixes):
            page.samples.setdefault(sample.name, []).append(sample)
    return page


def parse_line(line: str) -> Sample | None:
    """The sample of one line; None where the line is none."""
    match = _NAME.match(line)
    name = match.group() if match else ""
    position = match.end() if match else 0
    labels: dict[str, str] = {}
    while position < len(line) and line[position] in " \t":
        position += 1
    if position < len(line) and line[position] == "{":
        found = _labels(line, position + 1)
        if found is None:
            return None
        labels, quoted_name, position = found
        name = name or quoted_name
    elif match and position == match.end():
        return None
    if not name:
        return None
    value = _value(line[position:])
    return None if value is None else Sample(name, labels, value)


def _labels(line: str, position: int) -> tuple[dict[str, str], str, int] | None:
    labels: dict[str, str] = {}
    quoted_name = ""
    if line[position:].lstrip(" \t").startswith("}"):
        return labels, "", line.index("}", position) + 1
    while True:
        match = _LABEL.match(line, position)
        if match is None:
            return None
        plain, quoted, value, end = match.groups()
        if value is None:
            if quoted is None or quoted_name or labels:
                return None
            quoted_name = _unescape(quoted)
        else:
            key = plain if plain is not None else _unescape(quoted)
            if key in labels:
                return None
            labels[key] = _unescape(value) if "\\" in value else value
        position = match.end()
        if end == "}":
            return labels, quoted_name, position
        if end == "":
            return None
        if line[position:].lstrip(" \t").startswith("}"):
            return labels, quoted_name, line.index("}", position) + 1


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _UNESCAPED.get(found[1], "\\" + found[1]), text)


def _value(rest: str) -> float | None:
    """The value, behind it an optional timestamp, behind that an optional exemplar."""
    cells = rest.partition(" # ")[0].split()
    if not cells or len(cells) > 2 or (len(cells) == 2 and _TIMESTAMP.fullmatch(cells[1]) is None):
        return None
    if _VALUE.fullmatch(cells[0]) is None:
        return None
    try:
        return float(cells[0])
    except (ValueError, OverflowError):
        return None
