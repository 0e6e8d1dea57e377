"""How does a waste report state its figures as facts? Dollars, hardware, nodes and pending pods, each with its source.

Facts that need no price are in `piqc_pipeline.facts.build`.
"""

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime

from piqc_pipeline.facts.build import PricedFacts, source_type
from piqc_pipeline.facts.bundle import Fact, FactObject, FactValue, FindingEntry, UnknownEntry, fact, whole
from piqc_pipeline.facts.snapshot import ClusterSnapshot, Confidence
from piqc_pipeline.waste.figures import BUCKETS, HOURS_PER_DAY, Bucket, PoolCapacity, WasteReport, WorkloadFigures

_BUCKET_FACTS: tuple[tuple[Bucket, str], ...] = (
    ("dark", "dark"),
    ("fragmented", "fragmented"),
    ("unhealthy", "unhealthy"),
    ("cordoned", "cordoned"),
    ("not_ready", "notReady"),
    ("tainted", "tainted"),
    ("shared", "shared"),
)


def priced_facts(report: WasteReport, snapshot: ClusterSnapshot) -> PricedFacts:
    """All figures of the report as facts; what is unknown is left out."""
    at = snapshot.taken_at
    return PricedFacts(
        of_workload={one.id: _workload(one, at) for one in report.workloads},
        unknown_of_workload={one.id: one.unknown for one in report.workloads},
        objects=(*_nodes(report, at), *_pending(report, at)),
        of_cluster=_cluster(report, at),
        findings=tuple(
            FindingEntry(
                kind=one.kind,
                subject=one.subject,
                usd_per_day=None if one.usd_per_day is None else round(one.usd_per_day, 4),
                counted=one.counted,
                accelerators=one.accelerators,
                confidence=one.confidence,
                text=one.text,
            )
            for one in report.findings
        ),
        unknown=tuple(
            UnknownEntry(what=entry.what, why=entry.why, read_failed=entry.read_failed) for entry in report.unknown
        ),
    )


class _Facts(dict[str, Fact]):
    """Facts of one object; unknown values are left out."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self._at = at

    def put(
        self, key: str, value: FactValue | None, units: str | None, method: str, *,
        type: str = "derived", confidence: Confidence = "medium", ref: str | None = None,
    ) -> None:  # fmt: skip
        """Add a fact, if it is known."""
        if value is None:
            return
        if isinstance(value, float):
            value = whole(round(value, 6))
        self[key] = fact(value, at=self._at, type=type, method=method, ref=ref, confidence=confidence, units=units)


def _workload(one: WorkloadFigures, at: datetime) -> dict[str, Fact]:
    facts = _Facts(at)
    labels = "node labels, else what the device says"
    facts.put("hardware.gpuType", one.accelerator, None, labels, type="k8s_api", confidence="high")
    facts.put(
        "hardware.gpuCount", one.accelerator_count, None, "requests of all pods", type="k8s_api", confidence="high"
    )
    gib = one.memory_gib_per_device
    facts.put("hardware.gpuMemoryGB", None if gib is None else round(gib, 2), "GiB", "label or catalog")
    facts.put("hardware.supportsFastBf16", one.supports_bf16, None, "product row", type="catalog", confidence="high")
    facts.put("hardware.interconnect", one.interconnect, None, "product row and devices a node", type="catalog")
    source = (one.utilization_source or "").split(", ")[0]
    facts.put(
        "obs.gpu.utilAvgPct", one.utilization_pct, "%", f"mean over {one.utilization_devices_seen} device(s)",
        type=source_type(source), ref=one.utilization_source, confidence="medium" if source == "exec" else "high",
    )  # fmt: skip
    facts.put("obs.gpu.utilMinPct", one.utilization_min_pct, "%", "least used device", type=source_type(source))
    facts.put("obs.gpu.utilMaxPct", one.utilization_max_pct, "%", "most used device", type=source_type(source))
    facts.put("placement.nodeCount", one.nodes, None, "nodes of its pods", type="k8s_api", confidence="high")
    facts.put("node.gpuCount", one.gpus_per_node, None, "accelerators of a node", type="k8s_api", confidence="high")
    facts.put("cost.usdPerHour", one.usd_per_hour, "USD/h", "requests x price", confidence="high")
    facts.put("cost.usdPer1kTokens", one.usd_per_1k_tokens, "USD", "cost over generated tokens, all replicas")
    facts.put("efficiency.mfuPct", one.mfu_pct, "%", "2 x active parameters x tokens/s over dense peak")
    facts.put("waste.idleUsdPerDay", one.idle_usd_per_day, "USD/day", "cost x unused share x 24")
    facts.put(
        "waste.misplacementUsdPerDay", one.misplaced_usd_per_day, "USD/day", "by memory, busy share", confidence="low"
    )
    facts.put("waste.tierUsdPerDay", one.tier_usd_per_day, "USD/day", "tier table by parameters", confidence="low")
    if one.fit is not None:
        facts.put("fit.verdict", one.fit.verdict, None, "memory", confidence=one.fit.confidence, ref=one.fit.evidence)
        facts.put(
            "fit.neededGibPerDevice", one.fit.needed_gib_per_device, "GiB", "memory", confidence=one.fit.confidence
        )
    return facts


def _nodes(report: WasteReport, at: datetime) -> Iterable[FactObject]:
    nodes: dict[str, list[PoolCapacity]] = {}
    for pool in report.capacity or ():
        nodes.setdefault(pool.node, []).append(pool)
    for name, pools in sorted(nodes.items()):
        facts = _Facts(at)
        seen: dict[str, str] = {"type": "k8s_api"}
        products = ", ".join(sorted({pool.product for pool in pools if pool.product})) or None
        facts.put("hardware.gpuType", products, None, "node labels", confidence="high", **seen)
        counts = [pool.installed for pool in pools]
        if None not in counts:
            facts.put("hardware.gpuCount", sum(one or 0 for one in counts), None, "capacity", confidence="high", **seen)
            if not any(pool.placement_unknown for pool in pools):
                _buckets(facts, pools)
        facts.put("cost.usdPerHour", _sum([pool.installed_usd_per_hour for pool in pools]), "USD/h", "capacity x price",
                  ref=pools[0].price_source)  # fmt: skip
        yield FactObject(workload_id=f"{report.cluster}/node/{name}", kind="Node", name=name, facts=facts)


def _buckets(facts: _Facts, pools: list[PoolCapacity]) -> None:
    totals = {bucket: sum(pool.count(bucket) for pool in pools) for bucket in BUCKETS}
    held = totals["allocated"] + totals["shared"]
    facts.put("node.allocatedGpuCount", held, None, "requests of bound pods", type="k8s_api", confidence="high")
    free = totals["dark"] + totals["fragmented"]
    facts.put(
        "node.unallocatedGpuCount", free, None, "schedulable and held by nobody", type="k8s_api", confidence="high"
    )
    for bucket, name in _BUCKET_FACTS:
        facts.put(f"node.{name}GpuCount", totals[bucket], None, "bucket", confidence="high")
        if bucket != "shared" and totals[bucket]:
            hourly = _sum([pool.usd_per_hour(bucket) for pool in pools])
            facts.put(f"waste.{name}UsdPerDay", None if hourly is None else hourly * HOURS_PER_DAY, "USD/day",
                      "price x count x 24", confidence="high")  # fmt: skip


def _pending(report: WasteReport, at: datetime) -> Iterable[FactObject]:
    placed = report.capacity is not None and not any(pool.placement_unknown for pool in report.capacity)
    for pod in report.pending:
        facts = _Facts(at)
        facts.put(
            "job.pendingGpuCount",
            pod.accelerators,
            None,
            "requests",
            type="k8s_api",
            confidence="high",
            ref=pod.resource,
        )
        facts.put("job.pendingReason", pod.reason, None, "pod conditions", type="k8s_api", confidence="high")
        facts.put(
            "job.waitsForAccelerators",
            pod.waits_for_accelerators,
            None,
            "pod conditions",
            type="k8s_api",
            confidence="high",
        )
        minutes = None if pod.waiting_hours is None else round(pod.waiting_hours * 60, 1)
        facts.put("job.pendingSinceMinutes", minutes, "min", "creation", type="k8s_api", confidence="high")
        if placed:
            for key, value in _free(report, pod.resource).items():
                facts.put(key, value, None, "buckets of all nodes", confidence="high")
        yield FactObject(
            workload_id=f"{report.cluster}/{pod.namespace}/Pod/{pod.name}", kind="Pod", name=pod.name,
            namespace=pod.namespace, facts=facts,
        )  # fmt: skip


def _free(report: WasteReport, resource: str) -> dict[str, float]:
    pools = [pool for pool in report.capacity or () if pool.resource == resource]
    free = [pool.dark + pool.fragmented for pool in pools]
    return {
        "cluster.totalFreeGpus": sum(free),
        "cluster.largestContiguousBlock": max(free, default=0.0),
        "cluster.fragmentedNodeCount": float(sum(1 for pool in pools if pool.fragmented)),
    }


def _cluster(report: WasteReport, at: datetime) -> dict[str, Fact]:
    facts = _Facts(at)
    for entry in fields(report.summary):
        first, *rest = entry.name.split("_")
        key = first + "".join(part.capitalize() for part in rest)
        units = "%" if entry.name.endswith("pct") else "USD/" + entry.name.rsplit("_", 1)[1]
        facts.put(f"cluster.{key}", getattr(report.summary, entry.name), units, "sum", confidence="high")
    return facts


def _sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
