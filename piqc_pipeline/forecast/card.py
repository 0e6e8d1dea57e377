"""What should a person know about a model before trusting it? The model card, as Markdown."""

from collections.abc import Mapping
from datetime import datetime

from piqc_pipeline.forecast.model import DAYS_5H, DAYS_30M, LAST_DAY_30M, MODEL_LABELS, Score, WorkloadForecast

HORIZONS = {LAST_DAY_30M: "30 min, last 24 h", DAYS_30M: "30 min, all scored days", DAYS_5H: "5 h, all scored days"}


def model_card(
    trained_at: datetime,
    workloads: Mapping[str, WorkloadForecast],
    failed: Mapping[str, str],
    versions: Mapping[str, str],
) -> str:
    """The card of an artifact.

    Args:
        trained_at: UTC.
        workloads: Forecast by workload id.
        failed: Workloads without a forecast, with the reason.
        versions: Of the packages.
    """
    accepted = sum(entry.accepted for entry in workloads.values())
    lines = [
        "# Demand forecast",
        "",
        f"Trained {trained_at:%Y-%m-%d %H:%M} UTC with {', '.join(f'{k} {v}' for k, v in versions.items())}.",
        f"{accepted} of {len(workloads) + len(failed)} workloads are accepted; the others stay reactive.",
        "",
        "Errors are of rolling forecasts on days kept from training: MAE / RMSE in percentage points of utilization",
        "(demand / ready replicas) where replicas are known, and in demand units. A constant (the",
        "median of two weeks) is shown for scale.",
        "",
    ]
    lines += [f"- `{name}` has no forecast: {reason}" for name, reason in failed.items()]
    for name, entry in workloads.items():
        lines += _workload(name, entry)
    return "\n".join(lines) + "\n"


def _workload(name: str, entry: WorkloadForecast) -> list[str]:
    data = entry.data
    verdict = "accepted" if entry.accepted else "**not accepted**"
    censored = "unknown" if data.censored_share is None else f"{data.censored_share:.1%}"
    span = f"{data.start:%Y-%m-%d %H:%M} to {data.end:%Y-%m-%d %H:%M} UTC" if data.start and data.end else "none"
    lines = ["", f"## `{name}`", "", f"{verdict}, confidence {entry.confidence}.", ""]
    lines += [f"- why: {reason}" for reason in entry.reasons]
    lines += [
        f"- data: {span}, {data.rows} rows of {entry.step_seconds} s, {data.gaps} gaps, censored: {censored}",
        f"- lead window: {entry.lead_seconds} s; valid until {entry.valid_until:%Y-%m-%d %H:%M} UTC",
    ]
    lines += [f"- note: {note}" for note in data.notes]
    if entry.drift is not None:
        lines.append(f"- drift: {entry.drift.detail}")
    lines += [f"- check `{check.name}`: {_mark(check.passed)} ({check.detail})" for check in entry.checks]
    if entry.scores:
        lines += ["", "| model | " + " | ".join(HORIZONS.values()) + " |", "|---" * (len(HORIZONS) + 1) + "|"]
        for model, label in MODEL_LABELS.items():
            if model in entry.scores:
                cells = (_cell(entry.scores[model].get(key), entry.unit) for key in HORIZONS)
                lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def _mark(passed: bool | None) -> str:
    return "unknown" if passed is None else "passed" if passed else "failed"


def _cell(score: Score | None, unit: str) -> str:
    if score is None or score.mae_demand is None or score.rmse_demand is None:
        return "unknown"
    demand = f"{score.mae_demand:.3g} / {score.rmse_demand:.3g} {unit}"
    if score.mae_pp is None or score.rmse_pp is None:
        return demand
    return f"{score.mae_pp:.2f} / {score.rmse_pp:.2f} pp ({demand})"
