"""The trend of waste fits a terminal of 80 columns, whatever the clusters are called."""

from datetime import UTC, datetime

import polars as pl
import pytest

from piqc_pipeline.history.trend import render_table


@pytest.mark.parametrize("cluster", ["demo", "arn:aws:eks:eu-central-1:123456789012:cluster/inference-production"])
def test_the_table_is_no_wider_than_the_terminal(cluster: str) -> None:
    rows = pl.DataFrame(
        {
            "cluster": [cluster, cluster],
            "taken_at": [datetime(2025, 1, 20, tzinfo=UTC), datetime(2025, 1, 21, tzinfo=UTC)],
            "accelerators": [38.0, 38.0],
            "installed_usd_per_day": [3452.4, None],
            "wasted_usd_per_day": [3243.4, 3000.0],
            "wasted_pct": [93.9, None],
        }
    )
    shown = render_table(rows, "piqc-data/history.duckdb", 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert (
        "3,243.4" in shown
        and "93.9" in shown
        and "unknown" in shown
        and "-243 $/day in 1.0 days" in " ".join(shown.split())
    )
