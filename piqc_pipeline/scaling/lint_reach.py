"""How many replicas can an autoscaler's metrics ask for at all, beside its maximum?

Only what is certain counts: a metric without a known end reaches every maximum.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from piqc_pipeline.scaling.lint_bounds import bound_of_formula, bound_of_name, bound_of_query
from piqc_pipeline.scaling.lint_values import Report, as_map, integer, number, text

RESOURCE_TYPES = {"cpu", "memory"}
TARGET_KEYS = {"metrics-api": "targetValue", "prometheus": "threshold"}


def kind_of(trigger: Mapping[str, Any]) -> str:
    """Type of a trigger; empty where it has none."""
    return text(trigger.get("type")) or ""


def check_reach(
    spec: Mapping[str, Any], triggers: Sequence[Mapping[str, Any]], modifiers: Mapping[str, Any], report: Report
) -> None:
    """The most that each trigger, or the formula over them, can ask for, beside the maximum."""
    most = integer(spec.get("maxReplicaCount")) or 100
    for index, trigger in enumerate(triggers):
        composed = bool(modifiers.get("formula"))
        if (modifiers if composed else trigger).get("metricType") == "Value" and forecasts(trigger):
            path = "spec.advanced.scalingModifiers.metricType" if composed else f"spec.triggers[{index}].metricType"
            report.add("forecast-runaway", path, "a forecast read as Value runs to the maximum or decays")
        wanted = number(as_map(trigger.get("metadata")).get("desiredReplicas"))
        if kind_of(trigger) == "cron" and wanted is not None and wanted > most:
            message = f"the window asks for {wanted:g}, the maximum is {most}"
            report.add("cron-above-max", f"spec.triggers[{index}].metadata", message)
    if modifiers.get("formula"):
        reach = [_reach_of_formula(modifiers, triggers)]
        paths = ["spec.advanced.scalingModifiers.target"]
        # Resource metrics stay outside the formula and know no end.
        reach += [(None, "") for trigger in triggers if kind_of(trigger) in RESOURCE_TYPES]
        paths += [""] * len(reach)
    else:
        reach = [_reach(trigger) for trigger in triggers]
        paths = [
            f"spec.triggers[{index}].metadata.{TARGET_KEYS.get(kind_of(trigger), 'desiredReplicas')}"
            for index, trigger in enumerate(triggers)
        ]
    alone = len(triggers) == 1 or bool(modifiers.get("formula"))
    shown = [alone or kind_of(trigger) != "cron" for trigger in triggers]
    least = integer(spec.get("minReplicaCount")) or 0
    named = f"maxReplicaCount {most}" + ("" if "maxReplicaCount" in spec else " (its default)")
    add_unreachable(reach, paths, shown, (least, most, named), report)


def add_unreachable(
    reach: Sequence[tuple[float | None, str]],
    paths: Sequence[str],
    shown: Sequence[bool],
    limits: tuple[int, int, str],
    report: Report,
) -> None:
    """Notes each metric that never asks for the maximum, and what all of them together reach.

    Args:
        reach: The most replicas that each metric asks for, None: no end known; and the arithmetic.
        paths: Field of each.
        shown: Whether each may be noted.
        limits: Fewest and most replicas, and the name of the latter with its value.
        report: Takes the notes.
    """
    least, most, named = limits
    ends = [count for count, _ in reach]
    highest = math.inf if None in ends else max((count or 0 for count in ends), default=math.inf)
    for (count, sentence), path, noted in zip(reach, paths, shown, strict=False):
        if count is None or count >= most or not noted:
            continue
        whole = f"never asks for more than {count:.10g} replicas, so {named} is out of reach: {sentence}"
        if highest < most and highest != count:
            whole += f"; the largest count of all its metrics is {highest:.10g}"
        if highest < most and highest < least:
            whole += f"; the count stays at the minimum, {least}"
        report.add("target-unreachable" if highest < most else "target-partly-unreachable", path, whole)


def _reach_of_formula(modifiers: Mapping[str, Any], triggers: Sequence[Mapping[str, Any]]) -> tuple[float | None, str]:
    """Most replicas that the composite metric can ask for, and the arithmetic."""
    target = number(modifiers.get("target"))
    if target is None or target <= 0 or modifiers.get("metricType") not in (None, "", "AverageValue"):
        return None, ""
    formula = text(modifiers.get("formula")) or ""
    # A constant in the formula may turn a percentage into a share, or into replicas: the target says nothing then.
    scale = None if re.search(r"(?<!\w)\d", formula) else target
    bound = bound_of_formula(formula, {text(entry.get("name")) or "": _end(entry, scale)[0] for entry in triggers})
    return (None, "") if bound is None else asked("the formula ends at", bound, "target", target)


def asked(what: str, bound: float, key: str, target: float) -> tuple[float, str]:
    """Most replicas that a metric with an end can ask for under AverageValue, and the arithmetic."""
    count = max(math.ceil(bound / target - 1e-9), 1)
    ends = f"{what} {bound:.10g}, {key} is {target:.10g}"
    return count, f"{ends}, and AverageValue asks for ceil({bound:.10g} / {target:.10g}) = {count}"


def _reach(trigger: Mapping[str, Any]) -> tuple[float | None, str]:
    """Most replicas that a trigger can ask for, and the arithmetic; None where nothing bounds it."""
    kind, metadata = kind_of(trigger), as_map(trigger.get("metadata"))
    if kind == "cron":
        return number(metadata.get("desiredReplicas")), f"the window asks for {metadata.get('desiredReplicas')}"
    if kind not in TARGET_KEYS or trigger.get("metricType") not in (None, "AverageValue"):
        return None, ""
    key = TARGET_KEYS[kind]
    target = number(metadata.get(key))
    if target is None or target <= 0:
        return None, ""
    bound, what = _end(trigger, target)
    return (None, "") if bound is None else asked(what, bound, key, target)


def _end(trigger: Mapping[str, Any], target: float | None) -> tuple[float | None, str]:
    """Largest value that a trigger can read, and how it is told; None where no end is known."""
    kind, metadata = kind_of(trigger), as_map(trigger.get("metadata"))
    if kind == "cron":
        return number(metadata.get("desiredReplicas")), "the window asks for"
    if kind == "metrics-api":
        name = (text(metadata.get("valueLocation")) or "").replace("#", ".").split(".")[-1]
        return bound_of_name(name, target), f"{name} ends at"
    if kind == "prometheus":
        return bound_of_query(text(metadata.get("query")) or ""), "the query ends at"
    return None, ""


def forecasts(trigger: Mapping[str, Any]) -> bool:
    """Whether a trigger reads a forecast, as far as its address, field and query tell."""
    metadata = as_map(trigger.get("metadata"))
    words = f"{metadata.get('valueLocation', '')} {metadata.get('query', '')} {metadata.get('url', '')}"
    return bool(re.search(r"predict|forecast", words, re.IGNORECASE))
