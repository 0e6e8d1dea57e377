"""What watches the cluster, and what scales it? Exporters, monitors through Services, HPAs and ScaledObjects."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from piqc_pipeline.cluster.objects import PodObject
from piqc_pipeline.cluster.reader import ClusterObjects
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.cluster.relevance import component_of
from piqc_pipeline.cluster.surroundings import AutoscalerObject, MonitorObject, ServiceObject
from piqc_pipeline.facts.snapshot import Autoscaler, ObservabilitySigns

_OTEL_PORTS = frozenset({4317, 4318})


def autoscalers(items: Sequence[tuple[str, AutoscalerObject]]) -> tuple[Autoscaler, ...]:
    """HPAs and ScaledObjects, in order. The HPA that KEDA made for a ScaledObject is left out."""
    scaled = {(item.metadata.namespace, item.metadata.name) for kind, item in items if kind == "ScaledObject"}
    found = []
    for kind, item in items:
        meta, spec = item.metadata, item.spec
        owner = meta.owner()
        name = owner.name if owner and owner.kind == "ScaledObject" else meta.label("scaledobject.keda.sh/name")
        if kind == "HorizontalPodAutoscaler" and name and (meta.namespace, name) in scaled:
            continue
        keda = kind == "ScaledObject"
        found.append(
            Autoscaler(
                kind=cast(Literal["HorizontalPodAutoscaler", "ScaledObject"], kind),
                namespace=meta.namespace,
                name=meta.name,
                target_kind=spec.scale_target_ref.kind,
                target_name=spec.scale_target_ref.name,
                min_replicas=(spec.min_replica_count or 0)
                if keda
                else 1
                if spec.min_replicas is None
                else spec.min_replicas,
                max_replicas=(spec.max_replica_count or 100) if keda else spec.max_replicas,
                metric_types=tuple(row.type for row in (spec.triggers if keda else spec.metrics) or []),
            )
        )
    return tuple(sorted(found, key=lambda row: (row.namespace, row.kind, row.name)))


def observe(objects: ClusterObjects, families: Mapping[str, Sequence[PodObject]]) -> ObservabilitySigns:
    """What the coverage report asks about."""
    components: dict[str, set[str]] = defaultdict(set)
    for pod in objects.pods or []:
        name = component_of(pod)
        ready = any(row.type == "Ready" and row.status == "True" for row in pod.status.conditions or [])
        if name is not None and ready and pod.spec.node_name:
            components[name].add(pod.spec.node_name)
    return ObservabilitySigns(
        components={name: tuple(sorted(nodes)) for name, nodes in sorted(components.items())},
        prometheus_operator=_operator(objects),
        scraped_workload_ids=_scraped(objects, families),
        otel_services=tuple(sorted(_otel(objects.services or []))),
    )


def _operator(objects: ClusterObjects) -> bool | None:
    if objects.prometheus_operator:
        return True
    return None if not objects.monitors or any(items is None for items in objects.monitors.values()) else False


def _scraped(objects: ClusterObjects, families: Mapping[str, Sequence[PodObject]]) -> tuple[str, ...] | None:
    """Workloads that a ServiceMonitor selects through one of their Services, or a PodMonitor directly."""
    service_monitors = objects.monitors.get("ServiceMonitor")
    pod_monitors = objects.monitors.get("PodMonitor")
    if service_monitors is None or pod_monitors is None or (objects.services is None and service_monitors):
        return None
    services = [
        service
        for service in objects.services or []
        if service.spec.selector and any(_selects(monitor, service.metadata) for monitor in service_monitors)
    ]
    by_namespace: dict[str, list[dict[str, str]]] = defaultdict(list)
    for service in services:
        by_namespace[service.metadata.namespace].append(service.spec.selector or {})
    return tuple(
        sorted(
            key
            for key, pods in families.items()
            if any(
                any(_subset(selector, pod) for selector in by_namespace[pod.metadata.namespace])
                or any(_selects(monitor, pod.metadata) for monitor in pod_monitors)
                for pod in pods
            )
        )
    )


def _subset(selector: Mapping[str, str], pod: PodObject) -> bool:
    labels = pod.metadata.labels or {}
    return all(labels.get(key) == value for key, value in selector.items())


def _selects(monitor: MonitorObject, meta: "object") -> bool:
    namespace, labels = getattr(meta, "namespace", ""), getattr(meta, "labels", None) or {}
    where = monitor.spec.namespace_selector
    if where is None or not (where.any or where.match_names):
        in_reach = namespace == monitor.metadata.namespace
    else:
        in_reach = bool(where.any) or namespace in (where.match_names or [])
    return in_reach and monitor.spec.selector is not None and monitor.spec.selector.matches(labels)


def _otel(services: Sequence[ServiceObject]) -> set[str]:
    """Services of an OpenTelemetry collector: by name, or by OTLP ports named so."""
    return {
        f"{service.metadata.namespace}/{printable(service.metadata.name, 80)}"
        for service in services
        if "otel-collector" in service.metadata.name
        or "opentelemetry-collector" in service.metadata.name
        or any(port.port in _OTEL_PORTS and "otlp" in (port.name or "") for port in service.spec.ports or [])
    }
