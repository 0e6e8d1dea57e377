"""How does the process speak to DuckDB? Files are attached, asked and given back; what fails becomes a sentence.

DuckDB itself is started once a process: that takes 35 ms, attaching a file of 26 million rows 2 ms.
"""

import contextlib
import itertools
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from piqc_pipeline.errors import HistoryError, OutputUnwritable, StoreLocked, StoreTooNew, no_folder, one_line
from piqc_pipeline.history.table import as_schema

REWRITING_MEMORY = "256MB"
"""For what goes through the whole file: all of its blocks would stay in memory, 850 MiB at 26 million rows."""

_ENGINES: dict[int, duckdb.DuckDBPyConnection] = {}
_ALIASES = itertools.count()


class ArrowStream:
    """A frame as DuckDB reads it without pyarrow: by the Arrow C stream interface; times in UTC without a zone."""

    def __init__(self, frame: pl.DataFrame) -> None:
        """Nothing is copied."""
        zoned = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime) and kind.time_zone]
        self._frame = frame.with_columns(
            pl.col(name).dt.convert_time_zone("UTC").dt.replace_time_zone(None) for name in zoned
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """What DuckDB asks for."""
        return self._frame.__arrow_c_stream__(requested_schema)


def attach(location: str, *, read_only: bool, wait_seconds: float) -> duckdb.DuckDBPyConnection:
    """A connection whose current database is the file; other processes that hold it are waited for.

    Args:
        location: Path of the file; made where it is missing, unless it is only read.
        read_only: Other readers may hold the file at the same time.
        wait_seconds: How long to wait for a process that shuts us out.

    Raises:
        duckdb.IOException: It is still held, is missing, or is no DuckDB file; see `explained`.
    """
    deadline = time.monotonic() + wait_seconds
    pause = 0.02
    while True:
        before = _state(location)
        try:
            connection = _attach(location, read_only=read_only)
            # A file that is put in the place of this one before it is locked would leave us with a deleted one.
            if before in (None, _state(location)):
                return connection
            detach(connection)
        except duckdb.IOException as error:
            replaced = before not in (None, _state(location))
            if time.monotonic() >= deadline or not (replaced or "lock" in str(error).lower()):
                raise
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _state(location: str) -> tuple[int, int] | None:
    """Which file lies there, and when it last changed: the number of a deleted file is given to the next one."""
    try:
        told = Path(location).stat()
    except OSError:
        return None
    return told.st_ino, told.st_ctime_ns


def _attach(location: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    if os.getpid() not in _ENGINES:  # a forked child cannot use the engine of its parent
        spill = Path(tempfile.gettempdir()) / f"piqc-duckdb-{os.getpid()}"
        # A file is given back after each transaction: rows go straight into it, not into a log and then into it.
        _ENGINES[os.getpid()] = duckdb.connect(config={"temp_directory": str(spill), "checkpoint_threshold": "1KB"})
    connection, alias = _ENGINES[os.getpid()].cursor(), f"store{next(_ALIASES)}"
    try:
        quoted = location.replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS {alias} (TYPE duckdb{', READ_ONLY' if read_only else ''})")
        connection.execute(f"USE {alias}")
    except BaseException:
        connection.close()
        raise
    return connection


def detach(connection: duckdb.DuckDBPyConnection) -> None:
    """Give the file back; what was not committed is rolled back. A file that failed fatally takes the engine along."""
    try:
        with contextlib.suppress(duckdb.TransactionException):
            connection.rollback()
        alias = connection.execute("SELECT current_database()").fetchall()[0][0]
        connection.execute("USE memory")
        connection.execute(f"DETACH {alias}")
        connection.close()
    except duckdb.Error:
        if engine := _ENGINES.pop(os.getpid(), None):
            engine.close()
        raise


@contextlib.contextmanager
def frugal() -> Iterator[None]:
    """Little memory for what goes through a whole file; not for queries, whose medians do not spill to disk."""
    # Not on the connection of the file, which refuses everything after a failure.
    engine = _ENGINES[os.getpid()]
    with contextlib.suppress(duckdb.OutOfMemoryException):  # a query of another file holds more just now
        engine.execute(f"SET memory_limit = '{REWRITING_MEMORY}'")
    try:
        yield
    finally:
        engine.execute("RESET memory_limit")


def fetch(
    connection: duckdb.DuckDBPyConnection, statement: str, values: list[Any], schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    """The answer to a statement in the types of a schema."""
    return as_schema(pl.DataFrame(connection.sql(statement, params=values)), dict(schema))


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> None:
    """Add rows to a table of the same columns."""
    connection.register("incoming", ArrowStream(rows))
    connection.execute(f"INSERT INTO {table} SELECT * FROM incoming").fetchall()
    connection.unregister("incoming")


def explained(error: Exception, location: str) -> Exception:
    """What a failure at a file is told to the user as."""
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return no_folder(location)
    said, text = str(error), one_line(error)
    holder = re.search(r"lock is held in (.+?) \(PID (\d+)\)", said)
    if holder or "set lock on file" in said:
        who = f"process {holder[2]} ({holder[1]})" if holder else "another process"
        return StoreLocked(
            f"cannot open {location}: {who} holds it; close that program, or wait until its run ends and try again"
        )
    if "not a valid DuckDB database" in said:
        return HistoryError(f"{location} is no DuckDB file: name another file with PIQC_HISTORY_STORE")
    if re.search(r"serializ|storage version|newer version", said, re.IGNORECASE):
        return StoreTooNew(f"{location} was written by a newer DuckDB: update piqc ({text})")
    if re.search(r"corrupt|checksum|could not read enough bytes", said, re.IGNORECASE):
        return HistoryError(f"{location} is damaged ({text}): restore a copy, or fill a new file again")
    if isinstance(error, duckdb.ProgrammingError):
        return foreign(location, text)
    if "permission denied" in said.lower():
        return OutputUnwritable(
            f"cannot open {location}: permission denied; let this user read and write the file and its folder"
        )
    cause = one_line(said.rpartition("Original error: ")[2])  # DuckDB's advice to reattach the file is followed already
    if isinstance(error, duckdb.OutOfMemoryException):
        return HistoryError(f"cannot use {location}: {cause}; free memory, or space in {tempfile.gettempdir()}")
    return OutputUnwritable(
        f"cannot write {location}: {cause}; free space or make its folder writable, what was stored is untouched"
    )


def foreign(location: str, reason: str) -> HistoryError:
    """What is said of a DuckDB file of another program."""
    return HistoryError(
        f"{location} holds other tables than a history ({reason}): name another with PIQC_HISTORY_STORE"
    )


def query_files(sql: str, tables: Mapping[str, tuple[str, Mapping[str, pl.DataType], str]]) -> pl.DataFrame:
    """The answer of an in-memory DuckDB to a SELECT over Parquet files: by name their glob, schema and which rows.

    Raises:
        HistoryError: The statement is wrong.
    """
    with duckdb.connect() as connection:
        try:
            for name, (place, schema, which) in tables.items():
                files = f"read_parquet('{place.replace(chr(39), chr(39) * 2)}', union_by_name = true)"
                known = {row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {files}").fetchall()}
                columns = ", ".join(_column(column, kind, known) for column, kind in schema.items())
                connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM {files} WHERE {which}")
            return pl.DataFrame(connection.sql(sql))
        except duckdb.Error as error:
            raise HistoryError(f"cannot answer the query: {one_line(error)}") from error


def _column(name: str, kind: pl.DataType, known: set[str]) -> str:
    if name not in known:  # written by an older program
        return f'NULL AS "{name}"'
    return f'"{name}" AT TIME ZONE \'UTC\' AS "{name}"' if isinstance(kind, pl.Datetime) else f'"{name}"'
