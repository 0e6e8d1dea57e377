import numpy as np
import pytest

from piqc_pipeline.forecast.combine import (
    POWER,
    Buckets,
    central_value,
    mean_loss,
    rolling_losses,
    weights_from,
)


@pytest.mark.parametrize(
    ("step", "ends"),
    [(300, (2, 6, 12, 24, 36, 60)), (600, (1, 3, 6, 12, 18, 30)), (1800, (1, 2, 4, 6, 10)), (3600, (1, 2, 3, 5))],
)
def test_buckets_end_at_10_and_30_minutes_1_2_3_and_5_hours_where_the_step_allows(step, ends):
    assert Buckets.of(step).ends == ends


def test_center_of_members_that_agree_is_their_value():
    paths = np.array([[4.0], [4.0], [9.0], [1.0]])
    # 80 % of the weight says 4: the 40, 50 and 60 % quantiles are all 4.
    assert central_value(paths, np.array([[0.5], [0.3], [0.1], [0.1]]))[0] == 4.0


def test_center_is_the_mean_of_three_weighted_quantiles():
    # Cumulative weights 0.25, 0.5, 0.75, 1: 40 % and 50 % fall on 2, 60 % on 3.
    assert central_value(np.array([[3.0, 1.0, 4.0, 2.0]]).T, np.full((4, 1), 0.25))[0] == pytest.approx((2 + 2 + 3) / 3)


def test_member_without_weight_is_never_chosen():
    assert central_value(np.array([[0.0, 5.0, 6.0]]).T, np.array([[0.0, 1.0, 0.0]]).T)[0] == 5.0


def test_weight_is_the_inverse_loss_to_a_high_power():
    weights = weights_from(np.array([[1.0], [2.0]]), floor=0.0)
    assert weights[:, 0] == pytest.approx([1.0, 0.5**POWER])


def test_member_without_a_finished_path_weighs_nothing_unless_none_has_one():
    assert weights_from(np.array([[1.0], [np.nan]]), 0.0)[:, 0].tolist() == [1.0, 0.0]
    assert weights_from(np.array([[np.nan], [np.nan]]), 0.0)[:, 0].tolist() == [1.0, 1.0]


def test_newcomers_missing_paths_count_as_the_worst_members():
    # One lucky path without error against ten of 1 and ten of 3: (0 + 9 * 3) / 10.
    sums, weights = np.array([[10.0, 30.0, 0.0]]), np.array([[10.0, 10.0, 1.0]])
    assert mean_loss(sums, weights) == pytest.approx([1.0, 3.0, 2.7])


def test_rolling_loss_halves_what_is_a_half_life_old():
    # The first half-life is a quarter of a day: 36 steps of 144.
    errors = np.array([8.0, 0.0])[:, None, None]
    sums, weights = rolling_losses(errors, np.array([0, 36]), day=144)
    assert sums[0, 1, 0, 0] == pytest.approx(4.0) and weights[0, 1, 0, 0] == pytest.approx(1.5)


def test_rolling_loss_over_years_stays_finite_and_exact():
    origins = np.arange(0, 1000 * 144, 144)
    sums, weights = rolling_losses(np.ones((1000, 1, 1)), origins, day=144)
    # Geometric series: one value a day that halves every quarter of a day sums up to 1 / (1 - 1/16).
    assert sums[0, -1, 0, 0] == pytest.approx(16 / 15) and weights[0, -1, 0, 0] == pytest.approx(16 / 15)
    assert sums[2, -1, 0, 0] == pytest.approx(1 / (1 - 0.5**0.25))
