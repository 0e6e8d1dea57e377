import gzip
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest

from piqc_pipeline.errors import HistoryFileUnreadable
from piqc_pipeline.history.files import FileSource
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.samples import FetchedHistory

DAY = datetime(2025, 1, 6, tzinfo=UTC)
YEAR = (datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
CHAT = WorkloadInventory("prod/inference/Deployment/chat", "inference", "Deployment", "chat", gpus_per_replica=4)


def fetch(
    path: Path, text: str, *inventory: WorkloadInventory, bucket_seconds: int = 300, **options: object
) -> FetchedHistory:
    path.write_text(text)
    return FileSource(path, **options).fetch(*YEAR, inventory, bucket_seconds)  # type: ignore[arg-type]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return tmp_path / "gpu_util.csv"


def test_the_demo_load_becomes_demand_in_replicas() -> None:
    load = Path(str(files("piqc_pipeline") / "data" / "load.parquet"))
    fetched = FileSource(load).fetch(DAY, DAY + timedelta(minutes=10), (), 300)
    row = fetched.frame.filter(pl.col("workload").str.ends_with("llama-70b")).row(0, named=True)
    # The first row of data/load.parquet: 212.78 requests/s, 300 per replica, 2 replicas of 8 GPUs.
    assert row["step_seconds"] == 600
    assert row["demand_replicas"] == pytest.approx(212.78 / 300, abs=1e-4)
    assert row["utilization"] == pytest.approx(212.78 / 600, abs=1e-4)
    assert row["busy_gpus"] == pytest.approx(16 * 212.78 / 600, abs=1e-3)
    assert (row["signal"], row["confidence"], row["censored"]) == ("offered_rate/capacity", "high", False)


def test_demand_above_the_replicas_is_censored_and_utilization_stops_at_one(csv: Path) -> None:
    text = "ts,workload,demand_replicas,ready_replicas\n2025-01-06T00:00Z,inference/chat,3,2\n"
    row = fetch(csv, text, CHAT).frame.row(0, named=True)
    assert (row["workload"], row["demand_replicas"], row["utilization"], row["busy_gpus"], row["censored"]) == (
        CHAT.id,
        3.0,
        1.0,
        8.0,
        True,
    )


def test_finer_samples_are_averaged_into_the_bucket(csv: Path) -> None:
    lines = [f"2025-01-06 00:0{minute}:00,{10 * minute}" for minute in range(10)]
    frame = fetch(csv, "ds,y\n" + "\n".join(lines)).frame
    assert frame["utilization"].to_list() == [0.2, 0.7]
    assert frame["samples_seen"].to_list() == [5, 5]


def test_a_coarser_file_keeps_its_own_step(csv: Path) -> None:
    frame = fetch(csv, "ds,y\n2025-01-06 00:00,10\n2025-01-06 01:00,20\n2025-01-06 02:00,30\n").frame
    assert frame["step_seconds"].to_list() == [3600, 3600, 3600]


def test_values_never_above_one_are_shares(csv: Path) -> None:
    shares = fetch(csv, "ds,y\n2025-01-06 00:00,0.25\n2025-01-06 00:05,1\n").frame["utilization"].to_list()
    percents = fetch(csv, "ds,y\n2025-01-06 00:00,25\n2025-01-06 00:05,1\n").frame["utilization"].to_list()
    assert (shares, percents) == ([0.25, 1.0], [0.25, 0.01])


def test_a_named_unit_wins(csv: Path) -> None:
    frame = fetch(csv, "ds,y\n2025-01-06 00:00,0.5\n2025-01-06 00:05,1\n", unit="percent").frame
    assert frame["utilization"].to_list() == [0.005, 0.01]


def test_a_rate_becomes_demand_by_a_capacity(csv: Path) -> None:
    text = "ts,series_id,value,unit\n2025-01-06 00:00,chat,30,requests/s\n"
    unknown = fetch(csv, text)
    assert unknown.frame["demand_replicas"].to_list() == [None]
    assert "--capacity" in " ".join(unknown.warnings)
    assert fetch(csv, text, capacity=20.0).frame["demand_replicas"].to_list() == [1.5]


@pytest.mark.parametrize(
    "written",
    ["2025-01-06T01:00:00Z", "2025-01-06 01:00", "2025-01-06T02:00:00+01:00", "2025-01-05T19:30:00-0530", "1736125200"],
)
def test_every_usual_way_to_write_a_time_is_read_as_utc(csv: Path, written: str) -> None:
    assert fetch(csv, f"ds,y\n{written},10\n").frame["ts"].to_list() == [DAY + timedelta(hours=1)]


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("2025-01-06 00:10,-5", "line 4: a load cannot be negative"),
        ("2025-01-06 00:10,NaN", "line 4: NaN or infinite"),
        ("2025-01-06 00:10,900", "line 4: utilization 900 % is above 100 %"),
        ("2025-01-06 00:10,9223372036854775807", "line 4: utilization .* is above 100 %"),
        ("2025-01-06 00:10,busy", "line 4: not a number: busy"),
        ("yesterday,5", "line 4: the time cannot be read"),
    ],
)
def test_a_bad_row_refuses_the_file_by_its_line_and_the_rest_goes_in_with_skip_bad(
    csv: Path, cell: str, problem: str
) -> None:
    text = f"ds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,20\n{cell}\n"
    with pytest.raises(HistoryFileUnreadable, match=problem):
        fetch(csv, text)
    fetched = fetch(csv, text, skip_bad=True)
    assert fetched.frame["utilization"].to_list() == [0.1, 0.2]
    assert "1 bad row of it was left out" in fetched.warnings[0]


def test_bad_rows_name_the_command_that_leaves_them_out(csv: Path) -> None:
    with pytest.raises(HistoryFileUnreadable, match="`piqc history import --skip-bad`"):
        fetch(csv, "ds,y\n2025-01-06,-1\n")


def test_an_empty_cell_is_a_missing_bucket(csv: Path) -> None:
    assert fetch(csv, "ds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,\n").frame.height == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("a,b\n1,2\n", "it has the columns a, b"),
        ("ds,y\n", "no row of it can be used"),
        ("ts,series_id,value,unit\n", "no row of it has a unit"),
        ("ts,series_id,value,unit\n2025-01-06,x,1,celsius\n", "'celsius' is no measure of load"),
    ],
    ids=["empty", "foreign columns", "header only", "header with a unit only", "foreign unit"],
)
def test_a_file_without_history_is_one_sentence(csv: Path, text: str, words: str) -> None:
    with pytest.raises(HistoryFileUnreadable, match=words):
        fetch(csv, text)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HistoryFileUnreadable, match="there is no such file"):
        FileSource(tmp_path / "none.csv").fetch(*YEAR, (), 300)


def test_a_cut_off_parquet_file_is_one_sentence(tmp_path: Path) -> None:
    whole = tmp_path / "load.parquet"
    pl.DataFrame({"ds": [DAY], "y": [1.0]}).write_parquet(whole)
    whole.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(HistoryFileUnreadable, match="cut off or no CSV or Parquet"):
        FileSource(whole).fetch(*YEAR, (), 300)


def test_lists_in_place_of_numbers_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "load.parquet"
    pl.DataFrame({"ds": [DAY], "y": [[1.0]]}).write_parquet(path)
    with pytest.raises(HistoryFileUnreadable, match=r"cannot cast List type [^\n]*\); expected") as raised:
        FileSource(path).fetch(*YEAR, (), 300)
    assert "expression" not in str(raised.value)


def test_nan_in_parquet_is_named_by_its_row(tmp_path: Path) -> None:
    path = tmp_path / "load.parquet"
    pl.DataFrame({"ds": [DAY, DAY + timedelta(minutes=5)], "y": [1.0, float("nan")]}).write_parquet(path)
    with pytest.raises(HistoryFileUnreadable, match="row 2: NaN"):
        FileSource(path).fetch(*YEAR, (), 300)


def test_one_sample_a_gap_of_a_day_and_constant_zero_are_said(csv: Path) -> None:
    assert "only one sample" in fetch(csv, "ds,y\n2025-01-06 00:00,10\n").warnings[0]
    gap = "ds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,10\n2025-01-06 00:10,10\n2025-01-07 00:10,20\n"
    assert any("23.9 h without samples" in warning for warning in fetch(csv, gap).warnings)
    zero = "ds,y\n2025-01-06 00:00,0\n2025-01-06 00:05,0\n"
    assert any("zero throughout" in warning for warning in fetch(csv, zero).warnings)


def test_series_that_no_inventory_knows_keep_their_names(csv: Path) -> None:
    text = "ts,series_id,value,unit\n2025-01-06,inference/chat,1,replicas\n2025-01-06,a/b/total,1,replicas\n"
    fetched = fetch(csv, text, CHAT)
    assert fetched.frame["workload"].to_list() == ["prod/a/Series/b.total", CHAT.id]
    assert "a/b/total" in fetched.warnings[0]


@pytest.mark.parametrize(
    ("unit", "column", "value"),
    [
        ("requests/5min", "offered_rate", 2.0),
        ("tokens/min", "offered_rate", 10.0),
        ("instances", "demand_replicas", 600.0),
        ("%", "utilization", None),
    ],
)
def test_rates_of_any_span_and_counts_are_told_apart(csv: Path, unit: str, column: str, value: float | None) -> None:
    text = f"ts,series_id,value,unit\n2025-01-06,a,600,{unit}\n"
    if value is None:
        with pytest.raises(HistoryFileUnreadable, match="600 % is above 100 %"):
            fetch(csv, text)
    else:
        assert fetch(csv, text).frame[column].to_list() == [value]


def test_a_series_in_two_units_is_refused_with_the_row(csv: Path) -> None:
    head, day = "ts,series_id,value,unit\n", "2025-01-06 00:0"
    apart = f"{head}{day}0,a,50,percent\n{day}0,b,2,replicas\n{day}5,a,60,percent\n"
    assert fetch(csv, apart).frame["workload"].n_unique() == 2
    with pytest.raises(HistoryFileUnreadable, match="line 5: not percent, in which its series begins: replicas"):
        fetch(csv, f"{apart}{day}5,a,2,replicas\n")
    left = fetch(csv, f"{apart}{day}5,a,2,replicas\n", skip_bad=True)
    assert left.frame.filter(pl.col("workload").str.ends_with("a"))["utilization"].to_list() == [0.5, 0.6]


def test_rows_of_a_unit_that_is_no_load_are_named_and_can_be_left_out(csv: Path) -> None:
    text = "ts,series_id,value,unit\n2025-01-06,a,50,percent\n2025-01-06,b,1e9,bytes\n"
    with pytest.raises(HistoryFileUnreadable, match="line 3: not a unit of load: bytes"):
        fetch(csv, text)
    assert fetch(csv, text, skip_bad=True).frame["workload"].to_list() == ["file/imported/Series/a"]


def test_a_path_of_four_names_is_an_id_only_with_a_kind(csv: Path) -> None:
    names = ("prod/x/Deployment/a", "helios/earth/vc/gpus")
    text = "ts,series_id,value,unit\n" + "".join(f"2025-01-06,{name},1,replicas\n" for name in names)
    assert fetch(csv, text).frame["workload"].to_list() == [
        "file/helios/Series/earth.vc.gpus",
        "prod/x/Deployment/a",
    ]


@pytest.mark.parametrize(
    "written",
    [
        "\ufeffds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,20\n",
        "ds,y\r\n2025-01-06 00:00,10\r\n2025-01-06 00:05,20\r\n",
        '"ds","y"\n"2025-01-06 00:00","10"\n"2025-01-06 00:05","20"\n',
        "ds,y\n2025-01-06 00:05,20\n2025-01-06 00:00,10\n",
        "DS, Y\n2025-01-06 00:00,10\n2025-01-06 00:05, 20",
        "ds,y,\n2025-01-06 00:00,10,\n2025-01-06 00:05,20,\n",
        "line,ds,y\n1,2025-01-06 00:00,10\n2,2025-01-06 00:05,20\n",
        "ds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,20\n2025-01-06 00:10\n",
        "ds,y\n\n2025-01-06 00:00,10\n,\n2025-01-06 00:05,20\n\n\n",
        "ds,y\n1736121600,10\n1736121900.0,20\n",
        "ds,y\n1736121600000,10\n1736121900000,20\n",
        "ds,y\n2025-01-05T19:00:00-05:00,10\n2025-01-06T01:05+01:00,20\n",
    ],
    ids=[
        "BOM",
        "CRLF",
        "quotes",
        "unsorted",
        "capitals",
        "trailing comma",
        "column line",
        "short row",
        "blank lines",
        "seconds",
        "milliseconds",
        "zones",
    ],
)
def test_a_file_may_be_written_in_many_ways(tmp_path: Path, written: str) -> None:
    for name, content in {"a.csv": written.encode(), "a.csv.gz": gzip.compress(written.encode())}.items():
        (tmp_path / name).write_bytes(content)
        frame = FileSource(tmp_path / name).fetch(*YEAR, (), 300).frame
        assert frame["utilization"].to_list() == [0.1, 0.2]


@pytest.mark.parametrize("written", ["202501060900", "20250106090000"], ids=["minutes", "seconds"])
def test_a_calendar_time_without_signs_is_no_number_of_milliseconds(csv: Path, written: str) -> None:
    with pytest.raises(HistoryFileUnreadable, match="line 2: the time cannot be read"):
        fetch(csv, f"ds,y\n{written},10\n")


def test_a_blank_line_counts_in_the_number_of_a_bad_one(csv: Path) -> None:
    with pytest.raises(HistoryFileUnreadable, match="has 1 bad row: line 4: not a number: x"):
        fetch(csv, "ds,y\n2025-01-06 00:00,10\n\n2025-01-06 00:05,x\n")


def test_samples_that_lie_years_apart_are_days(csv: Path) -> None:
    csv.write_text("ds,y\n0001-01-01,10\n2025-01-06,20\n")
    frame = FileSource(csv).fetch(datetime(1, 1, 1, tzinfo=UTC), YEAR[1], (), 300).frame
    assert frame["step_seconds"].to_list() == [86_400, 86_400]
    assert frame["ts"].to_list() == [datetime(1, 1, 1, tzinfo=UTC), DAY]


def test_the_content_and_not_the_name_tells_parquet(tmp_path: Path) -> None:
    stamps = [DAY, DAY + timedelta(minutes=5)]
    pl.DataFrame({"ds": stamps, "y": [10.0, 20.0]}).write_parquet(tmp_path / "load.csv")
    (tmp_path / "load.parquet").write_text("ds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,20\n")
    for name in ("load.csv", "load.parquet"):
        assert FileSource(tmp_path / name).fetch(*YEAR, (), 300).frame["utilization"].to_list() == [0.1, 0.2]


def test_cells_beyond_the_columns_make_a_bad_row(csv: Path) -> None:
    text = "ds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,1,5\n2025-01-06 00:10,1,2,3,4\n"
    with pytest.raises(HistoryFileUnreadable, match="has 2 bad rows: line 3: more cells .* line 4: more cells"):
        fetch(csv, text)
    assert fetch(csv, text, skip_bad=True).frame["utilization"].to_list() == [0.1]


def test_several_samples_of_one_instant_are_told(csv: Path) -> None:
    got = fetch(csv, "ds,y\n2025-01-06 00:00,10\n2025-01-06 00:00,20\n")
    assert got.frame["utilization"].to_list() == [0.15]
    assert "several samples of one instant are averaged in gpu_util" in got.warnings


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"ds;y\n2025-01-06 00:00;10,5\n", "separated by semicolons; save it with commas"),
        (b"ds\ty\n2025-01-06 00:00\t10\n", "separated by tabs"),
        (b"ds,y,y\n2025-01-06 00:00,10,11\n", "two of its columns have the same name"),
        (b"PK\x03\x04" + b"\0" * 50, "it is a spreadsheet or archive, not CSV or Parquet"),
        (b"<!DOCTYPE html><p>Sign in", "it is a web page or XML"),
        (b'[{"ds": "2025-01-06", "y": 3}]', "it is JSON"),
        ("ds,y\n2025-01-06,1\n".encode("utf-16"), "it is text in UTF-16"),
        (b"\0" * 100, "it is no text"),
        (b"\n \n", "the file is empty"),
        (b"ds,y\n", "no row of it can be used"),
        (b"PAR1" + b"\0" * 50, "it is cut off or no CSV or Parquet"),
        (gzip.compress(b"ds,y\n2025-01-06 00:00,10\n" * 1000, mtime=0)[:60], "it is cut off"),
        (b"time,load\n1,2\n", "it has the columns load, time; expected"),
    ],
)
def test_a_file_that_holds_no_history_is_one_sentence(csv: Path, content: bytes, says: str) -> None:
    csv.write_bytes(content)
    with pytest.raises(HistoryFileUnreadable, match=rf"^cannot read \S*gpu_util.csv: .*{says}"):
        FileSource(csv).fetch(*YEAR, (), 300)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(HistoryFileUnreadable, match="it is a folder"):
        FileSource(tmp_path).fetch(*YEAR, (), 300)
