"""How fast is history? The store at 26 million rows, and a week of 1,000 series out of a real Prometheus.

    python benchmarks/history.py            both parts (about five minutes, 1 GB of disk, Debian's `prometheus`)
    python benchmarks/history.py --days 10  a smaller table

Wall and CPU seconds are printed beside each other: on a machine that does something else only the latter mean much.
Every figure contains attaching the file and detaching it; `first` is the first of the tries, the others find the file
in the system's cache.
"""

import argparse
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import polars as pl

from piqc_pipeline.history.fill import fill
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.openmetrics import GaugeSeries, write_openmetrics
from piqc_pipeline.history.prometheus import PrometheusSource
from piqc_pipeline.history.samples import conform
from piqc_pipeline.history.store import open_store
from piqc_pipeline.prometheus.access import PrometheusAccess

START = datetime(2025, 1, 6, tzinfo=UTC)
DAY = timedelta(days=1)
WORKLOADS = 1000
BUCKETS = 288


def timed(label: str, limit: str, act: Callable[[], object], times: int = 1) -> None:
    wall, cpu = [], []
    for _ in range(times):
        began, used = time.perf_counter(), time.process_time()
        act()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    first = f", first {wall[0]:.3f} s" if times > 1 else ""
    print(f"{label:55} wall {min(wall):7.3f} s  cpu {min(cpu):7.3f} s{first}  (asked: {limit})", flush=True)


def fleet_day(day: datetime, random: np.random.Generator) -> pl.DataFrame:
    """288,000 rows: a day of 1,000 workloads of two replicas with four GPUs."""
    rows = WORKLOADS * BUCKETS
    stamps = pl.datetime_range(day, day + DAY, "5m", closed="left", time_zone="UTC", eager=True)
    names = pl.Series([f"prod/team-{i % 20}/Deployment/model-{i:04}" for i in range(WORKLOADS)]).sort()
    grid = names.to_frame("workload").join(stamps.to_frame("ts"), how="cross")
    share = np.clip(np.repeat(random.uniform(0.1, 0.8, WORKLOADS), BUCKETS) + random.normal(0, 0.1, rows), 0, 1)
    return conform(
        grid.with_columns(
            cluster=pl.lit("prod"),
            step_seconds=pl.lit(300),
            utilization=share,
            ready_replicas=pl.lit(2.0),
            gpus_per_replica=pl.lit(4.0),
            demand_replicas=share * 2,
            busy_gpus=share * 8,
            offered_rate=share * 30,
            signal=pl.lit("DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
            confidence=pl.lit("medium"),
            samples_seen=pl.lit(80),
            samples_expected=pl.lit(80),
            devices_seen=pl.lit(8),
            devices_expected=pl.lit(8),
            censored=pl.Series(share > 0.95),
            source=pl.lit("prometheus"),
        )
    )


def store_part(folder: Path, days: int) -> None:
    random = np.random.default_rng(1)
    path = folder / "history.duckdb"
    store = open_store(path)
    began = time.perf_counter()
    for number in range(days):
        day = START + number * DAY
        store.replace(day, day + DAY, fleet_day(day, random))
    rows = days * WORKLOADS * BUCKETS
    print(f"{rows:,} rows filled day by day in {time.perf_counter() - began:.1f} s")
    print(f"file: {path.stat().st_size / rows:.1f} bytes a row (asked: under 20)")
    day, end = START + (days // 2) * DAY, START + days * DAY
    again = [fleet_day(day, random) for _ in range(3)]
    timed(
        "a day of 288,000 rows replaced by other values", "0.1 s", lambda: store.replace(day, day + DAY, again.pop()), 3
    )
    same = store.read(day, day + DAY)
    timed("the same day again", "0.1 s", lambda: store.replace(day, day + DAY, same), 3)
    # Rows are of 5 minutes already; other widths need time_bucket, which alone costs as much again.
    mean = "SELECT ts, avg(utilization) FROM gpu_utilization GROUP BY ts"
    hourly = "SELECT time_bucket(INTERVAL 1 HOUR, ts) AS t, avg(utilization) FROM gpu_utilization GROUP BY t"
    timed(f"fleet mean of {days} days in 5 minutes", "0.3 s", lambda: store.query(mean), 3)
    timed(f"fleet mean of {days} days in hours", "-", lambda: store.query(hourly), 3)
    one = ["prod/team-7/Deployment/model-0507"]
    timed("28 days of one workload", "0.02 s", lambda: store.read(end - 28 * DAY, end, one), 5)
    print(f"file after replacing: {path.stat().st_size / rows:.1f} bytes a row")


def prometheus_part(folder: Path, series: int, days: int) -> None:
    random = np.random.default_rng(2)
    times = (START.timestamp() + 300 * np.arange(days * BUCKETS)).tolist()
    hours = times[::12]
    pods = [(f"model-{i // 2:03}-7c9f8d6b54-{'bcdfghjklm'[i % 10]}x2lq", f"model-{i // 2:03}") for i in range(series)]

    def gauges() -> object:
        for number, (pod, _) in enumerate(pods):
            labels = {
                "UUID": f"GPU-{number}",
                "gpu": "0",
                "Hostname": f"n{number // 8}",
                "namespace": "llm",
                "pod": pod,
            }
            labels |= {
                "modelName": "NVIDIA H100 80GB HBM3",
                "job": "dcgm-exporter",
                "instance": f"10.0.0.{number // 8}:9400",
            }
            yield GaugeSeries(labels, times, np.round(random.uniform(0, 100, len(times))).tolist())

    owners = [
        GaugeSeries(
            {"namespace": "llm", "pod": pod, "owner_kind": "ReplicaSet", "owner_name": f"{name}-7c9f8d6b54"},
            hours,
            [1] * len(hours),
        )
        for pod, name in pods
    ]
    sets = [
        GaugeSeries(
            {"namespace": "llm", "replicaset": f"{name}-7c9f8d6b54", "owner_kind": "Deployment", "owner_name": name},
            hours,
            [1] * len(hours),
        )
        for name in dict.fromkeys(name for _, name in pods)
    ]
    text = folder / "series.om"
    with text.open("w") as stream:
        write_openmetrics(
            stream,
            {"DCGM_FI_DEV_GPU_UTIL": gauges(), "kube_pod_owner": owners, "kube_replicaset_owner": sets},  # type: ignore[dict-item]
        )
    blocks = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "--max-block-duration=168h",
        "openmetrics",
        str(text),
        str(folder / "tsdb"),
    ]
    subprocess.run(blocks, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
         "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            try:
                if httpx.get(f"{url}/-/ready", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.1)
        inventory = [
            WorkloadInventory(f"prod/llm/Deployment/{name}", "llm", "Deployment", name, gpus_per_replica=1.0)
            for name in dict.fromkeys(name for _, name in pods)
        ]
        end = START + days * DAY
        store = open_store(folder / "filled.duckdb")
        source = PrometheusSource(PrometheusAccess(url))
        timed(
            f"{series} series x {days} days from Prometheus into the table",
            "6 s for 1,000 x 7",
            lambda: fill(store, source, START, end, inventory, 300, end + DAY),
        )
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows = store.query("SELECT count(*) AS n FROM gpu_utilization")["n"][0]
        print(f"rows: {rows:,} (expected {len(inventory) * days * BUCKETS:,})")
        print(f"peak memory {memory:.0f} MiB (asked: under 500)")
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--days", type=int, default=90, help="days of the table (288,000 rows each); 0 leaves this part out"
    )
    parser.add_argument("--series", type=int, default=1000, help="series in Prometheus; 0 leaves this part out")
    parser.add_argument("--weeks", type=int, default=1, help="weeks of them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.series and shutil.which("promtool"):
            prometheus_part(Path(name), options.series, 7 * options.weeks)
        elif options.series:
            print("no promtool on PATH (Debian: apt-get install prometheus): that part is left out")
        if options.days:
            store_part(Path(name), options.days)


if __name__ == "__main__":
    main()
