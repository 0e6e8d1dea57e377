"""Which series of demand does a file hold? A tidy trace, a history file, or `ds, y`; for backtests and replays.

What becomes of a frame is in `series.py`; filling the stored history from a file belongs to `history.files`.
"""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from piqc_pipeline.errors import HistoryFileUnreadable, TraceUnreadable, first_line
from piqc_pipeline.forecast.series import DemandSeries, series_from_history, series_from_trace


def read_trace(path: Path) -> list[DemandSeries]:
    """Every series of a tidy trace (`ts, series_id, value`), a history file, or a `ds,y` CSV.

    Raises:
        TraceUnreadable: It is missing, cut off, foreign, or holds no series.
    """
    import polars as pl

    if not path.is_file():
        why = "it is a folder; name one file of it" if path.is_dir() else "no such file"
        raise TraceUnreadable(f"cannot read trace {path}: {why}")
    try:
        is_text = path.suffix.lower() in (".csv", ".txt")
        frame = pl.read_csv(path, try_parse_dates=True) if is_text else pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceUnreadable(
            f"cannot read trace {path}: {first_line(error)}; it must be a Parquet or CSV file"
        ) from error
    names = set(frame.columns)
    try:
        if frame.is_empty() and {"ts", "series_id", "value"} <= names:
            found = []
        elif {"ts", "series_id", "value"} <= names:
            found = series_from_trace(frame)
        elif {"ts", "workload", "demand_replicas"} <= names:
            found = series_from_history(frame)
        elif {"ds", "y"} <= names:
            renamed = frame.rename({"ds": "ts", "y": "value"}).with_columns(pl.lit(path.stem).alias("series_id"))
            found = series_from_trace(renamed)
        else:
            found = _from_history_file(path)
    except HistoryFileUnreadable as error:
        raise TraceUnreadable(str(error)) from error
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise TraceUnreadable(f"cannot read trace {path}: {first_line(error)}") from error
    if not any(np.isfinite(series.demand).any() for series in found):
        raise TraceUnreadable(
            f"cannot read trace {path}: it holds no value that is a load (text, NaN, infinite, absurd and negative "
            "ones are none)"
        )
    return found


def _from_history_file(path: Path) -> list[DemandSeries]:
    """A history file in the native form (offered rate and capacity)."""
    from piqc_pipeline.history.files import FileSource

    begin, end = datetime(1970, 1, 2, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
    return series_from_history(FileSource(path).fetch(begin, end, (), 60).frame)
