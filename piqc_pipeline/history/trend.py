"""How did waste run over time? From the scans that were stored; what waste is belongs to `piqc_pipeline.waste`."""

import io
import json

import polars as pl

from piqc_pipeline.errors import HistoryError
from piqc_pipeline.history.table import HistoryStore

ROOM_FOR_FIGURES = 66
"""Columns of a terminal that the table needs besides the cluster's name."""


def trend_of(store: HistoryStore, cluster: str | None = None) -> pl.DataFrame:
    """One row a scan: cluster, taken_at, accelerators, dollars a day installed and wasted, wasted share.

    Raises:
        HistoryError: No scan is stored.
    """
    facts = store.facts().drop("facts_json")
    if cluster is not None:
        facts = facts.filter(pl.col("cluster") == cluster)
    if facts.is_empty():
        of = f" of cluster {cluster}" if cluster else ""
        raise HistoryError(
            f"no scan{of} is stored in {store.location}: a run of Dagster stores one, `dagster asset "
            "materialize -m piqc_pipeline.definitions --select cluster_snapshot,facts_bundle`"
        )
    installed = pl.when(pl.col("installed_usd_per_day") > 0).then(pl.col("installed_usd_per_day"))
    share = (100 * pl.col("wasted_usd_per_day") / installed).round(2)
    return facts.with_columns(share.alias("wasted_pct")).sort("cluster", "taken_at")


def trend_json(trend: pl.DataFrame) -> str:
    """The rows as JSON; times are ISO 8601 in UTC."""
    rows = trend.with_columns(pl.col("taken_at").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).to_dicts()
    return json.dumps(rows, indent=2)


def render_table(trend: pl.DataFrame, location: str, width: int = 80) -> str:
    """The rows as a table for a terminal, with the change from the first to the last scan of each cluster."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"Waste over time, {location}"), box=SIMPLE_HEAD)
    table.add_column("cluster", overflow="fold", max_width=max(8, width - ROOM_FOR_FIGURES))
    for name in ("taken at\nUTC", "accel-\nerators", "installed\n$/day", "wasted\n$/day", "wasted\n%"):
        table.add_column(name, justify="left" if name.startswith("taken") else "right", no_wrap=True)
    for row in trend.iter_rows(named=True):
        figures = (row["accelerators"], row["installed_usd_per_day"], row["wasted_usd_per_day"], row["wasted_pct"])
        # Names come from the cluster: text, never markup.
        table.add_row(
            Text(row["cluster"]), f"{row['taken_at']:%Y-%m-%d %H:%M}", *(_shown(figure) for figure in figures)
        )
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    console.print(table)
    for (cluster,), rows in trend.group_by("cluster", maintain_order=True):
        first, last = rows["wasted_usd_per_day"][0], rows["wasted_usd_per_day"][-1]
        if rows.height > 1 and first is not None and last is not None:
            days = (rows["taken_at"][-1] - rows["taken_at"][0]).total_seconds() / 86_400
            console.print(Text(f"{cluster}: {last - first:+,.0f} $/day in {days:.1f} days"))
    return stream.getvalue()


def _shown(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:,.1f}".removesuffix(".0")
