"""What becomes of a DuckDB file of an older or newer schema?"""

import hashlib
import itertools
import json
from datetime import timedelta
from pathlib import Path

import duckdb
import polars as pl
import pytest

from piqc_pipeline.errors import HistoryError, StoreTooNew
from piqc_pipeline.history.duckdb_store import DuckDbStore
from piqc_pipeline.history.migrations import MIGRATIONS
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_a_file_of_an_older_schema_migrates_without_loss(version: int, tmp_path: Path) -> None:
    path = str(tmp_path / "history.duckdb")
    frame = pl.concat(
        [
            rows([0.1, 0.2], signal="it's", confidence="low", samples_seen=139, ready_replicas=2.5, gpus_per_replica=4),
            rows([0.7], start=DAY + timedelta(hours=1), signal="it's", confidence="low", gpus_per_replica=8),
            rows([0.3, None], workload="prod/x/Deployment/other", devices_seen=7),
            rows([0.4], workload="west/x/Deployment/other", start=NEXT_DAY, step_seconds=600),
        ]
    )
    with duckdb.connect(path) as connection:
        for statement in MIGRATIONS[0]:
            connection.execute(statement)
        insert = f"INSERT INTO gpu_utilization VALUES ({', '.join('?' * frame.width)})"
        naive = frame.with_columns(pl.col("ts").dt.replace_time_zone(None))
        connection.executemany(insert, [list(row) for row in naive.rows()])
        for statement in itertools.chain.from_iterable(MIGRATIONS[1:version]):
            connection.execute(statement)
        if version in (3, 4):
            connection.execute("CREATE VIEW gpu_utilization AS SELECT * FROM buckets")
        connection.execute(f"CREATE TABLE piqc_schema AS SELECT {version} AS version")
    store = DuckDbStore(path)
    assert store.read().equals(frame)
    told = store.query("SELECT * FROM gpu_utilization ORDER BY cluster, workload, ts")
    assert told.schema["ts"] == pl.Datetime("us")
    assert told.with_columns(pl.col("ts").dt.replace_time_zone("UTC")).equals(frame)
    assert store.read(DAY + timedelta(minutes=5), DAY + timedelta(minutes=10), [str(frame["workload"][0])]).equals(
        frame[1:2]
    )
    store.replace(DAY, NEXT_DAY, rows([0.9], workload="prod/x/Deployment/new"))
    assert store.read().height == 7


def test_steps_that_files_may_have_gone_never_change() -> None:
    digest = hashlib.sha256(json.dumps(MIGRATIONS[:5]).encode()).hexdigest()
    assert digest == "bffdae2d7998519e9f0b77c7fa3fce22953ec281b4fa1df7c02ee8acc3376280"


def test_a_migration_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = str(tmp_path / "history.duckdb")
    DuckDbStore(path).replace(DAY, NEXT_DAY, rows([0.1, 0.2]))
    broken = (*MIGRATIONS, ("DROP TABLE buckets", "CREATE TABLE nonsense ("))
    with pytest.raises(HistoryError, match="syntax error"):
        DuckDbStore(path, migrations=broken).read()
    assert DuckDbStore(path).read().equals(rows([0.1, 0.2]))


def test_a_newer_file_is_refused_by_an_older_program(tmp_path: Path) -> None:
    path = str(tmp_path / "history.duckdb")
    DuckDbStore(path, migrations=(*MIGRATIONS, ("CREATE TABLE extra (a INTEGER)",))).replace(DAY, NEXT_DAY, rows([0.1]))
    with pytest.raises(StoreTooNew, match="newer program"):
        DuckDbStore(path).replace(DAY, NEXT_DAY, rows([0.2]))
