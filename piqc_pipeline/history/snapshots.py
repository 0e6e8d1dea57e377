"""What do scans alone know of the load? Observations of snapshots, kept for ever, filling what Prometheus lacks.

A scan sees one instant; an hourly scan sees one bucket in twelve. That is little, yet it is all there is where nobody
runs Prometheus, so each observation is appended and none is ever replaced.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import polars as pl

from piqc_pipeline.facts.snapshot import AcceleratorReading, ClusterSnapshot, Confidence, Pod, Workload
from piqc_pipeline.history.demand import MIN_DEVICE_COVERAGE, SATURATED_UTILIZATION
from piqc_pipeline.history.doubts import Doubt
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.samples import FetchedHistory, HistorySource, conform, empty_history
from piqc_pipeline.history.table import HistoryStore

ASSUMED_SCRAPE_SECONDS = 30
"""A bucket would hold a sample each 30 s of an exporter; so an observation never counts as a full bucket."""

_WEAKEST: dict[Confidence, int] = {"high": 2, "medium": 1, "low": 0}


def observations_of(snapshot: ClusterSnapshot) -> pl.DataFrame:
    """One row of `HISTORY_SCHEMA` a workload that the snapshot measured; `ts` is the instant of the scan."""
    pods: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods or ():
        if pod.ready and not pod.deleting:
            pods[pod.workload_id].append(pod)
    rows = [
        row
        for workload in snapshot.workloads
        if (row := _observation(snapshot, workload, pods[workload.id])) is not None
    ]
    return conform(pl.DataFrame(rows)) if rows else empty_history()


def _observation(snapshot: ClusterSnapshot, workload: Workload, pods: list[Pod]) -> dict[str, object] | None:
    readings = [reading for pod in pods for reading in pod.readings]
    loads = [load for reading in readings if (load := _load(reading)) is not None]
    waiting = [pod.runtime.requests_waiting for pod in pods if pod.runtime and pod.runtime.requests_waiting is not None]
    if not loads and not waiting:
        return None
    g = workload.gpus_per_replica
    due = max(len(readings), round((g or 0) * workload.replicas_ready))
    complete = bool(loads) and len(loads) >= MIN_DEVICE_COVERAGE * due
    share = min(1.0, sum(loads) / len(loads)) if complete else None
    weakest = min(readings, key=lambda reading: _WEAKEST[reading.confidence], default=None)
    queue = sum(waiting) if waiting else None
    ready = float(workload.replicas_ready)
    return {
        "cluster": snapshot.cluster,
        "workload": workload.id,
        "ts": snapshot.taken_at,
        "step_seconds": 1,
        "utilization": share,
        "ready_replicas": ready,
        "wanted_replicas": None if workload.replicas_wanted is None else float(workload.replicas_wanted),
        "gpus_per_replica": g,
        "demand_replicas": None if share is None else share * ready,
        "busy_gpus": None if share is None else share * due,
        "waiting_requests": queue,
        "signal": weakest.signal if weakest else "requests_waiting",
        "confidence": weakest.confidence if weakest else "low",
        "samples_seen": len(loads),
        "samples_expected": due,
        "devices_seen": len(loads),
        "devices_expected": due,
        "censored": bool((share or 0) >= SATURATED_UTILIZATION or (queue or 0) > 0),
        "source": "snapshot",
    }


def _load(reading: AcceleratorReading) -> float | None:
    """The best share a reading has; values beyond a gauge's scale are sentinels."""
    for value in (reading.sm_active_pct, reading.utilization_pct):
        if value is not None and 0 <= value <= 105:
            return value / 100
    return None


class SnapshotSource:
    """History from the observations in a store, over what another source knows where there is one."""

    def __init__(self, store: HistoryStore, primary: HistorySource | None = None) -> None:
        """Nothing is read yet.

        Args:
            store: Holds the observations.
            primary: Asked first; its buckets win.
        """
        self._store = store
        self._primary = primary

    @property
    def told_by(self) -> str:
        """As sentences call it."""
        return self._primary.told_by if self._primary else "the scans"

    @property
    def tells_all(self) -> bool:
        """Whether what it does not name has no load."""
        return self._primary is None or self._primary.tells_all

    def fetch(
        self, start: datetime, end: datetime, inventory: Sequence[WorkloadInventory], bucket_seconds: int
    ) -> FetchedHistory:
        """Rows of the primary source, and observations in the buckets that it has nothing for."""
        known = self._primary.fetch(start, end, inventory, bucket_seconds) if self._primary else None
        rows = _bucketed(self._store.observations(start, end), bucket_seconds)
        if known is None:
            return FetchedHistory(rows)
        extra = rows.join(known.frame, on=["workload", "ts"], how="anti")
        doubts = known.doubts
        if extra.height:
            doubts += (Doubt("{count} buckets that the source lacks come from scans' observations", extra.height),)
        return FetchedHistory(pl.concat([known.frame, extra]).sort("workload", "ts"), doubts)


def _bucketed(observations: pl.DataFrame, bucket_seconds: int) -> pl.DataFrame:
    """Means of the observations of each bucket."""
    if observations.is_empty():
        return empty_history()
    means = (
        "utilization",
        "ready_replicas",
        "wanted_replicas",
        "gpus_per_replica",
        "demand_replicas",
        "busy_gpus",
        "waiting_requests",
    )
    due = pl.col("devices_expected").max() * (bucket_seconds // ASSUMED_SCRAPE_SECONDS)
    rows = (
        observations.with_columns(pl.col("ts").dt.truncate(f"{bucket_seconds}s"))
        .group_by("cluster", "workload", "ts")
        .agg(
            pl.col(*means).mean(),
            pl.col("signal", "confidence", "source").last(),
            pl.col("samples_seen").sum(),
            due.alias("samples_expected"),
            pl.col("devices_seen", "devices_expected").max(),
            pl.col("censored").any(),
        )
        .with_columns(pl.lit(bucket_seconds).alias("step_seconds"))
    )
    return conform(rows).sort("workload", "ts")
