"""The HPA's arithmetic: golden cases (each read off a live HPA of Kubernetes 1.36), windows, policies, fallback."""

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
    largest_reachable,
    milli,
    recommend,
    step,
)


def metric(value, target, kind="AverageValue"):
    return Metric(None if value is None else milli(value), milli(target), kind)


GOLDEN = [
    pytest.param("AverageValue", 100, 75, 1, 2, id="the specification's ceiling"),
    pytest.param("AverageValue", 100, 75, 2, 2, id="ceil(1.33) again"),
    pytest.param("AverageValue", 82.5, 75, 1, 1, id="ratio 1.1 is inside"),
    pytest.param("AverageValue", 82.6, 75, 1, 2, id="just outside"),
    pytest.param("AverageValue", 75, 75, 2, 1, id="ratio 0.5"),
    pytest.param("AverageValue", 11, 1, 10, 10, id="dead zone from 10 up"),
    pytest.param("AverageValue", 12, 1, 10, 12, id="two more are seen"),
    pytest.param("AverageValue", 9, 1, 10, 10, id="dead zone down"),
    pytest.param("AverageValue", 10, 1, 9, 10, id="ratio 1.11"),
    pytest.param("AverageValue", 3.5, 0.8, 4, 4, id="ratio 1.09: 87.5 percent stands"),
    pytest.param("AverageValue", 3.6, 0.8, 4, 5, id="ratio 1.125"),
    pytest.param("AverageValue", 2.4, 0.8, 4, 3, id="milli-units: 2400/800, floats give 2.9999"),
    pytest.param("Value", 100, 75, 4, 6, id="ceil(5.33)"),
    pytest.param("Value", 60, 75, 10, 8, id="a forecast that decays"),
    pytest.param("Value", 60, 75, 4, 4, id="ceil(3.2): stuck"),
]


@pytest.mark.parametrize(("kind", "value", "target", "replicas", "expected"), GOLDEN)
def test_one_metric_gives_the_live_hpas_number(kind, value, target, replicas, expected):
    assert recommend((metric(value, target, kind),), replicas) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(3, 5, id="an invalid metric blocks going down"),
        pytest.param(7, 7, id="but not going up"),
    ],
)
def test_two_metrics_one_of_them_invalid(value, expected):
    spec, memory = HpaSpec(1, 100), HpaMemory()
    assert step(spec, memory, 0, (metric(value, 1), metric(None, 1)), 5) == expected


def test_a_forecast_under_value_decays_and_sticks():
    counts, replicas = [], 10
    for _ in range(6):
        replicas = recommend((metric(60, 75, "Value"),), replicas)
        counts.append(replicas)
    assert counts == [8, 7, 6, 5, 4, 4]


def test_a_forecast_under_value_runs_away():
    counts, replicas = [], 4
    for _ in range(4):
        replicas = recommend((metric(100, 75, "Value"),), replicas)
        counts.append(replicas)
    assert counts == [6, 8, 11, 15]


def test_the_largest_of_several_metrics_wins_and_all_invalid_changes_nothing():
    assert recommend((metric(3, 1), metric(7, 1)), 5) == 7
    assert recommend((metric(None, 1), metric(None, 1)), 5) is None


def test_value_counts_ready_pods_and_cannot_rise_without_any():
    assert recommend((metric(150, 75, "Value"),), 4, ready=2) == 4
    assert recommend((metric(150, 75, "Value"),), 4, ready=0) == 0  # kubernetes #130130
    assert recommend((metric(150, 75, "Value"),), 0) == 2


def test_tolerance_is_per_direction():
    up_only = Tolerance(up=0.0, down=0.1)
    assert recommend((metric(11, 1),), 10, tolerance=up_only) == 11
    assert recommend((metric(9, 1),), 10, tolerance=up_only) == 10
    assert recommend((metric(10.9, 1),), 10, tolerance=Tolerance(0, 0)) == 11


def test_milli_values_are_rounded_up_as_quantities_are():
    assert (milli(0.8), milli("2.4"), milli(0.0001), milli(1e12)) == (800, 2400, 1, 10**15)


def run(spec, values, replicas, every=15):
    memory, counts = HpaMemory(), []
    for index, value in enumerate(values):
        replicas = step(spec, memory, index * every, (metric(value, 1),), replicas)
        counts.append(replicas)
    return counts


def test_down_waits_for_the_window_then_falls_at_once_by_default():
    # 300 s window: the eight of second 0 counts until it is 300 s old, at second 300 it no longer does.
    counts = run(HpaSpec(1, 20), [8] + [2] * 21, 8)
    assert counts[:20] == [8] * 20
    assert counts[20] == 2


def test_policies_limit_how_fast_replicas_leave():
    down = Rules(0, (Policy("Pods", 1, 60), Policy("Percent", 25, 60)))
    # Of 8: 25 % or 1 a minute, the larger removal: 8 -> 6, then 6 * 0.75 = 4.5 -> 4, then 3, 2, 1.
    counts = run(HpaSpec(1, 20, down=down), [1] * 6, 8, every=60)
    assert counts == [6, 4, 3, 2, 1, 1]


def test_within_one_period_the_start_of_the_period_counts():
    down = Rules(0, (Policy("Percent", 25, 60),))
    assert run(HpaSpec(1, 20, down=down), [1] * 6, 8, every=15) == [6, 6, 6, 6, 4, 4]


def test_up_policies_take_the_larger_and_min_the_smaller():
    most = Rules(0, (Policy("Percent", 100, 60), Policy("Pods", 4, 60)))
    assert run(HpaSpec(1, 100, up=most), [50] * 3, 2, every=60) == [6, 12, 24]
    least = Rules(0, most.policies, "Min")
    assert run(HpaSpec(1, 100, up=least), [50] * 3, 2, every=60) == [4, 8, 12]


def test_a_disabled_direction_does_not_move():
    fixed = Rules(0, (Policy("Pods", 4, 60),), "Disabled")
    assert run(HpaSpec(1, 100, up=fixed), [50] * 2, 2) == [2, 2]


def test_an_up_window_takes_the_smallest_recommendation():
    up = Rules(60, (Policy("Pods", 100, 15),))
    # The two replicas that were found count for 60 s, then the four of second 30 until second 90.
    assert run(HpaSpec(1, 100, up=up), [9, 9, 4, 9, 9, 9, 9], 2) == [2, 2, 2, 2, 4, 4, 9]
    assert run(HpaSpec(1, 100, up=up), [2, 9, 9, 9, 9, 9], 2) == [2, 2, 2, 2, 9, 9]


def test_a_controller_that_starts_anew_keeps_what_it_finds_for_the_window():
    # horizontal.go, recordInitialRecommendation: the count found is the first recommendation.
    counts = run(HpaSpec(1, 20), [2] * 22, 8)
    assert counts[:20] == [8] * 20
    assert counts[20] == 2


def test_limits_come_before_metrics():
    assert step(HpaSpec(3, 10), HpaMemory(), 0, (metric(None, 1),), 2) == 3
    assert step(HpaSpec(3, 10), HpaMemory(), 0, (metric(20, 1),), 12) == 10
    assert step(HpaSpec(3, 10), HpaMemory(), 0, (metric(20, 1),), 0) == 0
    assert step(HpaSpec(3, 10), HpaMemory(), 0, (metric(20, 1),), 9) == 10


@pytest.mark.parametrize(
    ("behavior", "current", "asked"),
    [
        ("static", 8, 6),
        ("currentReplicas", 8, 8),
        ("currentReplicasIfHigher", 8, 8),
        ("currentReplicasIfHigher", 3, 6),
        ("currentReplicasIfLower", 8, 6),
        ("currentReplicasIfLower", 3, 3),
    ],
)
def test_fallback_asks_for_replicas_after_more_than_the_threshold(behavior, current, asked):
    fallback = Fallback(3, 6, behavior)
    failing = metric(None, 1)
    assert fallback_metric(failing, fallback, 3, current, current).value_milli is None
    assert fallback_metric(failing, fallback, 4, current, current).value_milli == asked * 1000


def test_fallback_of_a_value_metric_divides_by_ready_and_fails_without_any():
    fallback = Fallback(3, 6)
    assert fallback_metric(metric(None, 75, "Value"), fallback, 4, 3, 4).value_milli == 112_500
    assert fallback_metric(metric(None, 75, "Value"), fallback, 4, 3, 0).value_milli is None


def test_without_fallback_the_error_goes_on():
    assert fallback_metric(metric(None, 1), None, 99, 3, 3).value_milli is None


@pytest.mark.parametrize(
    ("kind", "largest", "target", "reachable"),
    [("AverageValue", 100, 75, 2), ("AverageValue", 100, 100, 1), ("Value", 100, 75, None), ("Value", 1, 0.95, 1)],
)
def test_the_most_that_a_bounded_metric_can_ask_for(kind, largest, target, reachable):
    assert largest_reachable(kind, milli(largest), milli(target)) == reachable
