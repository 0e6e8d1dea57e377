from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from piqc_pipeline.forecast import train as training
from piqc_pipeline.forecast.calendar import Calendar
from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.journal import KEY, checksums
from piqc_pipeline.forecast.model import ENSEMBLE
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.state import from_plain
from piqc_pipeline.forecast.train import train_one
from piqc_pipeline_tests.forecast.examples import START, daily_wave, series_of

DAY = 144
DEMAND = daily_wave(days=14, noise=0.3, seed=3)
DEMAND[11 * DAY + 30 : 11 * DAY + 36] = np.nan
POLICY = TrainPolicy(with_prophet=False, replay_nights=6)


def at(day):
    return START + timedelta(days=day)


def trained(day, previous=None, demand=DEMAND, policy=POLICY):
    return train_one(series_of(demand), at(day), policy, previous).forecast


@pytest.fixture(scope="module")
def tenth_night():
    return trained(10)


@pytest.fixture
def replays(monkeypatch):
    """First origin of every replay that is made, in days."""
    began = []
    original = training.replay

    def watched(*arguments, **options):
        played = original(*arguments, **options)
        began.append(played.origins[0] / DAY)
        return played

    monkeypatch.setattr(training, "replay", watched)
    return began


def assert_same(ours, full):
    for name in ("q50", "q90", "lower", "peak_q50", "peak_q90", "peak_q95"):
        assert getattr(ours.table, name) == pytest.approx(getattr(full.table, name), rel=1e-5, abs=1e-6), name
    assert ours.coverage_q90 == full.coverage_q90
    assert set(ours.scores) == set(full.scores)
    for model, by_key in full.scores.items():
        for key, score in by_key.items():
            assert ours.scores[model][key].points == score.points
            assert ours.scores[model][key].mae_demand == pytest.approx(score.mae_demand, rel=1e-9), (model, key)
            assert ours.scores[model][key].rmse_pp == pytest.approx(score.rmse_pp, rel=1e-9), (model, key)
    one, other = from_plain(ours.state), from_plain(full.state)
    assert one.losses.newest.tolist() == other.losses.newest.tolist()
    assert one.losses.sums == pytest.approx(other.losses.sums, rel=1e-9)
    assert one.losses.weights == pytest.approx(other.losses.weights, rel=1e-9)
    assert one.misses[0].level == pytest.approx(other.misses[0].level, rel=1e-9)
    assert one.misses[0].past.in_order() == pytest.approx(other.misses[0].past.in_order(), rel=1e-6, nan_ok=True)


def test_night_after_night_arrives_where_one_replay_of_all_days_does(tenth_night, replays):
    night = tenth_night
    for day in (11, 12, 13):
        night = trained(day, night)
    assert replays == [10, 11, 12]
    # The tenth night began its replay six nights before; the thirteenth does so with nine.
    assert_same(night, trained(13, policy=replace(POLICY, replay_nights=9)))


def test_missed_nights_are_caught_up(tenth_night, replays):
    later = trained(12, tenth_night)
    assert replays == [10]
    assert_same(later, trained(12, policy=replace(POLICY, replay_nights=8)))


def test_with_prophet_one_fit_is_made_a_night(monkeypatch):
    from piqc_pipeline.forecast.members import prophet

    fitted = []
    original = prophet.fit_model
    monkeypatch.setattr(
        prophet, "fit_model", lambda night, settings: fitted.append(night.cutoff) or original(night, settings)
    )
    policy = TrainPolicy(replay_nights=3, prophet_nights=1)
    first = trained(5, policy=policy)
    assert fitted == [4 * DAY, 5 * DAY]
    second = trained(6, first, policy=policy)
    assert fitted[2:] == [6 * DAY]
    assert second.scores["prophet"]["30m"].points == second.scores[ENSEMBLE]["30m"].points


def test_night_without_a_prophet_fit_is_taken_over_too(replays):
    demand = np.full(14 * DAY, 3.0)  # nothing to fit
    night = trained(11, trained(10, None, demand, TrainPolicy(replay_nights=4)), demand, TrainPolicy(replay_nights=4))
    assert replays == [6, 10] and night.accepted
    assert night.scores["prophet"]["30m"].mae_demand is None


def test_samples_that_came_late_are_no_change_of_history(tenth_night, replays):
    demand = DEMAND.copy()
    demand[10 * DAY - 3 : 10 * DAY] += 0.1
    trained(11, tenth_night, demand)
    assert replays == [10]


def changed_history(night):
    demand = DEMAND.copy()
    demand[2 * DAY + 5] += 1e-9
    return night, demand, POLICY


def other_clock(night):
    return night, DEMAND, replace(POLICY, calendar=Calendar("Europe/Berlin"))


def other_lead(night):
    return night, DEMAND, replace(POLICY, lead_seconds=1800)


def other_members(night):
    return night, DEMAND, replace(POLICY, with_prophet=True, prophet_nights=0)


def state_of_before(night):
    return replace(night, state={key: value for key, value in night.state.items() if key != KEY}), DEMAND, POLICY


def newer_journal(night):
    return replace(night, state={**night.state, KEY: {**night.state[KEY], "version": 99}}), DEMAND, POLICY


def another_programs_journal(night):
    return replace(night, state={**night.state, KEY: {"version": 1, "seen": night.state[KEY]["seen"]}}), DEMAND, POLICY


def gap_of_days(night):
    return trained(6), DEMAND, POLICY


def a_plain_fallback(night):
    return replace(night, state=None), DEMAND, POLICY


@pytest.mark.parametrize(
    "change",
    [
        changed_history,
        other_clock,
        other_lead,
        other_members,
        state_of_before,
        newer_journal,
        another_programs_journal,
        gap_of_days,
        a_plain_fallback,
    ],
)
def test_all_days_are_replayed_after(change, tenth_night, replays):
    previous, demand, policy = change(tenth_night)
    replays.clear()
    assert trained(11, previous, demand, policy).scores[ENSEMBLE]["30m"].points > 0
    assert replays == [5]


def test_second_run_of_the_same_night_replays_all(tenth_night, replays):
    again = train_one(series_of(DEMAND), at(10) + timedelta(hours=2), POLICY, tenth_night).forecast
    assert replays == [pytest.approx(4 + 2 / 24)] and again.accepted


def test_night_a_bucket_late_still_goes_on(tenth_night, replays):
    later = train_one(series_of(DEMAND), at(11) + timedelta(minutes=20), POLICY, tenth_night).forecast
    assert replays == [10]
    again = train_one(series_of(DEMAND), at(12), POLICY, later).forecast
    assert replays[1] == pytest.approx(11 + 2 / DAY) and again.table.start == at(12)
    # A path of 5 hours from each hour that ends within the day: 19 or 20 of them, 30 buckets each, on four days.
    assert 4 * 19 * 30 - 6 * 30 <= again.scores[ENSEMBLE]["5h_days"].points <= 4 * 20 * 30


def test_later_demand_changes_nothing_that_is_taken_over(tenth_night):
    later = DEMAND.copy()
    later[11 * DAY :] = 50.0
    one, other = trained(11, tenth_night), trained(11, tenth_night, later)
    assert one.table == other.table and one.state == other.state


def test_old_history_that_leaves_the_window_is_no_change():
    grid = prepare(series_of(DEMAND))
    shorter = prepare(series_of(DEMAND[3 * DAY :]))
    assert len(checksums(shorter, 7 * DAY)) == 6
    assert checksums(grid, 10 * DAY)[:6] == checksums(shorter, 7 * DAY)
