"""Each score on minutes whose figure can be counted."""

from dataclasses import replace

import numpy as np
import pytest

from piqc_pipeline.scaling.replay_scores import (
    Minutes,
    achievable,
    achievable_share,
    at_equal_hours,
    late_descents,
    reversals,
    run_lengths,
    score,
)


def minutes(utilization, wanted=4.0, demand=3.0):
    size = len(utilization)
    count = np.full(size, wanted) if np.isscalar(wanted) else np.asarray(wanted, dtype=np.float64)
    work = np.full(size, demand) if np.isscalar(demand) else np.asarray(demand, dtype=np.float64)
    return Minutes(
        np.asarray(utilization, dtype=np.float64),
        count,
        count,
        np.zeros(size),
        np.zeros(size),
        work,
        np.ones(size, bool),
    )


def test_the_longest_run_and_runs_over_ten_minutes_are_counted_outside_of_the_maximum():
    used = np.full(1440, 0.75)
    used[100:109] = 0.95
    used[200:215] = 0.95
    value = score(minutes(used), 1.0, 2.0, 1, 10, 300)
    assert (value.minutes_over_90, value.runs_over_10, value.longest_run_minutes) == (24, 1, 15)
    assert (value.gpu_hours, value.usd) == (96.0, 192.0)
    at_most = score(minutes(used), 1.0, None, 1, 4, 300)
    assert (at_most.minutes_over_90_at_max, at_most.runs_over_10, at_most.usd) == (24, 0, None)


def test_what_nobody_measured_has_no_score():
    unseen = replace(minutes(np.full(1440, 0.75)), known=np.zeros(1440, bool))
    value = score(unseen, 1.0, 2.0, 1, 10, 300)
    assert (value.lost_share, value.in_band, value.mean_utilization, value.mean_replicas) == (None,) * 4
    assert achievable_share(unseen, 1, 10) is None
    idle = score(minutes(np.zeros(1440), demand=0.0), 1.0, None, 1, 10, 300)
    assert (idle.lost_share, idle.mean_utilization) == (None, 0.0)


@pytest.mark.parametrize(("demand", "possible"), [(3.0, True), (0.6, False), (1.0, False), (4.1, False), (4.3, True)])
def test_small_fleets_have_holes_in_the_band(demand, possible):
    # Holes of whole counts: under 0.7, (0.8, 1.4), (1.6, 2.1), (2.4, 2.8), (3.2, 3.5), (4.0, 4.2), (4.8, 4.9).
    assert bool(achievable(np.array([demand]), 1, 100)[0]) is possible


def test_runs_are_lengths_of_true():
    assert run_lengths(np.array([1, 1, 0, 1, 0, 0, 1, 1, 1], dtype=bool)).tolist() == [2, 1, 3]


def test_a_change_back_within_a_quarter_of_an_hour_is_a_reversal():
    assert reversals(np.array([3.0] * 5 + [4.0] * 10 + [3.0] * 5)) == 1
    assert reversals(np.array([3.0] * 5 + [4.0] * 30 + [3.0] * 5)) == 0


def test_replicas_that_stay_up_after_a_fall_are_a_late_descent():
    demand = np.concatenate([np.full(300, 6.0), np.full(300, 1.0)])
    used = np.full(600, 0.5)
    assert late_descents(minutes(used, 8.0, demand), 300, 1) >= 1
    wanted = np.where(np.arange(600) < 305, 8.0, 2.0)
    assert late_descents(minutes(used, wanted, demand), 300, 1) == 0


def test_equal_hours_reads_the_reactive_line_between_its_points():
    ours, reactive = at_equal_hours(
        np.array([15.0]), np.array([30.0]), np.array([[10.0], [20.0]]), np.array([[100.0], [20.0]])
    )
    assert (ours[0], reactive[0]) == (30.0, 60.0)
