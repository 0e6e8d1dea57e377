"""Which rows of a CSV or Parquet file can be read, and what is wrong with the others?

Three forms are known, told apart by their columns: the native form, tidy `ts, series_id, value, unit`, and the
specification's `ds, y`. What rows mean for a workload belongs to `files`. Everything is lazy: a file of any size passes
through in batches.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from piqc_pipeline.errors import HistoryFileUnreadable, first_line

NATIVE_FIGURES = (
    "utilization",
    "demand_replicas",
    "busy_gpus",
    "offered_rate",
    "capacity_rate_per_replica",
    "ready_replicas",
    "wanted_replicas",
    "gpus_per_replica",
    "waiting_requests",
)
FORMS = "`ts, workload` and a figure, or `ts, series_id, value, unit`, or `ds, y`"

PARQUET = b"PAR1"
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""First bytes of gzip and zstd."""
OTHER_KINDS = {
    b"PK\x03\x04": "a spreadsheet or archive",
    b"<": "a web page or XML",
    b"{": "JSON",
    b"[": "JSON",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"SQLite": "a database",
}
LINE, BEYOND = "_line", "_beyond"
"""Columns beside those of the file: the line's number, and a cell after the last named column."""

UNITS = {
    "percent": "utilization_pct",
    "%": "utilization_pct",
    "pct": "utilization_pct",
    "ratio": "utilization",
    "share": "utilization",
    "fraction": "utilization",
    "requests/s": "offered_rate",
    "req/s": "offered_rate",
    "rps": "offered_rate",
    "tokens/s": "offered_rate",
    "replicas": "demand_replicas",
    "instances": "demand_replicas",
    "pods": "demand_replicas",
    "gpus": "busy_gpus",
    "busy gpus": "busy_gpus",
}
"""Unit of the tidy form to the figure it fills."""

_RATE = re.compile(r"(?:requests?|req|queries|tokens?)/(?P<count>\d*) ?(?P<unit>s|sec|min|m|h|hour)$")
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hour": 3600}

UTILIZATION_LIMIT_PCT = 105.0
"""Counters overshoot 100 % by rounding at most; 900 % is another unit or a fault (dcgm-exporter's sentinel is 9e18)."""


@dataclass(frozen=True)
class ParsedFile:
    """A file as lazily parsed rows.

    Attributes:
        path: The file.
        rows: Columns `line` (number in the file, header is 1), `ts` (UTC), `series` (name as written), the figures of
            `NATIVE_FIGURES` as float, and `problem` (null for a good row).
        form: `native`, `tidy` or `ds,y`.
    """

    path: Path
    rows: pl.LazyFrame
    form: str

    def bad_rows(self, limit: int = 1_000) -> tuple[int, list[tuple[int, str]]]:
        """How many rows are bad, and line and problem of the first of them."""
        bad = self.rows.filter(pl.col("problem").is_not_null()).select("line", "problem")
        count = int(_collect(bad.select(pl.len()), self.path).item())
        if not count:
            return 0, []
        return count, [(line, problem) for line, problem in _collect(bad.head(limit), self.path).iter_rows()]


def parse_file(path: Path, *, unit: str | None = None) -> ParsedFile:
    """Open a history file and tell its form; rows are read when they are asked for.

    Args:
        path: `.csv` (also gzip or zstd) or `.parquet`.
        unit: Unit of `value` or `y` in place of what the file says (see `UNITS`).

    Raises:
        HistoryFileUnreadable: Missing, empty, cut off, or of no known form.
    """
    start = _start(path)
    try:
        raw = _scan_parquet(path) if start.startswith(PARQUET) else _scan_csv(path)
        originals = raw.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    names = {name.strip().lower(): name for name in originals}
    if len(names) < len(originals):
        raise HistoryFileUnreadable(f"cannot read {path}: two of its columns have the same name; rename or drop one")
    raw = raw.select(pl.col(original).alias(name) for name, original in names.items())
    del names[LINE], names[BEYOND]
    if {"ds", "y"} <= set(names):
        rows, form = _ds_y(raw, path, unit), "ds,y"
    elif {"ts", "series_id", "value"} <= set(names):
        rows, form = _tidy(raw, path, "unit" in names, unit), "tidy"
    elif {"ts", "workload"} <= set(names) and set(names) & {*NATIVE_FIGURES, "utilization_pct"}:
        rows, form = _native(raw, set(names)), "native"
    else:
        raise HistoryFileUnreadable(f"cannot read {path}: {_strange(names)}; expected {FORMS}")
    return ParsedFile(path, _checked(rows.rename({LINE: "line"})), form)


def _start(path: Path) -> bytes:
    """The first bytes of a file that may hold history.

    Raises:
        HistoryFileUnreadable: It is missing, a folder, a pipe, empty, or a file of another kind.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise HistoryFileUnreadable(
                f"cannot read {path}: it is a pipe or device, and a history file is read more than once; "
                "write it to a file first"
            )
        with path.open("rb") as stream:
            start = stream.read(64)
    except IsADirectoryError as error:
        raise HistoryFileUnreadable(f"cannot read {path}: it is a folder; name one file of it") from error
    except FileNotFoundError as error:
        raise HistoryFileUnreadable(f"cannot read {path}: there is no such file") from error
    except OSError as error:
        raise HistoryFileUnreadable(f"cannot read {path}: {error.strerror}") from error
    if not start.strip():
        raise HistoryFileUnreadable(f"cannot read {path}: the file is empty; expected {FORMS}")
    kind = next((kind for sign, kind in OTHER_KINDS.items() if start.lstrip().startswith(sign)), None)
    if kind or b"\0" in start and not start.startswith((PARQUET, *COMPRESSED)):
        raise HistoryFileUnreadable(
            f"cannot read {path}: it is {kind or 'no text'}, not CSV or Parquet; save it as CSV"
        )
    return start


def _scan_parquet(path: Path) -> pl.LazyFrame:
    rows = pl.scan_parquet(path, row_index_name=LINE)
    return rows.with_columns(pl.col(LINE).cast(pl.Int64) + 1, pl.lit(None, pl.String).alias(BEYOND))


def _scan_csv(path: Path) -> pl.LazyFrame:
    """Every cell as text, with the line's number, and what stands beyond the last column."""
    usual: Any = {"encoding": "utf8-lossy", "has_header": False, "truncate_ragged_lines": True}
    header = pl.scan_csv(path, infer_schema=False, n_rows=1, **usual).collect()
    names = [str(name) for name in header.row(0) if name is not None]
    if len(set(names)) < len(names):
        raise HistoryFileUnreadable(f"cannot read {path}: two of its columns have the same name; rename or drop one")
    rows = pl.scan_csv(
        path,
        skip_rows=1,
        schema=dict.fromkeys([*names, BEYOND], pl.String()),
        missing_columns="insert",
        row_index_name=LINE,
        **usual,
    )
    written = pl.any_horizontal(pl.col(*names, BEYOND) != "")  # a line without any cell says nothing
    return rows.filter(written).with_columns(pl.col(LINE).cast(pl.Int64) + 2)


def _strange(names: Collection[str]) -> str:
    """What to say of columns that make no known form."""
    for sign, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if any(sign in name for name in names):
            return f"its columns are separated by {word}; save it with commas between them, and points in numbers"
    return f"it has the columns {', '.join(sorted(names))[:200]}"


def _ds_y(raw: pl.LazyFrame, path: Path, unit: str | None) -> pl.LazyFrame:
    figure, factor = _figure(unit, path) if unit else (_share_or_percent(raw, "y", path), 1.0)
    return raw.select(
        LINE,
        BEYOND,
        _time(raw, "ds"),
        pl.lit(path.stem).alias("series"),
        *_columns({figure: _number(raw, "y") * factor}),
        _text(raw, "y"),
    )


def _tidy(raw: pl.LazyFrame, path: Path, has_unit: bool, unit: str | None) -> pl.LazyFrame:
    foreign, begun = pl.lit(False), pl.lit(None, pl.String)
    if unit is not None or not has_unit:
        figure, factor = _figure(unit, path) if unit else (_share_or_percent(raw, "value", path), 1.0)
        figures = {figure: _number(raw, "value") * factor}
    else:
        units = _collect(raw.select(pl.col("unit").cast(pl.String).unique()), path)["unit"].drop_nulls().to_list()
        known = [text for text in sorted(units) if _known_unit(text) is not None]
        if not known and not units:
            raise HistoryFileUnreadable(
                f"cannot read {path}: no row of it has a unit; name one with --unit: percent, ..."
            )
        if not known:
            _figure(units[0], path)
        figures = {}
        for text in known:
            name, factor = _figure(text, path)
            chosen = pl.when(pl.col("unit").cast(pl.String) == text).then(_number(raw, "value") * factor)
            figures[name] = pl.coalesce(figures[name], chosen) if name in figures else chosen
        foreign = pl.col("unit").cast(pl.String).is_in(known).not_().fill_null(True)
        begun = _begun_otherwise(raw, path, known)
    series = pl.col("series_id").cast(pl.String).alias("series")
    unit_text = pl.col("unit").cast(pl.String).fill_null("none") if has_unit else pl.lit("")
    text = (
        pl.when(foreign)
        .then(pl.lit("a unit of load: ") + unit_text)
        .when(begun.is_not_null())
        .then(begun + pl.lit(", in which its series begins: ") + unit_text)
        .otherwise(_text(raw, "value"))
        .alias("text")
    )
    return raw.select(LINE, BEYOND, _time(raw, "ts"), series, *_columns(figures), text)


def _begun_otherwise(raw: pl.LazyFrame, path: Path, known: list[str]) -> pl.Expr:
    """The unit in which a row's series begins, where the row has another one; null elsewhere.

    Figures of two units cannot be told from a change of the load, so that a backtest refuses such a series too.
    """
    series, unit = pl.col("series_id").cast(pl.String), pl.col("unit").cast(pl.String)
    if len(known) < 2:
        return pl.lit(None, pl.String)
    firsts = raw.filter(unit.is_in(known)).group_by(series).agg(unit.sort_by(LINE).first(), unit.n_unique().alias("n"))
    mixed = dict(_collect(firsts.filter(pl.col("n") > 1).select("series_id", "unit"), path).iter_rows())
    if not mixed:
        return pl.lit(None, pl.String)
    begun = series.replace_strict(mixed, default=None, return_dtype=pl.String)
    return pl.when(begun != unit).then(begun)


def _native(raw: pl.LazyFrame, names: set[str]) -> pl.LazyFrame:
    given = [name for name in (*NATIVE_FIGURES, "utilization_pct") if name in names]
    figures = {name: _number(raw, name) for name in given}
    series = pl.col("workload").cast(pl.String).alias("series")
    unread = pl.concat_str([_text(raw, name) for name in given], separator="", ignore_nulls=True).alias("text")
    return raw.select(
        LINE, BEYOND, _time(raw, "ts"), series, *_columns(figures), pl.when(unread != "").then(unread).alias("text")
    )


def _columns(figures: dict[str, pl.Expr]) -> list[pl.Expr]:
    """Every native figure as a column; a percentage becomes a share."""
    if "utilization_pct" in figures:
        share = figures.pop("utilization_pct") / 100
        figures["utilization"] = pl.coalesce(figures["utilization"], share) if "utilization" in figures else share
    return [figures.get(name, pl.lit(None, pl.Float64)).alias(name) for name in NATIVE_FIGURES]


def _known_unit(unit: str) -> tuple[str, float] | None:
    """The figure that a unit fills, and what its values are multiplied with; None for a unit that is no load."""
    text = unit.strip().lower()
    if text in UNITS:
        return UNITS[text], 1.0
    rate = _RATE.match(text)
    if rate is None:
        return None
    return "offered_rate", 1.0 / (int(rate["count"] or 1) * _SECONDS[rate["unit"]])


def _figure(unit: str | None, path: Path) -> tuple[str, float]:
    known = _known_unit(unit or "")
    if known is not None:
        return known
    units = ", ".join(UNITS)
    raise HistoryFileUnreadable(
        f"cannot read {path}: the unit {unit!r} is no measure of load; "
        f"name one with --unit: {units}, requests/5min, ..."
    )


def _share_or_percent(raw: pl.LazyFrame, name: str, path: Path) -> str:
    """Values never above 1 are shares; one above it makes all of them percent."""
    numbers = _number(raw, name)
    largest = _collect(raw.select(pl.when(numbers.is_finite()).then(numbers).max().alias("m")), path).item()
    return "utilization" if largest is not None and largest <= 1.0 else "utilization_pct"


def _number(raw: pl.LazyFrame, name: str) -> pl.Expr:
    column = pl.col(name)
    if raw.collect_schema()[name] == pl.String:
        column = column.str.strip_chars()
    return column.cast(pl.Float64, strict=False)


def _text(raw: pl.LazyFrame, name: str) -> pl.Expr:
    """What stands in a cell that is neither empty nor a number."""
    if raw.collect_schema()[name] != pl.String:
        return pl.lit(None, pl.String).alias("text")
    text = pl.col(name).str.strip_chars()
    unread = (text != "") & _number(raw, name).is_null()
    return pl.when(unread).then(pl.lit("a number: ") + text).alias("text")


def _time(raw: pl.LazyFrame, name: str) -> pl.Expr:
    """An instant in UTC: a timestamp of Parquet, ISO 8601 with or without offset, or (milli)seconds since 1970."""
    kind = raw.collect_schema()[name]
    column = pl.col(name)
    if isinstance(kind, pl.Datetime):
        zoned = column.dt.convert_time_zone("UTC") if kind.time_zone else column.dt.replace_time_zone("UTC")
        return zoned.cast(pl.Datetime("us", "UTC")).alias("ts")
    if kind == pl.Date:
        return column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias("ts")
    text = column.cast(pl.String).str.strip_chars()
    body = text.str.replace(r"\s*(Z|UTC|[+-]\d\d:?\d\d)$", "").str.replace("T", " ", literal=True)
    forms = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")
    moment = pl.coalesce(body.str.to_datetime(form, strict=False, time_unit="us") for form in forms)
    offset = text.str.extract(r"\d([+-]\d\d:?\d\d)$", 1).str.replace(":", "", literal=True)
    has_time = text.str.len_chars() > 10
    hours = pl.when(has_time).then(offset.str.slice(0, 3).cast(pl.Int64, strict=False))
    minutes = pl.when(has_time).then((offset.str.slice(0, 1) + offset.str.slice(3, 2)).cast(pl.Int64, strict=False))
    shift = pl.duration(hours=hours.fill_null(0), minutes=minutes.fill_null(0))
    number = text.cast(pl.Float64, strict=False)
    microseconds = (
        pl.when(text.str.contains(r"^\d{9,11}(\.\d+)?$"))
        .then(number * 1_000_000)
        .when(text.str.contains(r"^\d{13}(\.\d+)?$"))  # 12 and 14 digits are those of a calendar: 202501060900
        .then(number * 1_000)
    )
    epoch = microseconds.cast(pl.Int64).cast(pl.Datetime("us"))
    return pl.coalesce(moment - shift, epoch).dt.replace_time_zone("UTC").alias("ts")


def _checked(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Add the first problem of each row, as a clause."""
    figures = pl.col(*NATIVE_FIGURES)
    nan = pl.any_horizontal(figures.is_nan() | figures.is_infinite())
    percent = (pl.col("utilization") * 100).round(0).cast(pl.Int64, strict=False).cast(pl.String)
    problem = (
        pl.when(pl.col(BEYOND).str.strip_chars() != "")
        .then(pl.lit("more cells than the file has columns"))
        .when(pl.col("ts").is_null())
        .then(pl.lit("the time cannot be read (ISO 8601 in UTC or seconds since 1970 is expected)"))
        .when(pl.col("series").is_null() | (pl.col("series") == ""))
        .then(pl.lit("no series or workload is named"))
        .when(pl.col("text").is_not_null())
        .then(pl.lit("not ") + pl.col("text").str.head(60))
        .when(nan)
        .then(pl.lit("NaN or infinite is no measurement; leave a missing value empty"))
        .when(pl.any_horizontal(figures < 0))
        .then(pl.lit("a load cannot be negative"))
        .when(pl.col("utilization") > UTILIZATION_LIMIT_PCT / 100)
        .then(pl.lit("utilization ") + percent.fill_null("far above 100") + pl.lit(" % is above 100 %"))
    )
    return rows.with_columns(problem.alias("problem")).drop("text", BEYOND)


def _collect(rows: pl.LazyFrame, path: Path) -> pl.DataFrame:
    try:
        return rows.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> HistoryFileUnreadable:
    return HistoryFileUnreadable(
        f"cannot read {path}: it is cut off or no CSV or Parquet file ({first_line(error)}); expected {FORMS}"
    )
