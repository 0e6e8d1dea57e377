"""The replay on small traces whose outcome can be worked out."""

from datetime import UTC, datetime

import numpy as np
import pytest

from piqc_pipeline.errors import TraceUnreadable
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay import ReplayOptions, replay, to_json
from piqc_pipeline.scaling.replay_trace import read_trace, scaled

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
    assert set(one.injected) == {"outage", "stale", "gap", "burst", "double_lead"}
    assert set(one.injected["outage"]) == {"forecast", "stay_reactive"}
    without = one.injected["stale"]["forecast"]
    assert without.minutes_over_90 <= one.policies["stay_reactive"].minutes_over_90


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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("x.parquet", b"", "must be a Parquet or CSV", id="empty"),
        pytest.param("x.parquet", b"PAR1 cut off", "must be a Parquet or CSV", id="cut off"),
        pytest.param("x.csv", b"a,b\n1,2\n", "has the columns", id="foreign"),
        pytest.param("x.csv", b"ts,series_id,value\n", "holds no value", id="no rows"),
        pytest.param(
            "x.csv", b"ts,series_id,value\n2025-01-06T00:00:00Z,a,-5\n", "negative ones are none", id="negative"
        ),
    ],
)
def test_an_unreadable_trace_is_one_clear_sentence(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceUnreadable, match=message):
        read_trace(path)


def test_a_missing_trace_is_named(tmp_path):
    with pytest.raises(TraceUnreadable, match="no such file"):
        read_trace(tmp_path / "none.parquet")


def test_a_tidy_csv_is_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("ts,series_id,value\n2025-01-06T00:00:00Z,a,1.5\n2025-01-06T00:10:00Z,a,2.5\n")
    (series,) = read_trace(path)
    assert (series.workload, series.demand.tolist()) == ("a", [1.5, 2.5])
