"""Will these ScaledObjects and HPAs do what their author expects? Closed-world schema first, then known faults.

Reading is in `lint_load.py`, what each rule means in `lint_rules.py`, triggers in `lint_triggers.py`, HPAs in
`lint_hpa.py`, other objects in `lint_context.py`. `metadata.annotations["piqc.io/lint-ignore"]` names rules that an
object is excused from.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from piqc_pipeline.scaling import schema
from piqc_pipeline.scaling.keda import NAME_LIMIT
from piqc_pipeline.scaling.lint_context import MONITORS, check_context, check_monitor
from piqc_pipeline.scaling.lint_hpa import UNSCALABLE, check_behavior, check_hpa
from piqc_pipeline.scaling.lint_load import Document, Unreadable, applied_together, documents, paths_of, read
from piqc_pipeline.scaling.lint_query import check_query
from piqc_pipeline.scaling.lint_rules import RULES, Severity
from piqc_pipeline.scaling.lint_triggers import check_triggers
from piqc_pipeline.scaling.lint_values import Report, as_map, as_maps, integer, text

IGNORE_ANNOTATION = "piqc.io/lint-ignore"
BOOLEAN_ANNOTATIONS = tuple(
    f"autoscaling.keda.sh/{name}" for name in ("paused", "paused-scale-in", "paused-scale-out", "force-activation")
)
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
KINDS = {"ScaledObject": "keda.sh/v1alpha1", "HorizontalPodAutoscaler": "autoscaling/v2"}
CHECKED = {*KINDS, *MONITORS, "PrometheusRule"}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True)
class Finding:
    """One fault of one object.

    Attributes:
        rule: Id, a key of `RULES`.
        severity: Of the rule.
        file: As given.
        line: Line of the field, or of the object.
        object: `namespace/Kind/name`; empty where the file could not be read.
        path: Field, for instance `spec.triggers[0].metadata.targetValue`.
        message: What is wrong here, with the numbers.
    """

    rule: str
    severity: Severity
    file: str
    line: int
    object: str
    path: str
    message: str


def lint_files(names: Sequence[str], standard_input: bytes | None = None) -> list[Finding]:
    """Every fault in the files, sorted by file, severity and line.

    Args:
        names: Files and folders; `-` stands for `standard_input`.
        standard_input: Bytes of `-`.
    """
    found: list[Document] = []
    findings: list[Finding] = []
    for name in paths_of(names):
        if Path(name).is_dir():
            findings.append(_nothing(name, "it holds no YAML file and no JSON file"))
            continue
        try:
            content = standard_input or b"" if name == "-" else read(name)
            here = documents(content, name)
        except Unreadable as error:
            findings.append(Finding("unreadable", "error", name, error.line, "", "", str(error)))
            continue
        if not any(document.kind in CHECKED for document in here):
            findings.append(_nothing(name, "it holds no ScaledObject and no HPA"))
        found += here
    return sorted([*findings, *lint_documents(found)], key=_order)


def _nothing(name: str, why: str) -> Finding:
    return Finding("nothing-to-check", "info", name, 1, "", "", why)


def _order(entry: Finding) -> tuple[str, int, int, str, str]:
    rank = ("error", "warning", "info").index(entry.severity)
    return entry.file, rank, entry.line, entry.rule, entry.path


def lint_documents(found: Sequence[Document]) -> list[Finding]:
    """Every fault of the ScaledObjects and HPAs among the objects; the others are context (Services, other HPAs)."""
    findings: list[Finding] = []
    for document in found:
        if document.kind in KINDS:
            findings += _check(document, found)
        elif document.kind in CHECKED:
            findings += _check_monitoring(document, found)
    return [*findings, *_two_controllers(found)]


def _check(document: Document, others: Sequence[Document]) -> list[Finding]:
    body = document.body
    kind, version = str(body["kind"]), body.get("apiVersion")
    report = Report()
    if not isinstance(version, str) or not schema.has_schema(version, kind):
        report.add("unknown-version", "apiVersion", f"{kind} has no version {version!r}; {KINDS[kind]} is served")
    else:
        for path, message in schema.problems(body):
            report.add("schema", path, f"{path}: {message}")
        _names(body, report)
        if kind == "ScaledObject":
            _scaled_object(body, report)
            check_triggers(body, report, _services(others))
        else:
            check_hpa(body, report)
        check_context(document, others, report)
    return _findings(document, report)


def _check_monitoring(document: Document, others: Sequence[Document]) -> list[Finding]:
    """Monitors that select nothing, and the queries of recording rules and alerts."""
    report = Report()
    if document.kind in MONITORS:
        check_monitor(document, others, report)
        return _findings(document, report)
    for at, group in enumerate(as_maps(as_map(document.body.get("spec")).get("groups"))):
        for index, rule in enumerate(as_maps(group.get("rules"))):
            query = text(rule.get("expr"))
            if query:
                check_query(query, f"spec.groups[{at}].rules[{index}].expr", report)
    return _findings(document, report)


def _findings(document: Document, report: Report) -> list[Finding]:
    metadata = as_map(document.body.get("metadata"))
    label = f"{text(metadata.get('namespace')) or '-'}/{document.body['kind']}/{text(metadata.get('name')) or '?'}"
    ignored = text(as_map(metadata.get("annotations")).get(IGNORE_ANNOTATION)) or ""
    excused = {part.strip() for part in ignored.split(",")}
    return [
        Finding(rule, RULES[rule].severity, document.file, document.line(path), label, path, message)
        for rule, path, message in report.entries
        if rule not in excused
    ]


def _names(body: Mapping[str, Any], report: Report) -> None:
    name = as_map(body.get("metadata")).get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 253:
        report.add("name-invalid", "metadata.name", f"{name!r} is no name of an object"[:200])
        return
    if body["kind"] != "ScaledObject":
        return
    advanced = as_map(as_map(as_map(body.get("spec")).get("advanced")).get("horizontalPodAutoscalerConfig"))
    own = advanced.get("name")
    if len(name) > 63 or (not own and len(name) > NAME_LIMIT):
        report.add("name-too-long", "metadata.name", f"the name has {len(name)} characters, {NAME_LIMIT} are possible")
    if isinstance(own, str) and len(own) > 63:
        path = "spec.advanced.horizontalPodAutoscalerConfig.name"
        report.add("name-too-long", path, f"the HPA's name has {len(own)} characters, 63 are possible")


def _scaled_object(body: Mapping[str, Any], report: Report) -> None:
    spec = as_map(body.get("spec"))
    least = integer(spec.get("minReplicaCount")) or 0
    most = integer(spec.get("maxReplicaCount"))
    if least > (100 if most is None else most):
        shown = "100, its default" if most is None else str(most)
        report.add("min-above-max", "spec.minReplicaCount", f"minReplicaCount {least} is above maxReplicaCount {shown}")
    if most is None:
        report.add("max-missing", "spec", "maxReplicaCount is not given: up to 100 replicas")
    kind = text(as_map(spec.get("scaleTargetRef")).get("kind"))
    if kind in UNSCALABLE:
        report.add("target-not-scalable", "spec.scaleTargetRef.kind", f"a {kind} has no /scale subresource")
    idle = integer(spec.get("idleReplicaCount"))
    if idle is not None and (idle != 0 or idle >= max(least, 1)):
        report.add("idle-replicas", "spec.idleReplicaCount", f"idleReplicaCount is {idle}, minReplicaCount {least}")
    _without_effect(spec, least, idle, report)
    _annotations(as_map(as_map(body.get("metadata")).get("annotations")), report)
    config = as_map(as_map(spec.get("advanced")).get("horizontalPodAutoscalerConfig"))
    check_behavior(config.get("behavior"), "spec.advanced.horizontalPodAutoscalerConfig.behavior", most or 100, report)


def _without_effect(spec: Mapping[str, Any], least: int, idle: int | None, report: Report) -> None:
    cached = any(trigger.get("useCachedMetrics") is True for trigger in as_maps(spec.get("triggers")))
    if "pollingInterval" in spec and least > 0 and idle is None and not cached:
        report.add("polling-without-effect", "spec.pollingInterval", f"pollingInterval with minReplicaCount {least}")
    for key in ("cooldownPeriod", "initialCooldownPeriod"):
        if key in spec and least > 0 and idle is None:
            report.add("cooldown-without-effect", f"spec.{key}", f"{key} with minReplicaCount {least}")


def _annotations(annotations: Mapping[str, Any], report: Report) -> None:
    if PAUSED_REPLICAS in annotations:
        message = f"the count is held at {annotations[PAUSED_REPLICAS]} until the annotation goes"
        report.add("paused", f"metadata.annotations.{PAUSED_REPLICAS}", message[:200])
    for key in BOOLEAN_ANNOTATIONS:
        value = annotations.get(key)
        # strconv.ParseBool takes these.
        if value is not None and str(value) not in {
            "1",
            "t",
            "T",
            "true",
            "TRUE",
            "True",
            "0",
            "f",
            "F",
            "false",
            "FALSE",
            "False",
        }:
            report.add(
                "annotation-not-boolean", f"metadata.annotations.{key}", f"{key} is {value!r}: taken as true"[:200]
            )


def _services(found: Sequence[Document]) -> set[tuple[str, str]]:
    """`(namespace, name)` of the Services among the objects."""
    names = set()
    for document in found:
        metadata = as_map(document.body.get("metadata"))
        if document.body.get("kind") == "Service":
            names.add((text(metadata.get("namespace")) or "default", text(metadata.get("name")) or ""))
    return names


def _two_controllers(found: Sequence[Document]) -> list[Finding]:
    """Workloads that several autoscalers of the input name, but for alternatives that no one applies together."""
    owners: dict[tuple[str, str, str], list[Document]] = {}
    for document in found:
        kind = document.kind
        if kind not in KINDS:
            continue
        metadata = as_map(document.body.get("metadata"))
        name = text(metadata.get("name")) or ""
        transfers = "scaledobject.keda.sh/transfer-hpa-ownership" in as_map(metadata.get("annotations"))
        if transfers or (kind == "HorizontalPodAutoscaler" and name.startswith("keda-hpa-")):
            continue
        target = as_map(as_map(document.body.get("spec")).get("scaleTargetRef"))
        workload = text(target.get("name"))
        if workload:
            key = (text(metadata.get("namespace")) or "default", text(target.get("kind")) or "Deployment", workload)
            owners.setdefault(key, []).append(document)
    findings = []
    for (namespace, kind, workload), several in owners.items():
        for number, document in enumerate(several):
            rivals = (rival for rival in several[:number] if applied_together(rival.file, document.file))
            if (rival := next(rivals, None)) is None:
                continue
            report = Report()
            first = as_map(rival.body.get("metadata")).get("name")
            message = f"{kind} {namespace}/{workload} is scaled by {rival.body['kind']} {first} already"
            report.add("two-controllers", "spec.scaleTargetRef", message)
            findings += _findings(document, report)
    return findings
