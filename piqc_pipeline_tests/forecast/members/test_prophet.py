import pickle

import numpy as np
import pandas as pd
import pytest

from piqc_pipeline.forecast.calendar import Calendar
from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members import prophet as member
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

DAY = 144


@pytest.fixture(scope="module")
def night():
    demand = daily_wave(days=15, noise=0.1) + np.repeat([0, 0, 0, 0, 0, -1, -1] * 3, DAY)[: 15 * DAY] * 0.5
    return Night(prepare(series_of(demand)), 15 * DAY)


def frame(night, index):
    local = night.grid.calendar.local(night.grid.seconds(index))
    return pd.DataFrame({"ds": (local * 1e3).astype("datetime64[ms]")})


@pytest.mark.parametrize("settings", [member.OURS, member.SPECIFICATION], ids=["ours", "specification"])
def test_numbers_give_what_prophets_own_predict_gives(night, settings):
    model, season = member.fit_model(night, settings)
    index = np.arange(15 * DAY, 17 * DAY)
    expected = model.predict(frame(night, index))["yhat"].to_numpy()
    assert season.values(index) == pytest.approx(expected, rel=1e-9)


def test_settings_are_those_of_the_design_and_of_the_specification(night):
    ours, _ = member.fit_model(night)
    assert ours.growth == "flat" and ours.seasonalities["daily"]["fourier_order"] == 8
    assert "weekly" in ours.seasonalities
    spec, _ = member.fit_model(night, member.SPECIFICATION)
    assert spec.growth == "linear" and spec.seasonalities["daily"]["fourier_order"] == 4
    assert {"daily", "weekly"} <= set(spec.seasonalities)


def test_weekly_season_needs_two_weeks(night):
    model, _ = member.fit_model(Night(night.grid, 10 * DAY))
    assert "weekly" not in model.seasonalities


def test_fit_over_its_time_limit_fails_and_does_not_fall_back_to_newton(night, monkeypatch):
    monkeypatch.setattr(member, "FIT_LIMIT_SECONDS", 0.0001)
    with pytest.raises(member.ProphetFailed, match="found no fit within"):
        member.fit_prophet(night)


def test_constant_or_short_demand_has_no_prophet(night):
    assert member.fit_prophet(Night(night.grid, DAY)) is None
    assert member.fit_prophet(Night(prepare(series_of(np.full(5 * DAY, 2.0))), 5 * DAY)) is None


def test_pickle_is_a_prophet_that_predicts(night):
    model, season = member.fit_model(night)
    again = pickle.loads(member.pickled(model))
    index = np.arange(15 * DAY, 15 * DAY + 6)
    assert again.predict(frame(night, index))["yhat"].to_numpy() == pytest.approx(season.values(index), rel=1e-9)


def test_season_survives_its_plain_form(night):
    season = member.fit_prophet(night)
    index = np.arange(15 * DAY, 16 * DAY)
    assert (member.ProphetSeason.from_plain(night.grid, season.plain()).values(index) == season.values(index)).all()


def test_holidays_of_the_country_are_in_the_numbers():
    # 20 days around 1 May 2025 in Germany, in which the holiday has no load.
    demand = daily_wave(days=40, noise=0.05)
    series = series_of(demand)
    series = type(series)(series.workload, pd.Timestamp("2025-04-10", tz="UTC").to_pydatetime(), 600, demand)
    grid = prepare(series, Calendar("UTC", "DE"))
    night = Night(grid, 38 * DAY)
    model, season = member.fit_model(night, member.ProphetSettings(holidays_country="DE"))
    index = np.arange(20 * DAY, 40 * DAY)
    assert season.values(index) == pytest.approx(model.predict(frame(night, index))["yhat"].to_numpy(), rel=1e-6)


def test_shared_fourier_terms_are_the_models_own(night):
    later = Night(night.grid, 14 * DAY + 50)
    member._FEATURES.clear()
    alone, _ = member.fit_model(night)
    member.fit_model(later)
    member.fit_model(night, member.SPECIFICATION)
    assert len(member._FEATURES) == 3  # another clock or order shares nothing
    shared, _ = member.fit_model(night)
    assert len(member._FEATURES) == 3
    assert (alone.params["beta"] == shared.params["beta"]).all()
    assert "make_all_seasonality_features" not in vars(shared)
