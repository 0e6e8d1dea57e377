"""A file of load becomes series, or one clear sentence."""

import pytest

from piqc_pipeline.errors import TraceUnreadable
from piqc_pipeline.forecast.trace_file import read_trace


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("x.parquet", b"", "must be a Parquet or CSV", id="empty"),
        pytest.param("x.parquet", b"PAR1 cut off", "must be a Parquet or CSV", id="cut off"),
        pytest.param("x.csv", b"a,b\n1,2\n", "has the columns", id="foreign"),
        pytest.param("x.csv", b"ts,series_id,value\n", "holds no value", id="no rows"),
        pytest.param(
            "x.csv", b"ts,series_id,value\n2025-01-06T00:00:00Z,a,-5\n", "negative ones are none", id="negative"
        ),
        pytest.param(
            "t.csv",
            b"ts,series_id,value,unit\n2025-01-06T00:00Z,a,1,percent\n2025-01-06T00:10Z,a,2,replicas\n",
            "series a mixes the units percent and replicas",
            id="a series of two units",
        ),
        pytest.param(
            "t.csv",
            b"ts,series_id,value\n2025-01-06T00:00Z,a,1\n2025-01-06T00:10Z,,2\n",
            "1 of its 2 rows have no series_id",
            id="rows without a series",
        ),
        pytest.param(
            "t.csv",
            b"ts,series_id,value\n2025-01-06T00:00Z,a,lots\n2025-01-06T00:10Z,a,more\n",
            "no value that is a load .text, ",
            id="text in place of load",
        ),
    ],
)
def test_an_unreadable_trace_is_one_clear_sentence(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceUnreadable, match=message):
        read_trace(path)


def test_a_folder_is_called_one(tmp_path):
    with pytest.raises(TraceUnreadable, match="it is a folder"):
        read_trace(tmp_path)


def test_a_missing_trace_is_named(tmp_path):
    with pytest.raises(TraceUnreadable, match="no such file"):
        read_trace(tmp_path / "none.parquet")


def test_a_tidy_csv_is_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("ts,series_id,value\n2025-01-06T00:00:00Z,a,1.5\n2025-01-06T00:10:00Z,a,2.5\n")
    (series,) = read_trace(path)
    assert (series.workload, series.demand.tolist()) == ("a", [1.5, 2.5])


def test_a_unit_that_some_rows_leave_out_counts_for_the_whole_series(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("ts,series_id,value,unit\n2025-01-06T00:00Z,a,1,replicas\n2025-01-06T00:10Z,a,2,\n")
    (series,) = read_trace(path)
    assert (series.unit, series.demand.tolist()) == ("replicas", [1.0, 2.0])
