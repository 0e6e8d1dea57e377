"""How waste changed between stored scans, in words."""

from datetime import UTC, datetime

import polars as pl

from piqc_pipeline.history.trend import changes


def test_the_change_is_told_of_each_cluster_whose_waste_is_known_twice() -> None:
    monday, tuesday = datetime(2025, 1, 20, tzinfo=UTC), datetime(2025, 1, 21, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "cluster": ["demo", "demo", "once", "unread", "unread"],
            "taken_at": [monday, tuesday, monday, monday, tuesday],
            "wasted_usd_per_day": [3243.4, 3000.0, 7.0, None, 3.0],
        }
    )
    assert changes(rows) == ["demo: -243 $/day in 1.0 days"]
