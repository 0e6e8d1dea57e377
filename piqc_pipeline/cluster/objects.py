"""Which fields of Kubernetes objects does a scan need? Only these are decoded; everything else is skipped unread.

Decoding only these is about 65 times cheaper than the typed models of the official client (5,000 pods: 0.09 s instead
of 6 s). How objects are fetched belongs to `kubernetes.py` and `recorded.py`.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

Quantities = dict[str, str | int | float]


class Wire(msgspec.Struct, rename="camel", gc=False):
    """Base of all decoded objects: camelCase on the wire, unknown fields ignored."""


class OwnerRef(Wire):
    """Who made this object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Wire):
    """Names, labels, owners and times of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerRef] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    def label(self, key: str) -> str | None:
        """The label's value, None where it is not set."""
        return self.labels.get(key) if self.labels else None

    def owner(self) -> OwnerRef | None:
        """The controlling owner, else the first one."""
        references = self.owner_references or []
        return next((ref for ref in references if ref.controller), references[0] if references else None)


class KeyRef(Wire):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""


class EnvSource(Wire):
    """Where an environment value comes from; values of secrets are never asked for."""

    config_map_key_ref: KeyRef | None = None


class EnvVar(Wire):
    """One environment variable."""

    name: str = ""
    value: str | None = None
    value_from: EnvSource | None = None


class ContainerPort(Wire):
    """A declared port."""

    container_port: int | str = 0
    name: str | None = None


class ClaimRef(Wire):
    """A resource claim that a container uses."""

    name: str = ""
    request: str | None = None


class Resources(Wire):
    """Requests, limits and claims of a container."""

    requests: Quantities | None = None
    limits: Quantities | None = None
    claims: list[ClaimRef] | None = None


class VolumeMount(Wire):
    """Where a volume is mounted."""

    name: str = ""
    mount_path: str = ""
    sub_path: str | None = None


class HttpGet(Wire):
    """The HTTP half of a probe."""

    port: int | str | None = None
    path: str | None = None
    scheme: str | None = None


class Probe(Wire):
    """A readiness or liveness probe."""

    http_get: HttpGet | None = None


class Container(Wire):
    """A container, init container or native sidecar."""

    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    ports: list[ContainerPort] | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    volume_mounts: list[VolumeMount] | None = None


class PodClaim(Wire):
    """A resource claim of a pod."""

    name: str = ""
    resource_claim_name: str | None = None


class NamedRef(Wire):
    """A ConfigMap that a volume shows."""

    name: str = ""


class Volume(Wire):
    """A volume; only those that show a ConfigMap matter."""

    name: str = ""
    config_map: NamedRef | None = None


class TolerationRow(Wire):
    """A taint that a pod puts up with."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class PodSpec(Wire):
    """What a pod runs, and where."""

    containers: list[Container] = []
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[TolerationRow] | None = None
    resource_claims: list[PodClaim] | None = None
    scheduling_gates: list[Any] | None = None
    volumes: list[Volume] | None = None


class Condition(Wire):
    """One condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class ClaimStatus(Wire):
    """Which ResourceClaim was made from a pod's template."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Wire):
    """How a pod is."""

    phase: str = "Unknown"
    reason: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[Condition] | None = None
    resource_claim_statuses: list[ClaimStatus] | None = None


class PodObject(Wire):
    """A Pod."""

    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Taint(Wire):
    """A taint of a node."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(Wire):
    """Whether pods may be placed on a node."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(Wire):
    """What a node has."""

    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    conditions: list[Condition] | None = None


class NodeObject(Wire):
    """A Node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class LabelExpression(Wire):
    """One row of `matchExpressions`."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Wire):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelExpression] | None = None

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether an object with these labels is selected; an empty selector selects everything."""
        if any(labels.get(key) != value for key, value in (self.match_labels or {}).items()):
            return False
        return all(_holds(row, labels) for row in self.match_expressions or [])


def _holds(row: LabelExpression, labels: dict[str, str]) -> bool:
    values = row.values or []
    match row.operator:
        case "In":
            return labels.get(row.key) in values
        case "NotIn":
            return labels.get(row.key) not in values
        case "Exists":
            return row.key in labels
        case "DoesNotExist":
            return row.key not in labels
        case _:
            return False


def instant(text: str | None) -> datetime | None:
    """A Kubernetes time as an aware UTC instant; None where there is none, or no time."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None
