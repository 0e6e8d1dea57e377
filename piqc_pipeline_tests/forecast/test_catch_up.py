from dataclasses import replace

import numpy as np
import pytest

from piqc_pipeline.forecast.catch_up import can_catch_up, catch_up
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.refresh import live_of
from piqc_pipeline.forecast.train import train
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

DAY = 144
DEMAND = daily_wave(days=9, noise=0.2)
DEMAND[7 * DAY + 40 : 7 * DAY + 47] = np.nan
WEB = "c/ns/Deployment/web"


@pytest.fixture(scope="module")
def live():
    series = series_of(DEMAND[: 7 * DAY])
    return live_of(train([series], series.end, TrainPolicy(with_prophet=False, replay_nights=4)).workloads[WEB])


@pytest.mark.parametrize("buckets", [13, 100, 200])
def test_many_buckets_at_once_are_the_same_as_one_by_one(live, buckets):
    fresh = DEMAND[7 * DAY : 7 * DAY + buckets]
    known = np.isfinite(fresh)
    at_once, one_by_one = catch_up(live, fresh, known), live.observe(np.nan_to_num(fresh), known)
    assert at_once.path(300) == pytest.approx(one_by_one.path(300), rel=1e-9)
    assert (at_once.grid.values == one_by_one.grid.values).all() and at_once.largest == one_by_one.largest
    assert at_once.losses.newest.tolist() == one_by_one.losses.newest.tolist()
    assert at_once.losses.sums == pytest.approx(one_by_one.losses.sums, rel=1e-9)
    (ours,), (theirs,) = at_once.misses, one_by_one.misses
    assert ours.level == pytest.approx(theirs.level) and ours.peaks == pytest.approx(theirs.peaks)
    assert ours.highs == pytest.approx(theirs.highs, rel=1e-6)
    assert ours.past.in_order() == pytest.approx(theirs.past.in_order(), nan_ok=True, rel=1e-6)


def test_two_windows_are_caught_up_alike(live):
    miss = live.misses[0]
    fresh = DEMAND[7 * DAY : 7 * DAY + 30]
    twice = catch_up(replace(live, misses=(miss, miss)), fresh, np.isfinite(fresh))
    assert twice.misses[0].highs == twice.misses[1].highs == catch_up(live, fresh, np.isfinite(fresh)).misses[0].highs


def test_state_of_a_first_night_goes_bucket_by_bucket(live):
    assert can_catch_up(live)
    assert not can_catch_up(replace(live, nights=live.nights[-1:]))
