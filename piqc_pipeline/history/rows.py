"""How do one day's samples of devices and engines become rows of the table? Sums and formulas, no questions asked.

Where samples come from belongs to `prometheus_day`, counting devices to `devices`, formulas of demand to `demand`. A
device without samples is missing, not idle: the seen ones stand for all from 80 % on, below it the figure is unknown.
"""

from collections.abc import Iterable, Sequence
from typing import get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from piqc_pipeline.facts.snapshot import Confidence
from piqc_pipeline.history.capacity import with_work
from piqc_pipeline.history.demand import MIN_DEVICE_COVERAGE, censored, corrected_demand
from piqc_pipeline.history.devices import MIN_SIGNAL_SHARE, ReadyDevices, ready_devices
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.points import DaySamples, Numbering, Numbers, Samples, Window
from piqc_pipeline.history.samples import conform
from piqc_pipeline.history.signals import DEVICE_SIGNALS, RATE_SIGNAL, RUNNING_SIGNAL, TOKENS_SIGNAL

ONE_POD_A_REPLICA = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job", "Pod", "Workload")
_SIGNALS = pl.Enum([RATE_SIGNAL, TOKENS_SIGNAL, RUNNING_SIGNAL, *(signal.name for signal in DEVICE_SIGNALS)])
_CONFIDENCES = pl.Enum(get_args(Confidence))
_WORKLOAD_SCHEMA = {
    "name": pl.String(),
    "cluster": pl.String(),
    **dict.fromkeys(("known_gpus", "usual_gpus", "pods_per_replica", "max_num_seqs", "capacity"), pl.Float64()),
    "signal": _SIGNALS,
    "confidence": _CONFIDENCES,
}


class _Cells:
    """The cells that hold a point, in order, and sums over the points of each."""

    def __init__(self, some: Iterable[Numbers], size: int) -> None:
        held = np.zeros(size, dtype=bool)
        for cells in some:
            held[cells] = True
        self.cells = np.flatnonzero(held)
        self._rows = np.cumsum(held, dtype=np.int32) - 1

    def sums(self, cells: Numbers, *values: NDArray[np.float64] | Numbers) -> list[NDArray[np.float64]]:
        """How many points, then their values together; NaN where there is none."""
        if not len(cells):
            return [np.full(len(self.cells), np.nan)] * (1 + len(values))
        rows, size = self._rows[cells], len(self.cells)
        counts = np.bincount(rows, minlength=size)
        nothing = counts == 0
        return [np.where(nothing, np.nan, each) for each in (counts, *(np.bincount(rows, v, size) for v in values))]

    def largest(self, cells: Numbers, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest value of each, whatever other cells have; NaN where there is none."""
        largest = np.full(len(self._rows), np.nan)
        np.fmax.at(largest, cells, values)
        return largest[self.cells]


def day_rows(samples: DaySamples, inventory: Sequence[WorkloadInventory]) -> pl.DataFrame:
    """Rows of the table for the window, sorted by workload and time; a bucket without any sample has none."""
    window, wanted, engines = samples.window, samples.wanted, samples.engines
    names = sorted({name for own in samples.all() for name in own.workloads})
    workloads = Numbering(names)
    devices = ready_devices(samples, workloads)
    seen = devices.points.workloads * window.buckets + devices.points.buckets
    cells = {name: _cells_of(own, workloads, window) for name, own in engines.items()}
    held = _Cells([seen, *cells.values()], len(names) * window.buckets)
    number, bucket = np.divmod(held.cells, window.buckets)
    start = np.datetime64(window.start.replace(tzinfo=None), "us")
    columns = {
        "workload": number.astype(np.uint32),
        "ts": start + (bucket * window.bucket_seconds).astype("timedelta64[s]"),
        "wanted": held.largest(_cells_of(wanted, workloads, window), wanted.points.values),
        **_device_figures(devices, held, seen),
    }
    for name, own in engines.items():
        columns[f"{name}_pods"], columns[name] = held.sums(cells[name], own.points.values)
    base = pl.DataFrame(columns, nan_to_null=True).hstack(_facts(names, samples, devices, inventory)[number])
    of_devices = pl.when(pl.col("devices_seen").is_not_null()).then(pl.col("signal", "confidence"))
    base = base.with_columns(pl.col("workload").set_sorted(), of_devices)
    rows = _with_demand(_with_engine_signal(base), window.bucket_seconds)
    return conform(rows.with_columns(pl.col("name").alias("workload")))


def _cells_of(samples: Samples, workloads: Numbering, window: Window) -> Numbers:
    return workloads.of(samples.workloads)[samples.points.series] * window.buckets + samples.points.buckets


def _device_figures(devices: ReadyDevices, held: _Cells, seen: Numbers) -> dict[str, NDArray[np.float64]]:
    """Sums over the devices of ready pods, with the devices and samples expected."""
    points = devices.points
    sums = held.sums(seen, points.values, points.values * points.gpus, points.seen, points.expected)
    ready = devices.ready_pods[held.cells]
    known = ready > 0
    return {
        **dict(zip(("devices_seen", "load", "busy", "samples_seen", "samples_due"), sums, strict=True)),
        "ready_pods": np.where(known, ready, np.nan),
        "devices_expected": np.where(known, devices.devices_expected[held.cells], np.nan),
    }


def _facts(
    names: list[str], samples: DaySamples, devices: ReadyDevices, inventory: Sequence[WorkloadInventory]
) -> pl.DataFrame:
    """What is the same in all buckets of a workload: one row each."""
    known = {entry.id: entry for entry in inventory}
    entries = [known.get(name) for name in names]
    signals = [samples.devices[position].signal if position >= 0 else None for position in devices.signals]
    facts = pl.DataFrame(
        {
            "name": names,
            "cluster": [name.split("/", 1)[0] for name in names],
            "known_gpus": [entry and entry.gpus_per_replica for entry in entries],
            "usual_gpus": [int(usual) or None for usual in devices.usual],
            "pods_per_replica": [_pods_per_replica(entry) if entry else 1.0 for entry in entries],
            "max_num_seqs": [entry and entry.max_num_seqs or None for entry in entries],
            "capacity": [entry and entry.capacity_rate_per_replica for entry in entries],
            "signal": [signal and signal.name for signal in signals],
            "confidence": [signal and signal.confidence for signal in signals],
        },
        schema=_WORKLOAD_SCHEMA,
    )
    return facts.with_columns(pl.max_horizontal("known_gpus", "usual_gpus").alias("gpus_per_replica"))


def _pods_per_replica(entry: WorkloadInventory) -> float:
    if entry.kind in ONE_POD_A_REPLICA or not entry.replicas or not entry.pods:
        return 1.0
    return float(max(1, round(len(entry.pods) / entry.replicas)))


def _with_engine_signal(base: pl.DataFrame) -> pl.DataFrame:
    """Ready replicas and measured demand of every bucket, by the best signal that the workload has.

    Order: offered rate / capacity, tokens by their fitted capacity, running requests / max_num_seqs, devices.
    """
    pods = pl.coalesce("ready_pods", "running_pods", "waiting_pods", "finished_pods").cast(pl.Float64)
    ready = pods / pl.col("pods_per_replica")
    g = pl.col("gpus_per_replica")
    due = pl.max_horizontal(pl.col("devices_expected"), pl.col("devices_seen"), (ready * pl.col("known_gpus")).round(0))
    base = base.with_columns(ready.alias("ready_replicas"), due.cast(pl.Int64).alias("devices_expected"))
    share = pl.col("devices_seen") / pl.col("devices_expected")
    scale = pl.when(share >= MIN_DEVICE_COVERAGE).then(1 / share)
    by_devices = pl.col("load") * scale / g
    by_running = pl.col("running") / pl.col("max_num_seqs")
    by_rate = pl.col("finished") / pl.when(pl.col("capacity") > 0).then(pl.col("capacity"))

    def enough(signal: pl.Expr) -> pl.Expr:
        buckets = pl.max_horizontal(by_devices.count(), by_running.count()).over("workload")
        return (signal.count().over("workload") >= MIN_SIGNAL_SHARE * buckets) & signal.is_not_null()

    mean = pl.when(share >= MIN_DEVICE_COVERAGE).then(pl.col("load") / pl.col("devices_seen"))
    base = with_work(base.with_columns(by_devices.alias("by_devices"), mean.alias("mean")))
    by_tokens = pl.col("work")
    chosen = (
        pl.when(enough(by_rate))
        .then(pl.lit(RATE_SIGNAL, _SIGNALS))
        .when(enough(by_tokens))
        .then(pl.lit(TOKENS_SIGNAL, _SIGNALS))
        .when(enough(by_running))
        .then(pl.lit(RUNNING_SIGNAL, _SIGNALS))
    )
    base = base.with_columns(chosen.otherwise(pl.col("signal")).alias("signal"))
    rate, tokens, running = (pl.col("signal") == name for name in (RATE_SIGNAL, TOKENS_SIGNAL, RUNNING_SIGNAL))
    measured = (
        pl.when(rate).then(by_rate).when(tokens).then(by_tokens).when(running).then(by_running).otherwise(by_devices)
    )
    positive = pl.when(pl.col("ready_replicas") > 0).then(pl.col("ready_replicas"))
    by_work = rate | tokens | running
    return base.with_columns(
        measured.alias("measured"),
        pl.when(by_work)
        .then((measured / positive).clip(0, 1))
        .otherwise(pl.col("mean"))
        .clip(0, 1)
        .alias("utilization"),
        (pl.col("busy") * scale).alias("busy_gpus"),
        pl.when(rate | tokens)
        .then(pl.lit("high", _CONFIDENCES))
        .when(running)
        .then(pl.lit("medium", _CONFIDENCES))
        .otherwise(pl.col("confidence"))
        .alias("confidence"),
        (pl.col("samples_due") / share).round(0).cast(pl.Int64).alias("samples_expected"),
    )


def _with_demand(base: pl.DataFrame, bucket_seconds: int) -> pl.DataFrame:
    """Mark censored buckets and correct their demand; drop buckets that say nothing."""
    is_censored = censored(pl.col("utilization"), pl.col("waiting"))
    corrected = corrected_demand(
        measured=pl.col("measured"),
        offered_rate=pl.col("finished"),
        capacity=pl.col("capacity"),
        waiting=pl.col("waiting"),
        served_rate=pl.col("finished"),
        ready=pl.col("ready_replicas"),
    )
    rows = base.with_columns(
        pl.when(is_censored).then(corrected).otherwise(pl.col("measured")).alias("demand_replicas"),
        is_censored.alias("censored"),
        pl.lit(bucket_seconds).alias("step_seconds"),
        pl.col("wanted").alias("wanted_replicas"),
        pl.col("finished").alias("offered_rate"),
        pl.col("waiting").alias("waiting_requests"),
        pl.lit("prometheus").alias("source"),
    )
    told = pl.any_horizontal(pl.col("load", "running", "finished", "waiting").is_not_null())
    return rows.filter(told)
