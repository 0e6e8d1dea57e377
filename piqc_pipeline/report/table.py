"""How does a person at a terminal see a scan? A table of workloads, a panel of dollars, what is dark, and a legend.

Fits 80 columns; long names fold and nothing is cut off. Text of the cluster is never interpreted.
"""

import io
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from piqc_pipeline.coverage import CoverageReport
from piqc_pipeline.report.fold import Folding
from piqc_pipeline.report.scan_result import ScanResult
from piqc_pipeline.report.text import age, count, percent, printable, usd
from piqc_pipeline.report.wire import total
from piqc_pipeline.waste import PoolCapacity, WasteSummary, WorkloadFigures
from piqc_pipeline.waste.workloads import AGE_FLAG_HOURS

DEFAULT_WIDTH = 80
ROOMY_WIDTH = 110
IDLE_BELOW_PCT = 60.0
"""Below this utilization a workload is painted as idle; only the color hangs on it."""
SHOWN_UNKNOWN = 8
SHOWN_NODES = 10

_MARKS = {"fits": "✓", "oversized": "⚠", "does not fit": "✗", None: "?"}
_ASCII_MARKS = {"fits": "ok", "oversized": "!", "does not fit": "X", None: "?"}
_STATE_STYLES = {"detected": "green", "partial": "yellow", "absent": "red", None: "dim"}


def render(
    results: Sequence[ScanResult],
    *,
    width: int = DEFAULT_WIDTH,
    color: bool = False,
    encoding: str = "utf-8",
    coverage: bool = False,
) -> str:
    """The scan as text.

    Args:
        results: One entry a cluster.
        width: Columns of the terminal.
        color: Use terminal colors; never in a pipe.
        encoding: What the terminal can show; plain ASCII marks are used where it is no UTF-8.
        coverage: Add the coverage report.
    """
    text = io.StringIO()
    console = Console(
        file=text, width=max(width, 40), force_terminal=color, no_color=not color, highlight=False, markup=False,
        emoji=False, color_system="standard" if color else None, legacy_windows=False,
    )  # fmt: skip
    marks = _MARKS if "utf" in encoding.lower() else _ASCII_MARKS
    console.print(Group(*_parts(results, marks, coverage, width)))
    shown = text.getvalue()
    if "utf" not in encoding.lower():
        shown = shown.translate(_ASCII_LINES).encode("ascii", "replace").decode("ascii")
    return "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"


_ASCII_LINES = str.maketrans("─│╭╮╰╯━┃╴╶×", "-|++++-|  x")


def _parts(
    results: Sequence[ScanResult], marks: dict[str | None, str], coverage: bool, width: int
) -> Iterable[RenderableType]:
    rows = [row for result in results for row in result.waste.workloads]
    left_out: list[str] = []
    if rows:
        table, left_out = _workloads(results, marks, width)
        yield table
    else:
        yield Text("No workload with an accelerator or an inference engine was found.")
    summary = total([result.waste.summary for result in results], rows)
    yield _cost_panel(summary, results)
    unmeasured = sum(1 for row in rows if row.idle_usd_per_day is None)
    if unmeasured:
        yield Text(f"{unmeasured} of {len(rows)} workloads not measured: their idle dollars are in no sum.")
    yield from _capacity(results)
    yield from _pending(results)
    if coverage:
        for result in results:
            yield _coverage(result.coverage, many=len(results) > 1)
    yield from _unknown(results)
    if rows:
        yield _legend(marks)
    if left_out:
        names = ", ".join(name.replace("\n", " ") for name in left_out)
        yield Text(f"Left out on this narrow terminal: {names}; --format json has all.", style="dim")


_DISPENSABLE = ("$/1K\ntokens", "MFU", "Age", "Engine", "Repl.", "GPU\nUtil")
"""Columns that a terminal too narrow for all leaves out, in this order, so that dollars are never cut off."""
_NAMES = {"Deployment": 10, "Engine": 6, "GPU": 10}
"""Columns of names, which fold, and what they need at least."""


def _workloads(results: Sequence[ScanResult], marks: dict[str | None, str], width: int) -> tuple[Table, list[str]]:
    """The table, and the columns for which there is no room."""
    roomy = width >= ROOMY_WIDTH
    rows = [
        row
        for result in results
        for row in sorted(result.waste.workloads, key=lambda one: (-(one.usd_per_hour or 0), one.id))
    ]
    engines = {one.id: one.engine.name for result in results for one in result.snapshot.workloads}
    columns: dict[str, list[Text]] = {
        "Deployment": [Text(printable(_name(row, len(results) > 1))) for row in rows],
        "Engine": [Text(printable(engines[row.id])) for row in rows],
        "GPU": [_accelerators(row, marks) for row in rows],
        "Replicas" if roomy else "Repl.": [Text(str(row.replicas)) for row in rows],
        "Age": [_age(row) for row in rows],
        "GPU\nUtil": [Text(percent(row.utilization_pct), style=_use_style(row.utilization_pct)) for row in rows],
        "MFU": [Text(percent(row.mfu_pct, 1)) for row in rows],
        "$/1K\ntokens": [_amount(row.usd_per_1k_tokens, "${:.4f}") for row in rows],
        "$/hr": [_amount(row.usd_per_hour, "{:,.2f}") for row in rows],
        "Idle\n$/day": [_amount(row.idle_usd_per_day, "{:,.2f}") for row in rows],
    }
    left_out = _without_room(columns, width)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0) if roomy else 0, pad_edge=False, show_edge=False)
    for name in left_out:
        del columns[name]
    for name in columns:
        if name in _NAMES:
            table.add_column(name, min_width=_NAMES[name])
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for at in range(len(rows)):
        table.add_row(*(Folding(cells[at]) if name in _NAMES else cells[at] for name, cells in columns.items()))
    return table, left_out


def _without_room(columns: dict[str, list[Text]], width: int) -> list[str]:
    needed = {
        name: _NAMES.get(name) or max([*map(len, name.split("\n")), *(cell.cell_len for cell in cells)])
        for name, cells in columns.items()
    }
    left_out: list[str] = []
    for name in _DISPENSABLE:
        if sum(needed.values()) + len(needed) - 1 <= width:
            break
        if needed.pop(name, None) is not None:
            left_out.append(name)
    return left_out


def _name(row: WorkloadFigures, many: bool) -> str:
    return f"{row.cluster}/{row.name}" if many else row.name


def _age(row: WorkloadFigures) -> Text:
    return Text(age(row.age_hours), style="yellow" if (row.age_hours or 0) >= AGE_FLAG_HOURS else "")


def _amount(value: float | None, form: str) -> Text:
    return Text("?" if value is None else form.format(value))


def _accelerators(row: WorkloadFigures, marks: dict[str | None, str]) -> Text:
    if not row.accelerator_count:
        return Text("none" if row.accelerator_count == 0 else "?")
    product = (row.accelerator or "unknown").replace("NVIDIA-", "").replace("Tesla-", "")
    verdict = row.fit.verdict if row.fit else None
    style = {"fits": "green", "oversized": "yellow", "does not fit": "red"}.get(verdict or "", "dim")
    return Text.assemble(printable(f"{count(row.accelerator_count)}x {product} "), (marks[verdict], style))


def _use_style(value: float | None) -> str:
    if value is None:
        return "dim"
    return "green" if value >= 80 else "yellow" if value >= IDLE_BELOW_PCT else "red"


def _cost_panel(summary: WasteSummary, results: Sequence[ScanResult]) -> Panel:
    dark = sum(pool.dark for result in results for pool in result.waste.capacity or ())
    lines = [
        ("Spend of workloads", usd(summary.spend_usd_per_hour), "/hr"),
        ("All accelerators installed", usd(summary.installed_usd_per_hour), "/hr"),
        ("Idle (unused share of what pods hold)", usd(summary.idle_usd_per_day), "/day"),
        (f"Unallocated ({count(dark)} dark accelerators)", usd(summary.unallocated_usd_per_day), "/day"),
        ("Fragmented (free, no shape fits)", usd(summary.fragmentation_usd_per_day), "/day"),
        ("Misplacement (tier table)", usd(summary.misplacement_usd_per_day), "/day"),
        ("Total leak (parts may overlap)", usd(summary.total_leak_usd_per_day), "/day"),
        ("", usd(summary.total_leak_usd_per_year), "/year"),
        ("Waste (no dollar counted twice)", usd(summary.waste_usd_per_day), "/day"),
        ("Avg MFU (weighted by peak FLOPS)", percent(summary.avg_mfu_pct, 1), ""),
    ]
    if summary.unavailable_usd_per_day is None or summary.unavailable_usd_per_day > 0:
        lines.insert(
            -1, ("Broken, cordoned, not ready, tainted (not waste)", usd(summary.unavailable_usd_per_day), "/day")
        )
    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for line in lines:
        bold = line[0].startswith(("Total", "Waste"))
        table.add_row(*(Text(part, style="bold" if bold else "") for part in line))
    return Panel(table, title="Cost Summary", title_align="left", expand=False)


_BUCKET_WORDS = (
    ("dark", "dark"),
    ("fragmented", "fragmented"),
    ("unhealthy", "unhealthy"),
    ("cordoned", "cordoned"),
    ("not_ready", "not ready"),
    ("tainted", "tainted"),
    ("placement_unknown", "placement unknown"),
)


def _capacity(results: Sequence[ScanResult]) -> Iterable[RenderableType]:
    lines = []
    for result in results:
        for pool in result.waste.capacity or ():
            words = _bucket_words(pool)
            if words:
                prefix = f"{result.snapshot.cluster}/" if len(results) > 1 else ""
                lines.append(
                    f"  {prefix}{pool.node}: {words} of {count(pool.installed)} {pool.product or pool.resource}"
                )
    if lines:
        yield Text("\nAccelerators that do no work:", style="bold")
        yield from _shortened(lines, SHOWN_NODES, "nodes")


def _bucket_words(pool: PoolCapacity) -> str:
    parts = []
    for bucket, word in _BUCKET_WORDS:
        units: float = getattr(pool, bucket)
        if units > 0:
            parts.append(f"{count(units)} {word}")
    return ", ".join(parts)


def _pending(results: Sequence[ScanResult]) -> Iterable[RenderableType]:
    lines = [
        f"  {pod.namespace}/{pod.name}: {count(pod.accelerators)} {pod.resource}, {pod.reason}, "
        f"for {age(pod.waiting_hours)}"
        for result in results
        for pod in result.waste.pending
    ]
    if lines:
        yield Text("\nPods that ask for accelerators and do not run:", style="bold")
        yield from _shortened(lines, SHOWN_NODES, "pods")


def _coverage(coverage: CoverageReport, many: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in ("Coverage" + (f" of {printable(coverage.cluster)}" if many else ""), "Check", "State", "Detail"):
        table.add_column(heading, overflow="fold")
    for layer in coverage.layers:
        for place, check in enumerate(layer.checks):
            state = Text(check.state or "unknown", style=_STATE_STYLES[check.state])
            table.add_row(layer.name if place == 0 else "", check.name, state, Text(printable(check.detail)))
    return table


def _unknown(results: Sequence[ScanResult]) -> Iterable[RenderableType]:
    lines = [f"  {entry.what}: {entry.why}" for result in results for entry in result.waste.unknown]
    if lines:
        yield Text("\nUnknown:", style="bold")
        yield from _shortened(lines, SHOWN_UNKNOWN, "entries; --format json lists all")


def _shortened(lines: Sequence[str], limit: int, what: str) -> Iterable[RenderableType]:
    for line in lines[:limit]:
        yield Text(printable(line), overflow="fold")
    if len(lines) > limit:
        yield Text(f"  and {len(lines) - limit} more {what}")


def _legend(marks: dict[str | None, str]) -> Text:
    return Text(
        f"\n{marks['fits']} memory fits   {marks['oversized']} a product with less memory holds the model   "
        f"{marks['does not fit']} does not fit   {marks[None]} unknown\n"
        "GPU Util: mean over all devices of all pods. MFU: 2 x active parameters x tokens/s over dense peak.\n"
        f"Idle $/day: unused share of the price. Age is the owner's, marked from {AGE_FLAG_HOURS / 24:g} days on.",
        style="dim",
    )
