"""What the command line knows of workloads."""

from datetime import UTC, datetime, timedelta

import pytest

from piqc_pipeline.cli.workloads import last_inventory, named_namespaces, newest_row, short_name
from piqc_pipeline.facts.snapshot import ClusterSnapshot
from piqc_pipeline.facts.snapshot_file import write_snapshot
from piqc_pipeline.history.store import open_store
from piqc_pipeline.settings import load_settings
from piqc_pipeline_tests.history.rows import rows
from piqc_pipeline_tests.waste.clusters import workload


@pytest.mark.parametrize(
    ("workload_id", "short"),
    [
        pytest.param("demo/inference/Deployment/chat", "inference/chat", id="an id"),
        pytest.param("arn:aws:eks:eu-1:7:cluster/prod/ns/Deployment/chat", "ns/chat", id="a cluster with a slash"),
        pytest.param("chat", "chat", id="a series of a file"),
    ],
)
def test_a_workload_is_named_by_namespace_and_name(workload_id: str, short: str) -> None:
    assert short_name(workload_id) == short


def test_namespaces_may_stand_between_commas() -> None:
    assert named_namespaces(["a, b", "c", ","]) == ("a", "b", "c")


def test_measured_rates_are_known_wherever_a_file_is_read(tmp_path) -> None:
    settings = load_settings(data_dir=tmp_path, capacity_rates={"*": 4.0})
    assert last_inventory(settings) == ()
    snapshot = ClusterSnapshot("demo", None, datetime(2025, 1, 20, tzinfo=UTC), None, None, (workload("chat"),))
    (tmp_path / "facts").mkdir()
    write_snapshot(snapshot, tmp_path / "facts" / "snapshot.json")
    assert [entry.capacity_rate_per_replica for entry in last_inventory(settings)] == [4.0]


def test_a_message_of_old_rows_says_how_old(tmp_path) -> None:
    store = open_store(str(tmp_path / "history.duckdb"))
    assert newest_row(store) == ""
    start = datetime(2025, 1, 6, tzinfo=UTC)
    store.replace(start, start + timedelta(days=1), rows([0.5], start=start))
    assert newest_row(store) == " (its newest row ends 2025-01-06 00:05 UTC)"
