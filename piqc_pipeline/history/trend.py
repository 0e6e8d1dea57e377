"""How did waste run over time? From the scans that were stored; what waste is belongs to `piqc_pipeline.waste`."""

import json

import polars as pl

from piqc_pipeline.errors import HistoryError
from piqc_pipeline.history.table import HistoryStore


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
            f"no scan{of} is stored in {store.location}: `piqc scan --store {store.location}` stores one, and so does "
            "each run of Dagster"
        )
    dollars = pl.col("installed_usd_per_day", "wasted_usd_per_day").round(2)
    installed = pl.when(pl.col("installed_usd_per_day") > 0).then(pl.col("installed_usd_per_day"))
    share = (100 * pl.col("wasted_usd_per_day") / installed).round(2)
    return facts.with_columns(dollars, share.alias("wasted_pct")).sort("cluster", "taken_at")


def trend_json(trend: pl.DataFrame) -> str:
    """The rows as JSON; times are ISO 8601 in UTC."""
    rows = trend.with_columns(pl.col("taken_at").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).to_dicts()
    return json.dumps(rows, indent=2)


def changes(trend: pl.DataFrame) -> list[str]:
    """A sentence for each cluster with several scans: the change from the first to the last one."""
    told = []
    for (cluster,), rows in trend.group_by("cluster", maintain_order=True):
        first, last = rows["wasted_usd_per_day"][0], rows["wasted_usd_per_day"][-1]
        if rows.height > 1 and first is not None and last is not None:
            days = (rows["taken_at"][-1] - rows["taken_at"][0]).total_seconds() / 86_400
            told.append(f"{cluster}: {last - first:+,.0f} $/day in {days:.1f} days")
    return told
