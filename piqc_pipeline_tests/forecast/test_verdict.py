import pytest

from piqc_pipeline.forecast.model import DAYS_30M, LAST_DAY_30M, Score
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.verdict import accepted, judge

POLICY = TrainPolicy()


def scores(mae_pp=4.0, ours=1.0, last=1.0):
    return {
        "ensemble": {
            LAST_DAY_30M: Score(mae_pp, mae_pp, ours, ours, 100),
            DAYS_30M: Score(mae_pp, mae_pp, ours, ours, 400),
        },
        "last_value": {DAYS_30M: Score(None, None, last, last, 400)},
    }


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
