"""Is a forecast good enough to scale by? The checks that decide, on scores of days kept from training."""

from collections.abc import Mapping

from piqc_pipeline.forecast.model import DAYS_30M, ENSEMBLE, LAST_DAY_30M, CheckOutcome, Score
from piqc_pipeline.forecast.policy import TrainPolicy

MAE_BELOW = "mae_below_10_pp"
RMSE_RECORDED = "rmse_recorded"
BEATS_REFERENCE = "beats_reference"
INTERVAL_COVERAGE = "interval_coverage"

Scores = Mapping[str, Mapping[str, Score]]


def judge(scores: Scores, coverage_q90: float | None, policy: TrainPolicy) -> tuple[CheckOutcome, ...]:
    """The four checks of a candidate, on the ensemble."""
    return (
        _mae(scores, policy),
        _rmse(scores),
        _reference(scores, policy),
        _coverage(coverage_q90, policy),
    )


def accepted(checks: tuple[CheckOutcome, ...]) -> tuple[bool, tuple[str, ...]]:
    """Whether every check that decides was passed or cannot be measured, and the reasons against it.

    A forecast of which nothing could be measured is not accepted.
    """
    deciding = [check for check in checks if check.decides]
    failed = tuple(check.detail for check in deciding if check.passed is False)
    if failed:
        return False, failed
    if all(check.passed is None for check in deciding):
        return False, tuple(check.detail for check in deciding)
    return True, ()


def _of(scores: Scores, model: str, key: str) -> Score:
    return scores.get(model, {}).get(key, Score(None, None, None, None, 0))


def _mae(scores: Scores, policy: TrainPolicy) -> CheckOutcome:
    value = _of(scores, ENSEMBLE, LAST_DAY_30M).mae_pp
    limit = policy.mae_limit_pp
    if value is None:
        detail = "30-minute error in points of utilization is unknown: no ready replicas or no demand in the last 24 h"
        return CheckOutcome(MAE_BELOW, None, None, limit, "pp", detail, decides=True)
    detail = f"30-minute error over the last 24 h is {value:.2f} points of utilization, at most {limit:g} allowed"
    return CheckOutcome(MAE_BELOW, value <= limit, value, limit, "pp", detail, decides=True)


def _rmse(scores: Scores) -> CheckOutcome:
    value = _of(scores, ENSEMBLE, LAST_DAY_30M)
    figure, unit = (value.rmse_demand, "replicas") if value.rmse_pp is None else (value.rmse_pp, "pp")
    detail = (
        "no RMSE: no demand in the last 24 h" if figure is None else f"RMSE over the last 24 h is {figure:.3g} {unit}"
    )
    return CheckOutcome(RMSE_RECORDED, figure is not None, figure, None, unit, detail, decides=False)


def _reference(scores: Scores, policy: TrainPolicy) -> CheckOutcome:
    ours = _of(scores, ENSEMBLE, DAYS_30M).mae_demand
    reference = _of(scores, policy.reference, DAYS_30M).mae_demand
    limit = 1 + policy.reference_slack
    if ours is None or reference is None:
        detail = f"cannot be compared with {policy.reference}: too little history to keep a day from training"
        return CheckOutcome(BEATS_REFERENCE, None, None, limit, "ratio", detail, decides=True)
    ratio = 1.0 if ours == reference else ours / reference if reference > 0 else None
    if ratio is None:
        detail = f"{policy.reference} was never wrong, the ensemble was by {ours:.3g}"
        return CheckOutcome(BEATS_REFERENCE, False, None, limit, "ratio", detail, decides=True)
    detail = f"30-minute error is {ratio:.3f} times that of {policy.reference}, at most {limit:g} allowed"
    return CheckOutcome(BEATS_REFERENCE, ratio <= limit, ratio, limit, "ratio", detail, decides=True)


def _coverage(share: float | None, policy: TrainPolicy) -> CheckOutcome:
    low, high = policy.coverage_limits
    if share is None:
        detail = "interval coverage is unknown: too few finished lead windows"
        return CheckOutcome(INTERVAL_COVERAGE, None, None, low, "share", detail, decides=False)
    detail = f"{share:.1%} of lead-window maxima were at or under their q90, {low:.0%} to {high:.0%} expected"
    return CheckOutcome(INTERVAL_COVERAGE, low <= share <= high, share, low, "share", detail, decides=False)
