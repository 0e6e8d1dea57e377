import numpy as np
import pytest

from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.spread import (
    PEAKS,
    POINTS,
    SKETCH,
    Distances,
    Pending,
    day_spread,
    sketch,
    spread_quantiles,
)
from piqc_pipeline_tests.forecast.examples import series_of

STEP, DAY, HOUR = 600, 144, 6


def test_distances_reach_from_ten_minutes_to_two_days():
    distances = Distances.of(STEP)
    assert distances.ends == (1, 3, 6, 12, 18, 30, 60, 144, 288)
    # The last bucket of the sixth hour (index 35), of the seventh, ... of the forty-eighth.
    assert distances.far[:2].tolist() == [35, 41] and distances.far[-1] == 287 and len(distances.far) == 43
    assert distances.index_of(300, 9)[[0, 29, 30, 143, 144, 299]].tolist() == [0, 5, 6, 7, 8, 8]
    # An artifact of before knows six distances: the last one holds beyond.
    assert distances.index_of(300, 6)[-1] == 5


def test_sketch_of_hundred_misses_is_every_tenth_of_them():
    values = np.arange(100.0)[::-1].copy()
    assert sketch(values).tolist() == [5, 15, 25, 35, 45, 55, 65, 75, 85, 95]
    assert np.isnan(sketch(np.array([np.nan]))).all()


def test_far_misses_count_on_the_day_on_which_demand_came():
    demand = np.full(4 * DAY, 4.0)
    demand[2 * DAY :] = 9.0
    grid = prepare(series_of(demand))
    distances = Distances.of(STEP)
    paths = np.full((1, len(distances.columns(2))), 4.0)
    pending = Pending.of(np.array([DAY]), paths, STEP, lead=2)
    nothing = np.empty(0, dtype=np.int64), np.empty((0, 30))
    first, second = (day_spread(grid, (begin, begin + DAY), nothing, pending, 2, 9.0) for begin in (DAY, 2 * DAY))
    # Forecast 4 at the start of the second day. The first 24 h came true; then 9 came: (9 - 4) / sqrt(4) = 2.5.
    assert (first[POINTS, 6:8] == 0).all() and np.isnan(first[POINTS, 8]).all()
    assert np.isnan(second[POINTS, 6:8]).all() and (second[POINTS, 8] == 2.5).all()
    assert (second[PEAKS, 8] == 2.5).all() and np.isnan(second[:, :6]).all()
    assert len(pending.after(2 * DAY, STEP, 2).origins) == 1 and len(pending.after(4 * DAY, STEP, 2).origins) == 0


def test_distance_without_a_miss_takes_the_one_before_it():
    day = np.full((2, 9, SKETCH), np.nan)
    day[POINTS, 0] = np.linspace(-1, 1, SKETCH)
    day[PEAKS, 0] = np.linspace(0, 9, SKETCH)
    point, peak = spread_quantiles([day], 9)
    # Second and last but zeroth of ten values; the median and the last of 0, 1, ... 9.
    assert point[:, 5] == pytest.approx([-1 + 2 / 9, 1.0]) and peak[:, 8] == pytest.approx([5.0, 9.0])
    assert spread_quantiles([], 9)[0].tolist() == np.zeros((2, 9)).tolist()
