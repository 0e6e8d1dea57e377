from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast import refresh as refreshing
from piqc_pipeline.forecast.ensemble import REFERENCES, SeasonFits, members_of, references_of
from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.rolling import nightly_cutoffs, replay
from piqc_pipeline.forecast.state import from_plain, to_plain
from piqc_pipeline.forecast.train import train
from piqc_pipeline.forecast.windows import lead_windows, misses_at_end
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

POLICY = TrainPolicy(with_prophet=False, replay_nights=4)
DAY = 144
TRAINED_DAYS = 7


@pytest.fixture(scope="module")
def demand():
    return daily_wave(days=9, noise=0.2)


@pytest.fixture(scope="module")
def entry(demand):
    series = series_of(demand[: TRAINED_DAYS * DAY])
    return train([series], series.end, POLICY).workloads[series.workload]


def test_refresh_without_new_demand_is_the_artifacts_table(entry):
    live = refreshing.live_of(entry)
    again = refreshing.refreshed(entry, live, entry.issued_at)
    for name in ("q50", "q90", "lower", "peak_q50", "peak_q90"):
        assert getattr(again.table, name) == pytest.approx(getattr(entry.table, name), rel=1e-5, abs=1e-5), name


def test_refreshed_state_forecasts_what_a_replay_from_the_start_would(entry, demand):
    later = 100
    end = TRAINED_DAYS * DAY + later
    live = refreshing.observe(refreshing.live_of(entry), entry.data_until, demand[end - later : end].tolist())
    grid = prepare(series_of(demand[:end]))
    fits = SeasonFits()
    cutoffs = nightly_cutoffs(grid, TRAINED_DAYS * DAY, POLICY.replay_nights, 2 * DAY)
    played = replay(grid, members_of(fits) + references_of(fits), cutoffs, end, 3)
    horizon = played.buckets.horizon
    paths = np.stack([played.last[name].predict(np.array([end]), horizon) for name in played.names], axis=-1)
    expected = played.combine(np.array([end]), paths, without=REFERENCES)[0]
    assert live.path(horizon) == pytest.approx(expected, rel=1e-6)
    ensemble = played.combine(played.origins, played.short, without=REFERENCES)
    _, given = lead_windows(played, ensemble, live.misses[0].steps)
    assert live.misses[0].level == pytest.approx(given.level[-1])
    assert live.misses[0].highs[-1] == pytest.approx(given.quantile[-1], rel=1e-5)


def test_one_bucket_at_a_time_or_all_at_once_is_the_same(entry, demand):
    fresh = demand[TRAINED_DAYS * DAY : TRAINED_DAYS * DAY + 6].tolist()
    at_once = refreshing.observe(refreshing.live_of(entry), entry.data_until, fresh)
    one_by_one = refreshing.live_of(entry)
    for value in fresh:
        one_by_one = refreshing.observe(one_by_one, one_by_one.until, [value])
    assert (at_once.path(30) == one_by_one.path(30)).all()


def test_buckets_known_already_are_skipped_and_missing_ones_are_gaps(entry):
    live = refreshing.live_of(entry)
    overlap = refreshing.observe(live, entry.data_until - timedelta(seconds=1200), [1.0, 1.0, 4.0])
    assert overlap.end == live.end + 1 and overlap.grid.values[-1] == 4.0
    gap = refreshing.observe(live, entry.data_until + timedelta(seconds=1200), [4.0])
    assert gap.grid.known[-3:].tolist() == [False, False, True]


def test_faulty_values_leave_a_bounded_forecast(entry):
    live = refreshing.observe(
        refreshing.live_of(entry), entry.data_until, [None, float("nan"), -3.0, float("inf"), 1e300, 9e14, 5e4]
    )
    table = refreshing.refreshed(entry, live, entry.issued_at).table
    assert not live.grid.known[-7:].any()
    assert max(table.peak_q90) < 2 * live.largest < 20 and min(table.lower) >= 0
    assert (np.array(table.peak_q90) >= np.array(table.q90)).all()


HOUR = [float("nan")] * 6


@pytest.mark.parametrize(
    ("late_hours", "values"),
    [(25, [4.0]), (0, [*HOUR * 25, 4.0]), (0, [4.0, *HOUR * 25, *[4.0] * 6]), (0, HOUR * 25), (20, [*HOUR * 5, 4.0])],
    ids=["begins late", "at the start", "in the middle", "to the end", "late and at the start"],
)
def test_after_more_than_a_day_of_silence_it_asks_for_training(entry, late_hours, values):
    with pytest.raises(ForecastError, match="no demand was measured for 25 h, .*train again"):
        refreshing.observe(refreshing.live_of(entry), entry.data_until + timedelta(hours=late_hours), values)


def test_silence_told_bucket_by_bucket_counts_from_the_newest_demand(entry):
    live = refreshing.observe(refreshing.live_of(entry), entry.data_until, HOUR * 20)
    live = refreshing.observe(live, live.until, HOUR * 4)
    with pytest.raises(ForecastError, match="no demand was measured"):
        refreshing.observe(live, live.until, [None])


def test_a_day_of_silence_leaves_a_bounded_forecast(entry, demand):
    fresh = [*HOUR * 24, *demand[TRAINED_DAYS * DAY : TRAINED_DAYS * DAY + 6].tolist()]
    live = refreshing.observe(refreshing.live_of(entry), entry.data_until, fresh)
    table = refreshing.refreshed(entry, live, entry.issued_at).table
    assert min(table.lower) >= 0 and max(table.peak_q90) < 2 * np.nanmax(demand)


@pytest.mark.parametrize("days", [4, 9, 4000])
def test_demand_past_the_reach_of_the_fits_asks_for_training(entry, days):
    live = refreshing.live_of(entry)
    with pytest.raises(ForecastError, match=f"came {days * 24} h after the training .* reaches 90 h: train again"):
        refreshing.observe(live, entry.data_until + timedelta(days=days), [])
    if days == 4:
        with pytest.raises(ForecastError, match="reaches 90 h"):
            refreshing.observe(live, entry.data_until, [4.0] * days * DAY)


def test_second_window_is_calibrated_as_the_first(entry, demand):
    """Both windows follow new demand as a replay from the start has them."""
    begin, end = TRAINED_DAYS * DAY, TRAINED_DAYS * DAY + 40
    played = {}
    for until in (begin, end):
        grid = prepare(series_of(demand[:until]))
        cutoffs = nightly_cutoffs(grid, begin, POLICY.replay_nights, 2 * DAY)
        one = replay(grid, members_of(SeasonFits()), cutoffs, until, 3)
        ensemble = one.combine(one.origins, one.short)
        played[until] = [misses_at_end(*lead_windows(one, ensemble, steps)) for steps in (1, 3)]
    live = replace(refreshing.live_of(entry), misses=tuple(played[begin]))
    at_once = refreshing.observe(live, entry.data_until, demand[begin:end].tolist())
    one_by_one = from_plain(to_plain(live))
    for value in demand[begin:end].tolist():
        one_by_one = refreshing.observe(one_by_one, one_by_one.until, [value])
    for found in (at_once, one_by_one):
        for miss, expected in zip(found.misses, played[end], strict=True):
            assert miss.level == pytest.approx(expected.level)
            assert miss.highs == pytest.approx(expected.highs, rel=1e-5)
    assert at_once.misses[1].highs[-1] > at_once.misses[0].highs[-1]


def test_jump_is_followed_at_once(entry):
    live = refreshing.observe(refreshing.live_of(entry), entry.data_until, [12.0, 12.0, 12.0])
    table = refreshing.refreshed(entry, live, entry.issued_at).table
    assert table.peak_q90[0] > 6.0
