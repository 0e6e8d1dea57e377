"""How did the DuckDB file's tables change? SQL as it was at each step: a step that files have gone never changes.

Columns are written out here and not taken from `schema`, which knows today's only.
"""

from collections.abc import Iterable, Mapping

_ROW = {
    "cluster": "VARCHAR",
    "workload": "VARCHAR",
    "ts": "TIMESTAMP",
    "step_seconds": "INTEGER",
    "utilization": "DOUBLE",
    "ready_replicas": "DOUBLE",
    "wanted_replicas": "DOUBLE",
    "gpus_per_replica": "DOUBLE",
    "demand_replicas": "DOUBLE",
    "busy_gpus": "DOUBLE",
    "offered_rate": "DOUBLE",
    "waiting_requests": "DOUBLE",
    "signal": "VARCHAR",
    "confidence": "VARCHAR",
    "samples_seen": "INTEGER",
    "samples_expected": "INTEGER",
    "devices_seen": "INTEGER",
    "devices_expected": "INTEGER",
    "censored": "BOOLEAN",
    "source": "VARCHAR",
}
_SIGNAL = ("signal", "confidence", "source")
_NUMBERED = {
    "workload_id": "INTEGER",
    "signal_id": "SMALLINT",
    **{name: kind for name, kind in _ROW.items() if name not in ("cluster", "workload", *_SIGNAL)},
}
_SERIES = ("cluster", "workload", "step_seconds", "gpus_per_replica", *_SIGNAL)
_SECONDS = {"ts": "TIMESTAMP_S"}  # half the size of microseconds
# Columns that hold their value over many rows: stored as runs, without trying other forms, a day is written and read in
# three quarters of the time.
_HELD = (
    *("workload_id", "signal_id", "step_seconds", "ready_replicas", "wanted_replicas"),
    *("gpus_per_replica", "samples_expected", "devices_seen", "devices_expected"),
)


def _create(table: str, columns: Mapping[str, str], held: Iterable[str] = ()) -> str:
    told = (f'"{name}" {kind}' + (" USING COMPRESSION 'rle'" if name in held else "") for name, kind in columns.items())
    return f"CREATE TABLE {table} ({', '.join(told)})"


def _of(table: str, columns: Iterable[str]) -> str:
    return ", ".join(f'{table}."{name}"' for name in columns)


_SAME_SIGNAL = " AND ".join(f"s.{name} IS NOT DISTINCT FROM o.{name}" for name in _SIGNAL)
_SAME_SERIES = " AND ".join(
    f"n.{name} IS NOT DISTINCT FROM o.{name}"
    for name in ("workload_id", "signal_id", "step_seconds", "gpus_per_replica")
)
_NUMBERED_VIEW = ", ".join(
    f'{"w" if name in ("cluster", "workload") else "s" if name in _SIGNAL else "b"}."{name}"' for name in _ROW
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        _create("gpu_utilization", _ROW),
        _create("observations", _ROW),
        'CREATE TABLE findings ("cluster" VARCHAR, "taken_at" TIMESTAMP, "kind" VARCHAR, "subject" VARCHAR, '
        '"gpus" DOUBLE, "usd_per_day" DOUBLE, "confidence" VARCHAR, "detail" VARCHAR)',
        'CREATE TABLE facts ("cluster" VARCHAR, "taken_at" TIMESTAMP, "accelerators" DOUBLE, '
        '"installed_usd_per_day" DOUBLE, "wasted_usd_per_day" DOUBLE, "facts_json" VARCHAR)',
    ),
    # 2: names of workloads and signals in tables of their own.
    (
        "ALTER TABLE gpu_utilization RENAME TO old_rows",
        'CREATE TABLE workloads ("workload_id" INTEGER, "cluster" VARCHAR, "workload" VARCHAR)',
        'CREATE TABLE signals ("signal_id" SMALLINT, "signal" VARCHAR, "confidence" VARCHAR, "source" VARCHAR)',
        _create("buckets", _NUMBERED),
        "INSERT INTO workloads SELECT row_number() OVER (ORDER BY cluster, workload) - 1, cluster, workload "
        "FROM (SELECT DISTINCT cluster, workload FROM old_rows)",
        "INSERT INTO signals SELECT row_number() OVER () - 1, signal, confidence, source "
        "FROM (SELECT DISTINCT signal, confidence, source FROM old_rows)",
        f"INSERT INTO buckets SELECT w.workload_id, s.signal_id, {_of('o', [*_NUMBERED][2:])} FROM old_rows o "
        f"JOIN workloads w ON w.cluster = o.cluster AND w.workload = o.workload JOIN signals s ON {_SAME_SIGNAL} "
        "ORDER BY date_trunc('day', o.ts), w.workload_id, o.ts",
        "DROP TABLE old_rows",
        f"CREATE VIEW gpu_utilization AS SELECT {_NUMBERED_VIEW} FROM buckets b JOIN workloads w USING (workload_id) "
        "JOIN signals s USING (signal_id)",
    ),
    # 3: the view was made by the program, again with each new signal.
    ("DROP VIEW gpu_utilization",),
    # 4: held columns as runs, times in whole seconds.
    (
        "ALTER TABLE buckets RENAME TO old_rows",
        _create("buckets", _NUMBERED | _SECONDS, _HELD),
        "INSERT INTO buckets SELECT * FROM old_rows",
        "DROP TABLE old_rows",
    ),
    # 5: what stays the same over a workload's rows is its series, one table of names in place of two. One column is
    # updated and three are dropped: writing all rows anew takes five times as long and doubles the file.
    (
        "DROP VIEW IF EXISTS gpu_utilization",
        "CREATE TABLE numbers AS SELECT (row_number() OVER (ORDER BY workload_id, signal_id, step_seconds, "
        "gpus_per_replica) - 1)::INTEGER AS series_id, * "
        "FROM (SELECT DISTINCT workload_id, signal_id, step_seconds, gpus_per_replica FROM buckets)",
        _create("series", {"series_id": "INTEGER", **{name: _ROW[name] for name in _SERIES}}),
        f"INSERT INTO series SELECT n.series_id, {_of('w', _SERIES[:2])}, {_of('n', _SERIES[2:4])}, "
        f"{_of('s', _SIGNAL)} FROM numbers n JOIN workloads w USING (workload_id) "
        "JOIN signals s USING (signal_id) ORDER BY n.series_id",
        f"UPDATE buckets o SET workload_id = n.series_id FROM numbers n WHERE {_SAME_SERIES}",
        "ALTER TABLE buckets RENAME workload_id TO series_id",
        *(f"ALTER TABLE buckets DROP {column}" for column in ("signal_id", "step_seconds", "gpus_per_replica")),
        *(f"DROP TABLE {table}" for table in ("numbers", "workloads", "signals")),
        f"CREATE VIEW gpu_utilization AS SELECT {', '.join(f's.{n}' if n in _SERIES else f'b.{n}' for n in _ROW)} "
        "FROM buckets b JOIN series s USING (series_id)",
    ),
)
"""Statements that lead from version n to n + 1; an empty file has version 0. Entries are added, never changed."""
