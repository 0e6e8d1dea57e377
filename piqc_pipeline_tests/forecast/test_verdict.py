import numpy as np
import pytest

from piqc_pipeline.forecast.model import DAYS_30M, LAST_DAY_30M, Score
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.verdict import accepted, judge, score

POLICY = TrainPolicy()


def scores(mae_pp=4.0, ours=1.0, last=1.0):
    return {
        "ensemble": {
            LAST_DAY_30M: Score(mae_pp, mae_pp, ours, ours, 100),
            DAYS_30M: Score(mae_pp, mae_pp, ours, ours, 400),
        },
        "last_value": {DAYS_30M: Score(None, None, last, last, 400)},
    }


def test_error_in_points_is_demand_error_over_ready_replicas():
    found = score(np.array([[2.0, 4.0]]), np.array([[1.0, 4.0]]), np.array([[4.0, 4.0]]))
    # Off by one replica of four, and by none: 25 and 0 points.
    assert found.mae_pp == pytest.approx(12.5) and found.rmse_pp == pytest.approx(25 / 2**0.5)
    assert found.mae_demand == 0.5 and found.points == 2


def test_gaps_and_unknown_or_zero_replicas_are_left_out():
    found = score(np.array([[1.0, 1.0, 3.0]]), np.array([[np.nan, 2.0, 2.0]]), np.array([[4.0, 0.0, 4.0]]))
    assert found.points == 2 and found.mae_demand == 1.0 and found.mae_pp == 25.0
    assert score(np.array([[1.0]]), np.array([[np.nan]]), None) == Score(None, None, None, None, 0)
    assert score(np.array([[1.0]]), np.array([[2.0]]), None).mae_pp is None


@pytest.mark.parametrize(
    ("given", "is_accepted", "reason"),
    [
        (scores(), True, ""),
        (scores(mae_pp=10.0), True, ""),
        (scores(mae_pp=10.1), False, "10.10 points"),
        (scores(ours=1.01), True, ""),
        (scores(ours=1.02), False, "1.020 times"),
        (scores(ours=0.0, last=0.0), True, ""),
        (scores(ours=0.1, last=0.0), False, "never wrong"),
        (scores(mae_pp=None), True, ""),
        ({}, False, "unknown"),
    ],
    ids=[
        "good",
        "at the limit",
        "over 10 pp",
        "1 % worse",
        "2 % worse",
        "both exact",
        "ours not",
        "no replicas",
        "none",
    ],
)
def test_verdict(given, is_accepted, reason):
    verdict, reasons = accepted(judge(given, 0.9, POLICY))
    assert verdict is is_accepted
    assert reason in "; ".join(reasons)


def test_coverage_is_shown_beside_its_limits_and_does_not_decide():
    *_, coverage = judge(scores(), 0.5, POLICY)
    assert coverage.passed is False and not coverage.decides and "85% to 97%" in coverage.detail
    assert judge(scores(), None, POLICY)[-1].passed is None
