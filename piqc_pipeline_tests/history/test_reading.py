from pathlib import Path

import polars as pl
import pytest

from piqc_pipeline.history.profile import LoadProfile, load_profile
from piqc_pipeline.history.reading import busiest, by_workloads
from piqc_pipeline.history.store import open_store
from piqc_pipeline.history.table import HistoryStore
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows

NAMES = [f"prod/x/Deployment/w{number}" for number in range(5)]
WRITTEN = pl.concat([rows([0.1 * number] * 288, workload=name, busy_gpus=number) for number, name in enumerate(NAMES)])


@pytest.fixture(params=["history.duckdb", "lake"], ids=["duckdb", "lake"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> HistoryStore:
    opened = open_store(tmp_path / request.param)
    opened.replace(DAY, NEXT_DAY, WRITTEN)
    return opened


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two days of workloads."""
    monkeypatch.setattr("piqc_pipeline.history.reading.ROWS_AT_ONCE", 600)


def test_a_range_that_fits_is_read_at_once(store: HistoryStore) -> None:
    assert [part.height for part in by_workloads(store, DAY, NEXT_DAY, 300)] == [5 * 288]


def test_a_long_range_is_read_some_workloads_after_the_other(store: HistoryStore, little_memory: None) -> None:
    parts = list(by_workloads(store, DAY, NEXT_DAY, 300))
    assert [part.height for part in parts] == [576, 576, 288]
    assert pl.concat(parts).equals(WRITTEN)


def test_only_the_named_workloads_are_read(store: HistoryStore, little_memory: None) -> None:
    parts = list(by_workloads(store, DAY, NEXT_DAY, 300, [NAMES[4], NAMES[0], NAMES[2]]))
    assert [part["workload"].unique().sort().to_list() for part in parts] == [[NAMES[0], NAMES[2]], [NAMES[4]]]


def test_workloads_without_rows_in_the_range_are_not_asked_for(store: HistoryStore) -> None:
    late = rows([0.5], workload="prod/x/Deployment/late", start=NEXT_DAY)
    store.replace(NEXT_DAY, NEXT_DAY + (NEXT_DAY - DAY), late)
    assert store.workloads(DAY, NEXT_DAY) == NAMES
    assert store.workloads(NEXT_DAY) == ["prod/x/Deployment/late"]
    assert len(store.workloads()) == 6


def test_the_busiest_of_all_parts_are_those_of_the_whole(store: HistoryStore, little_memory: None) -> None:
    kept = busiest(by_workloads(store, DAY, NEXT_DAY, 300), 2)
    assert kept.equals(WRITTEN.filter(pl.col("workload").is_in(NAMES[3:])))


def test_a_workload_whose_use_is_unknown_is_not_among_the_busiest() -> None:
    unknown = rows([None], workload="prod/x/Deployment/a")
    idle = rows([0.0], workload="prod/x/Deployment/b")
    assert busiest([unknown, idle], 1).equals(idle)


def test_profiles_of_parts_are_those_of_the_whole(store: HistoryStore, little_memory: None) -> None:
    parts = by_workloads(store, DAY, NEXT_DAY, 300)
    assert sum((load_profile(part) for part in parts), LoadProfile((), ())) == load_profile(WRITTEN)
