"""Items 11 to 17 of the control rule, worked out by hand."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.scaling.plan import LiveState, limit_of_removal, plan_workload, replicas_for
from piqc_pipeline_tests.scaling.plans import NOW, POLICY, forecast, limits

LIMITS = limits(min_replicas=1, max_replicas=10, max_reason="8 nodes", gpus_per_replica=2.0)


@pytest.mark.parametrize(
    ("demand", "utilization", "replicas"),
    [
        pytest.param(2.4, 0.8, 3, id="floats give 2.9999999999999996"),
        pytest.param(2.41, 0.8, 4, id="just above three"),
        pytest.param(0.0, 0.8, 0, id="nothing to do"),
        pytest.param(3.6, 0.9, 4, id="floats give 4 exactly"),
    ],
)
def test_replicas_are_the_fewest_that_stay_at_or_under_the_utilization(demand, utilization, replicas):
    assert replicas_for(demand, utilization) == replicas


@pytest.mark.parametrize(
    ("q50", "q90", "live", "replicas", "binding"),
    [
        pytest.param(
            4.4, 5.1, None, 6, "fcq", id="q90 5.1/0.9 = 5.67; median 4.4/0.8 = 5.5: both 6, the quantile is named"
        ),
        pytest.param(4.4, 4.5, None, 6, "fc50", id="median 5.5 -> 6 beats quantile 5"),
        pytest.param(1.0, 1.2, 3.3, 5, "observed", id="live 3.3/0.8 = 4.1"),
        pytest.param(0.1, 0.2, 0.1, 2, "min", id="one would do, two are the minimum"),
        pytest.param(12.0, 15.0, 12.0, 10, "max", id="17 wanted, ten allowed"),
    ],
)
def test_the_largest_term_decides_and_is_named(q50, q90, live, replicas, binding):
    plan = plan_workload(forecast([q50], [q90]), live, replace(LIMITS, min_replicas=2), POLICY, NOW)
    assert (plan.now.replicas, plan.now.binding) == (replicas, binding)


def test_the_explanation_names_numbers_a_person_can_check():
    plan = plan_workload(forecast([4.4], [5.1]), None, LIMITS, POLICY, NOW)
    assert plan.now.explain == (
        "6 replicas: within 10 min demand stays under 5.10 replicas with probability 0.9, at 90% utilization"
    )


def test_without_an_accepted_forecast_the_plan_stays_reactive_and_says_why():
    rejected = replace(forecast([9.0], [9.0]), accepted=False, reasons=("mae_below_10_pp: 14.2 of at most 10",))
    plan = plan_workload(rejected, 3.3, LIMITS, POLICY, NOW)
    assert (plan.accepted, plan.now.replicas, plan.now.binding) == (False, 5, "observed")
    assert plan.reasons == ("mae_below_10_pp: 14.2 of at most 10",)


def test_a_forecast_past_its_end_is_not_used():
    plan = plan_workload(forecast([9.0], [9.0]), 0.5, LIMITS, POLICY, NOW + timedelta(hours=37))
    assert plan.now.replicas == 1
    assert "ended at 2025-01-21T12:00Z" in plan.reasons[0]


def test_with_neither_forecast_nor_live_demand_there_is_no_step():
    assert plan_workload(None, None, LIMITS, POLICY, NOW).steps == ()


def test_live_demand_raises_only_the_step_that_is_now_where_the_forecast_does_not_follow_it():
    plan = plan_workload(forecast([1.0, 1.0], [1.2, 1.2]), 6.0, LIMITS, replace(POLICY, live_seconds=0), NOW)
    assert [step.replicas for step in plan.steps] == [8, 2]


def test_the_forecast_follows_live_demand_and_forgets_it_with_time():
    # 1.0 more than expected now; 10 min later exp(-1/6) = 0.846 of it is left.
    plan = plan_workload(forecast([4.0, 4.0], [5.0, 5.0]), 5.0, LIMITS, POLICY, NOW)
    assert [round(step.demand_q90, 3) for step in plan.steps] == [6.0, 5.846]


def test_live_demand_takes_at_most_a_quarter_of_the_forecast_away():
    # 8.0 are expected and 1.0 is seen: the quantile falls by 2.0, not by 7.0.
    plan = plan_workload(forecast([8.0], [9.0]), 1.0, LIMITS, POLICY, NOW)
    assert plan.now.demand_q90 == 7.0


def test_the_plan_starts_with_the_step_that_holds_now():
    plan = plan_workload(forecast([1, 2, 2, 4], [1, 2, 2, 4]), None, LIMITS, POLICY, NOW + timedelta(minutes=15))
    assert [(step.ts.minute, step.demand_q50) for step in plan.steps] == [(15, 2), (20, 2), (30, 4)]


def test_late_in_a_step_the_next_lead_window_counts_too():
    # At 00:05 a replica asked for is ready at 00:15, which the window from 00:00 to 00:10 does not reach.
    plan = plan_workload(forecast([1, 4], [1, 4]), None, LIMITS, POLICY, NOW + timedelta(minutes=5))
    assert plan.now.demand_q50 == 4


def test_a_longer_lead_than_the_forecasts_looks_at_later_windows_too():
    plan = plan_workload(forecast([1, 1, 8], [1, 1, 8]), None, LIMITS, replace(POLICY, lead_seconds=1800), NOW)
    assert plan.now.replicas == 10


@pytest.mark.parametrize(
    ("live", "replicas"),
    [
        pytest.param(LiveState(replicas=8), 6, id="at most 25 percent of 8 in a minute"),
        pytest.param(LiveState(replicas=3), 2, id="one at least"),
        pytest.param(LiveState(replicas=8, waiting_requests=3), 8, id="requests wait"),
        pytest.param(LiveState(replicas=8, pending_replicas=1), 8, id="a replica is starting"),
        pytest.param(LiveState(replicas=8, wanted_window_max=7), 7, id="seven were wanted in the window"),
        pytest.param(LiveState(replicas=8, demand_window_max=6.0), 8, id="6.0/7 is above 85 percent"),
    ],
)
def test_replicas_leave_only_where_that_is_safe(live, replicas):
    plan = plan_workload(forecast([1.0], [1.0]), None, LIMITS, POLICY, NOW, live=live)
    assert plan.now.replicas == replicas
    assert plan.now.binding == "hold" or replicas == 2


def test_a_forecast_that_falls_is_followed_only_below_85_percent():
    # 4.4/0.9 = 4.9 -> 5, but five would stand at 88 %: six stay.
    plan = plan_workload(forecast([4.0, 3.9], [5.3, 4.4]), None, LIMITS, POLICY, NOW)
    assert [(step.replicas, step.binding) for step in plan.steps] == [(6, "fcq"), (6, "hold")]


def test_demand_above_the_maximum_is_a_finding_with_hours_size_and_price():
    plan = plan_workload(forecast([2, 9, 9, 2], [2, 10, 10.8, 2]), None, LIMITS, POLICY, NOW, usd_per_gpu_hour=3.0)
    (short,) = plan.shortfalls
    assert (short.start, short.end) == (NOW + timedelta(minutes=10), NOW + timedelta(minutes=30))
    # 10.8/0.9 = 12 wanted, 10 allowed: 2 replicas of 2 accelerators, $12 an hour, for a third of an hour.
    assert (short.replicas_wanted, short.gpus_short, short.usd_per_hour, short.usd) == (12, 4.0, 12.0, 4.0)
    assert "4 accelerators more, $12.00 an hour, ready before 00:10" in short.explain


def test_a_replica_of_unknown_size_leaves_the_price_unknown():
    plan = plan_workload(forecast([9], [12]), None, replace(LIMITS, gpus_per_replica=None), POLICY, NOW)
    assert (plan.shortfalls[0].gpus_short, plan.shortfalls[0].usd) == (None, None)


def test_another_quantile_moves_along_the_normal_distribution():
    # 4 + (5 - 4) * 1.6449 / 1.2816 = 5.283 (table of the normal distribution)
    plan = plan_workload(forecast([4.0], [5.0]), None, LIMITS, replace(POLICY, quantile=0.95), NOW)
    assert plan.now.demand_q90 == pytest.approx(5.283, abs=1e-3)


def test_fallback_stands_on_the_quantile_of_demand_when_it_is_known():
    assert plan_workload(None, 1.0, LIMITS, POLICY, NOW, high_demand=4.1).fallback_replicas == 6
    assert plan_workload(forecast([4.4], [5.1]), None, LIMITS, POLICY, NOW).fallback_replicas == 6
    assert plan_workload(None, None, replace(LIMITS, replicas_now=3), POLICY, NOW).fallback_replicas == 3


@pytest.mark.parametrize(("replicas", "left"), [(1, 0), (4, 3), (5, 3), (8, 6), (100, 75)])
def test_one_period_removes_a_quarter_or_one(replicas, left):
    # kubernetes calculateScaleDownLimit truncates replicas * 0.75; select policy Max takes the larger removal.
    assert limit_of_removal(replicas, POLICY) == left


demands = st.lists(st.floats(0, 40), min_size=1, max_size=8)
lives = st.one_of(st.none(), st.floats(0, 40))
counts = st.one_of(st.none(), st.integers(1, 12))


@given(demands, st.floats(0, 5), st.floats(0, 5), lives, counts)
def test_more_demand_never_means_fewer_replicas_and_limits_hold(low, foreseen, seen, live, standing):
    high = [value + foreseen for value in low]
    state = LiveState(replicas=standing)
    one = plan_workload(forecast(low, low), live, LIMITS, POLICY, NOW, live=state)
    more = None if live is None else live + seen
    two = plan_workload(forecast(high, high), more, LIMITS, POLICY, NOW, live=state)
    for few, many in zip(one.steps, two.steps, strict=True):
        assert LIMITS.min_replicas <= few.replicas <= many.replicas <= LIMITS.max_replicas


@given(demands, demands, counts)
def test_where_the_forecast_does_not_follow_live_demand_any_higher_hour_is_enough(low, extra, standing):
    high = [value + more for value, more in zip(low, [*extra, *[0.0] * 8], strict=False)]
    policy, state = replace(POLICY, live_seconds=0), LiveState(replicas=standing)
    one = plan_workload(forecast(low, low), None, LIMITS, policy, NOW, live=state)
    two = plan_workload(forecast(high, high), None, LIMITS, policy, NOW, live=state)
    assert all(few.replicas <= many.replicas for few, many in zip(one.steps, two.steps, strict=True))
