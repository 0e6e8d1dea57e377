"""How does history lie in a folder or object storage, one Parquet object a cluster and day?

What may replace what is decided in `table`; the single DuckDB file is in `store`. Objects are written whole and put
atomically, so any number of pods may write other clusters and days, and readers never see half a day. Scans go through
Polars with pushed-down predicates (DuckDB's own S3 extension cannot be had offline); DuckDB queries those frames.
"""

import fcntl
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from piqc_pipeline.atomic import replacing
from piqc_pipeline.errors import HistoryError, OutputUnwritable, StoreTooNew
from piqc_pipeline.history.samples import HISTORY_SCHEMA, day_of, days_between
from piqc_pipeline.history.table import (
    FACTS_SCHEMA,
    FINDINGS_SCHEMA,
    OBSERVATIONS_SCHEMA,
    Replaced,
    as_schema,
    check_window,
    merged,
)

PUT_TRIES = 5
"""How often a day is merged again when another writer put the same object in between."""

_TABLES: dict[str, tuple[Mapping[str, pl.DataType], str]] = {
    "gpu_utilization": (HISTORY_SCHEMA, "ts"),
    "observations": (OBSERVATIONS_SCHEMA, "ts"),
    "findings": (FINDINGS_SCHEMA, "taken_at"),
    "facts": (FACTS_SCHEMA, "taken_at"),
}


class ParquetLake:
    """History as Parquet objects (see `HistoryStore`): `TABLE/c=CLUSTER/day=YYYY-MM-DD/NAME.parquet`.

    Credentials are those that Polars finds by itself (`AWS_*`, `GOOGLE_*`, `AZURE_*`, instance roles). In a folder,
    two writers of one day wait for each other. Object storage has no lock: a writer reads its day back after the put
    and merges again where another writer was faster; writers should own whole days, as the daily partitions do.
    """

    def __init__(self, location: str) -> None:
        """Nothing is read or created before the first read or write.

        Args:
            location: A folder, or `s3://`, `gs://` or `az://` with bucket and prefix.
        """
        self.location = location.rstrip("/")
        self._remote = "://" in location

    def replace(self, start: datetime, end: datetime, frame: pl.DataFrame, *, force: bool = False) -> Replaced:
        """Replace the rows of `[start, end)`, one object a cluster and day (see `table.merged` for what stays)."""
        frame = check_window(start, end, frame)
        clusters = frame["cluster"].unique().sort().to_list()
        if force or not clusters:
            clusters = sorted({*clusters, *self._clusters()})
        written, kept, warnings = 0, 0, list[str]()
        for day in days_between(start, end):
            first, last = max(start, day), min(end, day + timedelta(days=1))
            for cluster in clusters:
                part = frame.filter((pl.col("cluster") == cluster) & (pl.col("ts") >= first) & (pl.col("ts") < last))
                outcome = self._replace_day(cluster, day, first, last, part, force=force)
                written += outcome.rows_written
                kept += outcome.rows_kept
                warnings += outcome.warnings
        return Replaced(written, kept, tuple(dict.fromkeys(warnings)))

    def read(
        self, start: datetime | None = None, end: datetime | None = None, workloads: list[str] | None = None
    ) -> pl.DataFrame:
        """Rows in `[start, end)`, sorted by cluster, workload and time; no rows where nothing was stored yet."""
        rows = self._scan("gpu_utilization", start, end)
        if workloads is not None:
            rows = rows.filter(pl.col("workload").is_in(workloads))
        return _collected(rows, HISTORY_SCHEMA).sort("cluster", "workload", "ts")

    def query(self, sql: str) -> pl.DataFrame:
        """The answer of DuckDB to a SELECT over the lake's tables; their times are UTC without a zone."""
        from piqc_pipeline.history.store import query_frames

        named = [table for table in _TABLES if table in sql]
        return query_frames(sql, {table: _collected(self._scan(table), _TABLES[table][0]) for table in named})

    def days(self) -> list[datetime]:
        """UTC midnights of the days that have rows."""
        days = self._scan("gpu_utilization").select(pl.col("ts").dt.truncate("1d").unique())
        return _collected(days, {"ts": HISTORY_SCHEMA["ts"]})["ts"].sort().to_list()

    def workloads(self) -> list[str]:
        """Ids of all workloads that have rows, sorted."""
        names = self._scan("gpu_utilization").select(pl.col("workload").unique())
        return _collected(names, {"workload": pl.String()})["workload"].sort().to_list()

    def newest(self) -> datetime | None:
        """End of the newest bucket; None for an empty lake."""
        ends = pl.col("ts") + pl.duration(seconds=pl.col("step_seconds"))
        rows = _collected(self._scan("gpu_utilization").select(ends.max()), {"ts": HISTORY_SCHEMA["ts"]})[
            "ts"
        ].to_list()
        newest: datetime | None = rows[0] if rows else None
        return newest

    def append_observations(self, frame: pl.DataFrame) -> int:
        """Add what snapshots saw; an observation of the same workload and instant is left alone."""
        known = self.observations().select("cluster", "workload", "ts")
        new = as_schema(frame, OBSERVATIONS_SCHEMA).join(known, on=["cluster", "workload", "ts"], how="anti")
        return self._append("observations", new)

    def append_findings(self, frame: pl.DataFrame) -> int:
        """Add the findings of a scan; a scan already there is left alone."""
        known = self.findings().select("cluster", "taken_at").unique()
        return self._append(
            "findings", as_schema(frame, FINDINGS_SCHEMA).join(known, on=["cluster", "taken_at"], how="anti")
        )

    def append_facts(self, frame: pl.DataFrame) -> int:
        """Add the facts of a scan; a scan already there is left alone."""
        known = self.facts().select("cluster", "taken_at").unique()
        return self._append("facts", as_schema(frame, FACTS_SCHEMA).join(known, on=["cluster", "taken_at"], how="anti"))

    def observations(self, start: datetime | None = None, end: datetime | None = None) -> pl.DataFrame:
        """What snapshots saw in `[start, end)`; twice-written observations are told once."""
        rows = _collected(self._scan("observations", start, end), OBSERVATIONS_SCHEMA)
        return rows.unique(["cluster", "workload", "ts"], keep="first").sort("cluster", "workload", "ts")

    def findings(self) -> pl.DataFrame:
        """All stored findings, oldest first."""
        rows = _collected(self._scan("findings"), FINDINGS_SCHEMA).unique()
        return rows.sort("taken_at", "cluster", "kind", "subject")

    def facts(self) -> pl.DataFrame:
        """All stored facts, oldest first."""
        return _collected(self._scan("facts"), FACTS_SCHEMA).unique(["cluster", "taken_at"]).sort("taken_at", "cluster")

    def prune(self, before: datetime) -> int:
        """Delete rows older than the instant; returns how many.

        Polars cannot delete objects, so an object of object storage whose rows are all gone stays with none; a
        lifecycle rule of the bucket removes it.
        """
        deleted = 0
        for table, (schema, column) in _TABLES.items():
            old = self._scan(table).filter(pl.col(column) < before)
            days = _collected(
                old.select("cluster", pl.col(column).dt.truncate("1d").alias("day")).unique(),
                {"cluster": pl.String(), "day": HISTORY_SCHEMA["ts"]},
            )
            for cluster, day in days.sort("cluster", "day").iter_rows():
                for path in self._objects(table, cluster, day):
                    rows = self._get(path, schema)
                    left = rows.filter(pl.col(column) >= before)
                    deleted += rows.height - left.height
                    if left.is_empty() and not self._remote:
                        Path(path).unlink()
                    elif left.height < rows.height:
                        self._put(path, left)
        return deleted

    def compact(self) -> None:
        """Merge the small objects of each day of appended tables into one (in a folder; object storage keeps them)."""
        if self._remote:
            return
        for table in ("observations", "findings", "facts"):
            for folder in sorted(Path(self.location, table).glob("c=*/day=*")):
                parts = sorted(folder.glob("*.parquet"))
                if len(parts) > 1:
                    rows = pl.concat([self._get(str(part), _TABLES[table][0]) for part in parts]).unique()
                    self._put(str(folder / _name(rows)), rows)
                    for part in parts:
                        if part.name != _name(rows):
                            part.unlink()

    def _replace_day(
        self, cluster: str, day: datetime, first: datetime, last: datetime, part: pl.DataFrame, *, force: bool
    ) -> Replaced:
        path = self._folder("gpu_utilization", cluster, day) + "/history.parquet"
        outcome = Replaced(0, 0)
        with self._exclusive(path):
            for attempt in range(PUT_TRIES if self._remote else 1):
                stored = self._get(path, HISTORY_SCHEMA)
                inside = (pl.col("ts") >= first) & (pl.col("ts") < last)
                rows, done = merged(stored.filter(inside), part, force=force)
                whole = pl.concat([stored.filter(~inside), rows]).sort("workload", "ts")
                outcome = outcome if attempt else done
                if whole.equals(stored):
                    break
                self._put(path, whole)
        return outcome

    def _append(self, table: str, frame: pl.DataFrame) -> int:
        column = _TABLES[table][1]
        for (cluster, day), part in frame.group_by("cluster", pl.col(column).dt.truncate("1d"), maintain_order=True):
            self._put(f"{self._folder(table, str(cluster), day)}/{_name(part)}", part)
        return frame.height

    def _folder(self, table: str, cluster: str, day: Any) -> str:
        return f"{self.location}/{table}/c={quote(cluster, safe='')}/day={day:%Y-%m-%d}"

    def _clusters(self) -> list[str]:
        rows = self._scan("gpu_utilization").select(pl.col("cluster").unique())
        return _collected(rows, {"cluster": pl.String()})["cluster"].to_list()

    def _objects(self, table: str, cluster: str, day: datetime) -> list[str]:
        scan = pl.scan_parquet(f"{self._folder(table, cluster, day)}/*.parquet", include_file_paths="path", glob=True)
        return _collected(scan.select(pl.col("path").unique()), {"path": pl.String()})["path"].sort().to_list()

    def _scan(self, table: str, start: datetime | None = None, end: datetime | None = None) -> pl.LazyFrame:
        schema, column = _TABLES[table]
        rows = pl.scan_parquet(
            f"{self.location}/{table}/*/*/*.parquet",
            hive_partitioning=True,
            hive_schema={"c": pl.String(), "day": pl.Date()},
            schema=dict(schema),
            missing_columns="insert",
            extra_columns="raise",
        )
        if start is not None:
            rows = rows.filter((pl.col("day") >= day_of(start).date()) & (pl.col(column) >= start))
        if end is not None:
            rows = rows.filter((pl.col("day") <= end.astimezone(UTC).date()) & (pl.col(column) < end))
        return rows.select(list(schema))

    def _get(self, path: str, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
        scan = pl.scan_parquet(
            path,
            schema=dict(schema),
            missing_columns="insert",
            extra_columns="raise",
            glob=False,
            hive_partitioning=False,
        )
        return _collected(scan, schema)

    def _put(self, path: str, rows: pl.DataFrame) -> None:
        """Write an object whole: a put where the storage has puts, else a temporary file and a rename."""
        try:
            if self._remote:
                rows.write_parquet(path, compression="zstd", compression_level=6)
                return
            with replacing(Path(path)) as partial:
                rows.write_parquet(partial, compression="zstd", compression_level=6)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise OutputUnwritable(
                f"cannot write {path}: {_one_line(error)}; "
                "free space or allow writing there, what was stored is untouched"
            ) from error

    @contextmanager
    def _exclusive(self, path: str) -> Iterator[None]:
        if self._remote:
            yield
            return
        folder = Path(path).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / ".lock").open("w")
        except OSError as error:
            raise OutputUnwritable(f"cannot write {folder}: {_one_line(error)}; make the folder writable") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _collected(rows: pl.LazyFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    try:
        return rows.collect(engine="streaming")
    except FileNotFoundError:
        return pl.DataFrame(schema=schema)
    except pl.exceptions.PolarsError as error:
        text = _one_line(error)
        if "expanded paths were empty" in text or "not found" in text.lower() or "no such file" in text.lower():
            return pl.DataFrame(schema=schema)
        if "extra column" in text:
            raise StoreTooNew(f"the lake holds columns of a newer program ({text}): update piqc") from error
        raise HistoryError(f"cannot read the lake: {text}; check its address and the credentials") from error
    except OSError as error:
        raise HistoryError(
            f"cannot read the lake: {_one_line(error)}; check its address and the credentials"
        ) from error


def _name(rows: pl.DataFrame) -> str:
    """A name made from the content: writing the same rows again is the same object."""
    digest = hashlib.sha256(rows.write_csv().encode()).hexdigest()[:16]
    return f"{digest}.parquet"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
