"""Which faults can the triggers of a ScaledObject have? Keys, types, targets, fallback, queries."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from piqc_pipeline.scaling.lint_bounds import bound_of_name, bound_of_query
from piqc_pipeline.scaling.lint_query import check_query, check_trigger_query, of_own_pods
from piqc_pipeline.scaling.lint_values import Report, as_map, integer, number, text

RESOURCE_TYPES = {"cpu", "memory"}
WITHOUT_READS = RESOURCE_TYPES | {"cron", "kubernetes-workload"}
"""Triggers that do not ask a remote system."""

_COMMON_AUTH = {"authMode", "authModes", "unsafeSsl", "timeout"}
KNOWN_KEYS = {
    "metrics-api": {
        "url", "valueLocation", "targetValue", "activationTargetValue", "format", "method", "keyParamName",
        "aggregateFromKubeServiceEndpoints", "aggregationType", "apiKey", "enableTLS", *_COMMON_AUTH,
    },
    "prometheus": {
        "serverAddress", "query", "threshold", "activationThreshold", "namespace", "customHeaders", "queryParameters",
        "ignoreNullValues", "identityOwner", "awsRegion", "cortexOrgID", "metricName", *_COMMON_AUTH,
    },
    "cron": {"timezone", "start", "end", "desiredReplicas"},
}  # fmt: skip
REQUIRED_KEYS = {
    "metrics-api": ("url", "valueLocation"),
    "prometheus": ("serverAddress", "query"),
    "cron": ("timezone", "start", "end", "desiredReplicas"),
}
TARGET_KEYS = {"metrics-api": "targetValue", "prometheus": "threshold"}
_FUNCTIONS = {
    "max",
    "min",
    "abs",
    "ceil",
    "floor",
    "round",
    "int",
    "float",
    "len",
    "sum",
    "mean",
    "median",
    "count",
    "avg",
}
_FUNCTIONS |= {
    "all",
    "any",
    "one",
    "none",
    "map",
    "filter",
    "reduce",
    "find",
    "nil",
    "true",
    "false",
    "and",
    "or",
    "not",
    "in",
}
_FUNCTIONS |= {"let", "if", "else", "string", "first", "last"}


def check_triggers(body: Mapping[str, Any], report: Report, services: set[tuple[str, str]]) -> None:
    """Notes every fault of `spec.triggers` and of what refers to them."""
    spec = as_map(body.get("spec"))
    given = spec.get("triggers")
    triggers = [as_map(trigger) for trigger in given] if isinstance(given, list) else []
    modifiers = as_map(as_map(spec.get("advanced")).get("scalingModifiers"))
    namespace = text(as_map(body.get("metadata")).get("namespace")) or "default"
    for index, trigger in enumerate(triggers):
        path = f"spec.triggers[{index}]"
        _metric_type(trigger, path, report)
        _keys(trigger, path, bool(modifiers.get("formula")), report)
        _reads(trigger, path, namespace, services, report)
    _names(triggers, report)
    _fallback(spec, triggers, report)
    _modifiers(spec, modifiers, triggers, report)
    _zero(spec, triggers, report)
    _alone(triggers, report)
    _reachable(spec, triggers, modifiers, report)


def _kind(trigger: Mapping[str, Any]) -> str:
    return text(trigger.get("type")) or ""


def _metric_type(trigger: Mapping[str, Any], path: str, report: Report) -> None:
    kind, given = _kind(trigger), trigger.get("metricType")
    metadata = as_map(trigger.get("metadata"))
    if "metricType" in metadata:
        report.add(
            "metric-type-in-metadata",
            f"{path}.metadata.metricType",
            f"metricType {metadata['metricType']!r} is ignored here",
        )
    allowed = ("Utilization", "AverageValue") if kind in RESOURCE_TYPES else ("AverageValue", "Value")
    if given is not None and given not in allowed:
        report.add("metric-type-invalid", f"{path}.metricType", f"a {kind or 'nameless'} trigger cannot be {given!r}")
    if given is None and kind not in WITHOUT_READS:
        report.add("metric-type-implicit", path, f"the {kind} trigger is AverageValue by default")
    if trigger.get("useCachedMetrics") is True and kind in RESOURCE_TYPES | {"cron"}:
        report.add("cached-metrics-unsupported", f"{path}.useCachedMetrics", f"a {kind} trigger cannot be cached")


def _keys(trigger: Mapping[str, Any], path: str, composed: bool, report: Report) -> None:
    kind, metadata = _kind(trigger), as_map(trigger.get("metadata"))
    if kind not in KNOWN_KEYS:
        return
    required = [*REQUIRED_KEYS[kind], *([] if composed or kind not in TARGET_KEYS else [TARGET_KEYS[kind]])]
    for key in required:
        if metadata.get(key) in (None, "") and f"{key}FromEnv" not in metadata:
            report.add("trigger-metadata-missing", f"{path}.metadata", f"the {kind} trigger needs {key}")
    for key in metadata:
        plain = key.removesuffix("FromEnv")
        if plain not in KNOWN_KEYS[kind] and key != "metricType":
            report.add("trigger-metadata-unknown", f"{path}.metadata.{key}", f"a {kind} trigger has no key {key}")
    target = TARGET_KEYS.get(kind)
    if target and metadata.get(target) not in (None, "") and not composed and not (number(metadata[target]) or 0) > 0:
        report.add("target-not-positive", f"{path}.metadata.{target}", f"{target} is {metadata[target]!r}")


def _reads(
    trigger: Mapping[str, Any], path: str, namespace: str, services: set[tuple[str, str]], report: Report
) -> None:
    kind, metadata = _kind(trigger), as_map(trigger.get("metadata"))
    if kind == "metrics-api":
        _address(metadata.get("url"), f"{path}.metadata.url", namespace, services, report)
        if trigger.get("authenticationRef") and not metadata.get("authMode") and not metadata.get("authModes"):
            report.add("auth-mode-missing", f"{path}.metadata", "authenticationRef is given and authMode is not")
        if str(metadata.get("aggregateFromKubeServiceEndpoints", "")).lower() == "true":
            report.add("endpoint-aggregation", f"{path}.metadata", "aggregateFromKubeServiceEndpoints is on")
        if "timeout" not in metadata:
            report.add("timeout-missing", f"{path}.metadata", "no timeout is given")
    elif kind == "prometheus":
        _address(metadata.get("serverAddress"), f"{path}.metadata.serverAddress", namespace, services, report)
        if str(metadata.get("ignoreNullValues", "true")).lower() != "false":
            report.add(
                "null-reads-as-zero",
                f"{path}.metadata",
                'a series that vanishes reads as 0 and scales down: ignoreNullValues is not "false"',
            )
        query = text(metadata.get("query"))
        if query:
            check_query(query, f"{path}.metadata.query", report)
            check_trigger_query(query, f"{path}.metadata.query", report)
    elif kind == "cron":
        _cron(metadata, path, report)


def _address(value: Any, path: str, namespace: str, services: set[tuple[str, str]], report: Report) -> None:
    if not isinstance(value, str) or not value:
        return
    try:
        parts = urlsplit(value)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        report.add("trigger-url", path, f"{value!r} is no http(s) URL")
        return
    labels = host.split(".")
    where = labels[1] if len(labels) > 1 else namespace
    local = len(labels) == 1 or (len(labels) > 2 and labels[2] == "svc")
    if services and local and any(space == where for space, _ in services) and (where, labels[0]) not in services:
        report.add("service-not-found", path, f"no Service {labels[0]} is among the objects of namespace {where}")


def _cron(metadata: Mapping[str, Any], path: str, report: Report) -> None:
    start, end = text(metadata.get("start")), text(metadata.get("end"))
    if start and end and (start == end or any(len(part.split()) != 5 for part in (start, end))):
        report.add("cron-window", f"{path}.metadata", f"start {start!r} and end {end!r}")
    zone = text(metadata.get("timezone"))
    try:
        if zone:
            ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        report.add("cron-window", f"{path}.metadata.timezone", f"{zone!r} is no time zone")


def _names(triggers: Sequence[Mapping[str, Any]], report: Report) -> None:
    seen: set[str] = set()
    for index, trigger in enumerate(triggers):
        name = text(trigger.get("name"))
        if name and name in seen:
            report.add("trigger-name-twice", f"spec.triggers[{index}].name", f"two triggers are named {name}")
        seen.add(name or "")


def _external(triggers: Sequence[Mapping[str, Any]]) -> list[int]:
    return [index for index, trigger in enumerate(triggers) if _kind(trigger) not in WITHOUT_READS]


def _fallback(spec: Mapping[str, Any], triggers: Sequence[Mapping[str, Any]], report: Report) -> None:
    fallback = as_map(spec.get("fallback"))
    external = _external(triggers)
    if external and not fallback:
        report.add("fallback-missing", "spec", "no fallback is given")
        return
    if not fallback:
        return
    if fallback.get("behavior", "static") == "static":
        report.add(
            "fallback-lowers",
            "spec.fallback",
            f"behavior static: a failed read moves the count to {fallback.get('replicas')}",
        )
    count = integer(fallback.get("replicas"))
    least, most = integer(spec.get("minReplicaCount")) or 0, integer(spec.get("maxReplicaCount")) or 100
    if count is not None and not least <= count <= most:
        report.add(
            "fallback-outside-limits", "spec.fallback.replicas", f"fallback {count} is outside {least} to {most}"
        )
    kinds = {triggers[index].get("metricType") or "AverageValue" for index in external}
    if len(kinds) > 1:
        report.add("metric-types-mixed", "spec.triggers", "Value and AverageValue are mixed beside a fallback")


def _modifiers(
    spec: Mapping[str, Any], modifiers: Mapping[str, Any], triggers: Sequence[Mapping[str, Any]], report: Report
) -> None:
    if not modifiers:
        return
    path = "spec.advanced.scalingModifiers"
    formula, target = text(modifiers.get("formula")), modifiers.get("target")
    if bool(formula) != bool(target):
        report.add("modifiers-incomplete", path, f"{'target' if formula else 'formula'} is missing")
    fallback = as_map(spec.get("fallback"))
    if formula and fallback and fallback.get("behavior", "static") != "scalingModifiers":
        report.add("fallback-skips-formula", "spec.fallback", f"behavior {fallback.get('behavior', 'static')}")
    if spec.get("fallback") and target and not re.fullmatch(r"[1-9][0-9]{0,8}", str(target)):
        report.add("fallback-ignored", f"{path}.target", f"target {target!r} is no whole number: fallback is off")
    names = {text(trigger.get("name")) for trigger in triggers}
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", formula or "")
    for name in dict.fromkeys(re.findall(r"(?<![.\w])[A-Za-z_]\w*", bare)):
        if name not in names and name not in _FUNCTIONS:
            report.add(
                "modifiers-unknown-name", f"{path}.formula", f"the formula names {name}, which no trigger is called"
            )


def _zero(spec: Mapping[str, Any], triggers: Sequence[Mapping[str, Any]], report: Report) -> None:
    if not _external(triggers):
        return
    if integer(spec.get("idleReplicaCount")) == 0:
        report.add(
            "zero-on-failure",
            "spec.idleReplicaCount",
            "a failing trigger can take the workload to 0 (idleReplicaCount)",
        )
    elif not integer(spec.get("minReplicaCount")):
        shown = "minReplicaCount is 0" if "minReplicaCount" in spec else "minReplicaCount is not given, which means 0"
        report.add("zero-on-failure", "spec.minReplicaCount", f"a failing trigger can take the workload to 0: {shown}")

    if not integer(spec.get("minReplicaCount")) and all(_gone_with_pods(trigger) for trigger in triggers):
        message = "with no pod left, nothing exports what the triggers read: the workload stays at 0"
        report.add("zero-never-returns", "spec.triggers", message)


def _gone_with_pods(trigger: Mapping[str, Any]) -> bool:
    query = text(as_map(trigger.get("metadata")).get("query")) or ""
    return _kind(trigger) == "prometheus" and of_own_pods(query)


def _alone(triggers: Sequence[Mapping[str, Any]], report: Report) -> None:
    """A forecast without anything live beside it; what needs a ready pod."""
    if triggers and all(_forecasts(trigger) for trigger in triggers):
        report.add("forecast-alone", "spec.triggers", "every trigger is a forecast")
    for index, trigger in enumerate(triggers):
        if trigger.get("metricType") == "Value":
            report.add("value-needs-ready", f"spec.triggers[{index}].metricType", "Value counts ready pods")


def _reachable(
    spec: Mapping[str, Any], triggers: Sequence[Mapping[str, Any]], modifiers: Mapping[str, Any], report: Report
) -> None:
    """The most that each trigger can ask for, beside the maximum."""
    most = integer(spec.get("maxReplicaCount")) or 100
    reach: list[tuple[int, float | None, str]] = []
    for index, trigger in enumerate(triggers):
        count, sentence = _reach(trigger)
        if trigger.get("metricType") == "Value" and _forecasts(trigger):
            path = f"spec.triggers[{index}].metricType"
            report.add("forecast-runaway", path, "a forecast read as Value runs to the maximum or decays")
        reach.append((index, count, sentence))
    if modifiers.get("formula"):
        return
    highest = (
        math.inf
        if any(count is None for _, count, _ in reach)
        else max((count or 0 for _, count, _ in reach), default=math.inf)
    )
    for index, count, sentence in reach:
        if count is None or count >= most:
            continue
        kind = _kind(triggers[index])
        if kind == "cron" and len(triggers) > 1:
            continue
        rule = "target-unreachable" if highest < most else "target-partly-unreachable"
        path = f"spec.triggers[{index}].metadata.{TARGET_KEYS.get(kind, 'desiredReplicas')}"
        limit = "" if "maxReplicaCount" in spec else " (its default)"
        report.add(
            rule,
            path,
            f"never asks for more than {count:g} replicas, so maxReplicaCount {most}{limit} is out of reach: "
            f"{sentence}",
        )
    for index, trigger in enumerate(triggers):
        asked = number(as_map(trigger.get("metadata")).get("desiredReplicas"))
        if _kind(trigger) == "cron" and asked is not None and asked > most:
            report.add(
                "cron-above-max",
                f"spec.triggers[{index}].metadata",
                f"the window asks for {asked:g}, the maximum is {most}",
            )


def _reach(trigger: Mapping[str, Any]) -> tuple[float | None, str]:
    """Most replicas that a trigger can ask for, and the arithmetic; None where nothing bounds it."""
    kind, metadata = _kind(trigger), as_map(trigger.get("metadata"))
    if kind == "cron":
        asked = number(metadata.get("desiredReplicas"))
        return asked, f"the window asks for {metadata.get('desiredReplicas')}"
    if kind not in TARGET_KEYS or trigger.get("metricType") not in (None, "AverageValue"):
        return None, ""
    key = TARGET_KEYS[kind]
    target = number(metadata.get(key))
    if target is None or target <= 0:
        return None, ""
    if kind == "metrics-api":
        name = (text(metadata.get("valueLocation")) or "").replace("#", ".").split(".")[-1]
        bound = bound_of_name(name, target)
        what = f"{name} ends at"
    else:
        bound = bound_of_query(text(metadata.get("query")) or "")
        what = "the query ends at"
    if bound is None:
        return None, ""
    count = math.ceil(bound / target - 1e-9)
    return max(
        count, 1
    ), f"{what} {bound:g}, {key} is {target:g}, and AverageValue asks for ceil({bound:g} / {target:g}) = {count}"


def _forecasts(trigger: Mapping[str, Any]) -> bool:
    metadata = as_map(trigger.get("metadata"))
    words = f"{metadata.get('valueLocation', '')} {metadata.get('query', '')} {metadata.get('url', '')}"
    return bool(re.search(r"predict|forecast", words, re.IGNORECASE))
