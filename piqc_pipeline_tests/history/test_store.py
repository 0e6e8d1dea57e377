import errno
import os
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from threading import Thread

import duckdb
import polars as pl
import pytest

from piqc_pipeline.errors import HistoryError, OutputUnwritable, StoreLocked, StoreTooNew
from piqc_pipeline.history import duckdb_engine
from piqc_pipeline.history.duckdb_engine import explained
from piqc_pipeline.history.duckdb_store import DuckDbStore
from piqc_pipeline.history.lake import ParquetLake
from piqc_pipeline.history.migrations import MIGRATIONS
from piqc_pipeline.history.store import open_store
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows


@pytest.fixture(params=["history.duckdb", "lake"], ids=["duckdb", "lake"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / request.param)


def test_rows_come_back_as_they_were_written(location: str) -> None:
    written = rows([0.1, 0.5, None], demand_replicas=2.0, censored=False, devices_seen=8)
    open_store(location).replace(DAY, NEXT_DAY, written)
    assert open_store(location).read().equals(written)


def test_running_twice_changes_nothing(location: str) -> None:
    store = open_store(location)
    for _ in range(2):
        outcome = store.replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
        assert (outcome.rows_written, outcome.rows_kept, outcome.doubts("x")) == (2, 0, ())
    assert store.read().equals(rows([0.1, 0.2]))


def test_other_days_and_workloads_stay(location: str) -> None:
    store = open_store(location)
    other = rows([0.9], workload="prod/inference/Deployment/embed")
    store.replace(DAY, NEXT_DAY, pl.concat([rows([0.1]), other]))
    store.replace(NEXT_DAY, NEXT_DAY + timedelta(days=1), rows([0.3], start=NEXT_DAY))
    store.replace(DAY, NEXT_DAY, rows([0.2]))
    assert store.read()["utilization"].to_list() == [0.2, 0.3, 0.9]
    assert store.days() == [DAY, NEXT_DAY]


def test_late_data_closes_the_day(location: str) -> None:
    store = open_store(location)
    store.replace(DAY, NEXT_DAY, rows([0.1]))
    store.replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
    assert store.read()["utilization"].to_list() == [0.1, 0.2]


def test_an_empty_answer_never_deletes_unless_forced(location: str) -> None:
    store = open_store(location)
    store.replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
    outcome = store.replace(DAY, NEXT_DAY, rows([]))
    assert store.read().height == 2
    assert all("stay" in str(doubt) for doubt in outcome.doubts("the answer"))
    store.replace(DAY, NEXT_DAY, rows([]), force=True)
    assert store.read().is_empty()


def test_reading_filters_by_range_and_workload(location: str) -> None:
    store = open_store(location)
    both = pl.concat([rows([0.1, 0.2, 0.3]), rows([0.4], workload="prod/inference/Deployment/embed")])
    store.replace(DAY, NEXT_DAY, both)
    read = store.read(DAY + timedelta(minutes=5), DAY + timedelta(minutes=10), ["prod/inference/Deployment/chat"])
    assert read["utilization"].to_list() == [0.2]
    assert store.newest() == DAY + timedelta(minutes=15)
    assert store.workloads() == ["prod/inference/Deployment/chat", "prod/inference/Deployment/embed"]


def test_a_store_that_does_not_exist_is_empty_and_is_not_created(location: str) -> None:
    store = open_store(location)
    assert store.read().is_empty()
    assert store.days() == []
    assert store.workloads() == []
    assert store.newest() is None
    assert not Path(location).exists()


def test_sql_sees_the_table(location: str) -> None:
    store = open_store(location)
    store.replace(DAY, NEXT_DAY, rows([0.1, 0.3]))
    assert store.query("SELECT avg(utilization) AS mean FROM gpu_utilization")["mean"].to_list() == pytest.approx([0.2])


def test_wrong_sql_is_one_sentence(location: str) -> None:
    store = open_store(location)
    store.replace(DAY, NEXT_DAY, rows([0.1]))
    with pytest.raises(HistoryError, match="cannot answer the query"):
        store.query("SELECT nonsense FROM gpu_utilization")


def test_observations_are_appended_once(location: str) -> None:
    store = open_store(location)
    assert store.append_observations(rows([0.1, 0.2])) == 2
    assert store.append_observations(rows([0.9, 0.2, 0.3])) == 1
    assert store.observations()["utilization"].to_list() == [0.1, 0.2, 0.3]
    assert store.observations(DAY + timedelta(minutes=10))["utilization"].to_list() == [0.3]


def test_a_scan_is_appended_once(location: str) -> None:
    store = open_store(location)
    facts = pl.DataFrame({"cluster": ["prod"], "taken_at": [DAY], "wasted_usd_per_day": [12.5], "facts_json": ["{}"]})
    finding = pl.DataFrame(
        {"cluster": ["prod"] * 2, "taken_at": [DAY] * 2, "kind": ["dark", "idle"], "gpus": [4.0, 1.0]}
    )
    assert [store.append_facts(facts), store.append_facts(facts)] == [1, 0]
    assert [store.append_findings(finding), store.append_findings(finding)] == [2, 0]
    assert store.facts()["wasted_usd_per_day"].to_list() == [12.5]
    assert store.findings()["kind"].to_list() == ["dark", "idle"]


def test_pruning_deletes_what_is_older(location: str) -> None:
    store = open_store(location)
    store.replace(DAY, NEXT_DAY + timedelta(days=1), pl.concat([rows([0.1]), rows([0.2], start=NEXT_DAY)]))
    assert store.prune(NEXT_DAY) == 1
    assert store.read()["utilization"].to_list() == [0.2]


def test_pruning_forgets_the_series_that_have_no_rows_left(tmp_path: Path) -> None:
    store = open_store(tmp_path / "history.duckdb")
    store.replace(DAY, NEXT_DAY, rows([0.1], gpus_per_replica=1))
    later = rows([0.2], start=NEXT_DAY, gpus_per_replica=4)
    store.replace(NEXT_DAY, NEXT_DAY + timedelta(days=1), later)
    assert store.prune(NEXT_DAY) == 1
    assert store.query("SELECT gpus_per_replica FROM series")["gpus_per_replica"].to_list() == [4.0]
    again = rows([0.3], gpus_per_replica=2)
    store.replace(DAY, NEXT_DAY, again)
    assert store.read().equals(pl.concat([again, later]))


def test_a_row_outside_the_window_is_refused(location: str) -> None:
    with pytest.raises(ValueError, match="outside"):
        open_store(location).replace(NEXT_DAY, NEXT_DAY + timedelta(days=1), rows([0.1]))


def test_a_doubled_bucket_is_refused(location: str) -> None:
    with pytest.raises(ValueError, match="two rows for the bucket"):
        open_store(location).replace(DAY, NEXT_DAY, pl.concat([rows([0.1]), rows([0.1])]))


def test_a_bucket_that_begins_within_a_second_is_refused_and_not_rounded_into_another(location: str) -> None:
    with pytest.raises(ValueError, match=r"2025-01-06T23:59:59\.500000\+00:00 does not begin at a whole second"):
        open_store(location).replace(DAY, NEXT_DAY, rows([0.1], start=NEXT_DAY - timedelta(milliseconds=500)))
    assert open_store(location).read().is_empty()


def test_an_infinite_figure_is_stored_as_unknown(location: str) -> None:
    infinite = rows([0.1, 0.2]).with_columns(offered_rate=pl.Series([float("inf"), 3.0]))
    open_store(location).replace(DAY, NEXT_DAY, infinite)
    assert open_store(location).read()["offered_rate"].to_list() == [None, 3.0]


def test_compacting_where_nothing_can_be_deleted_tells_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    (tmp_path / "history.duckdb").write_text("no database")
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(HistoryError, match="is no DuckDB file"):
        DuckDbStore(str(tmp_path / "history.duckdb")).compact()


def test_a_full_disk_is_told_without_the_advice_that_duckdb_has_for_programs() -> None:
    told = duckdb.IOException(
        'IO Error: Database "store5" has been invalidated because checkpointing failed. Detach and reattach it before '
        'using it again. Original error: Could not write file "h.duckdb.wal": No space left on device'
    )
    assert str(explained(told, "h.duckdb")) == (
        'cannot write h.duckdb: Could not write file "h.duckdb.wal": No space left on device; '
        "free space or make its folder writable, what was stored is untouched"
    )


def test_what_may_not_be_opened_is_told_without_advice_to_free_space() -> None:
    told = duckdb.IOException('IO Error: Cannot open file "h.duckdb": Permission denied')
    assert str(explained(told, "h.duckdb")) == (
        "cannot open h.duckdb: permission denied; let this user read and write the file and its folder"
    )


@pytest.mark.parametrize("asked", ["exists", "is_dir"])
def test_a_folder_that_may_not_be_entered_is_one_sentence(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, asked, refused)
    with pytest.raises(OutputUnwritable, match="cannot open h.duckdb: permission denied"):
        open_store("h.duckdb").read()


@pytest.mark.cli
def test_a_file_held_by_another_process_is_named_with_its_pid(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    open_store(path).replace(DAY, NEXT_DAY, rows([0.1]))
    hold = f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLocked, match=rf"process {holder.pid} .* holds it"):
            open_store(path, wait_seconds=0.1).read()
        holder.communicate("")
    assert open_store(path).read().height == 1


def test_a_file_that_compacting_replaces_while_it_is_opened_takes_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, compacted, attach = tmp_path / "history.duckdb", tmp_path / "compacted", duckdb_engine._attach
    store = open_store(path)
    store.replace(DAY, NEXT_DAY, rows([0.1]))
    shutil.copy(path, compacted)

    def late(location: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        connection = attach(location, read_only=read_only)
        if compacted.exists():
            compacted.replace(path)
        return connection

    monkeypatch.setattr(duckdb_engine, "_attach", late)
    store.replace(DAY, NEXT_DAY, rows([0.2]))
    assert not compacted.exists()
    assert store.read().equals(rows([0.2]))


@pytest.mark.cli
def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    open_store(path).replace(DAY, NEXT_DAY, rows([0.1]))
    fill = textwrap.dedent(f"""
        import resource, signal, random
        from datetime import timedelta
        from piqc_pipeline.history.store import open_store
        from piqc_pipeline.errors import OutputUnwritable
        from piqc_pipeline_tests.history.rows import DAY, rows
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = {path.stat().st_size} + 65536
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        values = [random.random() for _ in range(200_000)]
        try:
            open_store({str(path)!r}).replace(DAY, DAY + timedelta(days=900), rows(values))
        except OutputUnwritable as error:
            print("refused:", error)
        """)
    done = subprocess.run([sys.executable, "-c", fill], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("refused: cannot write"), done.stderr
    assert open_store(path).read().equals(rows([0.1]))


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for name in ("history.duckdb", "lake"):
        with pytest.raises(OutputUnwritable, match="cannot write"):
            open_store(f"{tmp_path}/file/{name}").replace(DAY, NEXT_DAY, rows([0.1]))


def test_something_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    path.write_text("ts,y\n" * 2000)
    with pytest.raises(HistoryError, match="no DuckDB file"):
        open_store(path).replace(DAY, NEXT_DAY, rows([0.1]))
    assert path.read_text().startswith("ts,y")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("CREATE TABLE gpu_utilization (a INTEGER)", "it has no table piqc_schema"),
        ("CREATE TABLE mine (a INTEGER)", "it has no table piqc_schema"),
        (f"CREATE TABLE piqc_schema AS SELECT {len(MIGRATIONS)} AS version", "series does not exist"),
    ],
)
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, statement: str, told: str) -> None:
    path = tmp_path / "history.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(statement)
    before = path.read_bytes()
    for act in (DuckDbStore.read, lambda store: store.replace(DAY, NEXT_DAY, rows([0.1]))):
        with pytest.raises(HistoryError, match=f"holds other tables than a history .*{told}"):
            act(DuckDbStore(str(path)))
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", [100, 5_000, 300_000])
def test_a_file_that_was_cut_off_is_told_as_damaged(tmp_path: Path, left: int) -> None:
    path = tmp_path / "history.duckdb"
    values = random.Random(1)
    open_store(path).replace(DAY, DAY + timedelta(days=70), rows([values.random() for _ in range(20_000)]))
    assert path.stat().st_size > left
    os.truncate(path, left)
    with pytest.raises(HistoryError, match="is damaged .*: restore a copy"):
        open_store(path).read()


def test_a_block_that_changed_is_told_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    open_store(path).replace(DAY, NEXT_DAY, rows([0.1]))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"x" * 8192)
    with pytest.raises(HistoryError, match="is damaged .*: restore a copy"):
        open_store(path).read()


def test_a_bucket_whose_series_changed_is_still_the_same_bucket(tmp_path: Path) -> None:
    store = open_store(tmp_path / "history.duckdb")
    full = {"samples_seen": 10, "samples_expected": 10, "devices_seen": 4}
    store.replace(DAY, NEXT_DAY, rows([0.1, 0.2], signal="DCGM_FI_DEV_GPU_UTIL", **full))
    better = rows([0.3, 0.4], signal="DCGM_FI_PROF_GR_ENGINE_ACTIVE", **full)
    assert store.replace(DAY, NEXT_DAY, better).rows_written == 2
    assert store.read().equals(better)
    emptier = rows([0.5, 0.6], signal="vllm:num_requests_running", **{**full, "samples_seen": 5})
    assert store.replace(DAY, NEXT_DAY, emptier).rows_kept == 2
    assert store.read().equals(better)


def test_what_a_failure_means_is_read_behind_a_long_path_too() -> None:
    place = "deep/" * 80 + "history.duckdb"
    held = f'Could not set lock on file "{place}": Conflicting lock is held in /usr/bin/python3.11 (PID 4711)'
    assert "process 4711 (/usr/bin/python3.11) holds it" in str(explained(duckdb.IOException(held), place))
    foreign = f'The file "{place}" exists, but it is not a valid DuckDB database file!'
    assert "is no DuckDB file" in str(explained(duckdb.IOException(foreign), place))


def test_how_columns_are_stored_outlives_compacting(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    store = open_store(path)
    store.replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
    statement = "SELECT sql FROM duckdb_tables() WHERE table_name = 'buckets'"
    before = store.query(statement)["sql"].item()
    store.compact()
    assert "TIMESTAMP_S" in before
    assert store.query(statement)["sql"].item() == before


def test_the_file_is_free_for_other_processes_after_each_call(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    store = open_store(path)
    store.replace(DAY, NEXT_DAY, rows([0.1]))
    store.read()
    program = f"import duckdb; duckdb.connect({str(path)!r}).execute('CREATE TABLE other (a INTEGER)')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert store.read().equals(rows([0.1]))


def test_a_file_is_compacted_while_a_query_of_another_holds_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_engine, "REWRITING_MEMORY", "10MB")
    store = open_store(tmp_path / "history.duckdb")
    store.replace(DAY, NEXT_DAY, rows([0.1]))
    other = duckdb_engine.attach(str(tmp_path / "other.duckdb"), read_only=False, wait_seconds=1)
    sorted_rows = other.execute("SELECT i FROM range(3000000) numbers(i) ORDER BY hash(i)")
    store.compact()
    assert store.read().equals(rows([0.1]))
    assert len(sorted_rows.fetchmany(10)) == 10
    duckdb_engine.detach(other)


def test_a_lake_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    open_store(lake).replace(DAY, NEXT_DAY, rows([0.1]))
    [day] = lake.glob("gpu_utilization/*/*/*.parquet")
    pl.read_parquet(day).with_columns(tokens=pl.lit(1)).write_parquet(day)
    with pytest.raises(StoreTooNew, match="newer program"):
        open_store(lake).read()


def test_a_lake_of_an_older_program_is_read_with_unknown_for_the_new_columns(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    open_store(lake).replace(DAY, NEXT_DAY, rows([0.1]))
    [day] = lake.glob("gpu_utilization/*/*/*.parquet")
    pl.read_parquet(day).drop("censored").write_parquet(day)
    assert open_store(lake).read().equals(rows([0.1]))


def test_a_lake_keeps_no_temporary_file(tmp_path: Path) -> None:
    open_store(tmp_path / "lake").replace(DAY, NEXT_DAY, rows([0.1]))
    names = {name for _, _, files in os.walk(tmp_path / "lake") for name in files}
    assert names == {"history.parquet", ".lock"}


def test_a_query_of_a_lake_tells_no_row_that_says_that_there_is_none(tmp_path: Path) -> None:
    lake = open_store(tmp_path)
    lake.replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
    [day] = tmp_path.glob("gpu_utilization/*/*/*.parquet")
    gone = pl.when(pl.col("ts") > DAY).then(pl.col("step_seconds")).alias("step_seconds")
    pl.read_parquet(day, hive_partitioning=False).with_columns(gone).write_parquet(day)
    assert lake.read()["utilization"].to_list() == [0.2]
    assert lake.query("SELECT utilization FROM gpu_utilization")["utilization"].to_list() == [0.2]


@pytest.mark.parametrize(
    "call", [lambda lake: lake.prune(DAY + timedelta(minutes=5)), ParquetLake.compact], ids=["prune", "compact"]
)
def test_a_writer_waits_for_the_lake_to_be_pruned_or_compacted(
    tmp_path: Path, call: Callable[[ParquetLake], object]
) -> None:
    writers = []

    class Interrupted(ParquetLake):
        """Another process replaces the day while this one has read it."""

        def _get(self, path: str, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
            frame = super()._get(path, schema)
            if path.endswith("history.parquet"):
                writers.append(Thread(target=ParquetLake(self.location).replace, args=(DAY, NEXT_DAY, rows([0.7] * 3))))
                writers[-1].start()
                writers[-1].join(0.3)
            return frame

    lake = Interrupted(str(tmp_path))
    lake.replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
    [day] = tmp_path.glob("gpu_utilization/*/*/*.parquet")
    shutil.copy(day, day.with_name("older.parquet"))
    call(lake)
    for writer in writers:
        writer.join(30)
    assert writers and open_store(lake.location).read()["utilization"].to_list() == [0.7] * 3


def test_a_row_without_a_workload_is_refused(location: str) -> None:
    with pytest.raises(ValueError, match="has no cluster, workload, time"):
        open_store(location).replace(DAY, NEXT_DAY, rows([0.1]).with_columns(workload=pl.lit(None, pl.String)))


@pytest.mark.parametrize("name", ["load.parquet", "load.csv", "load.json", "load.csv.gz"])
def test_a_file_in_which_no_row_would_stay_is_no_store(tmp_path: Path, name: str) -> None:
    with pytest.raises(HistoryError, match=f"{name} cannot be a history store"):
        open_store(tmp_path / name)
