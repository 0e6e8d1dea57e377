"""Which faults can a HorizontalPodAutoscaler have? Limits, behavior, metric targets, what they can reach."""

from collections.abc import Mapping
from typing import Any

from piqc_pipeline.scaling.hpa import DEAD_ZONE_FROM
from piqc_pipeline.scaling.lint_bounds import bound_of_name
from piqc_pipeline.scaling.lint_reach import add_unreachable, asked
from piqc_pipeline.scaling.lint_values import Report, as_map, as_maps, integer, quantity, text

UNSCALABLE = {"DaemonSet", "Job", "CronJob", "Pod", "Service", "ConfigMap"}
FIELDS = {"AverageValue": "averageValue", "Value": "value", "Utilization": "averageUtilization"}
SOURCES = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
ALLOWED = {
    "External": ("AverageValue", "Value"),
    "Pods": ("AverageValue",),
    "Object": ("AverageValue", "Value"),
    "Resource": ("AverageValue", "Utilization"),
    "ContainerResource": ("AverageValue", "Utilization"),
}


def check_hpa(body: Mapping[str, Any], report: Report) -> None:
    """Notes every fault of an HPA of autoscaling/v2 or v1."""
    spec = as_map(body.get("spec"))
    name = text(as_map(body.get("metadata")).get("name")) or ""
    if name.startswith("keda-hpa-"):
        report.add("hpa-of-keda", "metadata.name", f"{name} is KEDA's own")
    least = integer(spec.get("minReplicas"))
    most = integer(spec.get("maxReplicas")) or 1
    if least is not None and least > most:
        report.add("min-above-max", "spec.minReplicas", f"minReplicas {least} is above maxReplicas {most}")
    if least == 0:
        report.add("hpa-min-zero", "spec.minReplicas", "minReplicas is 0")
    kind = text(as_map(spec.get("scaleTargetRef")).get("kind"))
    if kind in UNSCALABLE:
        report.add("target-not-scalable", "spec.scaleTargetRef.kind", f"a {kind} has no /scale subresource")
    if body.get("apiVersion") != "autoscaling/v2":
        return
    check_behavior(spec.get("behavior"), "spec.behavior", most, report)
    metrics = as_maps(spec.get("metrics"))
    if not metrics:
        report.add("hpa-no-metric", "spec", "no metric is given")
    reach = [_metric(metric, f"spec.metrics[{index}]", report) for index, metric in enumerate(metrics)]
    paths = [f"spec.metrics[{index}]" for index in range(len(reach))]
    add_unreachable(reach, paths, [True] * len(reach), (least or 1, most, f"maxReplicas {most}"), report)


def check_behavior(behavior: Any, path: str, most: int, report: Report) -> None:
    """Ranges of `behavior`, and what its tolerance means."""
    tolerant = True
    for direction in ("scaleUp", "scaleDown"):
        rules = as_map(as_map(behavior).get(direction))
        here = f"{path}.{direction}"
        window = rules.get("stabilizationWindowSeconds")
        if isinstance(window, int) and not 0 <= window <= 3600:
            report.add(
                "behavior-range", f"{here}.stabilizationWindowSeconds", f"the window is {window} s; 0 to 3600 are taken"
            )
        if rules.get("selectPolicy") not in (None, "Max", "Min", "Disabled"):
            report.add("behavior-range", f"{here}.selectPolicy", "selectPolicy is Max, Min or Disabled")
        for index, policy in enumerate(as_maps(rules.get("policies"))):
            period, value = policy.get("periodSeconds"), policy.get("value")
            if isinstance(period, int) and not 1 <= period <= 1800:
                report.add(
                    "behavior-range", f"{here}.policies[{index}]", f"the period is {period} s; 1 to 1800 are taken"
                )
            if isinstance(value, int) and value < 1:
                report.add("behavior-range", f"{here}.policies[{index}]", f"the value is {value}; 1 or more is taken")
            if policy.get("type") not in (None, "Pods", "Percent"):
                report.add("behavior-range", f"{here}.policies[{index}]", "the type is Pods or Percent")
        if rules.get("tolerance") is not None:
            tolerant = False
            report.add(
                "tolerance-version", f"{here}.tolerance", f"tolerance {rules['tolerance']} needs Kubernetes 1.35"
            )
    if tolerant and most >= DEAD_ZONE_FROM:
        message = (
            f"up to {most} replicas with the default tolerance: from {DEAD_ZONE_FROM} on, single steps are ignored"
        )
        report.add("dead-zone", path, message)


def _metric(metric: Mapping[str, Any], path: str, report: Report) -> tuple[float | None, str]:
    """Checks one metric; the most replicas it can ask for, and why."""
    kind = text(metric.get("type")) or ""
    source = as_map(metric.get(SOURCES.get(kind, "")))
    if kind not in SOURCES or not source:
        report.add(
            "hpa-target-field", path, f"a metric of type {kind!r} needs the field {SOURCES.get(kind, 'of its type')}"
        )
        return None, ""
    resource = text(source.get("name"))
    if kind in ("Resource", "ContainerResource") and resource not in ("cpu", "memory"):
        report.add("hpa-resource", f"{path}.{SOURCES[kind]}.name", f"{resource!r} is no resource that is measured")
    target = as_map(source.get("target"))
    form = text(target.get("type")) or ""
    if form not in ALLOWED[kind]:
        report.add("metric-type-invalid", f"{path}.{SOURCES[kind]}.target.type", f"a {kind} metric cannot be {form!r}")
        return None, ""
    value = quantity(target.get(FIELDS[form]))
    if value is None or value <= 0:
        report.add("hpa-target-field", f"{path}.{SOURCES[kind]}.target", f"{form} needs {FIELDS[form]} above 0")
        return None, ""
    name = text(as_map(source.get("metric")).get("name")) or ""
    if form == "Value" and ("predict" in name.lower() or "forecast" in name.lower()):
        report.add("forecast-runaway", f"{path}.{SOURCES[kind]}.target", f"{name} read as Value runs away or decays")
    if form != "AverageValue" or kind not in ("External", "Object"):
        return None, ""
    bound = bound_of_name(name, value)
    if bound is None:
        return None, ""
    return asked(f"{name} ends at", bound, "averageValue", value)
