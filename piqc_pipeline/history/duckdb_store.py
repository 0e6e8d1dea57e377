"""How does history lie in one DuckDB file?

What may replace what is decided in `table`; a folder or object storage is in `lake`. DuckDB lets one process write
and shuts out all others meanwhile, so a file is attached for one transaction and detached again.
"""

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import polars as pl

from piqc_pipeline.errors import HistoryError, OutputUnwritable, StoreTooNew, one_line
from piqc_pipeline.history.duckdb_engine import ArrowStream, attach, detach, explained, fetch, foreign, frugal, insert
from piqc_pipeline.history.migrations import MIGRATIONS
from piqc_pipeline.history.samples import HISTORY_SCHEMA, empty_history
from piqc_pipeline.history.schema import (
    BUCKETS_KEY,
    BUCKETS_SCHEMA,
    SERIES_SCHEMA,
    coded,
    naive,
    named,
    where,
)
from piqc_pipeline.history.table import (
    DECISIVE,
    FACTS_SCHEMA,
    FINDINGS_SCHEMA,
    OBSERVATIONS_SCHEMA,
    Replaced,
    as_schema,
    check_window,
    merged,
    takes_all,
)

LOCK_WAIT_SECONDS = 20.0
"""How long to wait for another process before naming it; a window is written in under a second."""

_IN_PROCESS: dict[str, threading.RLock] = {}


class DuckDbStore:
    """History in one DuckDB file (see `HistoryStore`).

    No primary key: with one, a row takes four times the space, and a day is replaced as well by deleting and inserting.
    """

    def __init__(
        self,
        location: str,
        *,
        wait_seconds: float = LOCK_WAIT_SECONDS,
        migrations: tuple[tuple[str, ...], ...] = MIGRATIONS,
    ) -> None:
        """Nothing is opened or created before the first read or write.

        Args:
            location: Path of the file.
            wait_seconds: How long to wait for another process that holds it.
            migrations: Steps of the schema; other than the default in tests only.
        """
        self.location = location
        self._path = Path(location)
        self._wait_seconds = wait_seconds
        self._migrations = migrations
        self._lock = _IN_PROCESS.setdefault(str(self._path.resolve()), threading.RLock())

    def replace(
        self, start: datetime, end: datetime, frame: pl.DataFrame, *, force: bool = False, others: bool = True
    ) -> Replaced:
        """Replace the rows of `[start, end)` in one transaction (see `table.merged` for what stays).

        Raises:
            StoreLocked: Another process holds the file.
            OutputUnwritable: Read-only folder or full disk; what was stored is untouched.
        """
        frame = check_window(start, end, frame)
        window = [naive(start), naive(end)]
        within = "WHERE ts >= ? AND ts < ?"
        with self._transaction() as connection:
            series = fetch(connection, "SELECT * FROM series", [], SERIES_SCHEMA)
            rows, new = coded(frame, series)
            outcome = Replaced(rows.height, 0)
            # Usually a day is run again with other values: half of the columns tells.
            telling = [name for name in BUCKETS_SCHEMA if name in (*BUCKETS_KEY, *DECISIVE)]
            stored = _columns(connection, telling, within, window)
            if rows.select(telling).equals(stored) or not takes_all(stored, rows, BUCKETS_KEY):
                further = [name for name in BUCKETS_SCHEMA if name not in telling]
                stored = stored.hstack(_columns(connection, further, within, window)).select(list(BUCKETS_SCHEMA))
                rows, outcome = _merged(stored, rows, pl.concat([series, new]), force=force, others=others)
                if rows.equals(stored):
                    return outcome
            if new.height:
                insert(connection, "series", new)
            connection.execute(f"DELETE FROM buckets {within}", window)
            insert(connection, "buckets", rows)
        return outcome

    def read(
        self, start: datetime | None = None, end: datetime | None = None, workloads: list[str] | None = None
    ) -> pl.DataFrame:
        """Rows in `[start, end)`, sorted by cluster, workload and time; no rows where nothing was stored yet."""
        if self._missing():
            return empty_history()
        clause, values = where(start, end)
        with self._lock, self._connected(read_only=True) as connection:
            if workloads is None:
                series = fetch(connection, "SELECT * FROM series", [], SERIES_SCHEMA)
            else:
                # Numbers first: a plain comparison lets DuckDB skip all row groups without the workload.
                series = fetch(connection, "SELECT * FROM series WHERE workload IN ?", [workloads], SERIES_SCHEMA)
                numbers = ", ".join(map(str, series["series_id"])) or "NULL"
                clause += (" AND " if clause else " WHERE ") + f"series_id IN ({numbers})"
            rows = fetch(connection, f"SELECT * FROM buckets{clause}", values, BUCKETS_SCHEMA)
        return named(rows, series)

    def query(self, sql: str) -> pl.DataFrame:
        """The answer to a SELECT over the store's tables; their times are UTC without a zone."""
        if self._missing():
            raise HistoryError(f"there is no history at {self.location}: fill it with `piqc history import` or Dagster")
        with self._lock, self._connected(read_only=True) as connection:
            try:
                # Cast here and not in the view, where 26 million times would cost a tenth of a second.
                return pl.DataFrame(connection.sql(sql)).cast({pl.Datetime("ms"): pl.Datetime("us")})
            except duckdb.Error as error:
                raise HistoryError(f"cannot answer the query on {self.location}: {one_line(error)}") from error

    def days(self) -> list[datetime]:
        """UTC midnights of the days that have rows."""
        statement = "SELECT DISTINCT date_trunc('day', ts)::TIMESTAMP AS ts FROM buckets ORDER BY 1"
        return self._read(statement, [], {"ts": HISTORY_SCHEMA["ts"]})["ts"].to_list()

    def workloads(self, start: datetime | None = None, end: datetime | None = None) -> list[str]:
        """Ids of the workloads that have rows in `[start, end)`, sorted."""
        clause, values = where(start, end)
        used = f"series_id IN (SELECT DISTINCT series_id FROM buckets{clause})"
        statement = f"SELECT DISTINCT workload FROM series WHERE {used} ORDER BY 1"
        return self._read(statement, values, {"workload": HISTORY_SCHEMA["workload"]})["workload"].to_list()

    def newest(self) -> datetime | None:
        """End of the newest bucket; None for an empty table."""
        last = "SELECT series_id, max(ts) AS last FROM buckets GROUP BY series_id"
        statement = f"SELECT max(last + to_seconds(step_seconds)) AS ts FROM ({last}) JOIN series USING (series_id)"
        rows = self._read(statement, [], {"ts": HISTORY_SCHEMA["ts"]})["ts"].to_list()
        newest: datetime | None = rows[0] if rows else None
        return newest

    def append_observations(self, frame: pl.DataFrame) -> int:
        """Add what snapshots saw; an observation of the same workload and instant is left alone."""
        return self._append("observations", as_schema(frame, OBSERVATIONS_SCHEMA), ["cluster", "workload", "ts"])

    def append_findings(self, frame: pl.DataFrame) -> int:
        """Add the findings of a scan; a scan already there is left alone."""
        return self._append("findings", as_schema(frame, FINDINGS_SCHEMA), ["cluster", "taken_at"])

    def append_facts(self, frame: pl.DataFrame) -> int:
        """Add the facts of a scan; a scan already there is left alone."""
        return self._append("facts", as_schema(frame, FACTS_SCHEMA), ["cluster", "taken_at"])

    def observations(self, start: datetime | None = None, end: datetime | None = None) -> pl.DataFrame:
        """What snapshots saw in `[start, end)`."""
        clause, values = where(start, end)
        return self._read(
            f"SELECT * FROM observations{clause} ORDER BY cluster, workload, ts", values, OBSERVATIONS_SCHEMA
        )

    def findings(self) -> pl.DataFrame:
        """All stored findings, oldest first."""
        return self._read("SELECT * FROM findings ORDER BY taken_at, cluster, kind, subject", [], FINDINGS_SCHEMA)

    def facts(self) -> pl.DataFrame:
        """All stored facts, oldest first."""
        return self._read("SELECT * FROM facts ORDER BY taken_at, cluster", [], FACTS_SCHEMA)

    def prune(self, before: datetime) -> int:
        """Delete rows, observations and scans older than the instant, and names of series without rows.

        The freed blocks are used again.
        """
        if self._missing():
            return 0
        deleted = 0
        with self._transaction() as connection:
            for table, column in (
                ("buckets", "ts"),
                ("observations", "ts"),
                ("findings", "taken_at"),
                ("facts", "taken_at"),
            ):
                rows = connection.execute(f"DELETE FROM {table} WHERE {column} < ?", [naive(before)]).fetchall()
                deleted += int(rows[0][0])
            connection.execute("DELETE FROM series WHERE series_id NOT IN (SELECT DISTINCT series_id FROM buckets)")
        return deleted

    def compact(self) -> None:
        """Rewrite the file without its free blocks, sorted by time; the old file stays until the new one is whole."""
        if self._missing():
            return
        fresh = self._path.with_name(f".{self._path.name}.{uuid4().hex}")
        try:
            with self._lock, self._connected(read_only=False) as connection:
                quoted = str(fresh).replace("'", "''")
                name, new = connection.execute("SELECT current_database()").fetchall()[0][0], f"fresh{uuid4().hex}"
                connection.execute(f"ATTACH '{quoted}' AS {new} (TYPE duckdb)")
                with frugal():
                    connection.execute(f"COPY FROM DATABASE {name} TO {new}")
                connection.execute(f"DETACH {new}")
                # Still holding the lock on the old file: no other process can write to it in between.
                fresh.replace(self._path)
        finally:
            with suppress(OSError):  # a read-only folder has its own sentence by now
                fresh.unlink(missing_ok=True)

    def _missing(self) -> bool:
        try:
            return not self._path.exists()
        except OSError as error:
            raise explained(error, self.location) from error

    def _read(self, statement: str, values: list[Any], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
        if self._missing():
            return pl.DataFrame(schema=schema)
        with self._lock, self._connected(read_only=True) as connection:
            return fetch(connection, statement, values, schema)

    def _append(self, table: str, frame: pl.DataFrame, key: list[str]) -> int:
        if frame.is_empty():
            return 0
        match = " AND ".join(f"known.{column} = incoming.{column}" for column in key)
        with self._transaction() as connection:
            connection.register("incoming", ArrowStream(frame))
            rows = connection.execute(
                f"INSERT INTO {table} SELECT * FROM incoming "
                f"WHERE NOT EXISTS (SELECT 1 FROM {table} known WHERE {match})"
            ).fetchall()
            connection.unregister("incoming")
        return int(rows[0][0])

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock, self._connected(read_only=False) as connection:
            connection.execute("BEGIN TRANSACTION")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _connected(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """The file, attached shortly; a failure inside is told as a user's sentence, and rolled back."""
        try:
            connection = self._open(read_only=read_only)
            try:
                yield connection
            finally:
                detach(connection)
        except (duckdb.Error, OSError) as error:
            raise explained(error, self.location) from error

    def _open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        if not read_only:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = attach(self.location, read_only=read_only, wait_seconds=self._wait_seconds)
        try:
            version = self._version(connection)
            if version < len(self._migrations) and not read_only:
                self._migrate(connection, version)
        except BaseException:
            with suppress(duckdb.Error):  # what went wrong first tells more
                detach(connection)
            raise
        if version < len(self._migrations) and read_only:
            detach(connection)
            self._renew()
            connection = attach(self.location, read_only=True, wait_seconds=self._wait_seconds)
        return connection

    def _renew(self) -> None:
        try:
            with self._connected(read_only=False):
                pass
        except OutputUnwritable as error:
            raise OutputUnwritable(f"a file of an older program is rewritten before it is read: {error}") from error

    def _version(self, connection: duckdb.DuckDBPyConnection) -> int:
        try:
            rows = connection.execute("SELECT coalesce(max(version), 0) FROM piqc_schema").fetchall()
        except duckdb.CatalogException:
            tables = "SELECT 1 FROM duckdb_tables() WHERE database_name = current_database()"
            if connection.execute(tables).fetchone():
                raise foreign(self.location, "it has no table piqc_schema") from None
            return 0
        version = int(rows[0][0])
        if version > len(self._migrations):
            raise StoreTooNew(
                f"{self.location} was written by a newer program "
                f"(schema {version}, this one knows {len(self._migrations)}): "
                "update piqc, or name another file with PIQC_HISTORY_STORE"
            )
        return version

    def _migrate(self, connection: duckdb.DuckDBPyConnection, version: int) -> None:
        with frugal():
            connection.execute("BEGIN TRANSACTION")
            connection.execute("CREATE TABLE IF NOT EXISTS piqc_schema (version INTEGER)")
            for statement in itertools.chain.from_iterable(self._migrations[version:]):
                connection.execute(statement)
            connection.execute("DELETE FROM piqc_schema")
            connection.execute("INSERT INTO piqc_schema VALUES (?)", [len(self._migrations)])
            connection.execute("COMMIT")


def _columns(connection: duckdb.DuckDBPyConnection, names: list[str], clause: str, values: list[Any]) -> pl.DataFrame:
    """Some columns of stored buckets, in the order of the file."""
    schema = {name: BUCKETS_SCHEMA[name] for name in names}
    return fetch(connection, f"SELECT {', '.join(names)} FROM buckets {clause}", values, schema)


def _merged(
    stored: pl.DataFrame, rows: pl.DataFrame, series: pl.DataFrame, *, force: bool, others: bool
) -> tuple[pl.DataFrame, Replaced]:
    """What `table.merged` leaves of two frames of `BUCKETS_SCHEMA`: a workload's series count as one."""
    workloads = series.select(
        "series_id", "step_seconds", pl.struct("cluster", "workload").rank("dense").alias("workload")
    )
    both = [frame.join(workloads, on="series_id", maintain_order="left") for frame in (stored, rows)]
    winners, outcome = merged(*both, force=force, others=others, key=["workload", "ts"])
    return winners.select(list(BUCKETS_SCHEMA)).sort(BUCKETS_KEY), outcome
