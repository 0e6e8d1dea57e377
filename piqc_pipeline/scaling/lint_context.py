"""What do the other objects of the input say against an autoscaler, and do monitors select anything at all?

Only what stands in the files is context: where no object of a kind is among them, nothing is said about that kind.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from piqc_pipeline.scaling.lint_load import Document
from piqc_pipeline.scaling.lint_values import Report, as_map, as_maps, integer, quantity, text

WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "LeaderWorkerSet")
MONITORS = {"ServiceMonitor": ("Service",), "PodMonitor": (*WORKLOADS, "DaemonSet", "Pod")}
EXPORTER_GUESS = {"app": "dcgm-exporter"}
"""Selector of many guides. The exporter's chart labels app.kubernetes.io/name: dcgm-exporter, the GPU operator
app: nvidia-dcgm-exporter."""
SHORT_GRACE_SECONDS = 30
"""Kubernetes' default; a long generation takes longer."""


def check_context(document: Document, others: Sequence[Document], report: Report) -> None:
    """Notes what the target's own object, quotas and other autoscalers say against this one."""
    spec = as_map(document.body.get("spec"))
    target, namespace = as_map(spec.get("scaleTargetRef")), namespace_of(document.body)
    kind, name = text(target.get("kind")) or "Deployment", text(target.get("name"))
    here = [other for other in others if other.kind in WORKLOADS and namespace_of(other.body) == namespace]
    found = [other for other in here if other.kind == kind and _name(other.body) == name]
    if here and not found and kind in WORKLOADS and name:
        report.add("target-not-found", "spec.scaleTargetRef", f"no {kind} {namespace}/{name} is among the objects")
    group = str(target.get("apiVersion") or "").rpartition("/")[0]
    if group not in ("", "apps", "batch") and kind not in WORKLOADS:
        report.add("target-custom", "spec.scaleTargetRef", f"{kind} must report status.replicas under /scale")
    for workload in found[:1]:
        most = integer(spec.get("maxReplicaCount", spec.get("maxReplicas")))
        _quota(as_map(workload.body.get("spec")), most or 100, namespace, others, report)
        _grace(workload.body, report)
    _shared(document, others, report)


def namespace_of(body: Mapping[str, Any]) -> str:
    """Namespace of an object; `default` where it names none."""
    return text(as_map(body.get("metadata")).get("namespace")) or "default"


def _name(body: Mapping[str, Any]) -> str:
    return text(as_map(body.get("metadata")).get("name")) or ""


def _pod(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    if "leaderWorkerTemplate" in spec:
        spec = {"template": as_map(spec.get("leaderWorkerTemplate")).get("workerTemplate")}
    return as_map(as_map(spec.get("template")).get("spec"))


def _accelerators(pod: Mapping[str, Any]) -> dict[str, float]:
    """Units that the containers of a pod ask for, by resource key with a vendor's domain."""
    units: dict[str, float] = {}
    for container in as_maps(pod.get("containers")):
        resources = as_map(container.get("resources"))
        for key, amount in {**as_map(resources.get("limits")), **as_map(resources.get("requests"))}.items():
            if "/" in str(key) and "gpu" in str(key).lower():
                units[str(key)] = units.get(str(key), 0.0) + (quantity(amount) or 0.0)
    return units


def _quota(spec: Mapping[str, Any], most: int, namespace: str, others: Sequence[Document], report: Report) -> None:
    size = as_map(spec.get("leaderWorkerTemplate")).get("size")
    pods = size if isinstance(size, int) and size > 0 else 1
    for key, units in _accelerators(_pod(spec)).items():
        for other in others:
            if other.kind != "ResourceQuota" or namespace_of(other.body) != namespace:
                continue
            hard = quantity(as_map(as_map(other.body.get("spec")).get("hard")).get(f"requests.{key}"))
            if hard is not None and units * pods * most > hard:
                report.add(
                    "max-above-quota",
                    "spec",
                    f"{most} replicas take {units * pods * most:g} {key}, quota {_name(other.body)} allows {hard:g}",
                )


def _grace(body: Mapping[str, Any], report: Report) -> None:
    pod = _pod(as_map(body.get("spec")))
    if not _accelerators(pod):
        return
    grace = pod.get("terminationGracePeriodSeconds", SHORT_GRACE_SECONDS)
    if isinstance(grace, int) and grace <= SHORT_GRACE_SECONDS:
        message = f"pods of {_name(body)} end {grace} s after scale-in begins, whatever they generate"
        report.add("grace-short", "spec.scaleTargetRef", message)


def _reads(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What each trigger of a ScaledObject asks: its address and its query or field."""
    for trigger in as_maps(as_map(body.get("spec")).get("triggers")):
        metadata = as_map(trigger.get("metadata"))
        query = text(metadata.get("query")) or text(metadata.get("valueLocation"))
        address = text(metadata.get("serverAddress")) or text(metadata.get("url"))
        if query and address:
            yield address.strip(), "".join(query.split())


def _shared(document: Document, others: Sequence[Document], report: Report) -> None:
    """Another workload's ScaledObject that reads the same number."""
    if document.kind != "ScaledObject":
        return
    own = dict.fromkeys(_reads(document.body))
    target = as_map(as_map(document.body.get("spec")).get("scaleTargetRef")).get("name")
    for other in others:
        if other.kind != "ScaledObject" or other is document:
            continue
        theirs = as_map(as_map(other.body.get("spec")).get("scaleTargetRef")).get("name")
        if (namespace_of(other.body), theirs) == (namespace_of(document.body), target):
            continue
        if any(read in own for read in _reads(other.body)):
            message = f"{namespace_of(other.body)}/{theirs} is scaled by the same number"
            report.add("trigger-shared", "spec.triggers", message)
            return


def check_monitor(document: Document, others: Sequence[Document], report: Report) -> None:
    """Notes a ServiceMonitor or PodMonitor whose selector fits nothing, or whose port nobody has."""
    spec = as_map(document.body.get("spec"))
    selector = as_map(spec.get("selector"))
    labels = as_map(selector.get("matchLabels"))
    known = [other for other in others if other.kind in MONITORS[document.kind] and _seen(spec, document, other)]
    fits = [other for other in known if _selects(selector, _labels(other))]
    if known and not fits:
        shown = ", ".join(f"{key}={value}" for key, value in labels.items()) or "its expressions"
        kinds = " or ".join(MONITORS[document.kind][:1])
        report.add("monitor-selects-nothing", "spec.selector", f"no {kinds} among the objects has the labels {shown}")
    elif not known and dict(labels) == EXPORTER_GUESS:
        report.add("monitor-exporter-labels", "spec.selector", "app: dcgm-exporter is no label of the exporter")
    if document.kind == "ServiceMonitor" and fits:
        _ports(spec, fits, report)


def _seen(spec: Mapping[str, Any], monitor: Document, other: Document) -> bool:
    wanted = as_map(spec.get("namespaceSelector"))
    if wanted.get("any") is True:
        return True
    names = wanted.get("matchNames")
    return namespace_of(other.body) in (names if isinstance(names, list) and names else [namespace_of(monitor.body)])


def _labels(document: Document) -> Mapping[str, Any]:
    if document.kind in ("Service", "Pod"):
        return as_map(as_map(document.body.get("metadata")).get("labels"))
    template = as_map(as_map(document.body.get("spec")).get("template"))
    return as_map(as_map(template.get("metadata")).get("labels"))


def _selects(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    if any(labels.get(key) != value for key, value in as_map(selector.get("matchLabels")).items()):
        return False
    for rule in as_maps(selector.get("matchExpressions")):
        key, values = str(rule.get("key")), rule.get("values")
        among = labels.get(key) in values if isinstance(values, list) else False
        given = key in labels
        fits = {"In": among, "NotIn": not among, "Exists": given, "DoesNotExist": not given}
        if not fits.get(str(rule.get("operator")), True):
            return False
    return True


def _ports(spec: Mapping[str, Any], fits: Sequence[Document], report: Report) -> None:
    names: set[str] = set()
    for service in fits:
        names |= {str(port.get("name")) for port in as_maps(as_map(service.body.get("spec")).get("ports"))}
    for index, endpoint in enumerate(as_maps(spec.get("endpoints"))):
        port = text(endpoint.get("port"))
        if port and port not in names:
            report.add("monitor-port", f"spec.endpoints[{index}].port", f"no selected Service has a port named {port}")
