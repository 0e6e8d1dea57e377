"""The source against a real Prometheus: what was filled in comes out, bucket by bucket."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.facts.snapshot_file import write_snapshot
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.openmetrics import GaugeSeries
from piqc_pipeline.history.prometheus import PrometheusSource
from piqc_pipeline.history.store import open_store
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline_tests.history.server import needs_prometheus, prometheus_with
from piqc_pipeline_tests.history.test_snapshots import snapshot

pytestmark = [pytest.mark.service, needs_prometheus]

WORKLOAD = "demo/inference/Deployment/llama-70b"
INVENTORY = (WorkloadInventory(WORKLOAD, "inference", "Deployment", "llama-70b", gpus_per_replica=2),)
DAY_LONG = timedelta(days=1)
POD = "llama-70b-7c9f8d6b54-x2lqk"


def two_weeks() -> pl.DataFrame:
    """Utilization in percent of one workload of the demo's trace, ten-minute steps."""
    load = pl.read_parquet(Path(str(files("piqc_pipeline") / "data" / "load.parquet")))
    rows = load.filter(pl.col("workload") == "inference/llama-70b").sort("ts")
    share = pl.col("offered_rate") / pl.col("capacity_rate_per_replica") / pl.col("ready_replicas")
    return rows.select("ts", (share.clip(0, 1) * 100).alias("pct"))


def gauge(labels: dict[str, str], trace: pl.DataFrame, offset_pct: float = 0.0) -> GaugeSeries:
    """Five samples in each ten minutes of the trace, all of its value."""
    starts = np.repeat(trace["ts"].dt.epoch("s").to_numpy(), 5)
    times = starts + np.tile(np.arange(5) * 120, trace.height)
    return GaugeSeries(labels, times.tolist(), (np.repeat(trace["pct"].to_numpy(), 5) + offset_pct).tolist())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    trace = two_weeks()
    form_of_the_chart = {"pod": "dcgm-exporter-abcde", "namespace": "gpu-operator", "container": "exporter"}
    exported = {"exported_pod": POD, "exported_namespace": "inference", **form_of_the_chart}
    idle = {"UUID": "GPU-9", "gpu": "9", **form_of_the_chart}
    series = [
        gauge({"UUID": "GPU-0", "gpu": "0", "Hostname": "n1", **exported}, trace, 0.4),
        gauge({"UUID": "GPU-1", "gpu": "1", "hostname": "n1", **exported}, trace, -0.4),
        gauge(idle, trace),
    ]
    with prometheus_with(tmp_path_factory.mktemp("prometheus"), {"DCGM_FI_DEV_GPU_UTIL": series}) as (address, _):
        yield address


def test_two_weeks_come_out_as_the_trace_to_a_tenth_of_a_point(url: str) -> None:
    trace = two_weeks()
    start: datetime = trace["ts"].min()  # type: ignore[assignment]
    fetched = PrometheusSource(PrometheusAccess(url)).fetch(start, start + timedelta(days=14), INVENTORY, 600)
    both = fetched.frame.join(trace, on="ts", how="full")
    assert both.height == trace.height
    assert (both["utilization"] * 100 - both["pct"]).abs().max() < 0.1  # type: ignore[operator]
    assert set(fetched.frame["workload"]) == {WORKLOAD}
    assert set(fetched.frame["devices_seen"]) == {2}
    assert set(fetched.frame["samples_seen"]) == {10}
    assert set(fetched.frame["ready_replicas"]) == {1.0}


def test_a_range_asked_in_two_parts_is_the_range_asked_at_once(url: str) -> None:
    source = PrometheusSource(PrometheusAccess(url))
    start: datetime = two_weeks()["ts"].min()  # type: ignore[assignment]
    noon, end = start + timedelta(hours=12), start + timedelta(days=1)
    parts = [source.fetch(start, noon, INVENTORY, 300).frame, source.fetch(noon, end, INVENTORY, 300).frame]
    assert pl.concat(parts).equals(source.fetch(start, end, INVENTORY, 300).frame)


def test_an_error_of_the_real_server_is_one_sentence() -> None:
    with pytest.raises(PrometheusError, match="cannot reach Prometheus at http://127.0.0.1:1: "):
        PrometheusSource(PrometheusAccess("http://127.0.0.1:1")).fetch(
            datetime.fromisoformat("2025-01-06T00:00Z"), datetime.fromisoformat("2025-01-07T00:00Z"), INVENTORY, 300
        )


@pytest.mark.cli
def test_two_commands_that_fetch_the_same_range_at_once_store_the_rows_of_one(url: str, tmp_path: Path) -> None:
    start: datetime = two_weeks()["ts"].min()  # type: ignore[assignment]
    end = start + timedelta(days=4)
    scanned = snapshot()
    workload = replace(scanned.workloads[0], id=WORKLOAD, cluster="demo", name="llama-70b")
    write_snapshot(replace(scanned, workloads=(workload,)), tmp_path / "facts" / "snapshot.json")
    environ = {**os.environ, "PIQC_PROMETHEUS_URL": url, "PIQC_DATA_DIR": str(tmp_path), "PIQC_NOW": end.isoformat()}
    piqc = [sys.executable, "-m", "piqc_pipeline.cli.main", "history", "fetch", "--start", f"{start:%Y-%m-%d}"]

    def started(store: str, first: datetime) -> subprocess.Popen[str]:
        command = [*piqc[:-1], f"{first:%Y-%m-%d}", "--store", str(tmp_path / store)]
        return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    # The whole range, and one that overlaps it; then once alone for comparison.
    both = [started("both.duckdb", start), started("both.duckdb", start), started("both.duckdb", end - 2 * DAY_LONG)]
    for running in (*both, alone := started("alone.duckdb", start)):
        _, told = running.communicate(timeout=120)
        assert running.returncode == 0, told
    assert alone.returncode == 0
    rows = [open_store(tmp_path / name).read() for name in ("both.duckdb", "alone.duckdb")]
    assert rows[0].height == 4 * 288
    assert rows[0].equals(rows[1])
