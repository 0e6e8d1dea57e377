"""How does a result look on the asset's page? Verdicts, tables and plots as metadata; no figure is made here."""

import base64
import io
from collections.abc import Mapping, Sequence

import dagster as dg

MAX_PLOT_BYTES = 100 * 1024
"""A plot lies in the event log, once a materialization: larger ones make the log grow without a use."""
MAX_TABLE_ROWS = 50


def verdict(
    name: str,
    passed: bool,
    *,
    measured: float | str | None,
    limit: float | str,
    unit: str,
    says: str,
    blocking: bool = False,
) -> dg.AssetCheckResult:
    """The result of one check, with the measured value beside its limit.

    Args:
        name: The check, as declared.
        passed: Whether the measured value keeps the limit.
        measured: What was measured; None where nothing could be.
        limit: What it is held against.
        unit: Of both.
        says: One sentence for the user: what it means, what to do.
        blocking: Declared as blocking: a failure is an error; otherwise it is a warning.
    """
    shown = carried(measured) if isinstance(measured, float) else measured
    return dg.AssetCheckResult(
        check_name=name,
        passed=passed,
        severity=dg.AssetCheckSeverity.ERROR if blocking else dg.AssetCheckSeverity.WARN,
        description=says,
        metadata={"measured": "unknown" if shown is None else shown, "limit": limit, "unit": unit},
    )


def numbers(values: Mapping[str, float | None]) -> dict[str, dg.MetadataValue]:
    """Figures that Dagster plots over time; an unknown one is left out, because a zero would be a claim."""
    return {
        name: dg.MetadataValue.int(value) if isinstance(value, int) else dg.MetadataValue.float(carried(float(value)))
        for name, value in values.items()
        if value is not None
    }


def carried(value: float) -> float:
    """A figure with the digits that it carries: two decimals, or four digits where it is below 100."""
    return round(value, 2) if abs(value) >= 100 else float(f"{value:.4g}")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> dg.MetadataValue:
    """A table in Markdown, cut at `MAX_TABLE_ROWS`; text from the cluster is shown as it is, never interpreted."""
    shown = [_line(header), _line(["---"] * len(header)), *(_line(row) for row in rows[:MAX_TABLE_ROWS])]
    if len(rows) > MAX_TABLE_ROWS:
        shown.append("")
        shown.append(f"{len(rows) - MAX_TABLE_ROWS} more are in the file.")
    return dg.MetadataValue.md("\n".join(shown))


def picture(title: str, png: bytes) -> dg.MetadataValue:
    """A plot on the asset's page, or a sentence where it would be too large for the event log."""
    png = png if len(png) <= MAX_PLOT_BYTES else _fewer_colors(png)
    if len(png) > MAX_PLOT_BYTES:
        return dg.MetadataValue.text(f"{title}: {len(png) // 1024} KiB, too large to show here; see the file")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _fewer_colors(png: bytes) -> bytes:
    """The same picture with a palette of 64 colors: lines and letters need no more, and it is a third as large."""
    from PIL import Image

    stream = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(64).save(stream, format="png", optimize=True)
    return stream.getvalue()


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: object) -> str:
    if value is None:
        return "unknown"
    text = f"{value:,.2f}" if isinstance(value, float) else str(value)
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
