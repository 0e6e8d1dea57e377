"""How do one day's samples of devices and engines become rows of the table? Pure arithmetic on frames.

Where samples come from belongs to `prometheus`; formulas of demand to `demand`. A device without
samples is missing, not idle: the seen ones stand for all from 80 % on, below it the figure is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from piqc_pipeline.history.capacity import with_work
from piqc_pipeline.history.demand import MIN_DEVICE_COVERAGE, censored, corrected_demand
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.samples import HISTORY_SCHEMA
from piqc_pipeline.history.signals import DEVICE_SIGNALS, RATE_SIGNAL, RUNNING_SIGNAL, TOKENS_SIGNAL

MIN_SIGNAL_SHARE = 0.8
"""A better signal is taken when it has at least this share of the points of the most complete one."""
SILENT_ZERO_CHECK = 0.05
"""A signal that is zero all day while another one means more than this share is dead, not idle (dcgm-exporter #662)."""
ONE_POD_A_REPLICA = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job", "Pod", "Workload")
HALF = 0.5
"""A pod counts in a bucket in which it was ready at least half of the time."""


@dataclass(frozen=True)
class DaySamples:
    """What one window of at most a day holds. Names are categorical: hundreds of thousands of rows share a few.

    Attributes:
        devices: Columns series, workload, pod, device, gpus (of a physical GPU), ts, value (share), seen, expected
            (samples), signal, confidence; one row a device, signal and bucket; None where there is no device signal.
        missing: workload, pod, ts, ready: pods that hold accelerators, are ready, and have no device sample.
        unready: workload, pod, ts, ready: pods that were ready in a part of the bucket only.
        wanted: workload, ts, wanted: replicas of the owner's spec.
        waiting, running, finished, prompt, generated: workload, pod, ts, value: queue, running requests, finished
            requests/s, prompt and generated tokens/s of an engine's pod.
    """

    devices: pl.DataFrame | None
    missing: pl.DataFrame
    unready: pl.DataFrame
    wanted: pl.DataFrame
    waiting: pl.DataFrame
    running: pl.DataFrame
    finished: pl.DataFrame
    prompt: pl.DataFrame
    generated: pl.DataFrame


def day_rows(samples: DaySamples, inventory: Sequence[WorkloadInventory], bucket_seconds: int) -> pl.DataFrame:
    """Rows of the table for the window; a workload and bucket without any sample has none."""
    facts = _facts(inventory)
    base = _device_rows(samples, facts, bucket_seconds)
    for name in ("waiting", "running", "finished", "prompt", "generated"):
        frame: pl.DataFrame = getattr(samples, name)
        sums = frame.group_by("workload", "ts").agg(pl.col("value").sum().alias(name), pl.len().alias(f"{name}_pods"))
        if sums.is_empty():
            base = base.with_columns(pl.lit(None, pl.Float64).alias(name), pl.lit(None, pl.Int64).alias(f"{name}_pods"))
            continue
        base = base.join(sums, on=["workload", "ts"], how="full", coalesce=True)
    base = base.join(samples.wanted, on=["workload", "ts"], how="left")
    base = base.drop("gpus_per_replica").join(facts, on="workload", how="left")
    base = base.with_columns(
        pl.max_horizontal("known_gpus", "pod_devices").fill_null(pl.col("known_gpus")).alias("gpus_per_replica")
    )
    return _with_demand(_with_engine_signal(base), bucket_seconds)


def _facts(inventory: Sequence[WorkloadInventory]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "workload": entry.id,
                "known_gpus": entry.gpus_per_replica,
                "pods_per_replica": _pods_per_replica(entry),
                "max_num_seqs": float(entry.max_num_seqs) if entry.max_num_seqs else None,
                "capacity": entry.capacity_rate_per_replica,
            }
            for entry in inventory
        ],
        schema={
            "workload": pl.Categorical,
            "known_gpus": pl.Float64,
            "pods_per_replica": pl.Float64,
            "max_num_seqs": pl.Float64,
            "capacity": pl.Float64,
        },
    )


def _pods_per_replica(entry: WorkloadInventory) -> float:
    if entry.kind in ONE_POD_A_REPLICA or not entry.replicas or not entry.pods:
        return 1.0
    return float(max(1, round(len(entry.pods) / entry.replicas)))


def chosen_signals(devices: pl.DataFrame) -> pl.DataFrame:
    """The samples of the best usable signal of each workload (order of `signals.DEVICE_SIGNALS`)."""
    order = {signal.name: rank for rank, signal in enumerate(DEVICE_SIGNALS)}
    if devices["signal"].n_unique() < 2:
        return devices
    stats = devices.group_by("workload", "signal").agg(
        pl.len().alias("points"), pl.col("value").max().alias("top"), pl.col("value").mean().alias("mean")
    )
    usable = stats.with_columns(
        pl.col("signal").cast(pl.String).replace_strict(order, return_dtype=pl.Int32).alias("rank"),
        pl.col("points").max().over("workload").alias("most"),
        pl.col("mean").max().over("workload").alias("busiest"),
    ).filter(
        (pl.col("points") >= MIN_SIGNAL_SHARE * pl.col("most"))
        & ~((pl.col("top") == 0) & (pl.col("busiest") > SILENT_ZERO_CHECK))
    )
    best = usable.sort("workload", "rank").unique("workload", keep="first", maintain_order=True)
    return devices.join(best.select("workload", "signal"), on=["workload", "signal"], how="semi")


def _device_rows(samples: DaySamples, facts: pl.DataFrame, bucket_seconds: int) -> pl.DataFrame:
    """Sums over the devices of ready pods, with the devices seen and expected."""
    if samples.devices is None or samples.devices.is_empty():
        return _no_device_rows()
    devices = chosen_signals(samples.devices)
    partly = samples.unready.filter(pl.col("ready") < HALF).select("workload", "pod", "ts")
    if not partly.is_empty():
        devices = devices.join(partly, on=["workload", "pod", "ts"], how="anti")
    key = ["workload", "pod", "device", "ts"]
    starts = pl.any_horizontal(pl.col(name) != pl.col(name).shift(1) for name in ("workload", "series"))
    series = devices.filter(starts.fill_null(True))  # series lie end to end
    if series.select(pl.struct("workload", "pod", "device").is_duplicated().any()).item():
        # Two jobs scrape the same exporter: one device, not two.
        devices = devices.group_by(key).agg(
            pl.col("value", "gpus").mean(), pl.col("seen", "expected").max(), pl.col("signal", "confidence").first()
        )
    sums = devices.group_by("workload", "ts").agg(
        pl.len().alias("devices_seen"),
        pl.col("value").sum().alias("load"),
        (pl.col("value") * pl.col("gpus")).sum().alias("busy"),
        pl.col("seen").sum().alias("samples_seen"),
        pl.col("expected").sum().alias("samples_due"),
        pl.col("signal", "confidence").first(),
    )
    expected, pod_devices = _expected_devices(devices, samples.missing, partly, bucket_seconds)
    rows = expected.join(sums, on=["workload", "ts"], how="left")  # where a device was seen, its pod was expected
    return rows.join(pod_devices, on="workload", how="left").with_columns(
        pl.lit(None, pl.Float64).alias("gpus_per_replica")
    )


def _expected_devices(
    devices: pl.DataFrame, missing: pl.DataFrame, partly: pl.DataFrame, bucket_seconds: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Devices and ready pods that a bucket should show, and the devices of a usual pod of each workload.

    A pod is expected from its first to its last sample of the window, and wherever kube-state-metrics calls it ready.
    """
    pods = devices.group_by("workload", "pod").agg(
        pl.col("device").n_unique().cast(pl.Int64).alias("n"),
        pl.col("ts").min().alias("first"),
        pl.col("ts").max().alias("last"),
    )
    usual = pods.group_by("workload").agg(pl.col("n").mode().max().cast(pl.Float64).alias("pod_devices"))
    buckets = pl.datetime_ranges("first", "last", interval=f"{bucket_seconds}s").alias("ts")
    # Pods of one span are counted together, because a day of each would be most of the work.
    spans = pods.group_by("workload", "first", "last").agg(
        pl.col("n").sum(), pl.len().cast(pl.Int64).alias("ready_pods")
    )
    counts = [spans.select("workload", buckets, "n", "ready_pods").explode("ts")]
    within = (pl.col("ts") >= pl.col("first")) & (pl.col("ts") <= pl.col("last"))
    silent = missing.filter(pl.col("ready") >= HALF)
    if not silent.is_empty():
        silent = silent.join(pods, on=["workload", "pod"], how="left").filter(~within.fill_null(False))
        more = pl.col("pod_devices").cast(pl.Int64).alias("n")
        silent = silent.join(usual, on="workload")
        counts.append(silent.select("workload", "ts", more, pl.lit(1, pl.Int64).alias("ready_pods")))
    if not partly.is_empty():
        unready = partly.join(pods, on=["workload", "pod"]).filter(within)
        counts.append(unready.select("workload", "ts", -pl.col("n"), pl.lit(-1, pl.Int64).alias("ready_pods")))
    sums = (
        pl.concat(counts)
        .group_by("workload", "ts")
        .agg(pl.col("n").sum().alias("devices_expected"), pl.col("ready_pods").sum())
    )
    expected = sums.filter(pl.col("ready_pods") > 0)
    return expected, usual


def _with_engine_signal(base: pl.DataFrame) -> pl.DataFrame:
    """Ready replicas and measured demand of every bucket, by the best signal that the workload has.

    Order: offered rate / capacity, tokens by their fitted capacity, running requests / max_num_seqs, devices.
    """
    pods = pl.coalesce("ready_pods", "running_pods", "waiting_pods", "finished_pods").cast(pl.Float64)
    ready = pods / pl.col("pods_per_replica").fill_null(1.0)
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
        .then(pl.lit(RATE_SIGNAL))
        .when(enough(by_tokens))
        .then(pl.lit(TOKENS_SIGNAL))
        .when(enough(by_running))
        .then(pl.lit(RUNNING_SIGNAL))
    )
    base = base.with_columns(chosen.otherwise(pl.col("signal").cast(pl.String)).alias("signal"))
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
        .then(pl.lit("high"))
        .when(running)
        .then(pl.lit("medium"))
        .otherwise(pl.col("confidence").cast(pl.String))
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
    return _named(rows.filter(told))


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with workload and cluster as text, sorted by workload and time; sorted by number, because text is slow."""
    ids = sorted(rows["workload"].cast(pl.String).unique())
    names = pl.DataFrame(
        {
            "workload": pl.Series(ids, dtype=pl.Categorical),
            "rank": pl.Series(range(len(ids)), dtype=pl.UInt32),
            "cluster": pl.Series([name.split("/", 1)[0] for name in ids], dtype=pl.String),
        }
    )
    kept = rows.select(name for name in rows.columns if name in HISTORY_SCHEMA)  # half of what would be sorted along
    named = kept.join(names, on="workload").sort("rank", "ts").drop("rank")
    return named.with_columns(pl.col("workload").cast(pl.String))


def _no_device_rows() -> pl.DataFrame:
    floats = ("load", "busy", "pod_devices", "gpus_per_replica")
    integers = ("devices_seen", "samples_seen", "samples_due", "devices_expected", "ready_pods")
    return pl.DataFrame(
        schema={
            "workload": pl.Categorical,
            "ts": pl.Datetime("us", "UTC"),
            **dict.fromkeys(integers, pl.Int64),
            **dict.fromkeys(floats, pl.Float64),
            "signal": pl.Categorical,
            "confidence": pl.Categorical,
        }
    )
