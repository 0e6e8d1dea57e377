"""What does the forecast look like beside what came before? A plot as PNG bytes, for the UI's metadata and the report.

Files and scores belong elsewhere; the load's own plots are in `history.plots`.
"""

import io
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from piqc_pipeline.forecast.model import WorkloadForecast
from piqc_pipeline.forecast.series import DemandSeries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PANELS = 6
"""Workloads drawn one under the other; those with the highest demand ahead are shown."""
SHOWN_BEFORE = timedelta(days=2)
SHOWN_AHEAD = timedelta(days=1)


def forecast_plot(series: Sequence[DemandSeries], forecasts: Mapping[str, WorkloadForecast]) -> bytes:
    """Demand of the last two days and the forecast of the next: median, and the band from its lower to its 90 % level.

    Args:
        series: Demand that the forecasts were made from.
        forecasts: By workload id; one without demand in `series` is drawn alone.
    """
    demand = {one.workload: one for one in series}
    chosen = sorted(forecasts.values(), key=lambda one: -max(one.table.q90, default=0.0))[:MAX_PANELS]
    figure, axes = _panels(len(chosen))
    for axis, forecast in zip(axes, sorted(chosen, key=lambda one: one.workload), strict=False):
        _draw(axis, demand.get(forecast.workload), forecast)
    axes[-1].set_xlabel("UTC", fontsize=7)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=80, metadata={"Software": None})
    return stream.getvalue()


def _draw(axis: Any, before: DemandSeries | None, forecast: WorkloadForecast) -> None:
    if before is not None:
        recent = before.last_days(SHOWN_BEFORE / timedelta(days=1))
        axis.plot(_clock(recent.start, recent.step_seconds, len(recent.demand)), recent.demand, "k-", linewidth=0.7)
    table = forecast.table
    ahead = min(len(table.q50), int(SHOWN_AHEAD.total_seconds() // table.step_seconds))
    clock = _clock(table.start, table.step_seconds, ahead)
    axis.fill_between(clock, table.lower[:ahead], table.q90[:ahead], alpha=0.3, linewidth=0)
    axis.plot(clock, table.q50[:ahead], linewidth=1.0)
    verdict = "accepted" if forecast.accepted else "not accepted: stays reactive"
    axis.set_title(f"{forecast.workload} ({verdict})".replace("$", r"\$"), fontsize=8, loc="left")
    axis.set_ylabel(f"demand, {forecast.unit}", fontsize=7)
    axis.tick_params(labelsize=7)


def _clock(start: Any, step_seconds: int, count: int) -> Any:
    first = np.datetime64(start.replace(tzinfo=None), "s")
    return first + np.arange(count) * np.timedelta64(step_seconds, "s")


def _panels(count: int) -> "tuple[Figure, list[Any]]":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.6 + 1.7 * max(count, 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(max(count, 1), 1, squeeze=False)
    return figure, [row[0] for row in axes]
