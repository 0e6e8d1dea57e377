"""Which fields of the objects around pods does a scan need? Owners, Services, monitors, autoscalers, claims, slices.

Pods and nodes are in `objects.py`, whose base they share: everything else of an object is skipped unread.
"""

from typing import Any

import msgspec

from piqc_pipeline.cluster.objects import LabelSelector, Meta, PodSpec, Quantities, Wire


class PodTemplate(Wire):
    """The pods that a controller makes."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class ControllerSpec(Wire):
    """The wanted state of a controller, for every kind that has one of these fields."""

    replicas: int | None = None
    parallelism: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate | None = None


class ControllerStatus(Wire):
    """The state of a controller that it has seen."""

    desired_number_scheduled: int | None = None


class ControllerObject(Wire):
    """Anything that owns pods, or owns an owner of pods."""

    metadata: Meta
    api_version: str = ""
    kind: str = ""
    spec: ControllerSpec = msgspec.field(default_factory=ControllerSpec)
    status: ControllerStatus = msgspec.field(default_factory=ControllerStatus)


class BareObject(Wire):
    """An object of which only names and owners matter."""

    metadata: Meta
    api_version: str = ""
    kind: str = ""


class ServicePort(Wire):
    """A port of a Service."""

    port: int = 0
    name: str | None = None


class ServiceSpec(Wire):
    """Which pods a Service reaches."""

    selector: dict[str, str] | None = None
    ports: list[ServicePort] | None = None


class ServiceObject(Wire):
    """A Service."""

    metadata: Meta
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class NamespaceSelector(Wire):
    """Which namespaces a monitor looks into."""

    any: bool | None = None
    match_names: list[str] | None = None


class MonitorSpec(Wire):
    """What a ServiceMonitor or PodMonitor selects."""

    selector: LabelSelector | None = None
    namespace_selector: NamespaceSelector | None = None


class MonitorObject(Wire):
    """A ServiceMonitor or PodMonitor."""

    metadata: Meta
    spec: MonitorSpec = msgspec.field(default_factory=MonitorSpec)


class ScaleTarget(Wire):
    """What an autoscaler scales."""

    kind: str = "Deployment"
    name: str = ""


class MetricRow(Wire):
    """One metric of an HPA, or one trigger of a ScaledObject."""

    type: str = ""


class AutoscalerSpec(Wire):
    """Limits and metrics of a HorizontalPodAutoscaler or ScaledObject."""

    scale_target_ref: ScaleTarget = msgspec.field(default_factory=ScaleTarget)
    min_replicas: int | None = None
    max_replicas: int | None = None
    min_replica_count: int | None = None
    max_replica_count: int | None = None
    metrics: list[MetricRow] | None = None
    triggers: list[MetricRow] | None = None


class AutoscalerObject(Wire):
    """A HorizontalPodAutoscaler or ScaledObject."""

    metadata: Meta
    spec: AutoscalerSpec = msgspec.field(default_factory=AutoscalerSpec)


class QuotaSpec(Wire):
    """The limits of a ResourceQuota, and which pods it counts."""

    hard: Quantities | None = None
    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class QuotaStatus(Wire):
    """The limits in force, and what is used of them."""

    hard: Quantities | None = None
    used: Quantities | None = None


class QuotaObject(Wire):
    """A ResourceQuota."""

    metadata: Meta
    spec: QuotaSpec = msgspec.field(default_factory=QuotaSpec)
    status: QuotaStatus = msgspec.field(default_factory=QuotaStatus)


class ContainerUsage(Wire):
    """What one container used in the metrics server's last window."""

    name: str = ""
    usage: Quantities | None = None


class UsageObject(Wire):
    """A PodMetrics of `metrics.k8s.io`."""

    metadata: Meta
    containers: list[ContainerUsage] | None = None


class DeviceResult(Wire):
    """One device that a ResourceClaim was given."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class DeviceResults(Wire):
    """All devices of a claim."""

    results: list[DeviceResult] | None = None


class Allocation(Wire):
    """What a claim was given."""

    devices: DeviceResults | None = None


class Consumer(Wire):
    """Who uses a claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimObjectStatus(Wire):
    """Allocation and users of a claim."""

    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None


class ExactRequest(Wire):
    """How many devices of which class."""

    device_class_name: str = ""
    allocation_mode: str | None = None
    count: int | None = None


class ClaimRequest(ExactRequest):
    """One request of a claim: flat before resource.k8s.io/v1beta2, under `exactly` since."""

    name: str = ""
    exactly: ExactRequest | None = None


class ClaimDevices(Wire):
    """The requests of a claim."""

    requests: list[ClaimRequest] | None = None


class ClaimSpec(Wire):
    """What a claim wants."""

    devices: ClaimDevices | None = None


class ClaimObject(Wire):
    """A ResourceClaim."""

    metadata: Meta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimObjectStatus = msgspec.field(default_factory=ClaimObjectStatus)


class Attribute(Wire):
    """One attribute of a device."""

    string: str | None = None


class DeviceBody(Wire):
    """Attributes and capacity of a device."""

    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Any] | None = None


class Device(DeviceBody):
    """A device: flat since resource.k8s.io/v1beta2, under `basic` before."""

    name: str = ""
    basic: DeviceBody | None = None


class SlicePool(Wire):
    """The pool that a slice is a part of."""

    name: str = ""


class SliceSpec(Wire):
    """The devices of one driver on one node."""

    driver: str = ""
    node_name: str | None = None
    pool: SlicePool | None = None
    devices: list[Device] | None = None


class SliceObject(Wire):
    """A ResourceSlice."""

    metadata: Meta
    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)


class ConfigMapObject(Wire):
    """A ConfigMap, read only where an engine's command names a file in it."""

    metadata: Meta
    data: dict[str, str] | None = None
