from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from piqc_pipeline.facts.snapshot import (
    AcceleratorReading,
    ClusterSnapshot,
    EngineIdentity,
    EngineRuntime,
    ModelIdentity,
    Pod,
    Workload,
)
from piqc_pipeline.history.doubts import Doubt
from piqc_pipeline.history.inventory import WorkloadInventory, inventory_from_snapshot
from piqc_pipeline.history.samples import FetchedHistory
from piqc_pipeline.history.snapshots import SnapshotSource, observations_of
from piqc_pipeline.history.store import open_store
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows

CHAT = "prod/inference/Deployment/chat"


def pod(name: str, *utilization_pct: float | None, ready: bool = True, waiting: float | None = None) -> Pod:
    return Pod(
        namespace="inference",
        name=name,
        uid=name,
        phase="Running",
        node="n1",
        workload_id=CHAT,
        ready=ready,
        holds=True,
        requests=(),
        created_at=None,
        readings=tuple(
            AcceleratorReading("exec", utilization_pct=value, confidence="low") for value in utilization_pct
        ),
        runtime=None if waiting is None else EngineRuntime(True, "exec", requests_waiting=waiting),
    )


def snapshot(*pods: Pod, taken_at: datetime = DAY, ready: int = 2) -> ClusterSnapshot:
    workload = Workload(
        id=CHAT,
        cluster="prod",
        namespace="inference",
        kind="Deployment",
        name="chat",
        api_version="apps/v1",
        engine=EngineIdentity("vllm", 1.0, "high"),
        model=ModelIdentity("m", max_num_seqs=64),
        is_inference=True,
        replicas_wanted=3,
        replicas_ready=ready,
        gpus_per_replica=2,
        images=(),
        created_at=None,
    )
    return ClusterSnapshot("prod", None, taken_at, nodes=(), pods=pods, workloads=(workload,))


def test_a_scan_becomes_one_observation_a_workload() -> None:
    [row] = observations_of(snapshot(pod("a", 40, 60), pod("b", 20, 80, waiting=3.0))).to_dicts()
    assert (row["workload"], row["ts"], row["utilization"], row["demand_replicas"], row["busy_gpus"]) == (
        CHAT,
        DAY,
        0.5,
        1.0,
        2.0,
    )
    assert (row["ready_replicas"], row["wanted_replicas"], row["waiting_requests"], row["censored"]) == (
        2.0,
        3.0,
        3.0,
        True,
    )
    assert (row["devices_seen"], row["devices_expected"], row["confidence"], row["source"]) == (4, 4, "low", "snapshot")


@pytest.mark.parametrize(
    ("pods", "seen"),
    [((pod("a", 40, None), pod("b", None, None)), 1), ((pod("a", 9.2e18, 40, 40), pod("b")), 2)],
    ids=["most are silent", "sentinel"],
)
def test_too_few_readings_make_the_load_unknown(pods: tuple[Pod, ...], seen: int) -> None:
    [row] = observations_of(snapshot(*pods)).to_dicts()
    assert (row["utilization"], row["devices_seen"]) == (None, seen)


def test_pods_that_are_not_ready_do_not_count_and_nothing_measured_is_no_observation() -> None:
    assert observations_of(snapshot(pod("a", 90, 90, ready=False))).is_empty()
    assert observations_of(replace(snapshot(), pods=None)).is_empty()


def test_the_inventory_names_pods_and_limits() -> None:
    [entry] = inventory_from_snapshot(snapshot(pod("b"), pod("a")))
    assert entry == WorkloadInventory(CHAT, "inference", "Deployment", "chat", 2, 3, ("a", "b"), 64)
    assert entry.cluster == "prod"


class Nothing:
    """A source that knows the first bucket only."""

    told_by, tells_all = "the answer", True

    def fetch(
        self, start: datetime, end: datetime, inventory: Sequence[WorkloadInventory], bucket_seconds: int
    ) -> FetchedHistory:
        return FetchedHistory(
            rows([0.9], samples_seen=10, samples_expected=10, devices_seen=4), (Doubt("from the source"),)
        )


@pytest.mark.parametrize("name", ["h.duckdb", "lake"])
def test_a_day_is_filled_from_observations_where_the_source_has_nothing(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name)
    for minute, value in ((2, 40.0), (7, 20.0), (8, 40.0)):
        seen = snapshot(pod("a", value, value), pod("b", value, value), taken_at=DAY + timedelta(minutes=minute))
        for _ in range(2):
            store.append_observations(observations_of(seen))
    alone = SnapshotSource(store).fetch(DAY, NEXT_DAY, (), 300)
    assert alone.frame["utilization"].to_list() == [0.4, 0.3]
    over = SnapshotSource(store, Nothing()).fetch(DAY, NEXT_DAY, (), 300)
    assert over.frame["utilization"].to_list() == [0.9, 0.3]
    assert "1 buckets that the source lacks" in over.warnings[1]


def test_running_a_day_again_never_loses_an_observation_nor_puts_it_over_a_full_bucket(tmp_path: Path) -> None:
    store = open_store(tmp_path / "h.duckdb")
    store.append_observations(observations_of(snapshot(pod("a", 40, 40), pod("b", 40, 40))))
    store.replace(DAY, NEXT_DAY, Nothing().fetch(DAY, NEXT_DAY, (), 300).frame)
    store.replace(DAY, NEXT_DAY, SnapshotSource(store).fetch(DAY, NEXT_DAY, (), 300).frame)
    assert store.read()["source"].to_list() == ["prometheus"]
    store.replace(DAY, NEXT_DAY, rows([]), force=True)
    assert store.observations().height == 1


@pytest.mark.parametrize(
    ("rates", "wanted"),
    [
        ({}, None),
        ({"*": 5.0}, 5.0),
        ({"*": 5.0, "inference/chat": 7.0}, 7.0),
        ({"inference/chat": 7.0, CHAT: 9.0, "inference/other": 1.0}, 9.0),
    ],
)
def test_the_capacity_of_a_replica_comes_from_the_settings(rates: dict[str, float], wanted: float | None) -> None:
    [entry] = inventory_from_snapshot(snapshot(), rates)
    assert entry.capacity_rate_per_replica == wanted
