import numpy as np
import pytest

from piqc_pipeline.forecast.drift import drift_of, drifts
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.train import train
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

DAY = 144
DEMAND = daily_wave(days=7, noise=0.1)


@pytest.fixture(scope="module")
def stored():
    series = series_of(DEMAND[: 6 * DAY])
    return train([series], series.end, TrainPolicy(with_prophet=False, replay_nights=3)).workloads


def test_forecast_that_came_true_holds(stored):
    (drift,) = drifts(stored, [series_of(DEMAND)])
    assert drift.drifted is False and drift.points == DAY
    assert drift.mae_demand < 0.3 and drift.coverage_q90 > 0.6
    assert "holds" in drift.detail


def test_demand_that_doubled_has_drifted(stored):
    later = DEMAND.copy()
    later[6 * DAY :] *= 2
    (drift,) = drifts(stored, [series_of(later)])
    # Yesterday's wave misses by as much, so only the level tells; the table was fitted to both.
    assert drift.bias_demand < -2
    assert drift.mae_demand == pytest.approx(3, abs=0.5)


def test_demand_that_lost_its_season_has_drifted(stored):
    later = DEMAND.copy()
    later[5 * DAY :] = 3.0
    later[6 * DAY :] = 3.0
    entry = stored["c/ns/Deployment/web"]
    drift = drift_of(entry, series_of(later))
    assert drift.drifted is True and drift.yesterday_mae_demand == 0.0
    assert "has drifted" in drift.detail


def test_too_little_demand_since_is_unknown_and_not_fine(stored):
    drift = drift_of(stored["c/ns/Deployment/web"], series_of(DEMAND[: 6 * DAY + 3]))
    assert drift.drifted is None and drift.mae_demand is None and "too few" in drift.detail


def test_gaps_are_left_out(stored):
    later = DEMAND.copy()
    later[6 * DAY : 6 * DAY + 100] = np.nan
    assert drift_of(stored["c/ns/Deployment/web"], series_of(later)).points == 44


def test_series_without_a_stored_forecast_are_left_out(stored):
    assert drifts(stored, [series_of(DEMAND, "c/ns/Deployment/new")]) == []
