"""Both stores and a dictionary hold the same rows after any sequence of calls."""

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from piqc_pipeline.history.samples import HISTORY_SCHEMA
from piqc_pipeline.history.store import open_store
from piqc_pipeline.history.table import HistoryStore
from piqc_pipeline_tests.history.rows import DAY

Row = dict[str, Any]
HALF_DAY = timedelta(hours=12)
HALF_DAYS = [DAY + HALF_DAY * number for number in range(6)]
MEANS = """
    SELECT cluster, workload, avg(utilization) AS mean, max(gpus_per_replica) AS gpus, count(*) AS buckets
    FROM gpu_utilization
    WHERE ts >= (SELECT max(ts) FROM gpu_utilization) - INTERVAL 1 DAY GROUP BY ALL ORDER BY ALL
"""


class Dictionary:
    """What a store should hold, kept by bucket and written as `HistoryStore` tells it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, datetime], Row] = {}

    def replace(self, start: datetime, end: datetime, answer: list[Row], *, force: bool, others: bool) -> None:
        within = [row for row in self.rows.values() if start <= row["ts"] < end]
        if not others:
            told = _days(answer)
            within = [row for day, rows in _days(within).items() if day in told for row in rows]
        if force:
            self._drop(within)
            within = []
        stored, new = _days(within), _days(answer)
        for day in stored.keys() & new.keys():
            if len({row["step_seconds"] for row in stored[day] + new[day]}) > 1:
                if _weight(stored[day]) > _weight(new[day]):
                    new[day] = []
                else:
                    self._drop(stored[day])
        for row in (row for day in new.values() for row in day):
            known = self.rows.get(_key(row))
            if known is None or _fullness(row) >= _fullness(known):
                self.rows[_key(row)] = row

    def prune(self, before: datetime) -> int:
        old = [row for row in self.rows.values() if row["ts"] < before]
        self._drop(old)
        return len(old)

    def read(self, start: datetime | None, end: datetime | None, workloads: list[str] | None) -> list[Row]:
        return [
            row
            for _, row in sorted(self.rows.items())
            if (start is None or row["ts"] >= start)
            and (end is None or row["ts"] < end)
            and (workloads is None or row["workload"] in workloads)
        ]

    def _drop(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows.pop(_key(row), None)


def _key(row: Row) -> tuple[str, str, datetime]:
    return row["cluster"], row["workload"], row["ts"]


def _days(rows: Iterable[Row]) -> dict[tuple[str, str, object], list[Row]]:
    days = defaultdict(list)
    for row in rows:
        days[row["cluster"], row["workload"], row["ts"].date()].append(row)
    return days


def _fullness(row: Row) -> float:
    if row["utilization"] is None and row["demand_replicas"] is None:
        return -1.0
    seen, expected, devices = row["samples_seen"], row["samples_expected"], row["devices_seen"]
    share = 1.0 if seen is None or expected is None else min(seen / expected, 1.0)
    return round(share * (1 if devices is None else devices), 4)


def _weight(rows: Iterable[Row]) -> float:
    return sum(row["step_seconds"] * max(_fullness(row), 0.0) for row in rows)


names = st.sampled_from(["prod/a/Deployment/chat", 'prod/a/Deployment/it\'s "ü"\n', "west/a/Deployment/chat"])
maybe = st.one_of(st.none(), st.integers(0, 4))
# What of a row belongs to its series, and what to its bucket.
series = st.fixed_dictionaries(
    {
        "gpus_per_replica": st.sampled_from([None, 1.0, 8.0, 0.125]),
        "signal": st.sampled_from([None, "", "DCGM_FI_DEV_GPU_UTIL", "it's"]),
        "confidence": st.sampled_from([None, "high", "low"]),
        "source": st.sampled_from(["prometheus", "file"]),
    }
)
bucket = st.fixed_dictionaries(
    {
        "utilization": st.sampled_from([None, 0.0, 0.25, 1.0]),
        "demand_replicas": st.sampled_from([None, 1.5]),
        "samples_seen": maybe,
        "samples_expected": st.sampled_from([None, 4]),
        "devices_seen": maybe,
        "censored": st.sampled_from([None, False, True]),
    }
)


@st.composite
def windows(draw: st.DrawFn) -> tuple[datetime, datetime]:
    first, last = sorted(draw(st.lists(st.integers(0, 5), min_size=2, max_size=2, unique=True)))
    return HALF_DAYS[first], HALF_DAYS[last]


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, datetime, datetime, list[Row], bool, bool]:
    """A window and what a source answers for it: widths and series hold for a half-day, or change with the row."""
    start, end = draw(windows())
    rows = []
    for half in (half for half in HALF_DAYS if start <= half < end):
        for workload in draw(st.sets(names)):
            step = draw(st.sampled_from([300, 300, 300, 600]))
            same = draw(st.one_of(series, st.none()))
            for number in sorted(draw(st.sets(st.integers(0, 3), max_size=4))):
                own = draw(series) if same is None else same
                row = {"cluster": workload.split("/")[0], "workload": workload, "step_seconds": step, **own}
                row["ts"] = half + timedelta(seconds=step * number)
                rows.append({name: None for name in HISTORY_SCHEMA} | row | draw(bucket))
    return "replace", start, end, rows, draw(st.sampled_from([False, False, True])), draw(st.booleans())


moments = st.one_of(
    st.none(), st.sampled_from([*HALF_DAYS, DAY + timedelta(minutes=5), DAY + timedelta(seconds=300.5)])
)
steps = st.one_of(
    answers(),
    answers(),
    st.tuples(st.just("again")),
    st.tuples(st.just("read"), moments, moments, st.one_of(st.none(), st.lists(names, max_size=2, unique=True))),
    st.tuples(st.just("prune"), st.sampled_from(HALF_DAYS)),
    st.tuples(st.just("compact")),
)


def told(frame: pl.DataFrame) -> list[Row]:
    return frame.rows(named=True)


@given(st.lists(steps, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_both_stores_hold_what_a_dictionary_holds(script: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stores = [open_store(Path(folder, name)) for name in ("history.duckdb", "lake")]
        model, last = Dictionary(), None
        for what, *details in script:
            if what == "again":
                if last is None:
                    continue
                what, details = "replace", last
            if what == "replace":
                last = details
                start, end, rows, force, others = details
                frame = pl.DataFrame(rows, schema=HISTORY_SCHEMA)
                model.replace(start, end, rows, force=force, others=others)
                for store in stores:
                    store.replace(start, end, frame, force=force, others=others)
            elif what == "prune":
                expected = model.prune(*details)
                assert [store.prune(*details) for store in stores] == [expected] * 2
            elif what == "compact":
                for store in stores:
                    store.compact()
            else:
                expected_rows = model.read(*details)
                for store in stores:
                    assert told(store.read(*details)) == expected_rows
                    if details[2] is None:
                        assert store.workloads(*details[:2]) == sorted({row["workload"] for row in expected_rows})
        for store in stores:
            same_answers(store, model)
        if model.rows:
            assert stores[0].query(MEANS).equals(stores[1].query(MEANS))


def same_answers(store: HistoryStore, model: Dictionary) -> None:
    rows = model.read(None, None, None)
    assert told(store.read()) == rows
    ends = [row["ts"] + timedelta(seconds=row["step_seconds"]) for row in rows]
    assert store.newest() == max(ends, default=None)
    midnights = {row["ts"].replace(hour=0, minute=0, second=0, tzinfo=UTC) for row in rows}
    assert store.days() == sorted(midnights)
