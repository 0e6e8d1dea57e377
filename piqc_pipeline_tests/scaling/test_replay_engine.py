"""The array form of the HPA's arithmetic says what the scalar form says, and the queue keeps its books."""

import numpy as np
import pytest

from piqc_pipeline.scaling.hpa import (
    Fallback,
    HpaMemory,
    HpaSpec,
    Metric,
    Policy,
    Rules,
    Tolerance,
    fallback_metric,
    milli,
    step,
)
from piqc_pipeline.scaling.replay_engine import COUNT, NONE, Controller, Lanes, _State, simulate

UP = Rules(0, (Policy("Pods", 4, 60), Policy("Percent", 100, 60)))
DOWN = Rules(300, (Policy("Pods", 1, 60), Policy("Percent", 25, 60)))


def one_lane(planned, demand, *, observed=NONE, delay=1, most=40.0, follows=True):
    ticks = len(planned)
    column = np.asarray(planned, dtype=np.float64)[:, None]
    return Lanes(
        demand=np.asarray(demand, dtype=np.float64)[:, None],
        column=np.array([0]),
        delay_ticks=np.full((ticks, 1), delay),
        planned=column,
        fallback=np.array([6.0]),
        unlikely=np.zeros((ticks, 1)),
        literal=np.full((ticks, 1), np.nan),
        literal_target=75.0,
        literal_value=np.array([False]),
        follows_plan=np.array([follows]),
        observed=np.array([observed]),
        threshold=np.array([0.8]),
        observed_gap=np.zeros((ticks, 1), dtype=bool),
        least=np.array([1.0]),
        most=np.array([most]),
    )


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(6))
def test_a_lane_moves_as_the_hpa_does_sync_by_sync(seed, tolerance):
    planned = np.repeat(np.random.default_rng(seed).integers(1, 45, 60), 7).astype(float)
    lanes = one_lane(planned, np.full(len(planned), 2.0))
    state = _State(lanes, Controller(tolerance=tolerance))
    spec, memory = HpaSpec(1, 40, UP, DOWN, Tolerance(tolerance, tolerance)), HpaMemory()
    replicas = int(state.wanted[0])
    for tick, asked in enumerate(planned):
        state.serve(tick)
        state.scale(tick)
        replicas = step(spec, memory, tick * 15, (Metric(milli(asked), 1000),), replicas)
        assert int(state.wanted[0]) == replicas, tick


def test_a_failing_plan_blocks_going_down_then_asks_for_the_fallback_or_what_runs():
    planned = np.array([8.0] * 4 + [np.nan] * 12)
    state = _State(one_lane(planned, np.full(16, 1.0), observed=COUNT), Controller(tolerance=0.0))
    counts = []
    for tick in range(16):
        state.serve(tick)
        state.scale(tick)
        counts.append(int(state.wanted[0]))
    # Two at first (1.0/0.8), the plan's eight are reached (four pods a minute: six), then the read fails: it stays, and
    # with the fallback of six never falls below what runs.
    assert counts[0] == 6
    assert min(counts[4:]) >= 6


@pytest.mark.parametrize("seed", range(4))
def test_a_lane_whose_reads_fail_moves_as_keda_and_the_hpa_do(seed):
    random = np.random.default_rng(seed)
    planned = np.repeat(random.integers(1, 20, 20), 9).astype(float)
    planned[np.repeat(random.random(20) < 0.4, 9)] = np.nan
    planned[:9] = 3.0
    state = _State(one_lane(planned, np.full(len(planned), 2.0)), Controller(tolerance=0.0))
    spec, memory = HpaSpec(1, 40, UP, DOWN, Tolerance(0.0, 0.0)), HpaMemory()
    fallback = Fallback(3, 6, "currentReplicasIfHigher")
    replicas, failures = int(state.wanted[0]), 0
    for tick, asked in enumerate(planned):
        state.serve(tick)
        state.scale(tick)
        failures = failures + 1 if np.isnan(asked) else 0
        metric = Metric(None if failures else milli(asked), 1000)
        if failures:
            metric = fallback_metric(metric, fallback, failures, replicas, replicas)
        replicas = step(spec, memory, tick * 15, (metric,), replicas)
        assert int(state.wanted[0]) == replicas, tick


def test_work_is_served_waits_or_is_lost_and_nothing_else():
    demand = np.concatenate([np.full(40, 1.0), np.full(40, 6.0), np.full(40, 1.0)])
    course = simulate(one_lane(np.full(120, 2.0), demand, most=2.0), Controller())
    served = float((course.utilization * course.ready).sum()) * 60
    # What came in 30 minutes is what two replicas served and what gave up; the queue is empty at the end.
    assert served + float(course.lost.sum()) == pytest.approx(float(demand.sum()) * 15, rel=1e-3)
    assert course.utilization.max() == pytest.approx(1.0)
    assert course.wait_seconds.max() == pytest.approx(120.0, rel=0.01)


def test_a_replica_serves_only_after_its_start():
    planned = np.full(40, 4.0)
    course = simulate(one_lane(planned, np.full(40, 0.8), delay=20), Controller())
    # One replica at first; three more are asked for at tick 0 and ready 20 ticks (5 minutes) later.
    assert course.wanted[1, 0] == 4
    assert course.ready[4, 0] == 1
    assert course.ready[6, 0] == 4


def test_removal_drops_replicas_that_are_still_starting_first():
    planned = np.concatenate([np.full(4, 3.0), np.full(60, 1.0)])
    rules = Controller(tolerance=0.0, down_window_ticks=1, period_ticks=1, down_share=1.0)
    lanes = one_lane(planned, np.full(64, 0.8), delay=30)
    course = simulate(lanes, rules)
    assert course.ready.max() == 1
    assert course.wanted[-1, 0] == 1
