from datetime import timedelta

import polars as pl

from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.rows import DaySamples, day_rows
from piqc_pipeline_tests.history.rows import DAY

CHAT = WorkloadInventory("prod/llm/Deployment/chat", "llm", "Deployment", "chat", gpus_per_replica=2.0)
STEP = 300


def of_pods(column: str, *told: tuple[str, int, float]) -> pl.DataFrame:
    """One row a pod, number of its bucket, and value."""
    return pl.DataFrame(
        [(CHAT.id, pod, DAY + timedelta(seconds=STEP * bucket), value) for pod, bucket, value in told],
        schema={
            "workload": pl.Categorical,
            "pod": pl.Categorical,
            "ts": pl.Datetime("us", "UTC"),
            column: pl.Float64,
        },
        orient="row",
    )


def devices(*told: tuple[str, int]) -> pl.DataFrame:
    """Two devices at 0.5 for each pod and number of its bucket."""
    series = [(pod, name) for pod in sorted({pod for pod, _ in told}) for name in ("0", "1")]
    parts = []
    for number, (pod, name) in enumerate(series):
        own = of_pods("value", *((pod, bucket, 0.5) for whose, bucket in told if whose == pod))
        parts.append(own.with_columns(series=pl.lit(number, pl.Int32), device=pl.lit(f"{pod}/{name}", pl.Categorical)))
    same = {"seen": pl.lit(10, pl.Int32), "expected": pl.lit(10, pl.Int32), "gpus": pl.lit(1.0)}
    signal = {"signal": pl.lit("DCGM_FI_DEV_GPU_UTIL", pl.Categorical), "confidence": pl.lit("low", pl.Categorical)}
    return pl.concat(parts).with_columns(**same, **signal)


def test_unready_pods_are_not_expected_and_ready_ones_without_samples_are() -> None:
    none = of_pods("value")
    samples = DaySamples(
        # Pod b has no samples after the first bucket.
        devices=devices(("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1), ("c", 2)),
        missing=of_pods("ready", ("b", 1, 1.0), ("b", 2, 0.2)),
        unready=of_pods("ready", ("a", 1, 0.3), ("b", 2, 0.2)),
        wanted=pl.DataFrame(schema={"workload": pl.Categorical, "ts": pl.Datetime("us", "UTC"), "wanted": pl.Float64}),
        waiting=none,
        running=none,
        finished=none,
        prompt=none,
        generated=none,
    )
    told = day_rows(samples, (CHAT,), STEP).select("devices_seen", "devices_expected", "ready_replicas").rows()
    assert told == [(6, 6, 3.0), (2, 4, 2.0), (4, 4, 2.0)]
