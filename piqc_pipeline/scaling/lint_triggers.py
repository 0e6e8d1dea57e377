"""Which faults can the triggers of a ScaledObject have? Keys, types, targets, fallback, queries."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from piqc_pipeline.scaling.lint_query import check_query, check_trigger_query, of_own_pods
from piqc_pipeline.scaling.lint_reach import RESOURCE_TYPES, TARGET_KEYS, check_reach, forecasts, kind_of
from piqc_pipeline.scaling.lint_values import Report, as_map, as_maps, integer, number, text

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
    triggers = as_maps(spec.get("triggers"))
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
    check_reach(spec, triggers, modifiers, report)


def _metric_type(trigger: Mapping[str, Any], path: str, report: Report) -> None:
    kind, given = kind_of(trigger), trigger.get("metricType")
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
    kind, metadata = kind_of(trigger), as_map(trigger.get("metadata"))
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
    kind, metadata = kind_of(trigger), as_map(trigger.get("metadata"))
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


_CRON_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("weekday", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)  # fmt: skip
"""Name, range and words of each field of robfig/cron, which KEDA reads them with; Sunday is 0 and never 7."""


def _cron(metadata: Mapping[str, Any], path: str, report: Report) -> None:
    start, end = text(metadata.get("start")), text(metadata.get("end"))
    if start and end and start.split() == end.split():
        report.add("cron-window", f"{path}.metadata", f"start and end are both {start!r}")
    for key, given in (("start", start), ("end", end)):
        if given and (fault := _cron_fault(given)):
            report.add("cron-window", f"{path}.metadata.{key}", f"{key} {given!r}: {fault}")
    asked = text(metadata.get("desiredReplicas"))
    if asked and not re.fullmatch(r"[0-9]{1,9}", asked):
        report.add("target-not-positive", f"{path}.metadata.desiredReplicas", f"desiredReplicas is {asked!r}")
    zone = text(metadata.get("timezone"))
    try:
        if zone:
            ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        report.add("cron-window", f"{path}.metadata.timezone", f"{zone!r} is no time zone")


def _cron_fault(given: str) -> str | None:
    """What is wrong with five fields of cron; None where nothing is."""
    parts = given.split()
    if len(parts) != len(_CRON_FIELDS):
        return f"it has {len(parts)} fields, five are needed"
    for part, (name, least, most, words) in zip(parts, _CRON_FIELDS, strict=True):
        for entry in part.lower().split(","):
            match = re.fullmatch(r"(?:\*|\?|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", entry)
            if match is None or match[3] in ("0", "00"):
                return f"{entry!r} is no {name}"
            bounds = [words.index(word) + least if word in words else word for word in match.groups()[:2] if word]
            if not all(str(bound).isdecimal() and least <= int(bound) <= most for bound in bounds):
                return f"a {name} is {least} to {most}, not {entry!r}"
            if len(bounds) == 2 and int(bounds[0]) > int(bounds[1]):
                return f"{entry!r} goes backwards"
    return None


def _names(triggers: Sequence[Mapping[str, Any]], report: Report) -> None:
    seen: set[str] = set()
    for index, trigger in enumerate(triggers):
        name = text(trigger.get("name"))
        if name and name in seen:
            report.add("trigger-name-twice", f"spec.triggers[{index}].name", f"two triggers are named {name}")
        seen.add(name or "")


def _external(triggers: Sequence[Mapping[str, Any]]) -> list[int]:
    return [index for index, trigger in enumerate(triggers) if kind_of(trigger) not in WITHOUT_READS]


def _fallback(spec: Mapping[str, Any], triggers: Sequence[Mapping[str, Any]], report: Report) -> None:
    fallback = as_map(spec.get("fallback"))
    external = _external(triggers)
    if external and not fallback:
        report.add("fallback-missing", "spec", "no fallback is given")
        return
    if not fallback:
        return
    count = integer(fallback.get("replicas"))
    least, most = integer(spec.get("minReplicaCount")) or 0, integer(spec.get("maxReplicaCount")) or 100
    if fallback.get("behavior", "static") == "static" and (count is None or count < most):
        report.add("fallback-lowers", "spec.fallback", f"behavior static: a failed read moves the count to {count}")
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
    return kind_of(trigger) == "prometheus" and of_own_pods(query)


def _alone(triggers: Sequence[Mapping[str, Any]], report: Report) -> None:
    """A forecast without anything live beside it; what needs a ready pod."""
    if triggers and all(forecasts(trigger) for trigger in triggers):
        report.add("forecast-alone", "spec.triggers", "every trigger is a forecast")
    for index, trigger in enumerate(triggers):
        if trigger.get("metricType") == "Value":
            report.add("value-needs-ready", f"spec.triggers[{index}].metricType", "Value counts ready pods")
