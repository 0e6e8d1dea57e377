import numpy as np
import pytest

from piqc_pipeline.forecast.combine import Buckets
from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.residuals import fit_coefficients, lad
from piqc_pipeline.forecast.members.seasons import fit_profile, fit_ridge
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

DAY = 144


def night(demand, cutoff=None):
    return Night(prepare(series_of(demand)), len(demand) if cutoff is None else cutoff)


def test_ridge_finds_a_clean_daily_wave():
    demand = daily_wave(days=11, noise=0.0)
    season = fit_ridge(night(demand, 10 * DAY))
    assert season.values(np.arange(10 * DAY, 11 * DAY)) == pytest.approx(demand[10 * DAY :], abs=0.1)


def test_ridge_shrugs_off_a_day_of_outliers():
    demand = daily_wave(days=11, noise=0.01)
    spoiled = demand.copy()
    spoiled[5 * DAY + 30 : 5 * DAY + 60] = 40.0
    clean, robust = (fit_ridge(night(d, 10 * DAY)).values(np.arange(10 * DAY, 11 * DAY)) for d in (demand, spoiled))
    assert np.abs(clean - robust).max() < 0.4


def test_ridge_holds_its_trend_after_the_cutoff():
    demand = np.linspace(1, 11, 10 * DAY)
    season = fit_ridge(night(demand))
    later = season.values(np.arange(10 * DAY, 12 * DAY))
    assert later.max() - later.min() < 1.0 and later.mean() == pytest.approx(11, abs=1.0)


def test_profile_is_the_median_day():
    demand = np.tile(np.arange(DAY, dtype=float), 5)
    demand[2 * DAY : 3 * DAY] = 500.0
    profile = fit_profile(night(demand)).values(np.arange(5 * DAY, 6 * DAY))
    # Smoothed over three buckets: exact inside the day.
    assert profile[10:100] == pytest.approx(np.arange(10, 100))


@pytest.mark.parametrize("fit", [fit_ridge, fit_profile])
def test_season_needs_a_day(fit):
    assert fit(night(np.ones(DAY - 1))) is None


def test_lad_is_not_moved_by_an_outlier():
    random = np.random.default_rng(0)
    matrix = np.zeros((2000, 7))
    matrix[:, 0] = random.normal(0, 1, 2000)
    target = 0.5 * matrix[:, 0]
    target[::100] += 1000.0
    prior = np.zeros((1, 7))
    prior[0, 0] = 0.8
    found = lad(matrix, target[None, :], prior, enough=10)
    assert found[0, 0] == pytest.approx(0.5, abs=0.02)


def test_under_half_a_day_of_finished_paths_the_prior_holds():
    matrix, target = np.ones((20, 7)), np.full((1, 20), 3.0)
    prior = np.full((1, 7), 0.1)
    assert lad(matrix, target, prior, enough=36).tolist() == prior.tolist()


def test_first_night_has_no_out_of_sample_residuals():
    one = night(daily_wave(days=4))
    coefficients = fit_coefficients(one, "ridge", Buckets.of(600))
    assert coefficients[:, 0].tolist() == [0.8] * 6 and not coefficients[:, 1:].any()
