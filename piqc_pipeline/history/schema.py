"""Which tables has the DuckDB file, and how did they change? SQL only; connections belong to `duckdb_store`.

Names of workloads and signals stand in tables of their own and rows carry numbers: 288,000 rows a day share a thousand
names, and inserting numbers takes half the time of inserting text. `gpu_utilization` is a view with the names.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl

from piqc_pipeline.history.samples import HISTORY_SCHEMA
from piqc_pipeline.history.table import FACTS_SCHEMA, FINDINGS_SCHEMA, OBSERVATIONS_SCHEMA

_SQL_TYPES = {
    pl.String: "VARCHAR",
    pl.Int16: "SMALLINT",
    pl.Int32: "INTEGER",
    pl.Float64: "DOUBLE",
    pl.Boolean: "BOOLEAN",
    pl.Datetime: "TIMESTAMP",
}

WORKLOADS_SCHEMA: dict[str, pl.DataType] = {"workload_id": pl.Int32(), "cluster": pl.String(), "workload": pl.String()}
SIGNALS_SCHEMA: dict[str, pl.DataType] = {
    "signal_id": pl.Int16(),
    "signal": pl.String(),
    "confidence": pl.String(),
    "source": pl.String(),
}
_NAMED = ("cluster", "workload", "signal", "confidence", "source")
BUCKETS_SCHEMA: dict[str, pl.DataType] = {
    "workload_id": pl.Int32(),
    "signal_id": pl.Int16(),
    **{name: kind for name, kind in HISTORY_SCHEMA.items() if name not in _NAMED},
}
"""`gpu_utilization` with numbers in place of names."""
BUCKETS_KEY = ["workload_id", "ts"]
HELD = (
    "workload_id",
    "signal_id",
    "step_seconds",
    "ready_replicas",
    "wanted_replicas",
    "gpus_per_replica",
    "samples_expected",
    "devices_seen",
    "devices_expected",
)
"""Columns that hold their value over many rows: stored as runs, without trying other forms, a day is written and read
in three quarters of the time."""


def _create(schema: Mapping[str, pl.DataType], table: str) -> str:
    columns = ", ".join(f'"{name}" {_SQL_TYPES[type(kind)]}' for name, kind in schema.items())
    return f"CREATE TABLE {table} ({columns})"


def _create_buckets() -> str:
    """The statement of schema 4: `HELD` columns as runs, times in whole seconds, of half the size of microseconds."""
    columns = ", ".join(
        f'"{name}" {"TIMESTAMP_S" if name == "ts" else _SQL_TYPES[type(kind)]}'
        + (" USING COMPRESSION 'rle'" if name in HELD else "")
        for name, kind in BUCKETS_SCHEMA.items()
    )
    return f"CREATE TABLE buckets ({columns})"


def _columns(table: str, schema: Mapping[str, pl.DataType]) -> str:
    return ", ".join(f'{table}."{name}"' for name in schema)


_PLAIN = {name: kind for name, kind in BUCKETS_SCHEMA.items() if name not in ("workload_id", "signal_id")}
_VIEW = ", ".join(
    f'{"w" if name in WORKLOADS_SCHEMA else "s" if name in SIGNALS_SCHEMA else "b"}."{name}"' for name in HISTORY_SCHEMA
)
_SAME_SIGNAL = " AND ".join(f"s.{name} IS NOT DISTINCT FROM o.{name}" for name in ("signal", "confidence", "source"))

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        _create(HISTORY_SCHEMA, "gpu_utilization"),
        _create(OBSERVATIONS_SCHEMA, "observations"),
        _create(FINDINGS_SCHEMA, "findings"),
        _create(FACTS_SCHEMA, "facts"),
    ),
    (
        "ALTER TABLE gpu_utilization RENAME TO old_rows",
        _create(WORKLOADS_SCHEMA, "workloads"),
        _create(SIGNALS_SCHEMA, "signals"),
        _create(BUCKETS_SCHEMA, "buckets"),
        "INSERT INTO workloads SELECT row_number() OVER (ORDER BY cluster, workload) - 1, cluster, workload "
        "FROM (SELECT DISTINCT cluster, workload FROM old_rows)",
        "INSERT INTO signals SELECT row_number() OVER () - 1, signal, confidence, source "
        "FROM (SELECT DISTINCT signal, confidence, source FROM old_rows)",
        f"INSERT INTO buckets SELECT w.workload_id, s.signal_id, {_columns('o', _PLAIN)} FROM old_rows o "
        f"JOIN workloads w ON w.cluster = o.cluster AND w.workload = o.workload JOIN signals s ON {_SAME_SIGNAL} "
        "ORDER BY date_trunc('day', o.ts), w.workload_id, o.ts",
        "DROP TABLE old_rows",
        f"CREATE VIEW gpu_utilization AS SELECT {_VIEW} FROM buckets b JOIN workloads w USING (workload_id) "
        "JOIN signals s USING (signal_id)",
    ),
    # From here on `view` makes the view, again with each new signal.
    ("DROP VIEW gpu_utilization",),
    (
        "ALTER TABLE buckets RENAME TO old_rows",
        _create_buckets(),
        "INSERT INTO buckets SELECT * FROM old_rows",
        "DROP TABLE old_rows",
    ),
)
"""Statements that lead from version n to n + 1; an empty file has version 0. Entries are added, never changed."""


def coded(rows: pl.DataFrame, names: Sequence[tuple[pl.DataFrame, pl.Series]]) -> pl.DataFrame:
    """Rows of `HISTORY_SCHEMA` as rows of `BUCKETS_SCHEMA`, sorted by workload's number and time.

    Args:
        rows: With names in them.
        names: For each table of names its runs' numbers, and the run of each row (see `runs`).
    """
    numbers = [found.to_series(0).gather(run).alias(found.columns[0]) for found, run in names]
    numbered = rows.with_columns(numbers).select(list(BUCKETS_SCHEMA))
    number, ts = pl.col("workload_id"), pl.col("ts")
    later = (number > number.shift(1)) | ((number == number.shift(1)) & (ts > ts.shift(1)))
    return numbered if numbered.select(later.slice(1).all()).item() else numbered.sort(BUCKETS_KEY)


def with_new_names(known: pl.DataFrame, heads: pl.DataFrame) -> pl.DataFrame:
    """The names that a table of names lacks, numbered on from its last."""
    number, *names = known.columns
    new = heads.unique(maintain_order=True).join(known, on=names, how="anti", nulls_equal=True, maintain_order="left")
    first = int(known[number].to_numpy().max()) + 1 if known.height else 0
    numbers = pl.Series(number, range(first, first + new.height), dtype=known.schema[number])
    return new.select(numbers, *names)


def view(signals: pl.DataFrame) -> str:
    """Statement that makes the view `gpu_utilization`.

    Signals are few and stand in it as lists, which cost nothing where they are not asked for; a join costs a tenth of a
    second of 26 million rows.

    Args:
        signals: `SIGNALS_SCHEMA`; the numbers count from 0.
    """
    ordered = signals.sort("signal_id")
    lists = {
        name: "[" + ", ".join(_literal(value) for value in ordered[name]) + "]::VARCHAR[]"
        for name in ("signal", "confidence", "source")
    }
    told = {
        **{name: f'w."{name}"' for name in WORKLOADS_SCHEMA},
        **{name: f"({values})[b.signal_id + 1] AS {name}" for name, values in lists.items()},
    }
    columns = [told.get(name, f'b."{name}"') for name in HISTORY_SCHEMA]
    return (
        f"CREATE OR REPLACE VIEW gpu_utilization AS SELECT {', '.join(columns)} "
        "FROM buckets b JOIN workloads w USING (workload_id)"
    )


def _literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def where(start: datetime | None, end: datetime | None) -> tuple[str, list[Any]]:
    """Condition and values that keep rows of `[start, end)`."""
    bounds = [(">=", start), ("<", end)]
    known = [(sign, moment) for sign, moment in bounds if moment is not None]
    clause = " AND ".join(f"ts {sign} ?" for sign, _ in known)
    return (f" WHERE {clause}" if clause else ""), [naive(moment) for _, moment in known]


def naive(moment: datetime) -> datetime:
    """The instant in UTC without its zone, as the file has it."""
    return moment.astimezone(UTC).replace(tzinfo=None)
