import numpy as np
import pytest

from piqc_pipeline.forecast.card import model_card
from piqc_pipeline.forecast.drift import drift_of
from piqc_pipeline.forecast.lookup import prediction
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.train import train
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

DAY = 144
WEB = "c/ns/Deployment/web"
DEMAND = daily_wave(days=8, noise=0.1)
POLICY = TrainPolicy(with_prophet=False, replay_nights=4)


@pytest.fixture(scope="module")
def stored():
    series = series_of(DEMAND[: 7 * DAY])
    return train([series], series.end, POLICY).workloads[WEB]


def test_forecast_that_came_true_holds(stored):
    drift = drift_of(stored, series_of(DEMAND))
    assert drift.drifted is False and drift.points == DAY
    assert drift.mae_demand < 0.3 and 0.6 < drift.inside_share < 0.95
    assert "holds" in drift.detail


def test_demand_that_doubled_has_drifted(stored):
    later = DEMAND.copy()
    later[7 * DAY :] *= 2
    drift = drift_of(stored, series_of(later))
    # The wave of 3 on average comes as one of 6: wrong by 3, too low, and never inside.
    assert drift.drifted is True and drift.inside_share < 0.1
    assert drift.bias_demand == pytest.approx(-3, abs=0.5) and drift.mae_demand == pytest.approx(3, abs=0.5)


def test_demand_that_lost_its_season_has_drifted(stored):
    later = DEMAND.copy()
    later[7 * DAY :] = 3.0
    drift = drift_of(stored, series_of(later))
    assert drift.drifted is True and "was left by demand" in drift.detail


def test_too_little_demand_since_is_unknown_and_not_fine(stored):
    drift = drift_of(stored, series_of(DEMAND[: 7 * DAY + 3]))
    assert drift.drifted is None and drift.mae_demand is None and "too few" in drift.detail


def test_gaps_are_left_out(stored):
    later = DEMAND.copy()
    later[7 * DAY : 7 * DAY + 100] = np.nan
    assert drift_of(stored, series_of(later)).points == 44


def test_next_run_tells_of_drift_on_the_card_and_in_predictions(stored):
    later = series_of(np.append(DEMAND[: 7 * DAY], 2 * DEMAND[7 * DAY :]))
    candidate = train([later], later.end, POLICY, previous={WEB: stored})
    entry = candidate.workloads[WEB]
    assert entry.drift is not None and entry.drift.drifted
    assert f"- drift: {entry.drift.detail}" in model_card(later.end, candidate.workloads, {}, {})
    assert any(note.startswith("drift: ") for note in prediction(entry, later.end, 1800)["notes"])
    assert train([later], later.end, POLICY).workloads[WEB].drift is None
