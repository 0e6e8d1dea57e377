"""Which faults can a HorizontalPodAutoscaler have? Limits, metric targets, what they can reach."""

from collections.abc import Mapping
from typing import Any

from piqc_pipeline.scaling.lint_bounds import bound_of_name
from piqc_pipeline.scaling.lint_reach import add_unreachable, asked
from piqc_pipeline.scaling.lint_values import Report, as_map, as_maps, integer, quantity, text

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
    from piqc_pipeline.scaling.lint import UNSCALABLE, check_behavior

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
