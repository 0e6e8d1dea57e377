import numpy as np
import pytest

from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.levels import ExponentialSmoothing, LastValue, MovingAverage, SeasonalNaive
from piqc_pipeline_tests.forecast.examples import series_of

DAY = 144


def path(member, demand, horizon=3):
    grid = prepare(series_of(np.asarray(demand, dtype=float)))
    fitted = member.fit(Night(grid, len(demand)))
    return None if fitted is None else fitted.predict(np.array([len(demand)]), horizon)[0]


def test_last_value_is_repeated():
    assert path(LastValue(), [1.0, 2.0, 5.0]).tolist() == [5.0, 5.0, 5.0]


def test_moving_average_is_that_of_the_last_hour():
    # Ten-minute buckets: an hour has six.
    assert path(MovingAverage(), [100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])[0] == pytest.approx(3.5)


def test_exponential_smoothing_weighs_the_newest_bucket_by_three_tenths():
    demand = np.zeros(200)
    demand[-1] = 10.0
    assert path(ExponentialSmoothing(), demand)[0] == pytest.approx(3.0, rel=1e-5)


def test_yesterday_is_repeated_and_needs_a_day():
    demand = np.arange(2 * DAY, dtype=float)
    assert path(SeasonalNaive("y", 1, carry=False), demand).tolist() == [DAY, DAY + 1, DAY + 2]
    assert path(SeasonalNaive("y", 1), demand[: DAY - 1]) is None


def test_distance_to_yesterday_is_carried_and_decays_over_twelve_hours():
    demand = np.concatenate([np.full(DAY, 1.0), np.full(DAY, 5.0)])
    carried = path(SeasonalNaive("y", 1), np.append(demand, np.full(DAY // 2, 9.0)), horizon=72)
    # Half an hour before the origin was 9, a day earlier 5: yesterday's 5 plus 4 * exp(-h / 12 h).
    assert carried[0] == pytest.approx(5 + 4 * np.exp(-(1 / 6) / 12))
    assert carried[71] == pytest.approx(5 + 4 * np.exp(-1))


def test_path_longer_than_a_day_repeats_the_day():
    demand = np.arange(2 * DAY, dtype=float)
    long = path(SeasonalNaive("y", 1, carry=False), demand, horizon=2 * DAY)
    assert long[DAY:].tolist() == long[:DAY].tolist()


def test_week_falls_back_to_a_day_while_there_is_no_week():
    demand = np.random.default_rng(0).uniform(1, 2, 3 * DAY)
    assert path(SeasonalNaive("w", 7), demand).tolist() == path(SeasonalNaive("d", 1), demand).tolist()
