from dataclasses import replace

import numpy as np
import pytest

from piqc_pipeline.forecast.days import FIGURES, Day, coverage_of, error_sums, score_of, scores_of
from piqc_pipeline.forecast.model import DAYS_5H, DAYS_30M, LAST_DAY_30M, Score


def score(forecast, actual, ready):
    return score_of(error_sums(np.array(forecast) - np.array(actual), None if ready is None else np.array(ready)))


def test_error_in_points_is_demand_error_over_ready_replicas():
    found = score([[2.0, 4.0]], [[1.0, 4.0]], [[4.0, 4.0]])
    # Off by one replica of four, and by none: 25 and 0 points.
    assert found.mae_pp == pytest.approx(12.5) and found.rmse_pp == pytest.approx(25 / 2**0.5)
    assert found.mae_demand == 0.5 and found.points == 2


def test_gaps_and_unknown_or_zero_replicas_are_left_out():
    found = score([[1.0, 1.0, 3.0]], [[np.nan, 2.0, 2.0]], [[4.0, 0.0, 4.0]])
    assert found.points == 2 and found.mae_demand == 1.0 and found.mae_pp == 25.0
    assert score([[1.0]], [[np.nan]], None) == Score(None, None, None, None, 0)
    assert score([[1.0]], [[2.0]], None).mae_pp is None


def day(errors, covered=9, windows=10):
    """A day of 30-minute errors, without ready replicas."""
    sums = np.zeros((2, FIGURES))
    sums[0, :3] = np.abs(errors).sum(), np.square(errors).sum(), len(errors)
    return Day({"ensemble": sums}, covered, windows, np.empty((2, 0, 10)))


def test_scores_over_several_days_are_of_all_their_values():
    scores = scores_of([day([100.0]), day([1.0, 1.0]), day([4.0])], 2)["ensemble"]
    assert scores[LAST_DAY_30M].mae_demand == 4.0
    # The first day is too old: (1 + 1 + 4) / 3, and the root of (1 + 1 + 16) / 3.
    assert scores[DAYS_30M].mae_demand == 2.0 and scores[DAYS_30M].rmse_demand == pytest.approx(6**0.5)
    assert scores[DAYS_5H] == Score(None, None, None, None, 0)


def test_coverage_is_a_share_of_windows_and_not_of_days():
    days = [day([1.0], 0, 100), day([1.0], 9, 10), day([1.0], 30, 30)]
    assert coverage_of(days, 2) == pytest.approx(39 / 40)
    assert coverage_of([replace(days[0], covered=0, windows=0)], 4) is None
    assert coverage_of([], 4) is None and scores_of([], 4) == {}
