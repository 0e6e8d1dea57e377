"""What does the load look like? Plots as PNG bytes, for the UI's metadata, the notebook and the report."""

import io
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from piqc_pipeline.history.profile import HIGH_UTILIZATION, LOW_UTILIZATION
from piqc_pipeline.history.reading import busiest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PANELS = 8
"""Workloads drawn one under the other; the busiest are shown."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def load_plot(frame: pl.DataFrame, timezone: str = "UTC") -> bytes:
    """Utilization of each workload over time, with the limits of outliers and the censored buckets, as PNG."""
    frame = busiest([frame], MAX_PANELS)
    names = sorted(frame["workload"].unique())
    figure = _figure(len(names), height=1.7)
    for position, name in enumerate(names):
        axis = figure.axes[position]
        rows = (
            frame.filter(pl.col("workload") == name)
            .sort("ts")
            .upsample("ts", every=timedelta(seconds=_step(frame, name)))
        )
        local = rows["ts"].dt.convert_time_zone(timezone).dt.replace_time_zone(None).to_numpy()
        axis.plot(local, rows["utilization"].to_numpy() * 100, linewidth=0.8)
        full = rows["censored"].fill_null(False).to_numpy()
        axis.plot(local[full], rows["utilization"].to_numpy()[full] * 100, ".", color="tab:red", markersize=3)
        axis.axhline(HIGH_UTILIZATION * 100, color="tab:red", linewidth=0.5, linestyle="--")
        axis.axhline(LOW_UTILIZATION * 100, color="tab:gray", linewidth=0.5, linestyle="--")
        axis.set_title(name, fontsize=8, loc="left")
        axis.set_ylim(-3, 103)
        axis.set_ylabel("busy, %", fontsize=7)
        axis.tick_params(labelsize=7)
    figure.axes[-1].set_xlabel(f"clock of {timezone}; red points: saturated, demand may have been higher", fontsize=7)
    return _png(figure)


def week_plot(frame: pl.DataFrame, timezone: str = "UTC") -> bytes:
    """Mean demand of each workload by weekday and hour, as PNG."""
    frame = busiest([frame], MAX_PANELS)
    names = sorted(frame["workload"].unique())
    figure = _figure(len(names), height=1.7)
    local = pl.col("ts").dt.convert_time_zone(timezone)
    for position, name in enumerate(names):
        axis = figure.axes[position]
        means = (
            frame.filter(pl.col("workload") == name)
            .group_by(local.dt.weekday().alias("weekday"), local.dt.hour().alias("hour"))
            .agg(pl.col("demand_replicas").mean())
        )
        for weekday in range(1, 8):
            day = means.filter(pl.col("weekday") == weekday).sort("hour")
            style = "--" if weekday > 5 else "-"
            axis.plot(day["hour"], day["demand_replicas"], style, linewidth=0.9, label=DAYS[weekday - 1])
        axis.set_title(name, fontsize=8, loc="left")
        axis.set_ylabel("demand, replicas", fontsize=7)
        axis.tick_params(labelsize=7)
    if names:
        figure.legend(
            *figure.axes[0].get_legend_handles_labels(), fontsize=7, ncols=7, loc="outside upper right", frameon=False
        )
    figure.axes[-1].set_xlabel(f"hour of the day, clock of {timezone}", fontsize=7)
    return _png(figure)


def _step(frame: pl.DataFrame, name: str) -> int:
    return int(frame.filter(pl.col("workload") == name)["step_seconds"].to_numpy().min())


def _figure(panels: int, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.6 + height * max(panels, 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(max(panels, 1), 1, squeeze=False)
    if not panels:
        axes[0][0].set_title("no rows", fontsize=8)
    return figure


def _png(figure: "Figure") -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=90, metadata={"Software": None})
    return stream.getvalue()
