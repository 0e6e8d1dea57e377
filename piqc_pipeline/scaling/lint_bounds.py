"""What is the largest value that a metric can have, as far as its name and query tell?

Only what is certain by the meaning of a metric or by the query's own arithmetic; None means unbounded or unknown.
"""

import re

from piqc_pipeline.scaling.lint_query import LONGEST_QUERY

PERCENT = 100.0
SHARE = 1.0

_METRIC_BOUNDS: tuple[tuple[str, float], ...] = (
    (r"DCGM_FI_DEV_(GPU|MEM_COPY|ENC|DEC)_UTIL", PERCENT),
    (r"DCGM_FI_PROF_(GR_ENGINE|SM|SM_OCCUPANCY|PIPE_\w+|DRAM)_ACTIVE|DCGM_FI_PROF_SM_OCCUPANCY", SHARE),
    (r"[\w:]*(gpu_cache_usage_perc|kv_cache_usage_perc|cpu_cache_usage_perc|cache_usage_ratio|token_usage)", SHARE),
    (r"[\w:]*(utilization|utilisation|utilizations?_rates?|usage|duty_cycle)_(percent|pct|percentage)\w*", PERCENT),
    (r"(predicted_gpu_util|predicted_util|nv_gpu_utilization_percent|gpu_utilization_percent)", PERCENT),
    (r"[\w:]*(utilization|utilisation|usage|occupancy)_(ratio|share|fraction)\w*", SHARE),
    (r"\w+:gpu_utilization:ratio|nv_gpu_utilization|[\w:]*gpu_utilization_ratio", SHARE),
)
_KEEPING = {"avg", "max", "min", "quantile", "avg_over_time", "max_over_time", "min_over_time", "quantile_over_time"}
_KEEPING |= {
    "last_over_time",
    "clamp",
    "clamp_min",
    "clamp_max",
    "label_replace",
    "label_join",
    "scalar",
    "vector",
    "round",
}
_KEEPING |= {"ceil", "floor", "sort", "sort_desc", "topk", "bottomk", "abs", "median"}
_WORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "or", "and", "unless", "offset", "bool"}


def bound_of_name(name: str, target: float | None) -> float | None:
    """Largest value of a field or metric by its name: utilization ends at 100, or at 1 against a target up to 1."""
    for pattern, bound in _METRIC_BOUNDS:
        if re.fullmatch(pattern, name):
            return bound if target is None or target > 1 or bound == SHARE else SHARE
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())
    if {"util", "utilization", "utilisation", "percent", "pct", "percentage"} & set(words):
        return PERCENT if target is None or target > 1 else SHARE
    if {"ratio", "fraction", "perc"} & set(words):
        return SHARE
    return None


def bound_of_query(query: str) -> float | None:
    """Largest value of a PromQL query that keeps the range of one bounded metric, times constants.

    `sum`, `count`, `rate` and arithmetic between metrics may leave the range: None.
    """
    if len(query) > LONGEST_QUERY:
        return None
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", '""', query)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    bare = re.sub(r"\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    names = re.findall(r"(?<![A-Za-z0-9_:])[A-Za-z_:][A-Za-z0-9_:]*", bare)
    functions = set(re.findall(r"\b([A-Za-z_][A-Za-z0-9_]*)\s*\(", bare))
    # An aggregation with its labels in between, `avg (x)` or `avg by (x) (y)`, lost them above.
    if functions - _KEEPING:
        return None
    metrics = [name for name in names if name not in _KEEPING and name not in _WORDS]
    bounds = {_metric_bound(name) for name in metrics}
    if not metrics or None in bounds or len(set(metrics)) > 1:
        return None
    bound = max(value for value in bounds if value is not None)
    clamps = re.search(r"clamp_max\s*\(.*,\s*([0-9.]+)\s*\)", bare)
    factor = _factor(bare)
    if factor is None:
        return None
    found = bound * factor
    return min(found, float(clamps[1])) if clamps and clamps[1].count(".") <= 1 else found


def _metric_bound(name: str) -> float | None:
    return next((bound for pattern, bound in _METRIC_BOUNDS if re.fullmatch(pattern, name)), None)


def _factor(bare: str) -> float | None:
    """Product of the constants that the metric is multiplied and divided by; None where it is added to."""
    if re.search(r"[+\-%^]", re.sub(r"\d[eE][+\-]\d", "", bare)):
        return None
    factor = 1.0
    for sign, number in re.findall(r"([*/])\s*([0-9]+(?:\.[0-9]+)?)", bare):
        value = float(number)
        if value == 0:
            return None
        factor = factor * value if sign == "*" else factor / value
    for number in re.findall(r"(?:^|\()\s*([0-9]+(?:\.[0-9]+)?)\s*\*", bare):
        factor *= float(number)
    return None if re.search(r"[0-9.]+\s*/\s*[A-Za-z(]", bare) else factor
