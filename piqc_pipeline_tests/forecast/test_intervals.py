import numpy as np
import pytest

from piqc_pipeline.forecast.intervals import (
    Calibration,
    PastMisses,
    adapted,
    coverage,
    pinball,
    scale_at,
    window_maximum,
)

DAY = 144


def calibration(noise=0.5, count=12 * DAY, steps=1, seed=3):
    random = np.random.default_rng(seed)
    peaks = np.full(count, 4.0)
    actual = peaks + random.normal(0, noise, count)
    actual[-steps:] = np.nan
    return Calibration(steps, DAY, np.arange(count), peaks, actual, np.full(count, 6.0))


def test_calibrated_q90_covers_nine_of_ten():
    one = calibration()
    given = one.run(0.9, 7 * DAY)
    assert coverage(one.actual[8 * DAY :], given.quantile[8 * DAY :]) == pytest.approx(0.9, abs=0.02)


def test_level_rises_after_a_miss_and_falls_slowly_after_a_hit():
    # 0.015 * (1 - 0.1) up, 0.015 * 0.1 down (Gibbs and Candes 2021, eq. 2).
    assert adapted(0.9, True, 0.9) == pytest.approx(0.9135)
    assert adapted(0.9, False, 0.9) == pytest.approx(0.8985)
    assert adapted(0.995, True, 0.9) == 0.995
    assert adapted(0.6, False, 0.9) == pytest.approx(0.6)


def test_misses_kept_in_order_give_the_calibrations_quantile():
    one = calibration(steps=3)
    given = one.run(0.9, len(one.origins) - 1)
    past = PastMisses.of(one.residuals[: len(one.origins) - 3], 3, DAY)
    expected = 4.0 + past.quantiles([0.9])[0] * scale_at(4.0, 6.0)
    assert given.quantile[-1] == pytest.approx(expected)


def test_a_miss_leaves_after_a_week():
    past = PastMisses.of(np.zeros(7 * DAY), 1, DAY)
    for _ in range(3):
        past = past.after(1.0)
    past = past.after(float("nan"))
    ordered = past.in_order()
    assert len(ordered) == 7 * DAY and ordered[-4:-1].tolist() == [1.0, 1.0, 1.0] and np.isnan(ordered[-1])


def test_too_few_misses_give_no_quantile():
    assert np.isnan(PastMisses.of(np.zeros(3), 1, DAY).quantiles([0.9])[0])


def test_window_with_a_gap_has_no_maximum():
    assert window_maximum(np.array([[1.0, 3.0, 2.0], [1.0, np.nan, 2.0]]), 3)[0] == 3.0
    assert np.isnan(window_maximum(np.array([[1.0, np.nan, 2.0]]), 3)[0])


def test_pinball_of_a_high_quantile_punishes_being_under():
    # Under by 1 costs 0.9, over by 1 costs 0.1.
    assert pinball(np.array([2.0]), np.array([1.0]), 0.9) == pytest.approx(0.9)
    assert pinball(np.array([1.0]), np.array([2.0]), 0.9) == pytest.approx(0.1)
