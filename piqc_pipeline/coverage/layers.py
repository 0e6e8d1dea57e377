"""Which parts of the monitoring chain stand where they are needed? Three layers, three states each.

Only what the snapshot shows is judged here. Nodes without an accelerator need no GPU component and do not count.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from piqc_pipeline.facts.snapshot import ClusterSnapshot

State = Literal["detected", "partial", "absent"]

GPU_COMPONENTS = (
    ("DCGM exporter", "dcgm-exporter", "nvidia"),
    ("NVIDIA device plugin", "nvidia-device-plugin", "nvidia"),
    ("GPU feature discovery", "gpu-feature-discovery", "nvidia"),
    ("Node feature discovery", "node-feature-discovery", None),
    ("AMD device metrics exporter", "amd-metrics-exporter", "amd"),
)
"""Name, key in `ObservabilitySigns.components`, and the vendor whose nodes need it (None: every accelerator node)."""

ALWAYS_SHOWN_VENDOR = "nvidia"


@dataclass(frozen=True)
class CoverageCheck:
    """One part of the chain.

    Attributes:
        state: None when it could not be read.
        found: Nodes, pods or workloads on which it was found.
        of: Nodes, pods or workloads that need it.
        confidence: Mean confidence of what was found, 0..1.
    """

    name: str
    state: State | None
    found: int | None
    of: int | None
    detail: str
    confidence: float | None = None


@dataclass(frozen=True)
class CoverageLayer:
    """Checks that answer for one layer."""

    name: str
    checks: tuple[CoverageCheck, ...]


@dataclass(frozen=True)
class CoverageReport:
    """What can be seen of a cluster, and what cannot."""

    cluster: str
    layers: tuple[CoverageLayer, ...]

    @property
    def gaps(self) -> tuple[str, ...]:
        """Names of the checks that are not `detected`."""
        return tuple(check.name for layer in self.layers for check in layer.checks if check.state != "detected")


def assess_coverage(snapshot: ClusterSnapshot) -> CoverageReport:
    """The three layers: GPU hardware, serving framework, observability."""
    return CoverageReport(
        snapshot.cluster,
        (
            CoverageLayer("GPU hardware", tuple(_hardware(snapshot))),
            CoverageLayer("Serving framework", tuple(_serving(snapshot))),
            CoverageLayer("Observability", tuple(_observability(snapshot))),
        ),
    )


def _share(found: int, of: int) -> State:
    if found == 0:
        return "absent"
    return "detected" if found >= of else "partial"


def _hardware(snapshot: ClusterSnapshot) -> Iterable[CoverageCheck]:
    vendors: dict[str, set[str]] = {}
    for node in snapshot.nodes or ():
        for pool in node.pools:
            vendors.setdefault(pool.vendor, set()).add(node.name)
    everywhere = {name for names in vendors.values() for name in names}
    for name, key, vendor in GPU_COMPONENTS:
        needed = everywhere if vendor is None else vendors.get(vendor, set())
        standing = snapshot.signs.components.get(key, ())
        if snapshot.nodes is None or snapshot.pods is None:
            missing = "nodes" if snapshot.nodes is None else "pods"
            yield CoverageCheck(name, None, None, None, f"{missing} could not be read")
        elif needed:
            found = len(needed & set(standing))
            yield CoverageCheck(name, _share(found, len(needed)), found, len(needed), f"on {found}/{len(needed)} nodes")
        elif vendor in (None, ALWAYS_SHOWN_VENDOR):
            state: State = "detected" if standing else "absent"
            yield CoverageCheck(name, state, len(set(standing)), 0, "no node needs it")


def _serving(snapshot: ClusterSnapshot) -> Iterable[CoverageCheck]:
    if snapshot.pods is None:
        yield CoverageCheck("vLLM", None, None, None, "pods could not be read")
        return
    pods: dict[str, int] = {}
    for pod in snapshot.pods:
        pods[pod.workload_id] = pods.get(pod.workload_id, 0) + (1 if pod.holds else 0)
    engines: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    unclassified = 0
    for workload in snapshot.workloads:
        if workload.engine.name == "unknown":
            unclassified += pods.get(workload.id, 0)
            continue
        engines.setdefault(workload.engine.name, []).append(workload.engine.score)
        counts[workload.engine.name] = counts.get(workload.engine.name, 0) + pods.get(workload.id, 0)
    for name in sorted({"vllm", *engines}, key=lambda engine: (engine != "vllm", engine)):
        scores = engines.get(name, [])
        mean = sum(scores) / len(scores) if scores else None
        detail = f"{counts.get(name, 0)} pods, confidence {mean:.2f}" if mean is not None else "no workload"
        shown = "vLLM" if name == "vllm" else name
        yield CoverageCheck(shown, "detected" if scores else "absent", len(scores), None, detail, mean)
    if unclassified:
        yield CoverageCheck("Unclassified", "partial", unclassified, None, f"{unclassified} pods of no known engine")


def _observability(snapshot: ClusterSnapshot) -> Iterable[CoverageCheck]:
    signs = snapshot.signs
    if signs.prometheus_operator is None:
        yield CoverageCheck("Prometheus Operator", None, None, None, "API groups could not be read")
    else:
        state: State = "detected" if signs.prometheus_operator else "absent"
        yield CoverageCheck("Prometheus Operator", state, None, None, "API group monitoring.coreos.com")
    vllm = {workload.id for workload in snapshot.workloads if workload.engine.name == "vllm"}
    if signs.scraped_workload_ids is None:
        yield CoverageCheck("vLLM scraped", None, None, None, "monitors could not be read")
    elif not vllm:
        yield CoverageCheck("vLLM scraped", "absent", 0, 0, "no vLLM workload")
    else:
        found = len(vllm & set(signs.scraped_workload_ids))
        yield CoverageCheck(
            "vLLM scraped", _share(found, len(vllm)), found, len(vllm), f"{found}/{len(vllm)} workloads"
        )
    collectors = (*signs.otel_services, *signs.components.get("otel-collector", ()))
    detail = ", ".join(signs.otel_services) if signs.otel_services else ("pods" if collectors else "none found")
    yield CoverageCheck("OTel Collector", "detected" if collectors else "absent", len(collectors), None, detail)
