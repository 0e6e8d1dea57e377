import errno
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from piqc_pipeline.cli.history import history_command, trend_command
from piqc_pipeline.errors import HistoryError, HistoryFileUnreadable, NotConfigured, OutputUnwritable, UsageError
from piqc_pipeline.history.exports import export
from piqc_pipeline.history.store import open_store
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIQC_NOW", "2025-01-20T00:00:00Z")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(history_command, arguments, catch_exceptions=False)


def test_what_was_imported_comes_out_as_the_specifications_csv(place: Path) -> None:
    text = "ds,y\n2025-01-06 00:00:00,10.0\n2025-01-06 00:05:00,20.5\n2025-01-07 00:00:00,30.0\n"
    (place / "gpu_util.csv").write_text(text)
    done = run("import", "gpu_util.csv")
    assert "3 rows of 1 workload into piqc-data/history.duckdb" in done.output
    assert run("export", "--format", "csv").output == text


def test_importing_twice_changes_nothing(place: Path) -> None:
    (place / "load.csv").write_text("ds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,20\n")
    run("import", "load.csv")
    once = open_store("piqc-data/history.duckdb").read()
    run("import", "load.csv")
    assert open_store("piqc-data/history.duckdb").read().equals(once)


@pytest.mark.parametrize("store", ["piqc-data/history.duckdb", "piqc-data/lake"])
def test_an_import_touches_the_files_workloads_only_and_names_the_file(place: Path, store: str) -> None:
    other, own = "prod/inference/Deployment/embed", "file/a/Workload/b"
    stored = pl.concat([rows([0.5, 0.6], workload=own, devices_seen=4), rows([0.8] * 3, workload=other)])
    opened = open_store(store)
    opened.replace(DAY, NEXT_DAY, stored)
    (place / "load.csv").write_text("ts,workload,utilization\n2025-01-06 00:00,a/b,0.1\n")
    done = run("import", "load.csv", "--store", store)
    assert "piqc: 1 stored rows are not in load.csv and stay (force deletes them)\n" in done.stderr
    assert "piqc: 1 stored rows are fuller than in load.csv and stay (force takes the emptier ones)\n" in done.stderr
    assert done.stdout == f"0 rows of 1 workload into {store}, 2 stored rows kept\n"
    assert opened.read().equals(stored)
    done = run("import", "load.csv", "--store", store, "--force")
    assert done.stdout == f"1 row of 1 workload into {store}, 0 stored rows kept\n"
    assert opened.read()["utilization"].to_list() == [0.1, 0.8, 0.8, 0.8]


def test_an_import_leaves_the_days_that_its_file_does_not_tell(place: Path) -> None:
    own = "file/a/Workload/b"
    for store in ("piqc-data/history.duckdb", "piqc-data/lake"):
        open_store(store).replace(NEXT_DAY, NEXT_DAY + timedelta(days=1), rows([0.5], workload=own, start=NEXT_DAY))
        text = "ts,workload,utilization\n2025-01-06 00:00,a/b,0.1\n2025-01-08 00:00,a/b,0.2\n"
        (place / "load.csv").write_text(text)
        assert "stored rows" not in run("import", "load.csv", "--store", store, "--force").stderr
        assert open_store(store).read()["utilization"].to_list() == [0.1, 0.5, 0.2]


def test_more_bad_rows_than_are_put_aside_are_told_as_the_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("piqc_pipeline.history.imports.MAX_BAD_ROWS_ASIDE", 2)
    (place / "load.csv").write_text("ds,y\n" + "2025-01-06,x\n" * 3)
    with pytest.raises(HistoryFileUnreadable, match="has 3 bad rows: .*; the first 2 bad rows are in load.csv.bad.csv"):
        run("import", "load.csv")
    assert (place / "load.csv.bad.csv").read_text().count("\n") == 3


def test_bad_rows_are_put_aside_and_nothing_goes_in_without_skip_bad(place: Path) -> None:
    (place / "load.csv").write_text("ds,y\n2025-01-06 00:00,10\n2025-01-06 00:05,900\n2025-01-06 00:10,20\n")
    with pytest.raises(HistoryFileUnreadable, match=r"line 3: utilization 900 .*load.csv.bad.csv"):
        run("import", "load.csv")
    assert (place / "load.csv.bad.csv").read_text() == "line,problem\n3,utilization 900 % is above 100 %\n"
    assert not (place / "piqc-data").exists()
    run("import", "load.csv", "--skip-bad")
    assert open_store("piqc-data/history.duckdb").read()["utilization"].to_list() == [0.1, 0.2]


def test_samples_of_the_future_are_left_out(place: Path) -> None:
    (place / "load.csv").write_text("ds,y\n2025-01-19 23:50,10\n2025-01-19 23:55,10\n2025-01-20 00:00,10\n")
    done = run("import", "load.csv")
    assert "samples after now" in done.stderr
    assert open_store("piqc-data/history.duckdb").read().height == 2


def test_a_file_of_the_future_alone_is_refused(place: Path) -> None:
    (place / "load.csv").write_text("ds,y\n2035-01-06 00:00,10\n")
    with pytest.raises(HistoryFileUnreadable, match="all its samples are later than now .*2035-01-06 00:00"):
        run("import", "load.csv")
    assert not (place / "piqc-data").exists()


def test_a_store_below_a_file_is_one_sentence(place: Path) -> None:
    (place / "load.csv").write_text("ds,y\n2025-01-06 00:00,10\n")
    for store in ("load.csv/x.duckdb", "load.csv/deeper/x.duckdb", "load.csv/lake"):
        with pytest.raises(OutputUnwritable, match=f"cannot write {store}: a part of its path is a file"):
            run("import", "load.csv", "--store", store)


def test_a_large_file_goes_in_by_windows(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("piqc_pipeline.history.imports.ROWS_AT_ONCE", 100)
    stamps = [DAY + timedelta(hours=hour) for hour in range(240)]
    pl.DataFrame({"ds": stamps, "y": [float(hour % 24) for hour in range(240)]}).write_parquet("load.parquet")
    run("import", "load.parquet")
    stored = open_store("piqc-data/history.duckdb").read()
    assert stored["utilization"].to_list() == [hour % 24 / 100 for hour in range(240)]


def test_names_of_the_last_scan_give_ids(place: Path) -> None:
    (place / "load.csv").write_text("ts,workload,demand_replicas\n2025-01-06,inference/chat,1\n")
    run("import", "load.csv", "--store", "other.duckdb")
    assert open_store("other.duckdb").read()["workload"].to_list() == ["file/inference/Workload/chat"]


def test_several_workloads_are_exported_as_their_weighted_mean_or_one_by_one(place: Path) -> None:
    store = open_store("piqc-data/history.duckdb")
    chat = rows([0.2], ready_replicas=1.0, gpus_per_replica=1.0)
    embed = rows([0.8], workload="prod/inference/Deployment/embed", ready_replicas=3.0, gpus_per_replica=1.0)
    store.replace(DAY, NEXT_DAY, pl.concat([chat, embed]))
    # (1 x 20 % + 3 x 80 %) / 4 = 65 %
    assert run("export").output.splitlines()[1] == "2025-01-06 00:00:00,65.0"
    assert run("export", "-w", "inference/chat").output.splitlines()[1] == "2025-01-06 00:00:00,20.0"
    with pytest.raises(UsageError, match="'inference/none' is not in the history"):
        run("export", "-w", "inference/none")


@pytest.mark.parametrize(("form", "read"), [("rows", pl.read_csv), ("parquet", pl.read_parquet)])
def test_every_column_can_be_exported_to_a_file(place: Path, form: str, read: object) -> None:
    store = open_store("piqc-data/history.duckdb")
    both = pl.concat([rows([0.1]), rows([0.2], start=NEXT_DAY)])
    store.replace(DAY, NEXT_DAY + timedelta(days=1), both)
    done = run("export", "--format", form, "-o", "out/history")
    assert (done.stdout, done.stderr) == ("", "2 rows into out/history\n")
    written = read(place / "out" / "history")  # type: ignore[operator]
    assert written.columns == both.columns
    assert written["utilization"].to_list() == [0.1, 0.2]


def test_an_export_goes_to_stdout_in_the_format_named(place: Path) -> None:
    open_store("piqc-data/history.duckdb").replace(DAY, NEXT_DAY, rows([0.1]))
    whole = run("export", "--format", "rows").stdout
    assert whole.startswith("cluster,workload,ts,step_seconds,")
    assert run("export", "-o", "rows").stdout == run("export", "--format", "rows", "-o", "-").stdout == whole
    assert run("generate", "--days", "0.1", "-o", "-").stdout.startswith("ts,series_id,value,unit")
    assert sorted(path.name for path in place.iterdir()) == ["piqc-data"]


def test_an_export_to_a_parquet_file_is_parquet_unless_told_otherwise(place: Path) -> None:
    open_store("piqc-data/history.duckdb").replace(DAY, NEXT_DAY, rows([0.1]))
    run("export", "-o", "out.parquet")
    run("export", "--format", "csv", "-o", "as-told.parquet")
    assert pl.read_parquet("out.parquet")["utilization"].to_list() == [0.1]
    assert (place / "as-told.parquet").read_text(encoding="utf-8").startswith("ds,y\n")


@pytest.mark.parametrize("form", ["rows", "parquet"])
def test_a_full_disk_behind_an_export_is_an_error_of_the_disk(form: str, place: Path) -> None:
    store = open_store("piqc-data/history.duckdb")
    store.replace(DAY, NEXT_DAY, rows([0.1]))
    with pytest.raises(OSError, match="No space left on device") as caught, Path("/dev/full").open("wb") as full:
        export(store, form, full)
    assert caught.value.errno == errno.ENOSPC


def test_a_range_that_ends_before_it_begins_is_a_usage_error(place: Path) -> None:
    with pytest.raises(UsageError, match="is not before the end"):
        run("export", "--start", "2025-01-07", "--end", "2025-01-06")


def test_a_file_that_cannot_be_read_twice_is_refused_at_once(place: Path) -> None:
    os.mkfifo("pipe")
    with pytest.raises(HistoryFileUnreadable, match="it is a pipe or device.*write it to a file first"):
        run("import", "pipe")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--timezone", "Nowhere/Zone"), "'Nowhere/Zone' is no zone"),
        (("--timezone", "../../etc/passwd"), "is no zone"),
        (("--seed", "-1"), "the seed -1 is below 0"),
        (("--start", "9999-12-31"), "do not fit into the calendar"),
        (("--start", "0001-01-01", "--timezone", "America/New_York"), "do not fit into the calendar"),
    ],
)
def test_a_load_that_cannot_be_meant_is_a_usage_error(arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run("generate", *arguments)


@pytest.mark.cli
@pytest.mark.parametrize("form", ["samples", "openmetrics"])
def test_a_reader_of_generated_load_may_go_away(form: str) -> None:
    command = f"{sys.executable} -m piqc_pipeline.cli.main history generate --days 60 --step 60 --form {form}"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -c 10; exit ${{PIPESTATUS[0]}}"], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_export_of_nothing_writes_nothing(place: Path) -> None:
    with pytest.raises(HistoryError, match="nothing to export"):
        run("export", "-o", "out.csv")
    assert not (place / "out.csv").exists()


def test_generated_samples_can_be_imported(place: Path) -> None:
    run("generate", "--days", "2", "-o", "week.csv", "--name", "prod/chat")
    done = run("import", "week.csv")
    assert done.output.endswith("576 rows of 1 workload into piqc-data/history.duckdb, 0 stored rows kept\n")


def test_generated_openmetrics_end_as_promtool_wants(place: Path) -> None:
    out = run("generate", "--form", "openmetrics", "--days", "0.1", "--pods", "2").output.splitlines()
    assert out[0] == "# TYPE DCGM_FI_DEV_GPU_UTIL gauge"
    assert out[-1] == "# EOF"
    assert len(out) == 2 + 2 * 28


def test_a_name_without_namespace_is_refused() -> None:
    with pytest.raises(UsageError, match="write NAMESPACE/NAME"):
        run("generate", "--name", "chat")


@pytest.mark.parametrize("location", ["history.duckdb", "lake"])
def test_pruning_keeps_the_last_days(location: str) -> None:
    store = open_store(location)
    store.replace(DAY, NEXT_DAY + timedelta(days=1), pl.concat([rows([0.1]), rows([0.2], start=NEXT_DAY)]))
    # Now is 2025-01-20: 13 days back is the 7th.
    done = run("prune", "--keep-days", "13", "--store", location)
    assert done.output == f"1 row from before 2025-01-07 deleted from {location}\n"
    assert open_store(location).read()["utilization"].to_list() == [0.2]


def test_compaction_makes_the_file_small_and_keeps_its_rows(place: Path) -> None:
    store = open_store("history.duckdb")
    many = rows([index / 40_000 for index in range(40_000)])
    end = DAY + timedelta(days=200)
    store.replace(DAY, end, many)
    store.replace(DAY, end, rows([0.5]), force=True)
    before = (place / "history.duckdb").stat().st_size
    store.compact()
    assert (place / "history.duckdb").stat().st_size < before
    assert store.read().equals(rows([0.5]))
    assert [path.name for path in place.iterdir() if path.is_file()] == ["history.duckdb"]


def facts(day: datetime, wasted: float | None) -> pl.DataFrame:
    return pl.DataFrame(
        {"cluster": ["prod"], "taken_at": [day], "accelerators": [38.0], "installed_usd_per_day": [999.9999999996],
         "wasted_usd_per_day": [wasted], "facts_json": ["{}"]},
        schema_overrides={"wasted_usd_per_day": pl.Float64},
    )  # fmt: skip


def test_the_trend_shows_each_scan_and_the_change() -> None:
    store = open_store("history.duckdb")
    for day, wasted in ((6, 400.0), (7, None), (8, 250.0)):
        store.append_facts(facts(datetime(2025, 1, day, tzinfo=UTC), wasted))
    runner = CliRunner()
    table = runner.invoke(trend_command, ["--store", "history.duckdb"], catch_exceptions=False).output
    assert "unknown" in table
    assert "prod: -150 $/day in 2.0 days" in table
    told = json.loads(runner.invoke(trend_command, ["--store", "history.duckdb", "--format", "json"]).output)
    assert [row["wasted_pct"] for row in told] == [40.0, None, 25.0]
    assert (told[0]["taken_at"], told[0]["installed_usd_per_day"]) == ("2025-01-06T00:00:00Z", 1000.0)
    with pytest.raises(HistoryError, match="no scan of cluster other"):
        runner.invoke(trend_command, ["--store", "history.duckdb", "--cluster", "other"], catch_exceptions=False)


def test_a_trend_of_nothing_names_the_command_that_stores_a_scan(place: Path) -> None:
    with pytest.raises(HistoryError, match="`piqc scan --store piqc-data/history.duckdb` stores one"):
        CliRunner().invoke(trend_command, catch_exceptions=False)


def test_the_profile_tells_peaks_and_nights_in_words_or_figures(place: Path) -> None:
    run("generate", "--days", "14", "--name", "prod/chat", "--noise", "0", "--bursts", "0", "-o", "week.csv")
    run("import", "week.csv")
    words = run("profile").output
    assert words.startswith("prod/chat was ")
    assert "a strong daily pattern" in words
    assert "times the load of weekends" in words
    assert run("profile", "--format", "csv", "-w", "prod/chat").output.splitlines()[1].startswith("file/prod/Workload/")
    with pytest.raises(HistoryError, match="no history is stored in none.duckdb since .*piqc history fetch"):
        run("profile", "--store", "none.duckdb")


def test_fetching_without_a_prometheus_or_with_a_range_that_is_none_is_a_usage_error(place: Path) -> None:
    with pytest.raises(NotConfigured, match="give --prometheus-url, or set PIQC_PROMETHEUS_URL"):
        run("fetch")
    done = run("fetch", "--prometheus-url", "http://p.test", "--start", "2025-01-07", "--end", "2025-01-06")
    assert (done.exit_code, "is not before the end" in done.output) == (2, True)
    done = run("fetch", "--prometheus-url", "http://p.test", "--start", "2025-01-07", "--end", "2025-01-07T00:04")
    assert (done.exit_code, "no bucket of 300 s ends from" in done.output) == (2, True)
