"""What do the device exporters say? Each pod's own page; where pods may not be asked, pages through their Services.

Which metrics they have is in `device_metrics.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from piqc_pipeline.cluster.answers import Answers, Reply, Target
from piqc_pipeline.cluster.device_metrics import PREFIXES, DeviceUse, PodKey, read_devices
from piqc_pipeline.cluster.exposition import parse
from piqc_pipeline.cluster.objects import PodObject
from piqc_pipeline.cluster.relevance import component_named, component_of
from piqc_pipeline.cluster.surroundings import ServiceObject

PORTS = {"dcgm-exporter": 9400, "amd-metrics-exporter": 5000}
TRIES_PER_NODE = 4
MAX_TRIES = 40
"""A Service answers with the page of any node it likes; of 10 nodes all are seen after 29 answers in the mean."""


@dataclass(frozen=True)
class ExporterService:
    """A Service in front of device exporters."""

    namespace: str
    name: str
    port: int


@dataclass(frozen=True)
class Exporters:
    """Whom to ask.

    Attributes:
        pods: Node, where to ask, port.
        nodes: Nodes whose devices somebody wants to know.
        all_seen: Whether every exporter pod was seen; else a Service may know nodes that `pods` lacks.
    """

    pods: tuple[tuple[str, Target, int], ...] = ()
    services: tuple[ExporterService, ...] = ()
    nodes: frozenset[str] = frozenset()
    all_seen: bool = True


@dataclass
class ExporterAnswers:
    """What they said.

    Attributes:
        devices: By node.
        problems: Why a node's exporter said nothing.
    """

    devices: dict[str, tuple[DeviceUse, ...]] = field(default_factory=dict)
    problems: dict[str, Reply] = field(default_factory=dict)


def find_exporters(
    pods: Sequence[PodObject], services: Sequence[ServiceObject], nodes: set[str], *, all_seen: bool
) -> Exporters:
    """The exporters that can tell of these nodes.

    Args:
        pods: Pods that were read.
        services: Services that were read.
        nodes: Nodes whose devices somebody wants to know.
        all_seen: Whether the pods of every namespace were read.
    """
    found = []
    labels: list[tuple[str, dict[str, str]]] = []
    for pod in pods:
        name, node = component_of(pod), pod.spec.node_name
        if name not in PORTS or node is None or pod.status.phase != "Running":
            continue
        labels.append((pod.metadata.namespace, pod.metadata.labels or {}))
        if node in nodes:
            target = Target(pod.metadata.namespace, pod.metadata.name, pod.spec.containers[0].name, pod.status.pod_ip)
            found.append((node, target, _port_of(pod, PORTS[name])))
    found.sort(key=lambda row: (row[0], row[1].namespace, row[1].pod))
    return Exporters(tuple(found), tuple(_services(services, labels)), frozenset(nodes), all_seen)


def _port_of(pod: PodObject, usual: int) -> int:
    declared = [
        int(port.container_port)
        for container in pod.spec.containers
        for port in container.ports or []
        if str(port.container_port).isascii() and str(port.container_port).isdigit()
    ]
    return usual if usual in declared or not declared else declared[0]


def _services(services: Sequence[ServiceObject], labels: Sequence[tuple[str, dict[str, str]]]) -> list[ExporterService]:
    found = []
    for service in services:
        meta, selector = service.metadata, service.spec.selector or {}
        kind = component_named(meta.name)
        selects = bool(selector) and any(
            space == meta.namespace and selector.items() <= own.items() for space, own in labels
        )
        ports = service.spec.ports or []
        if not ports or not (selects or kind in PORTS):
            continue
        named = [port.port for port in ports if "metrics" in (port.name or "")]
        usual = [port.port for port in ports if port.port in PORTS.values()]
        found.append(ExporterService(meta.namespace, meta.name, (named or usual or [ports[0].port])[0]))
    return sorted(found, key=lambda row: (row.namespace, row.name))


Run = Callable[[str, Sequence[Callable[[], None]]], None]
"""Runs tasks under a name, some at a time."""


def ask_exporters(
    answers: Answers, exporters: Exporters, node_of: Callable[[PodKey], str | None], run: Run
) -> ExporterAnswers:
    """Read each exporter's page, and what is lacking then through the Services."""
    told = ExporterAnswers()

    def ask(node: str, target: Target, port: int) -> None:
        reply = answers.fetch(target, port, "/metrics")
        if reply.text is None:
            told.problems[node] = reply
        else:
            told.devices[node] = told.devices.get(node, ()) + _devices(reply.text)

    run("exporters", [lambda row=row: ask(*row) for row in exporters.pods])  # type: ignore[misc]
    lacking = set(told.problems) - set(told.devices)
    if not exporters.all_seen:
        lacking |= exporters.nodes - set(told.devices)
    if lacking and exporters.services:
        run("exporters", [lambda: _through_services(answers, exporters.services, lacking, node_of, told)])
    for node in told.devices:
        told.problems.pop(node, None)
    return told


def _through_services(
    answers: Answers,
    services: Sequence[ExporterService],
    lacking: set[str],
    node_of: Callable[[PodKey], str | None],
    told: ExporterAnswers,
) -> None:
    """Ask until every node was heard of. Which node a page is of, its own host names and pods say."""
    for service in services:
        for _ in range(min(MAX_TRIES, TRIES_PER_NODE * len(lacking))):
            if not lacking:
                return
            reply = answers.fetch_service(service.namespace, service.name, service.port, "/metrics")
            if reply.text is None:
                break
            devices = _devices(reply.text)
            heard = {use.host for use in devices} | {node_of(use.pod) for use in devices if use.pod is not None}
            for node in lacking & heard:
                told.devices[node] = devices
            lacking -= heard


def _devices(text: str) -> tuple[DeviceUse, ...]:
    return read_devices([parse(text, PREFIXES)], "dcgm")


def of_the_only_holder(
    devices: Mapping[str, tuple[DeviceUse, ...]], alone: Mapping[str, tuple[PodKey, int]]
) -> tuple[DeviceUse, ...]:
    """All devices, in order of their nodes. Where one pod holds a whole node, they are its own, named or not.

    Args:
        devices: By node.
        alone: By node: the one pod that holds all of its devices, and how many.
    """
    found: list[DeviceUse] = []
    for node in sorted(devices):
        uses, holder = devices[node], alone.get(node)
        if holder is not None and len(uses) == holder[1] and not any(use.pod for use in uses):
            uses = tuple(replace(use, pod=holder[0]) for use in uses)
        found += uses
    return tuple(found)
