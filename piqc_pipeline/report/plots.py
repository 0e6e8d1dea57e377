"""What do dollars, forecast and plan look like? Small PNG pictures for the report; load is drawn by `history.plots`."""

import base64
import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_INCHES = 9.0
DOTS_PER_INCH = 100
HEADROOM = 1.3
"""Space for the legend above the highest line, as a factor."""

COLORS = {
    "busy": "#2b8a3e",
    "idle": "#e8590c",
    "dark": "#343a40",
    "fragmented": "#868e96",
    "misplaced": "#f59f00",
    "unavailable": "#c92a2a",
    "not measured": "#ced4da",
}


@dataclass(frozen=True)
class Outlook:
    """What is expected of one workload, and planned for it.

    Attributes:
        title: Name of the workload.
        ts: Start of each step, UTC.
        q50: Median demand, replicas at 100 %; empty without a forecast.
        q90: Demand that is exceeded one time in ten.
        replicas: Planned replicas of each step; None where nothing is planned.
        most: Most replicas allowed.
    """

    title: str
    ts: Sequence[datetime]
    q50: Sequence[float]
    q90: Sequence[float]
    replicas: Sequence[int | None]
    most: int | None = None


def dollars_plot(parts: Sequence[tuple[str, float]]) -> bytes:
    """One bar of what is installed, cut into what becomes of it; (part, USD a day), as PNG."""
    figure = _figure(1.6)
    axis = figure.add_subplot()
    left = 0.0
    whole = sum(usd for _, usd in parts) or 1.0
    for name, usd in parts:
        if usd <= 0:
            continue
        axis.barh(0, usd, left=left, color=COLORS.get(name, "#adb5bd"), label=f"{name} ${usd:,.0f}", edgecolor="white")
        if usd / whole > 0.08:
            axis.text(left + usd / 2, 0, f"{usd / whole:.0%}", ha="center", va="center", color="white", fontsize=9)
        left += usd
    axis.set_yticks([])
    axis.set_xlim(0, max(left, 1.0))
    axis.set_xlabel("USD a day", fontsize=8)
    axis.tick_params(labelsize=8)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    if left > 0:
        figure.legend(loc="outside upper left", ncols=len(parts), fontsize=8, frameon=False)
    return _png(figure)


def outlook_plot(outlook: Outlook) -> bytes:
    """Forecast demand with its unlikely case, and the replicas planned for it, as PNG."""
    dates: Any = importlib.import_module("matplotlib.dates")
    figure = _figure(2.4)
    axis = figure.add_subplot()
    ts: Any = [moment.replace(tzinfo=None) for moment in outlook.ts]
    if outlook.q50:
        axis.plot(ts[: len(outlook.q50)], outlook.q50, color="#1971c2", linewidth=1.4, label="demand, median")
        axis.fill_between(ts[: len(outlook.q90)], outlook.q50, outlook.q90, color="#a5d8ff", label="exceeded 1 in 10")
    planned = [(moment, count) for moment, count in zip(ts, outlook.replicas, strict=False) if count is not None]
    if planned:
        moments, counts = zip(*planned, strict=True)
        point = "o" if len(planned) == 1 else None  # without a forecast only the next moment is planned
        style: Any = {"color": "#343a40", "linewidth": 1.4, "marker": point, "markersize": 4}
        axis.step(moments, counts, where="post", label="replicas planned", **style)
    highest = max([*outlook.q90, *(count for _, count in planned), 1])
    if outlook.most is not None and outlook.most <= 2 * highest:
        highest = max(highest, outlook.most)
        axis.axhline(outlook.most, color="#c92a2a", linewidth=0.8, linestyle="--", label="most allowed")
    axis.set_ylim(0, highest * HEADROOM)
    axis.set_ylabel("replicas", fontsize=8)
    axis.set_title(_plain(outlook.title), fontsize=9, loc="left")
    locator = dates.AutoDateLocator()
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=7, frameon=False, ncols=4, loc="upper right")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    return _png(figure)


def data_uri(png: bytes) -> str:
    """The picture as text that stands in the page itself."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _plain(title: str) -> str:
    """Matplotlib reads `$...$` as formulas; names of the cluster are not formulas."""
    return title.replace("$", r"\$")


def _figure(height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
