"""In which bucket is each accelerator: held, dark, stranded, broken, or behind a node's state?

Only counting and the price of one unit belong here; what a workload does with what it holds is `workloads.py`.
Every accelerator is in exactly one bucket, and the buckets of a pool sum to what is installed.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from piqc_pipeline.facts.snapshot import UNREAD_CLAIM, AcceleratorPool, ClusterSnapshot, Node, Pod, Workload
from piqc_pipeline.facts.taints import Toleration, key_of, to_tolerate
from piqc_pipeline.waste.catalog import spelling
from piqc_pipeline.waste.figures import PoolCapacity
from piqc_pipeline.waste.prices import PriceList

CONVENTIONAL_TAINT_KEYS = frozenset(
    {
        "cloud.google.com/gke-gpu",
        "kubernetes.azure.com/scalesetpriority",
        "cloud.google.com/gke-spot",
        "cloud.google.com/gke-preemptible",
        "sku",
        "gpu",
        "dedicated",
    }
)
"""Taints that accelerator pods tolerate by convention: believed where no such pod was seen that could tell.

`sku=gpu` and `kubernetes.azure.com/scalesetpriority` are AKS' own documentation, `gke-spot` GKE's.
"""

BUSY_WITHOUT_REQUEST_PCT = 1.0
"""A device that no pod holds counts as used without a request from this utilization on, percent."""


@dataclass(frozen=True)
class Holding:
    """Units of one pool that one pod holds.

    Attributes:
        units: Units that the pod requests.
        devices: Physical devices, or their part, that these units are.
    """

    pod: Pod
    node: str
    resource: str
    units: float | None
    devices: float | None


@dataclass
class _Use:
    """What the pods of one node hold of one resource; `unread` when a quantity cannot be read."""

    whole: float = 0.0
    fractions: list[float] = field(default_factory=list)
    unread: bool = False


def count_capacity(snapshot: ClusterSnapshot, prices: PriceList) -> tuple[PoolCapacity, ...] | None:
    """The buckets of every pool, ordered by node and resource; None when nodes could not be read."""
    if snapshot.nodes is None:
        return None
    held = _pods_that_hold(snapshot.pods or ())
    uses = _uses(held, snapshot.nodes)
    readings = _named_by_readings(held)
    without_request = _busy_without_request(held)
    tolerated = _tolerated(snapshot)
    pools = [
        _by_node_state(
            _pool(snapshot, node, pool, prices, uses.get((node.name, pool.resource), _Use()), readings.get(node.name)),
            node,
            tolerated,
        )
        for node in snapshot.nodes
        for pool in node.pools
    ]
    pools = [_used_without_request(pool, without_request.get(pool.node, 0)) for pool in pools]
    pools = _with_fragments(pools, held, snapshot.pods or ())
    return tuple(sorted(pools, key=lambda pool: (pool.node, pool.resource)))


def _pods_that_hold(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.holds and pod.node is not None]


def _uses(held: Sequence[Pod], nodes: Sequence[Node] = ()) -> dict[tuple[str, str], _Use]:
    """What is held of each pool. A claim that could not be read may hold any device that claims hold."""
    uses: dict[tuple[str, str], _Use] = defaultdict(_Use)
    unread = {pod.node for pod in held for request in pod.requests if request.resource == UNREAD_CLAIM}
    for node in nodes:
        for pool in node.pools:
            if node.name in unread and ("/" not in pool.resource or not pool.allocatable_units):
                uses[(node.name, pool.resource)].unread = True
    for pod in held:
        for request in pod.requests:
            use = uses[(pod.node or "", request.resource)]
            if request.units is None:
                use.unread = True
            elif request.sharing == "fraction":
                use.fractions.append(request.units)
            else:
                use.whole += request.units
    return uses


def _named_by_readings(held: Sequence[Pod]) -> dict[str, str]:
    """The product that the devices of a node call themselves, where all agree; for nodes that no label names."""
    names: dict[str, set[str]] = defaultdict(set)
    for pod in held:
        names[pod.node or ""].update(reading.product for reading in pod.readings if reading.product)
    return {
        node: sorted(products)[0] for node, products in names.items() if len({spelling(name) for name in products}) == 1
    }


def _busy_without_request(held: Sequence[Pod]) -> dict[str, int]:
    """Devices on each node that pods use although they requested none (`NVIDIA_VISIBLE_DEVICES=all`)."""
    busy: dict[str, int] = {}
    for pod in held:
        if pod.requests or not pod.readings:
            continue
        seen = {
            (reading.uuid or reading.index or str(place))
            for place, reading in enumerate(pod.readings)
            if (reading.utilization_pct or 0) >= BUSY_WITHOUT_REQUEST_PCT
        }
        busy[pod.node or ""] = max(busy.get(pod.node or "", 0), len(seen))
    return busy


def _pool(
    snapshot: ClusterSnapshot, node: Node, pool: AcceleratorPool, prices: PriceList, use: _Use, read: str | None
) -> PoolCapacity:
    product = pool.product or read
    price = prices.find(product, node.labels)
    per_unit = _devices_per_unit(pool)
    unit_price = price.usd_per_hour * per_unit if price and per_unit is not None else None
    unallocated = prices.unallocated(price)
    counted = PoolCapacity(
        node=node.name,
        resource=pool.resource,
        vendor=pool.vendor,
        product=product,
        sharing=pool.sharing,
        installed=_in_units(pool, pool.capacity_units),
        devices_per_unit=per_unit,
        usd_per_unit_hour=unit_price,
        unallocated_usd_per_unit_hour=None if unallocated is None or per_unit is None else unallocated * per_unit,
        price_source=price.source if price else None,
        reason=pool.note,
    )
    if counted.installed is None:
        return counted
    allocatable = _in_units(pool, pool.allocatable_units)
    placed = _placed(counted, pool, use)
    free = counted.installed - placed.allocated - placed.shared
    if snapshot.pods is None or snapshot.unread_namespaces or use.unread:
        # A pod that nobody could read may hold any of them: no accelerator is called dark then.
        return replace(placed, placement_unknown=free)
    broken = 0.0 if allocatable is None else min(free, max(0.0, counted.installed - allocatable))
    return replace(placed, unhealthy=broken, dark=free - broken)


def _devices_per_unit(pool: AcceleratorPool) -> float | None:
    """Physical devices in one counted unit; shares are counted as devices, so theirs is 1."""
    if pool.sharing in ("time-slicing", "mps"):
        return 1.0 if pool.units_per_device else None
    return 1.0 / pool.units_per_device if pool.units_per_device else None


def _in_units(pool: AcceleratorPool, units: int | None) -> float | None:
    if units is None:
        return None
    if pool.sharing in ("time-slicing", "mps"):
        return units / pool.units_per_device if pool.units_per_device else None
    return float(units)


def _placed(counted: PoolCapacity, pool: AcceleratorPool, use: _Use) -> PoolCapacity:
    installed = counted.installed or 0.0
    if pool.sharing in ("time-slicing", "mps"):
        # The device plugin gives shares of the least shared device first (distributedAlloc), so that users of a
        # node spread over its devices.
        return replace(counted, shared=min(installed, use.whole))
    allocated = min(installed, use.whole)
    per_device = pool.units_per_device or 1.0
    cards = _bins([units / per_device for units in use.fractions])
    return replace(counted, allocated=allocated, shared=min(installed - allocated, cards * per_device))


def _bins(fractions: Sequence[float]) -> int:
    """Devices that these amounts fill at least: whole ones, and the rest first fit by decreasing size."""
    whole = [math.floor(amount + 1e-9) for amount in fractions]
    free: list[float] = []
    for fraction in sorted((amount - full for amount, full in zip(fractions, whole, strict=True)), reverse=True):
        if fraction <= 1e-9:
            break
        for place, left in enumerate(free):
            if fraction <= left + 1e-9:
                free[place] = left - fraction
                break
        else:
            free.append(1.0 - fraction)
    return sum(whole) + len(free)


def _by_node_state(pool: PoolCapacity, node: Node, tolerated: frozenset[Toleration] | None) -> PoolCapacity:
    """What is free stands behind the state of its node."""
    free = pool.dark
    if free <= 0:
        return pool
    if not node.ready:
        return replace(pool, dark=0.0, not_ready=free, reason=pool.reason or "the node is not ready")
    if node.cordoned:
        return replace(pool, dark=0.0, cordoned=free, reason=pool.reason or "the node is cordoned")
    taint = blocking_taint(node, tolerated)
    if taint is not None:
        return replace(pool, dark=0.0, tainted=free, reason=pool.reason or f"taint {taint}")
    return pool


def _tolerated(snapshot: ClusterSnapshot) -> frozenset[Toleration] | None:
    """What accelerator workloads tolerate; None where there is none, so that nobody can tell."""
    asking: list[Pod | Workload] = [pod for pod in snapshot.pods or () if pod.requests]
    asking += [workload for workload in snapshot.workloads if workload.gpus_per_replica]
    return frozenset(one for entry in asking for one in entry.tolerations) if asking else None


def blocking_taint(node: Node, tolerated: frozenset[Toleration] | None) -> str | None:
    """The first taint that no accelerator workload tolerates, or None.

    Args:
        node: The node.
        tolerated: What accelerator workloads tolerate; None: by convention.
    """
    for taint in to_tolerate(node.taints):
        usual = key_of(taint) in CONVENTIONAL_TAINT_KEYS
        if not (usual if tolerated is None else any(one.covers(taint) for one in tolerated)):
            return taint
    return None


def _used_without_request(pool: PoolCapacity, busy: int) -> PoolCapacity:
    """Devices that somebody uses without a request are in use, though no request says so."""
    moved = min(pool.dark, float(busy)) if pool.sharing == "none" else 0.0
    if moved == 0:
        return pool
    return replace(
        pool,
        dark=pool.dark - moved,
        shared=pool.shared + moved,
        reason=pool.reason or "used by a pod that did not request them",
    )


def _with_fragments(pools: Sequence[PoolCapacity], held: Sequence[Pod], pods: Sequence[Pod]) -> list[PoolCapacity]:
    """Move free accelerators that no shape can use from dark to fragmented.

    Shapes are the requests of pods that run on the same product. While pods wait, theirs count too, and running ones
    only where they take several accelerators: a notebook with a single GPU does not make six stranded ones useful
    to the job that waits for four. A node that nothing runs on is no fragment: it can be given back whole.
    """
    waiting: dict[str, list[float]] = defaultdict(list)
    for pod in pods:
        if pod.node is None and not pod.holds and pod.phase == "Pending":
            for request in pod.requests:
                if request.units:
                    waiting[request.resource].append(request.units)
    products = {(pool.node, pool.resource): spelling(pool.product or "") for pool in pools}
    running: dict[tuple[str, str], set[float]] = defaultdict(set)
    for pod in held:
        for request in pod.requests:
            if request.units and request.sharing == "none":
                running[(request.resource, products.get((pod.node or "", request.resource), ""))].add(request.units)
    return [_fragment(pool, waiting, running) for pool in pools]


def _fragment(
    pool: PoolCapacity, waiting: dict[str, list[float]], running: dict[tuple[str, str], set[float]]
) -> PoolCapacity:
    wanted = waiting.get(pool.resource, [])
    runs = running.get((pool.resource, spelling(pool.product or "")), set())
    shapes = [*wanted, *(units for units in runs if units >= 2)] if wanted else [*runs]
    if pool.sharing != "none" or not shapes or pool.dark == 0 or pool.allocated + pool.shared == 0:
        return pool
    smallest = min(shapes)
    if pool.dark >= smallest:
        return pool
    reason = f"{pool.dark:g} free here, the smallest shape that could use them takes {smallest:g}"
    return replace(pool, dark=0.0, fragmented=pool.dark, reason=pool.reason or reason)


def holdings(snapshot: ClusterSnapshot, capacity: Sequence[PoolCapacity] | None) -> list[Holding]:
    """What each pod holds, in units and in physical devices.

    Shares of a time-sliced device are its part among all shares in use, so that the users of one device pay for one.
    No pod holds more devices than its node has, whatever it requests.
    """
    held = _pods_that_hold(snapshot.pods or ())
    pools = {(pool.node, pool.resource): pool for pool in capacity or ()}
    shares = {key: use.whole for key, use in _uses(held).items()}
    result = []
    for pod in held:
        for request in pod.requests:
            key = (pod.node or "", request.resource)
            pool = pools.get(key)
            devices: float | None = None
            if pool is None or request.units is None:
                devices = None
            elif pool.sharing in ("time-slicing", "mps"):
                devices = pool.shared * request.units / shares[key] if shares[key] else None
            elif pool.devices_per_unit is not None:
                held_units = request.units if pool.installed is None else min(request.units, pool.installed)
                devices = held_units * pool.devices_per_unit
            result.append(Holding(pod, pod.node or "", request.resource, request.units, devices))
    return result
