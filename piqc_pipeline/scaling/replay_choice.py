"""Which policy is recommended, and is the difference more than chance? Paired bootstrap by day.

If the reactive policy does as well, it is recommended: it needs no forecast.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay_policies import CANDIDATES, REACTIVE
from piqc_pipeline.scaling.replay_scores import LONGEST_RUN_MINUTES, PolicyScore

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INTERVAL = (0.025, 0.975)


@dataclass(frozen=True)
class Recommendation:
    """A policy for one workload.

    Attributes:
        policy: Its name; `stay_reactive` where nothing is better beyond chance.
        why: One paragraph.
    """

    policy: str
    why: str


def bootstrap_days(days: int, draws: int, seed: int) -> Ints:
    """Days drawn with replacement, shape (draws, days)."""
    return np.random.default_rng(seed).integers(0, days, size=(draws, days))


def ratio_interval(over: Floats, under: Floats) -> dict[str, float | None]:
    """Ratio of two sums: the first entry is the measured one, the others its draws. None where the divisor is 0."""
    if not len(under) or under[0] <= 0:
        return {"value": None, "low": None, "high": None, "numerator": float(over[0]), "denominator": float(under[0])}
    drawn = over[1:][under[1:] > 0] / under[1:][under[1:] > 0]
    low, high = np.quantile(drawn, INTERVAL) if len(drawn) else (np.nan, np.nan)
    return {
        "value": float(over[0] / under[0]),
        "low": float(low) if np.isfinite(low) else None,
        "high": float(high) if np.isfinite(high) else None,
        "numerator": float(over[0]),
        "denominator": float(under[0]),
    }


def recommend(
    scored: Mapping[str, PolicyScore], daily: Mapping[str, tuple[Floats, ...]], draws: Ints, policy: ScalingPolicy
) -> Recommendation:
    """The cheapest policy that keeps the rules; reactive unless another is better beyond chance.

    A candidate waits no longer than the reactive policy (minutes over the wait limit), and its longest run over 90 % is
    at most 10 minutes, or it has fewer such runs than the reactive policy has.
    """
    reactive = scored[REACTIVE]
    kept = reactive.longest_run_minutes <= LONGEST_RUN_MINUTES
    saved = {name: _saved(daily, name, draws) for name in CANDIDATES}
    eligible = []
    for name in CANDIDATES:
        value = scored[name]
        if name == REACTIVE or value.slo_minutes > reactive.slo_minutes:
            continue
        within = value.longest_run_minutes <= LONGEST_RUN_MINUTES
        cheaper = value.gpu_hours < reactive.gpu_hours
        better = saved[name][1] > 0
        if (kept and within and cheaper) or (
            not kept and (within or value.runs_over_10 < reactive.runs_over_10) and better
        ):
            eligible.append(name)
    if not eligible:
        return Recommendation(REACTIVE, _why_reactive(scored, saved, kept))
    best = min(
        eligible,
        key=lambda name: (
            scored[name].longest_run_minutes > LONGEST_RUN_MINUTES,
            scored[name].gpu_hours,
        ),
    )
    return Recommendation(best, _why(best, scored, saved[best], policy))


def _saved(daily: Mapping[str, tuple[Floats, ...]], name: str, draws: Ints) -> tuple[float, float, float]:
    difference = daily[REACTIVE][1] - daily[name][1]
    drawn = difference[draws].mean(axis=1)
    low, high = np.quantile(drawn, INTERVAL)
    return float(difference.mean()), float(low), float(high)


def _why_reactive(
    scored: Mapping[str, PolicyScore], saved: Mapping[str, tuple[float, float, float]], kept: bool
) -> str:
    reactive = scored[REACTIVE]
    rivals = [name for name in CANDIDATES if name != REACTIVE]
    rival = max(rivals, key=lambda name: saved[name][0])
    mean, low, high = saved[rival]
    cost = _percent(scored[rival].gpu_hours, reactive.gpu_hours)
    state = f"its longest run over 90 % is {reactive.longest_run_minutes} min"
    if not kept:
        state = (
            f"it has {reactive.runs_over_10} runs over 90 % longer than 10 min, but no other has fewer beyond chance"
        )
    return (
        f"Stay reactive: {state}, with {reactive.minutes_over_90} min over 90 % and {reactive.gpu_hours:.0f} "
        f"GPU-hours. The next best, {rival}, saves {mean:.1f} min a day (95 % interval {low:.1f} to {high:.1f}) for "
        f"{cost} GPU-hours."
    )


def _why(best: str, scored: Mapping[str, PolicyScore], saved: tuple[float, float, float], policy: ScalingPolicy) -> str:
    value, reactive = scored[best], scored[REACTIVE]
    mean, low, high = saved
    cost = _percent(value.gpu_hours, reactive.gpu_hours)
    return (
        f"{best}: with a lead time of {policy.lead_seconds / 60:g} min it has {value.minutes_over_90} min over 90 % "
        f"where staying reactive has {reactive.minutes_over_90} ({mean:.1f} a day fewer, 95 % interval {low:.1f} to "
        f"{high:.1f}), {value.runs_over_10} runs longer than 10 min against {reactive.runs_over_10}, "
        f"{value.slo_minutes} min of waiting against {reactive.slo_minutes}, for {cost} GPU-hours."
    )


def _percent(value: float, reference: float) -> str:
    return f"{100 * (value / reference - 1):+.1f} %" if reference else "an unknown share of"
