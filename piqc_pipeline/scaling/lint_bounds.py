"""What is the largest value that a metric can have, as far as its name and query tell?

Only what is certain by the meaning of a metric or by the query's own arithmetic; None means unbounded or unknown.
"""

import math
import re
from collections.abc import Mapping

from piqc_pipeline.scaling.lint_interval import ANY, Interval, interval_of_formula, interval_of_query
from piqc_pipeline.scaling.lint_query import LONGEST_QUERY

PERCENT = 100.0
SHARE = 1.0

# A share of cpu is one of several cores, or of a request: it may pass 100.
_METRIC_BOUNDS: tuple[tuple[str, float], ...] = (
    (r"DCGM_FI_DEV_(GPU|MEM_COPY|ENC|DEC)_UTIL", PERCENT),
    (r"DCGM_FI_PROF_(GR_ENGINE|SM|SM_OCCUPANCY|PIPE_\w+|DRAM)_ACTIVE|DCGM_FI_PROF_SM_OCCUPANCY", SHARE),
    (r"[\w:]*(gpu_cache_usage_perc|kv_cache_usage_perc|cpu_cache_usage_perc|cache_usage_ratio|token_usage)", SHARE),
    (
        r"(?!.*cpu)[\w:]*(utili[sz]ation|utilizations?_rates?|usage|duty_cycle)_(percent|pct)\w*",
        PERCENT,
    ),
    (r"(predicted_gpu_util|predicted_util|nv_gpu_utilization_percent|gpu_utilization_percent)", PERCENT),
    (r"(?!.*cpu)[\w:]*(utilization|utilisation|usage|occupancy)_(ratio|share|fraction)\w*", SHARE),
    (r"\w+:gpu_utilization:ratio|nv_gpu_utilization|[\w:]*gpu_utilization_ratio", SHARE),
)
_ONE = re.compile(r"kube_(pod|node)_(labels|info|owner)|target_info|\w+_info")
"""Metrics that carry labels and have the value 1; others are joined to them."""
_OF_A_WHOLE = {"used", "usage", "busy", "active", "occupancy", "duty", "cache", "gpu", "memory", "mem", "kv", "sm"}
"""What a ratio must be about to end at 1."""


def bound_of_name(name: str, target: float | None) -> float | None:
    """Largest value of a field or metric by its name: utilization ends at 100, or at 1 against a target up to 1."""
    for pattern, bound in _METRIC_BOUNDS:
        if re.fullmatch(pattern, name):
            return bound if target is None or target > 1 or bound == SHARE else SHARE
    words = set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()))
    if "cpu" in words:
        return None
    if {"util", "utilization", "utilisation", "percent", "pct", "percentage"} & words:
        return PERCENT if target is None or target > 1 else SHARE
    if {"ratio", "fraction", "perc"} & words and _OF_A_WHOLE & words:
        return SHARE
    return None


def bound_of_query(query: str) -> float | None:
    """Largest value of a PromQL query, by the ranges of its metrics and its own arithmetic; None: no end known.

    `sum`, `count` and `rate` grow without end.
    """
    return _end(interval_of_query(query, _metric_interval)) if len(query) <= LONGEST_QUERY else None


def bound_of_formula(formula: str, ends: Mapping[str, float | None]) -> float | None:
    """Largest value of a formula of scaling modifiers; None: no end known.

    Args:
        formula: expr-lang over the triggers' names.
        ends: Largest value of each named trigger, none below 0; None where unknown.
    """
    if len(formula) > LONGEST_QUERY:
        return None

    def trigger(name: str) -> Interval:
        end = ends.get(name)
        return ANY if end is None else (0.0, end)

    return _end(interval_of_formula(formula, trigger))


def _end(found: Interval) -> float | None:
    return found[1] if math.isfinite(found[1]) else None


def _metric_interval(name: str) -> Interval:
    end = next((bound for pattern, bound in _METRIC_BOUNDS if re.fullmatch(pattern, name)), None)
    if end is not None:
        return 0.0, end
    return (1.0, 1.0) if _ONE.fullmatch(name) else ANY
