"""How does history lie in a folder or object storage, one Parquet object a cluster and day?

What may replace what is decided in `table`; the single DuckDB file is in `duckdb_store`. Objects are written whole and
put atomically, so any number of pods may write other clusters and days, and readers never see half a day. Scans go
through Polars with pushed-down predicates (DuckDB's own S3 extension cannot be had offline); DuckDB queries those
frames.
"""

import fcntl
import hashlib
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from piqc_pipeline.atomic import replacing
from piqc_pipeline.errors import HistoryError, OutputUnwritable, StoreTooNew, no_folder, one_line
from piqc_pipeline.history.samples import HISTORY_SCHEMA, day_of, days_between
from piqc_pipeline.history.table import (
    FACTS_SCHEMA,
    FINDINGS_SCHEMA,
    KEY,
    OBSERVATIONS_SCHEMA,
    PARTS_SCHEMA,
    Replaced,
    as_schema,
    check_window,
    joined_parts,
    merged,
)

PUT_TRIES = 5
"""How often a part of a day is merged again when another writer put the same object in between."""

_TABLES: dict[str, tuple[Mapping[str, pl.DataType], str]] = {
    "gpu_utilization": (PARTS_SCHEMA, "ts"),
    "observations": (OBSERVATIONS_SCHEMA, "ts"),
    "findings": (FINDINGS_SCHEMA, "taken_at"),
    "facts": (FACTS_SCHEMA, "taken_at"),
}


class ParquetLake:
    """History as Parquet objects (see `HistoryStore`): `TABLE/c=CLUSTER/day=YYYY-MM-DD/NAME.parquet`.

    Credentials are those that Polars finds by itself (`AWS_*`, `GOOGLE_*`, `AZURE_*`, instance roles). In a folder,
    writers of one day wait for each other. Object storage has no lock, and Polars neither puts on a condition nor
    deletes: there each part of a day (its workloads and first bucket) is an object of its own, so that writers of
    different parts never touch the same one, and readers join them; `compact` merges them. A part is put before older
    rows of its buckets are taken out of other objects; where a writer dies in between, the newer rows count. What is
    emptied stays as an object without rows, of about 2 KB, for a lifecycle rule of the bucket.
    """

    def __init__(self, location: str) -> None:
        """Nothing is read or created before the first read or write.

        Args:
            location: A folder, or `s3://`, `gs://` or `az://` with bucket and prefix.
        """
        self.location = location.rstrip("/")
        self._remote = "://" in location
        if self._remote:  # Polars finds the region by itself; its words about that are for programmers
            warnings.filterwarnings("ignore", r"'\(default_\)region' not set", UserWarning)

    def replace(
        self, start: datetime, end: datetime, frame: pl.DataFrame, *, force: bool = False, others: bool = True
    ) -> Replaced:
        """Replace the rows of `[start, end)`, one object a cluster and day (see `table.merged` for what stays)."""
        frame = check_window(start, end, frame)
        clusters = frame["cluster"].unique().sort().to_list()
        if others and (force or not clusters):
            clusters = sorted({*clusters, *self._clusters()})
        outcome = Replaced(0, 0)
        days = days_between(start, end) if others else sorted({day_of(moment) for moment in frame["ts"].unique()})
        for day in days:
            first, last = max(start, day), min(end, day + timedelta(days=1))
            for cluster in clusters:
                part = frame.filter((pl.col("cluster") == cluster) & (pl.col("ts") >= first) & (pl.col("ts") < last))
                outcome += self._replace_day(cluster, day, first, last, part, force=force, others=others)
        return outcome

    def read(
        self, start: datetime | None = None, end: datetime | None = None, workloads: list[str] | None = None
    ) -> pl.DataFrame:
        """Rows in `[start, end)`, sorted by cluster, workload and time; no rows where nothing was stored yet."""
        rows = self._scan("gpu_utilization", start, end)
        if workloads is not None:
            rows = rows.filter(pl.col("workload").is_in(workloads))
        return joined_parts(_collected(rows, PARTS_SCHEMA)).drop("generation")

    def query(self, sql: str) -> pl.DataFrame:
        """The answer of DuckDB to a SELECT over the lake's tables; their times are UTC without a zone.

        DuckDB reads the Parquet files itself and only what the statement needs; those of object storage, which it
        cannot reach offline, are streamed to a temporary folder first, without ever lying in memory.
        """
        from piqc_pipeline.history.duckdb_engine import query_files

        named = [table for table in _TABLES if table in sql]
        with tempfile.TemporaryDirectory() as folder:
            places = {}
            for table in named:
                here = f"{self.location}/{table}/*/*/*.parquet"
                places[table] = here if self._readable_here(table) else self._copy(table, Path(folder))
            which = {"gpu_utilization": "step_seconds IS NOT NULL"}  # see PARTS_SCHEMA
            return query_files(sql, {name: (at, _told(name), which.get(name, "true")) for name, at in places.items()})

    def days(self) -> list[datetime]:
        """UTC midnights of the days that have rows."""
        days = self._places("gpu_utilization").select(pl.col("day").unique())
        found = _collected(days, {"day": pl.Date()})["day"].sort().to_list()
        return [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in found]

    def workloads(self, start: datetime | None = None, end: datetime | None = None) -> list[str]:
        """Ids of the workloads that have rows in `[start, end)`, sorted."""
        names = self._scan("gpu_utilization", start, end).select(pl.col("workload").unique())
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
        """Delete rows older than the instant; returns how many."""
        deleted = 0
        for table, (schema, column) in _TABLES.items():
            for path in self._objects(table, end=before):
                with self._exclusive(path.rpartition("/")[0]):
                    rows = self._get(path, schema)
                    left = rows.filter(pl.col(column) >= before)
                    deleted += rows.height - left.height
                    if left.height < rows.height:
                        self._keep(path, left)
        return deleted

    def compact(self) -> None:
        """Merge the objects of each day into one."""
        for table, (schema, _) in _TABLES.items():
            days: dict[str, list[str]] = {}
            for path in self._objects(table):
                days.setdefault(path.rpartition("/")[0], []).append(path)
            for folder, paths in days.items():
                if len(paths) == 1:
                    continue
                with self._exclusive(folder):
                    rows = pl.concat([self._get(path, schema) for path in paths])
                    rows = joined_parts(rows) if table == "gpu_utilization" else rows.unique(maintain_order=True)
                    whole = f"{folder}/{_name(rows)}"
                    # First what is whole, then the parts without their rows: a reader in between joins both.
                    self._put(whole, rows)
                    for path in paths:
                        if path != whole:
                            self._keep(path, rows.clear())

    def _replace_day(
        self,
        cluster: str,
        day: datetime,
        first: datetime,
        last: datetime,
        part: pl.DataFrame,
        *,
        force: bool,
        others: bool,
    ) -> Replaced:
        folder = self._folder("gpu_utilization", cluster, day)
        own = f"{folder}/{_part_name(part, first) if self._remote else 'history'}.parquet"
        outcome, nothing = Replaced(0, 0), pl.DataFrame(schema=PARTS_SCHEMA)
        inside = (pl.col("ts") >= first) & (pl.col("ts") < last)
        if not (force and others):
            inside &= pl.col("workload").is_in(part["workload"].unique().implode())
        with self._exclusive(folder):
            for attempt in range(PUT_TRIES if self._remote else 1):
                objects = {
                    path: self._get(path, PARTS_SCHEMA)
                    for path in self._objects("gpu_utilization", day, day, f"c={quote(cluster, safe='')}")
                }
                parts = pl.concat([nothing, *objects.values()])
                stored = joined_parts(parts)
                window = (pl.col("ts") >= first) & (pl.col("ts") < last)
                rows, done = merged(stored.drop("generation").filter(window), part, force=force, others=others)
                outcome = outcome if attempt else done
                kept = objects.pop(own, nothing)
                rest = {path: left for path, left in objects.items() if left.select(inside.any()).item()}
                generation = pl.lit((_newest(parts) or 0) + 1, pl.Int64).alias("generation")
                mine = pl.concat([kept.filter(~inside), rows.filter(inside).with_columns(generation)])
                mine = mine.sort("workload", "ts")
                if mine.drop("generation").equals(kept.drop("generation")) and not rest:
                    break
                old = pl.concat([nothing, *(left.filter(inside) for left in rest.values())]).select(KEY).unique()
                gone = old.join(mine, on=KEY, how="anti").with_columns(generation)
                self._put(own, pl.concat([mine, gone], how="diagonal"))
                for path, left in rest.items():
                    self._keep(path, left.filter(~inside))
                if gone.height:
                    self._put(own, mine)
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

    def _objects(
        self, table: str, start: datetime | None = None, end: datetime | None = None, cluster: str = "*"
    ) -> list[str]:
        """Paths of the objects that hold rows of these days, sorted."""
        places = _days(self._places(table, cluster), start, end)
        return _collected(places.select(pl.col("path").unique()), {"path": pl.String()})["path"].sort().to_list()

    def _scan(self, table: str, start: datetime | None = None, end: datetime | None = None) -> pl.LazyFrame:
        schema, column = _TABLES[table]
        rows = _days(self._places(table), start, end)
        if start is not None:
            rows = rows.filter(pl.col(column) >= start)
        if end is not None:
            rows = rows.filter(pl.col(column) < end)
        return rows.select(list(schema))

    def _places(self, table: str, cluster: str = "*") -> pl.LazyFrame:
        """Rows with the `day` and `path` of their object."""
        return pl.scan_parquet(
            f"{self.location}/{table}/{cluster}/*/*.parquet",
            hive_partitioning=True,
            hive_schema={"c": pl.String(), "day": pl.Date()},
            schema=dict(_TABLES[table][0]),
            missing_columns="insert",
            extra_columns="raise",
            include_file_paths="path",
        )

    def _readable_here(self, table: str) -> bool:
        """Whether DuckDB may read the files themselves: they are there, and no bucket lies in two of them."""
        if self._remote:
            return False
        found = [path.parent for path in Path(self.location, table).glob("*/*/*.parquet")]
        return bool(found) and (table != "gpu_utilization" or len(set(found)) == len(found))

    def _copy(self, table: str, folder: Path) -> str:
        """The table in a temporary folder, day by day; where its files are."""
        known = {"observations": self.observations, "findings": self.findings, "facts": self.facts}
        (folder / table).mkdir()
        frames = [known[table]()] if table in known else (self.read(d, d + timedelta(days=1)) for d in self.days())
        for number, frame in enumerate(frames):
            frame.write_parquet(folder / table / f"{number}.parquet")
        if not any((folder / table).iterdir()):
            pl.DataFrame(schema=_told(table)).write_parquet(folder / table / "none.parquet")
        return str(folder / table / "*.parquet")

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
                f"cannot write {path}: {one_line(error)}; "
                "free space or allow writing there, what was stored is untouched"
            ) from error

    def _keep(self, path: str, rows: pl.DataFrame) -> None:
        """Write what is left of an object; nothing left is no file, or an object without rows."""
        if rows.is_empty() and not self._remote:
            Path(path).unlink(missing_ok=True)
        else:
            self._put(path, rows)

    @contextmanager
    def _exclusive(self, folder: str) -> Iterator[None]:
        if self._remote:
            yield
            return
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = (place / ".lock").open("w")
        except (FileExistsError, NotADirectoryError) as error:
            raise no_folder(self.location) from error
        except OSError as error:
            raise OutputUnwritable(f"cannot write {folder}: {one_line(error)}; make the folder writable") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _told(table: str) -> dict[str, pl.DataType]:
    """Columns of a table as readers see it."""
    return {name: kind for name, kind in _TABLES[table][0].items() if name != "generation"}


def _newest(rows: pl.DataFrame) -> int | None:
    newest: int | None = rows.select(pl.col("generation").max()).item()
    return newest


def _collected(rows: pl.LazyFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    try:
        return rows.collect(engine="streaming")
    except FileNotFoundError:
        return pl.DataFrame(schema=schema)
    except pl.exceptions.PolarsError as error:
        text = one_line(error)
        if "expanded paths were empty" in text or "not found" in text.lower() or "no such file" in text.lower():
            return pl.DataFrame(schema=schema)
        if "extra column" in text:
            raise StoreTooNew(f"the lake holds columns of a newer program ({text}): update piqc") from error
        raise HistoryError(f"cannot read the lake: {text}; check its address and the credentials") from error
    except OSError as error:
        if "NoSuchBucket" in str(error):
            raise HistoryError("cannot use the lake: there is no such bucket; create it, or check its name") from error
        raise HistoryError(f"cannot read the lake: {one_line(error)}; check its address and the credentials") from error


def _days(places: pl.LazyFrame, start: datetime | None, end: datetime | None) -> pl.LazyFrame:
    """Only the objects of the days from that of `start` to that of `end`."""
    if start is not None:
        places = places.filter(pl.col("day") >= day_of(start).date())
    if end is not None:
        places = places.filter(pl.col("day") <= end.astimezone(UTC).date())
    return places


def _part_name(part: pl.DataFrame, first: datetime) -> str:
    """A name made of the workloads and the first bucket: who writes another part of a day has another name."""
    what = "\n".join([first.isoformat(), *part["workload"].unique().sort()])
    return f"part-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


def _name(rows: pl.DataFrame) -> str:
    """A name made from the content: writing the same rows again is the same object."""
    digest = hashlib.sha256(rows.write_csv().encode()).hexdigest()[:16]
    return f"{digest}.parquet"
