import numpy as np
import pytest

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast.calendar import Calendar
from piqc_pipeline.forecast.combine import Buckets
from piqc_pipeline.forecast.ensemble import REFERENCES, SeasonFits, members_of, references_of
from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.levels import LastValue
from piqc_pipeline.forecast.members.prophet import ProphetFailed, fit_prophet
from piqc_pipeline.forecast.rolling import nightly_cutoffs, path_errors, replay
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

DAY = 144


def forecasts(demand, known_end, fits, calendar=None):
    """Everything forecast up to `known_end`, from a series that may go on after it."""
    grid = prepare(series_of(demand), calendar)
    cutoffs = nightly_cutoffs(grid, 7 * DAY, 3, 2 * DAY)
    played = replay(grid, members_of(fits) + references_of(fits), cutoffs, len(grid.values) - 1, 3)
    rows = played.origins <= known_end
    long_rows = played.long_origins <= known_end
    ensemble = played.combine(played.origins, played.short, without=REFERENCES)
    return (
        played.short[rows],
        played.long[long_rows],
        ensemble[rows],
        played.combine(played.long_origins, played.long, without=REFERENCES)[long_rows],
    )


@pytest.mark.parametrize("index", [7 * DAY, 7 * DAY + 61, 7 * DAY + 140])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_changing_every_later_value_leaves_forecasts_bit_equal(index, zone):
    demand = daily_wave(days=8, noise=0.2)
    changed = demand.copy()
    changed[index:] = np.random.default_rng(1).uniform(0, 50, len(demand) - index)
    calendar = Calendar(zone)
    for before, after in zip(
        forecasts(demand, index, SeasonFits(), calendar),
        forecasts(changed, index, SeasonFits(), calendar),
        strict=True,
    ):
        assert np.array_equal(before, after, equal_nan=True)


def test_changing_every_later_value_leaves_prophets_forecasts_bit_equal():
    demand = daily_wave(days=8, noise=0.2)
    changed = demand.copy()
    changed[7 * DAY + 5 :] = 0.0
    fits = SeasonFits(prophet=lambda night: fit_prophet(night) if night.cutoff == 7 * DAY else None)
    for before, after in zip(forecasts(demand, 7 * DAY + 5, fits), forecasts(changed, 7 * DAY + 5, fits), strict=True):
        assert np.array_equal(before, after, equal_nan=True)


def test_member_that_fails_drops_out_and_is_noted():
    def failing(night):
        raise ProphetFailed("Prophet found no fit within 20 s: timeout")

    fits = SeasonFits(prophet=failing)
    grid = prepare(series_of(daily_wave(days=4)))
    played = replay(grid, members_of(fits), [3 * DAY], len(grid.values) - 1, 3)
    assert any("prophet_carried dropped out" in note for note in played.notes)
    assert np.isfinite(played.combine(played.origins, played.short)).all()
    assert isinstance(ProphetFailed("x"), ForecastError)


def test_path_error_counts_a_bucket_only_when_its_last_value_is_known():
    # Ten-minute steps: the first bucket ends after one step, the second after three.
    grid = prepare(series_of(np.array([1.0, 1.0, 2.0, 4.0])))
    last_value = LastValue().fit(Night(grid, 2))
    origins, buckets = np.array([2, 3]), Buckets.of(600)
    errors = path_errors(grid, origins, last_value.predict(origins, buckets.horizon)[:, :, None], buckets)
    # From origin 2 the last value is 1: it misses 2.0 by 1; three steps ahead would need index 4, which is not there.
    assert errors[0, 0, 0] == 1.0 and np.isnan(errors[0, 0, 1])
    # From origin 3 the last value is 2: it misses 4.0 by 2.
    assert errors[1, 0, 0] == 2.0


def test_cutoffs_are_a_day_apart_and_end_at_the_newest_bucket():
    grid = prepare(series_of(daily_wave(days=5)))
    assert nightly_cutoffs(grid, 5 * DAY, 8, 2 * DAY) == [2 * DAY, 3 * DAY, 4 * DAY, 5 * DAY]


def test_weights_change_only_when_a_path_has_finished():
    grid = prepare(series_of(daily_wave(days=4, noise=0.3)))
    played = replay(grid, members_of(SeasonFits()), [2 * DAY], len(grid.values) - 1, 3)
    weights = played.weights(played.origins, played.chosen())[:, 0]
    # Half-hourly origins, and a first bucket of one step: paths of origins 0, 3, 6 are known at 1, 4, 7.
    assert (weights[0] == 1.0).all()
    assert (weights[1] != weights[0]).any()
    assert (weights[2] == weights[1]).all() and (weights[3] == weights[1]).all()
    assert (weights[4] != weights[3]).any()
