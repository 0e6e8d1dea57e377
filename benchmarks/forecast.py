"""How fast are forecasts made and refreshed? Each figure stands beside a reference measured in the same run.

    OPENBLAS_NUM_THREADS=1 python benchmarks/forecast.py [--series 9] [--workloads 1000] [--trace FILE.parquet]

CPU time of this process and its children counts (Prophet's fits run in a child); wall time would measure the neighbors.
Absolute figures depend on the machine, ratios hardly.
"""

import argparse
import itertools
import os
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from piqc_pipeline.forecast import refresh as refreshing
from piqc_pipeline.forecast.combine import Buckets
from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.prophet import SPECIFICATION, fit_model, fit_prophet
from piqc_pipeline.forecast.members.residuals import fit_coefficients
from piqc_pipeline.forecast.members.seasons import fit_profile, fit_ridge
from piqc_pipeline.forecast.model import WorkloadForecast
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.shards import train_in_processes
from piqc_pipeline.forecast.train import train_one

START = datetime(2025, 1, 6, tzinfo=UTC)
DAYS, STEP = 28, 300
GOALS = {"with Prophet": 600, "without": 6000}


def cpu_seconds() -> float:
    """CPU time of this process and of its finished children."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def per_call(function: Callable[[], object], calls: int, rounds: int = 3) -> float:
    """CPU seconds of one call; the fastest of some rounds, since neighbors only ever slow it down."""
    best, each = float("inf"), max(1, calls // rounds)
    for _ in range(rounds):
        began = cpu_seconds()
        for _ in range(each):
            function()
        best = min(best, (cpu_seconds() - began) / each)
    return best


def made_up(number: int, days: int = DAYS) -> DemandSeries:
    """A daily wave with a wandering level, noise and a weekend: 5-minute steps."""
    random = np.random.default_rng(number)
    size = days * 86_400 // STEP
    hours = np.arange(size) * STEP / 3600
    weekend = np.where((hours // 24) % 7 >= 5, 0.6, 1.0)
    wander = 0.05 * np.cumsum(random.normal(0, 0.05, size))
    demand = np.maximum(0.0, weekend * (4 + 2 * np.sin(2 * np.pi * hours / 24)) + wander + random.normal(0, 0.2, size))
    return DemandSeries(f"c/ns/Deployment/w{number:04d}", START, STEP, demand, np.full(size, 8.0))


def from_trace(path: Path) -> list[DemandSeries]:
    """Series of a tidy trace, or none with a message if it is not there."""
    if not path.exists():
        print(f"no trace at {path}; made-up series are used")
        return []
    import polars as pl

    from piqc_pipeline.forecast.series import series_from_trace

    return [one for one in series_from_trace(pl.read_parquet(path)) if len(one.demand) >= 8 * one.steps_per_day]


def nightly_fits(series: DemandSeries, with_prophet: bool) -> Callable[[], object]:
    """The nightly stage of the design: every member fitted at one cutoff, with a week of earlier nights kept."""
    grid = prepare(series)
    end, buckets = len(grid.values), Buckets.of(grid.step_seconds)
    nights: list[Night] = []
    for back in range(7, 0, -1):
        night = Night(grid, end - back * grid.day, earlier=tuple(nights))
        night.seasons.update({"ridge": fit_ridge(night), "profile": fit_profile(night)})
        fit_coefficients(night, "ridge", buckets), fit_coefficients(night, "profile", buckets)
        nights.append(night)

    def stage() -> None:
        night = Night(grid, end, earlier=tuple(nights))
        night.seasons.update({"ridge": fit_ridge(night), "profile": fit_profile(night)})
        for name in ("ridge", "profile"):
            fit_coefficients(night, name, buckets)
        if with_prophet:
            fit_prophet(night)

    return stage


def refreshes(series: DemandSeries) -> tuple[dict[str, Callable[[], object]], Callable[[], object]]:
    """Refreshes with one new bucket and two windows, and the reference: one `Prophet.predict` of the 48 h."""
    trained = series.until(series.end - timedelta(hours=6))
    entry = train_one(trained, trained.end, TrainPolicy(with_prophet=True, prophet_nights=1)).forecast
    state = refreshing.live_of(entry)
    miss = state.misses[0]
    state = replace(state, misses=(miss, replace(miss, steps=6, past=replace(miss.past, steps=6))))
    whole = len(entry.table.q50) + miss.steps

    def following(ahead: int, with_table: bool) -> Callable[[], object]:
        live, fresh = state, itertools.cycle(series.demand[len(trained.demand) :].tolist())

        def one() -> None:
            nonlocal live
            until = live.until
            live = refreshing.observe(live, until, [next(fresh)], ahead)
            if with_table:
                refreshing.refreshed(entry, live, until)

        return one

    ours = {
        "5 h": following(state.buckets.horizon, with_table=False),
        "48 h": following(whole, with_table=False),
        "48 h and their table": following(whole, with_table=True),
    }
    grid = prepare(trained)
    fitted = fit_model(Night(grid, len(grid.values)), SPECIFICATION)
    assert fitted is not None
    import pandas as pd

    seconds = grid.seconds(np.arange(len(grid.values), len(grid.values) + 576))
    frame = pd.DataFrame({"ds": (seconds * 1e3).astype("datetime64[ms]")})
    return ours, lambda: fitted[0].predict(frame)


def resident_bytes() -> int:
    """Resident memory of this process and its children, shared pages counted once a process."""
    total = 0
    me = os.getpid()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status = (entry / "status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if int(entry.name) == me or int(fields["PPid"]) == me:
            total += int(fields.get("VmRSS", "0 kB").split()[0]) * 1024
    return total


def many(workloads: int, processes: int, with_prophet: bool) -> None:
    """Trains many workloads in processes, two nights, and prints the highest memory of all of them together."""
    end = made_up(0).end
    before = night(workloads, processes, with_prophet, end - timedelta(days=1), None)
    night(workloads, processes, with_prophet, end, before)


def night(
    workloads: int, processes: int, with_prophet: bool, end: datetime, before: dict[str, WorkloadForecast] | None
) -> dict[str, WorkloadForecast]:
    """One night of many workloads; `before` is emptied."""
    highest, done = 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.5):
            highest = max(highest, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    series = (made_up(number) for number in range(workloads))
    policy = TrainPolicy(with_prophet=with_prophet, prophet_nights=1)
    began, cpu = time.monotonic(), cpu_seconds()
    which = "first night" if before is None else "the night after"
    candidate = train_in_processes(series, end, policy, workers=processes, previous=before)
    wall, cpu = time.monotonic() - began, cpu_seconds() - cpu
    done.set()
    watcher.join()
    prophet = "on" if with_prophet else "off"
    print(
        f"{workloads} workloads in {processes} processes, Prophet {prophet}, {which}: {wall:.0f} s wall, "
        f"{cpu:.0f} s CPU, {highest / 2**20:.0f} MiB together (goal: under 1024), {len(candidate.failed)} failed"
    )
    return dict(candidate.workloads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=9, help="series timed for each figure")
    parser.add_argument("--workloads", type=int, default=0, help="also train this many in two processes")
    parser.add_argument("--no-prophet", action="store_true", help="for --workloads")
    parser.add_argument(
        "--trace", type=Path, default=Path(os.environ.get("PIQC_BENCHMARK_TRACE", "../shared/data/traces/nab.parquet"))
    )
    arguments = parser.parse_args()
    series = (from_trace(arguments.trace) or [made_up(0)])[-1].last_days(DAYS)
    print(f"series: {series.workload}, {len(series.demand)} buckets of {series.step_seconds} s")

    began = cpu_seconds()
    grid = prepare(series)
    fit_model(Night(grid, len(grid.values)), SPECIFICATION)
    plain = per_call(lambda: fit_model(Night(grid, len(grid.values)), SPECIFICATION), 3)
    print(f"reference: Prophet with its defaults, fitted at {series.step_seconds} s on two weeks: {plain * 1e3:.0f} ms")
    for label, with_prophet in (("with Prophet", True), ("without", False)):
        seconds = per_call(nightly_fits(series, with_prophet), arguments.series * (1 if with_prophet else 5))
        print(
            f"nightly fits {label}: {seconds * 1e3:.1f} ms, {60 / seconds:.0f} series/min on one core "
            f"(goal {GOALS[label]}), {plain / seconds:.1f} times as fast as the reference"
        )
    for label, with_prophet in (("with Prophet", True), ("without", False)):
        policy = TrainPolicy(with_prophet=with_prophet)
        previous = train_one(series, series.end - timedelta(days=1), policy).forecast
        for night, kept in (("first, all days replayed", None), ("every night after", previous)):
            seconds = per_call(lambda policy=policy, kept=kept: train_one(series, series.end, policy, kept), 9)
            print(
                f"whole night {label}, {night} (fits, replay, scores, state, table): {seconds * 1e3:.1f} ms, "
                f"{60 / seconds:.0f} series/min"
            )
        size = len(TypeAdapter(WorkloadForecast).dump_json(previous, by_alias=True))
        print(f"its entry in the artifact: {size / 1024:.0f} KiB")
    trained = series.until(series.end - timedelta(days=1))
    entry = train_one(trained, trained.end, TrainPolicy(with_prophet=False)).forecast
    missed = series.demand[len(trained.demand) :].tolist()
    seconds = per_call(lambda: refreshing.observe(refreshing.live_of(entry), entry.data_until, missed), 9)
    print(f"a day of missed buckets after a restart: {seconds * 1e3:.1f} ms")
    ours, predict = refreshes(series)
    reference = per_call(predict, 60)
    for what, refresh in ours.items():
        seconds = per_call(refresh, 480, rounds=10)
        print(
            f"refresh with two windows, {what}: {seconds * 1e3:.2f} ms (goal 1), "
            f"{reference / seconds:.0f} times as fast as one Prophet.predict of 48 h ({reference * 1e3:.0f} ms)"
        )
    print(f"({cpu_seconds() - began:.0f} s CPU)")
    if arguments.workloads:
        many(arguments.workloads, 2, not arguments.no_prophet)


if __name__ == "__main__":
    main()
