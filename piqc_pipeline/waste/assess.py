"""What does this cluster cost, and how much of it is wasted? All of it, from one snapshot.

Buckets come from `capacity.py`, figures of a workload from `workloads.py`; here they are joined and added up.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from piqc_pipeline.facts.snapshot import ClusterSnapshot, Pod, Unknown
from piqc_pipeline.waste.capacity import count_capacity, holdings
from piqc_pipeline.waste.efficiency import weighted_mfu_pct
from piqc_pipeline.waste.figures import (
    HOURS_PER_DAY,
    Bucket,
    PendingPod,
    PoolCapacity,
    WasteReport,
    WasteSummary,
    WorkloadFigures,
)
from piqc_pipeline.waste.findings import find
from piqc_pipeline.waste.held import Held, price_holdings
from piqc_pipeline.waste.prices import PriceList
from piqc_pipeline.waste.workloads import told_by_pod, workload_figures

DAYS_PER_YEAR = 365
UNAVAILABLE: tuple[Bucket, ...] = ("unhealthy", "cordoned", "not_ready", "tainted")
MIB_PER_GIB = 1024.0
USABLE_SHARE_OF_PROFILE = 0.95


def assess(snapshot: ClusterSnapshot, prices: PriceList) -> WasteReport:
    """Figures of every workload, buckets of every pool, findings and totals; the same input gives the same order."""
    snapshot = _in_order(snapshot)
    capacity = count_capacity(snapshot, prices)
    held = price_holdings(
        holdings(snapshot, capacity),
        {(pool.node, pool.resource): pool for pool in capacity or ()},
        {node.name: node for node in snapshot.nodes or ()},
        prices,
    )
    held_by_workload: dict[str, list[Held]] = defaultdict(list)
    for part in held:
        held_by_workload[part.holding.pod.workload_id].append(part)
    pods_by_workload: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods or ():
        pods_by_workload[pod.workload_id].append(pod)
    memory = _memory_gib(snapshot, held)
    workloads = tuple(
        workload_figures(
            workload,
            pods_by_workload[workload.id],
            held_by_workload[workload.id],
            memory,
            prices=prices,
            now=snapshot.taken_at,
        )
        for workload in sorted(snapshot.workloads, key=lambda one: one.id)
    )
    pending = _pending(snapshot)
    summary = _summary(snapshot, workloads, capacity)
    return WasteReport(
        cluster=snapshot.cluster,
        workloads=workloads,
        capacity=capacity,
        pending=pending,
        findings=find(snapshot.cluster, workloads, capacity, pending),
        summary=summary,
        unknown=(*_unknown(snapshot, workloads, capacity), *_too_much(held), *_unknown_totals(summary)),
        by_workload={one.id: one for one in workloads},
    )


def _in_order(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same snapshot in an order that does not depend on which read was answered first."""
    nodes, pods = snapshot.nodes, snapshot.pods
    return replace(
        snapshot,
        nodes=None if nodes is None else tuple(sorted(nodes, key=lambda node: node.name)),
        pods=None if pods is None else tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid))),
    )


def _memory_gib(snapshot: ClusterSnapshot, held: Iterable[Held]) -> dict[tuple[str, str], float]:
    """Memory of one unit by (node, resource): the label's figure, else what a device says, else the catalog's."""
    memory = {
        (node.name, pool.resource): gib
        for node in snapshot.nodes or ()
        for pool in node.pools
        if (gib := pool.memory_gib or _profile_gib(pool.profile))
    }
    for part in held:
        key = (part.holding.node, part.holding.resource)
        if key in memory or part.pool is None:
            continue
        if part.pool.sharing == "mig" or (part.pool.devices_per_unit or 1.0) != 1.0:
            continue
        seen = [reading.memory_total_mib for reading in part.holding.pod.readings if reading.memory_total_mib]
        if part.product is not None and part.product.memory_gib is not None:
            memory[key] = part.product.memory_gib
        elif seen:
            memory[key] = min(seen) / MIB_PER_GIB
    return memory


def _profile_gib(profile: str | None) -> float | None:
    """Memory of a MIG profile: `1g.10gb` has 9.5 GiB of its 10 (nvidia-smi mig -lgip on an A100 of 80 GB)."""
    size = re.search(r"\.(\d+)gb", profile or "")
    return float(size.group(1)) * USABLE_SHARE_OF_PROFILE if size else None


def _pending(snapshot: ClusterSnapshot) -> tuple[PendingPod, ...]:
    """Pods that ask for accelerators and do not run: unbound with the scheduler's reason, gated, or still starting."""
    rows = []
    for pod in snapshot.pods or ():
        if pod.phase != "Pending" or not pod.requests or pod.deleting:
            continue
        reason = pod.waiting_reason or ("bound, still starting" if pod.node else "not scheduled yet")
        gated = reason.startswith("SchedulingGated")
        age = None if pod.created_at is None else (snapshot.taken_at - pod.created_at).total_seconds() / 3600
        for request in pod.requests:
            rows.append(
                PendingPod(
                    namespace=pod.namespace,
                    name=pod.name,
                    workload_id=pod.workload_id,
                    accelerators=request.units,
                    resource=request.resource,
                    reason=reason,
                    waiting_hours=None if age is None else max(0.0, age),
                    waits_for_accelerators=pod.node is None and not gated,
                )
            )
    return tuple(sorted(rows, key=lambda row: (row.namespace, row.name, row.resource)))


def _cents(value: float | None) -> float | None:
    return None if value is None else round(value + 1e-9, 2)


def _floor_cents(value: float) -> float:
    """Whole cents, never more than the value: waste that is rounded up would be above what is installed."""
    return math.floor(value * 100 + 1e-6) / 100


def _total(parts: Iterable[float | None]) -> float | None:
    """Sum of what is known; 0 where there is nothing to add; None where all of it is unknown."""
    everything = list(parts)
    known = [part for part in everything if part is not None]
    if everything and not known:
        return None
    return math.fsum(known)


def _bucket_usd_per_day(capacity: Sequence[PoolCapacity] | None, buckets: Sequence[Bucket]) -> float | None:
    """Dollars a day of these buckets over the pools whose placement is known; None where that says nothing."""
    if capacity is None:
        return None
    known = [pool for pool in capacity if pool.installed is not None and pool.placement_unknown == 0]
    hourly = _total(pool.usd_per_hour(bucket) for pool in known for bucket in buckets if pool.count(bucket) > 0)
    if hourly is None or (hourly == 0 and len(known) < len(capacity)):
        return None
    return hourly * HOURS_PER_DAY


def _summary(
    snapshot: ClusterSnapshot, workloads: Sequence[WorkloadFigures], capacity: Sequence[PoolCapacity] | None
) -> WasteSummary:
    installed = None if capacity is None else _total(pool.installed_usd_per_hour for pool in capacity)
    if installed is not None:
        installed = round(installed, 4)
    placed = capacity if snapshot.pods is not None and not snapshot.unread_namespaces else None
    spend = idle = tier = misplaced = None
    if snapshot.pods is not None:
        paid = [one for one in workloads if one.devices != 0]
        spend = _cents(_total(one.usd_per_hour for one in paid))
        idle = _cents(_total(one.idle_usd_per_day for one in paid))
        tier = _cents(_total(one.tier_usd_per_day for one in paid))
        misplaced = _total(one.misplaced_usd_per_day for one in paid)
    dark = _cents(_bucket_usd_per_day(placed, ("dark",)))
    fragmented = _cents(_bucket_usd_per_day(placed, ("fragmented",)))
    leak = waste = None
    if dark is not None:
        leak = _cents(math.fsum(part or 0.0 for part in (idle, dark, tier, fragmented)))
        waste = math.fsum(part or 0.0 for part in (idle, dark, fragmented, misplaced))
        waste = _cents(waste if installed is None else min(waste, _floor_cents(installed * HOURS_PER_DAY)))
    return WasteSummary(
        spend_usd_per_hour=spend,
        installed_usd_per_hour=installed,
        idle_usd_per_day=idle,
        unallocated_usd_per_day=dark,
        misplacement_usd_per_day=tier,
        fragmentation_usd_per_day=fragmented,
        total_leak_usd_per_day=leak,
        total_leak_usd_per_year=None if leak is None else _cents(leak * DAYS_PER_YEAR),
        waste_usd_per_day=waste,
        unavailable_usd_per_day=_cents(_bucket_usd_per_day(placed, UNAVAILABLE)),
        avg_mfu_pct=weighted_mfu_pct((one.mfu_pct, one.peak_flops) for one in workloads),
    )


def _unknown(
    snapshot: ClusterSnapshot, workloads: Sequence[WorkloadFigures], capacity: Sequence[PoolCapacity] | None
) -> tuple[Unknown, ...]:
    """Every figure that is missing, once; failed reads first."""
    reported = {one.id for one in workloads}
    # What a pod's devices or engine did not tell is said once, by its workload.
    said = {entry for pod in snapshot.pods or () if pod.workload_id in reported for entry in told_by_pod(pod)}
    found: list[Unknown] = [entry for entry in snapshot.unknown if entry not in said]
    for node in snapshot.nodes or ():
        found.extend(node.unknown)
    if capacity is None:
        found.append(
            Unknown("capacity, prices and everything that depends on them", "nodes could not be read", read_failed=True)
        )
    elif snapshot.pods is None:
        found.append(Unknown("placement: allocated and dark accelerators", "pods could not be read", read_failed=True))
    elif snapshot.unread_namespaces:
        spaces = ", ".join(snapshot.unread_namespaces)
        found.append(
            Unknown("placement: dark accelerators", f"pods of namespace {spaces} could not be read", read_failed=True)
        )
    found.extend(_unpriced(capacity or ()))
    for pod in snapshot.pods or ():
        found.extend(entry for entry in pod.unknown if entry not in said)
    for one in workloads:
        found.extend(one.unknown)
    return tuple(sorted(dict.fromkeys(found), key=lambda entry: (not entry.read_failed, entry.what, entry.why)))


def _too_much(held: Iterable[Held]) -> Iterable[Unknown]:
    """Pools of which pods request more than is there, so that the workloads' dollars are more than the pool's."""
    requested: dict[tuple[str, str], float] = defaultdict(float)
    installed: dict[tuple[str, str], float] = {}
    for part in held:
        pool = part.pool
        if pool is not None and pool.installed is not None and pool.sharing == "none" and part.holding.units:
            requested[(pool.node, pool.resource)] += part.holding.units
            installed[(pool.node, pool.resource)] = pool.installed
    for (node, resource), there in sorted(installed.items()):
        if requested[(node, resource)] > there + 1e-6:
            why = f"its pods request {requested[(node, resource)]:g} and the node has {there:g}"
            yield Unknown(f"who holds {resource} on node {node}", why)


def _unknown_totals(summary: WasteSummary) -> Iterable[Unknown]:
    """Totals that no entry of a single figure explains."""
    if summary.avg_mfu_pct is None:
        yield Unknown("average MFU", "of no workload are tokens/s, active parameters and peak FLOPS all known")


def _unpriced(capacity: Iterable[PoolCapacity]) -> Iterable[Unknown]:
    nodes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pool in capacity:
        if pool.installed is None:
            nodes[(f"number of {pool.resource}", pool.reason or "the quantity cannot be read")].append(pool.node)
        if pool.usd_per_unit_hour is None and pool.installed != 0:
            if pool.product is None:
                nodes[(f"price of {pool.resource}", "no label names the product; add it with --prices")].append(
                    pool.node
                )
            elif pool.devices_per_unit is not None:
                nodes[(f"price of {pool.product}", "not in the price table; add it with --prices")].append(pool.node)
    for (what, why), names in sorted(nodes.items()):
        shown = ", ".join(sorted(set(names))[:3]) + (f" and {len(set(names)) - 3} more" if len(set(names)) > 3 else "")
        yield Unknown(f"{what} on node {shown}", why)
