"""The replay on small traces whose outcome can be worked out."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from piqc_pipeline.errors import TraceUnreadable
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay import ReplayOptions, replay, to_json
from piqc_pipeline.scaling.replay_trace import (
    INJECTIONS,
    faulty_delays,
    in_replicas,
    scaled,
    skip_reason,
    unit_note,
)

START = datetime(2025, 1, 6, tzinfo=UTC)
QUICK = ReplayOptions(injections=(), draws=100)


def daily(days=4, step=600, base=2.0, high=6.0, ramp_hour=8):
    """A working day that begins at once: the case in which a lead time hurts."""
    clock = (np.arange(days * 86_400 // step) * step % 86_400) / 3600
    return DemandSeries("d/n/Deployment/steps", START, step, np.where((clock >= ramp_hour) & (clock < 20), high, base))


@pytest.fixture(scope="module")
def steps():
    return replay([daily()], ScalingPolicy(lead_seconds=600), QUICK)


def test_constant_demand_needs_one_count_and_nothing_moves():
    flat = DemandSeries("d/n/Deployment/flat", START, 600, np.full(4 * 144, 3.0))
    (one,) = replay([flat], ScalingPolicy(), QUICK).series
    value = one.policies["stay_reactive"]
    # 3.0/0.80 = 3.75: four replicas at 75 % for two days of 24 h.
    assert (value.gpu_hours, value.in_band, value.minutes_over_90, value.moves_per_day) == (192.0, 1.0, 0, 0.0)
    assert one.recommendation.policy == "stay_reactive"


def test_a_step_that_comes_every_day_is_where_a_forecast_pays(steps):
    (one,) = steps.series
    assert one.policies["forecast"].minutes_over_90 < one.policies["stay_reactive"].minutes_over_90
    assert one.policies["oracle"].minutes_over_90 == 0


def test_the_specifications_manifest_never_asks_for_more_than_two(steps):
    value = steps.series[0].policies["literal_average"]
    assert value.mean_replicas <= 2.0
    # Six replicas' worth of work on two: saturated in all 720 minutes of the working day, both days.
    assert value.minutes_over_90 >= 2 * 700


def test_static_peak_is_the_ceiling_of_the_peak(steps):
    # 6.0/0.80 = 7.5: eight replicas, 48 h.
    assert steps.series[0].policies["static_peak"].gpu_hours == 384.0


def test_the_same_seed_gives_the_same_result(steps):
    again = replay([daily()], ScalingPolicy(lead_seconds=600), QUICK)
    assert to_json(again) == to_json(steps)


def test_each_fault_is_scored_for_both_policies():
    (one,) = replay([daily(days=3)], ScalingPolicy(lead_seconds=600), ReplayOptions(draws=10)).series
    # One day is scored: there is no other day to come in its place.
    assert set(one.injected) == {*INJECTIONS} - {"weekly_shift"}
    assert set(one.injected["outage"]) == {"forecast", "stay_reactive"}
    without = one.injected["stale"]["forecast"]
    assert without.minutes_over_90 <= one.policies["stay_reactive"].minutes_over_90


def test_a_week_that_shifts_is_new_to_the_forecast_and_the_same_for_reacting():
    # Four days, the second and fourth idle: learned are one of each, scored one of each in the other order.
    clock = np.arange(4 * 144) % 144 / 6
    busy = np.where((clock >= 8) & (clock < 20), 6.0, 2.0)
    values = np.where(np.arange(4 * 144) // 144 % 2 == 0, busy, 2.0)
    series = DemandSeries("d/n/Deployment/week", START, 600, values)
    options = ReplayOptions(draws=10, injections=("weekly_shift",))
    (one,) = replay([series], ScalingPolicy(lead_seconds=600), options).series
    shifted, plain = one.injected["weekly_shift"]["stay_reactive"], one.policies["stay_reactive"]
    assert shifted.minutes_over_90 > 0
    assert shifted.gpu_hours == pytest.approx(plain.gpu_hours, rel=0.02)


def test_starts_fail_once_or_wait_for_accelerators():
    delays = np.full(2000, 10)
    twice = faulty_delays("start_failure", delays, [], 1)
    # One in five of 2,000: 400, four standard deviations (18) at most away.
    assert 328 < (twice == 20).sum() < 472
    assert set(np.unique(twice)) == {10, 20}
    # Nothing is free in the 480 ticks before the peak at tick 1000: asked for at 600, it starts 400 ticks late.
    late = faulty_delays("gpu_shortage", delays, [1000], 1)
    assert (late[519], late[520], late[600], late[999], late[1000]) == (10, 490, 410, 11, 10)


@pytest.mark.parametrize("unit", ["percent", "requests/s", "celsius"])
def test_values_that_are_no_replicas_need_a_peak(unit):
    series = replace(daily(), unit=unit)
    with pytest.raises(TraceUnreadable, match=f"its unit is {unit}, not replicas: say with --peak"):
        replay([series], ScalingPolicy(), QUICK)
    assert skip_reason(series, 30.0) is None
    assert unit in (unit_note(series) or "")
    assert np.nanmax(in_replicas(series, 30.0, 1.0).demand) == 30.0


def test_accelerators_are_divided_by_those_of_a_replica():
    series = replace(daily(), unit="gpus")
    assert (skip_reason(series), unit_note(series)) == (None, None)
    assert np.nanmax(in_replicas(series, None, 2.0).demand) == 3.0


def test_a_scored_half_without_a_measured_bucket_is_not_replayed():
    series = daily()
    series.demand[len(series.demand) // 2 :] = np.nan
    with pytest.raises(TraceUnreadable, match="no bucket of its second half"):
        replay([series], ScalingPolicy(), QUICK)


def test_a_short_trace_is_an_error_that_says_what_is_needed():
    with pytest.raises(TraceUnreadable, match=r"1\.0 days: replay needs 3"):
        replay([daily(days=1)], ScalingPolicy(), QUICK)


def test_a_series_that_cannot_be_replayed_is_named_and_the_others_are_replayed():
    zero = DemandSeries("d/n/Deployment/zero", START, 600, np.zeros(576))
    result = replay([zero, daily()], ScalingPolicy(), QUICK)
    assert result.skipped == {"d/n/Deployment/zero": "demand is zero throughout"}
    assert [one.series for one in result.series] == ["d/n/Deployment/steps"]


def test_gaps_are_bridged_and_not_scored():
    series = daily()
    series.demand[300:330] = np.nan
    (one,) = replay([series], ScalingPolicy(), QUICK).series
    # 30 buckets of 10 minutes of the second half are left out: (48 - 5) h of eight replicas.
    assert one.policies["static_peak"].gpu_hours == 8 * 43.0


def test_scaling_puts_the_highest_demand_at_the_peak():
    assert np.nanmax(scaled(daily(), 30).demand) == 30
