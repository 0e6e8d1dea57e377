"""Which figures does a waste report have, and what does each one mean?

Types only; `assess.py` computes them. Dollars are USD; unknown is `None` with an `Unknown` beside it, never 0.
"""

from dataclasses import dataclass, field
from typing import Literal

from piqc_pipeline.facts.snapshot import Confidence, Sharing, Unknown

HOURS_PER_DAY = 24

Bucket = Literal[
    "allocated", "dark", "fragmented", "unhealthy", "cordoned", "not_ready", "tainted", "shared", "placement_unknown"
]
BUCKETS: tuple[Bucket, ...] = (
    "allocated",
    "dark",
    "fragmented",
    "unhealthy",
    "cordoned",
    "not_ready",
    "tainted",
    "shared",
    "placement_unknown",
)
"""Every accelerator is in exactly one of these, and they sum to what is installed."""

FitVerdict = Literal["fits", "oversized", "does not fit"]
FindingKind = Literal[
    "idle",
    "dark",
    "fragmentation",
    "misplacement",
    "does-not-fit",
    "unhealthy",
    "cordoned",
    "not-ready",
    "tainted",
    "pending",
]


@dataclass(frozen=True)
class Price:
    """What one accelerator costs.

    Attributes:
        usd_per_hour: Price of one physical accelerator for one hour.
        source: Where the figure comes from: a row of the catalog, an option, or a rule of the user's price file.
        product: The catalog's canonical product name, where the name was found in it.
    """

    usd_per_hour: float
    source: str
    product: str | None = None


@dataclass(frozen=True)
class PoolCapacity:
    """In which bucket is each accelerator of one resource key on one node?

    Counts are units that pods request (whole devices, or MIG slices), except under time-slicing and MPS, where
    they are physical devices, because shares of one device are not accelerators. The buckets sum to `installed`.

    Attributes:
        installed: Units, broken ones included; None where the quantity cannot be read.
        allocated: Held by pods.
        dark: Free, healthy and schedulable: nobody uses them.
        fragmented: Free, but too few on this node for any shape that is asked for or runs in groups.
        unhealthy: In the node's capacity, not allocatable, and held by nobody.
        cordoned: Free on a cordoned node.
        not_ready: Free on a node that is not ready.
        tainted: Free behind a taint that no accelerator workload tolerates.
        shared: Devices that pods share or use without a request: in use, not attributable to one pod.
        placement_unknown: Nobody could say whether a pod holds them.
        devices_per_unit: Physical devices in one unit: 1, or 1/7 for a MIG slice 1g; None where unknown.
        usd_per_unit_hour: Price of one unit; None where the price is unknown.
        unallocated_usd_per_unit_hour: Price of one unit that nobody holds (`--node-cost`); else the same price.
    """

    node: str
    resource: str
    vendor: str
    product: str | None
    sharing: Sharing
    installed: float | None
    allocated: float = 0.0
    dark: float = 0.0
    fragmented: float = 0.0
    unhealthy: float = 0.0
    cordoned: float = 0.0
    not_ready: float = 0.0
    tainted: float = 0.0
    shared: float = 0.0
    placement_unknown: float = 0.0
    devices_per_unit: float | None = 1.0
    usd_per_unit_hour: float | None = None
    unallocated_usd_per_unit_hour: float | None = None
    price_source: str | None = None
    reason: str | None = None
    """Why units are where they are, where it needs a word (the taint, the shape that does not fit)."""

    def count(self, bucket: Bucket) -> float:
        """Units in one bucket."""
        value: float = getattr(self, bucket)
        return value

    def usd_per_hour(self, bucket: Bucket) -> float | None:
        """Cost of the units in one bucket; None where units are there and the price is unknown."""
        units = self.count(bucket)
        if units == 0:
            return 0.0
        held = bucket in ("allocated", "shared", "placement_unknown")
        price = self.usd_per_unit_hour if held else self.unallocated_usd_per_unit_hour
        return None if price is None else units * price

    @property
    def devices(self) -> float | None:
        """Physical devices installed; None where the count, or how many units share one, is unknown."""
        if self.installed is None or (self.installed and self.devices_per_unit is None):
            return None
        return self.installed * (self.devices_per_unit or 0.0)

    @property
    def installed_usd_per_hour(self) -> float | None:
        """Cost of all units; None where the count or the price is unknown."""
        if self.installed is None:
            return None
        parts = [self.usd_per_hour(bucket) for bucket in BUCKETS]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


@dataclass(frozen=True)
class Fit:
    """Does the model's memory fit its accelerators, and would a cheaper one hold it?

    Attributes:
        verdict: By memory: weights, KV cache for one full context, and the engine's own need.
        needed_gib_per_device: What one accelerator must hold.
        available_gib_per_device: What one accelerator has.
        smaller_product: Cheapest product of the same vendor that holds the model at the same count.
        smaller_usd_per_hour: Its price, on the same scale as the workload's own.
        evidence: How the figure was made up, for people.
        confidence: `medium` where weights are from a stated size; `low` where the KV cache is estimated by size alone.
    """

    verdict: FitVerdict
    needed_gib_per_device: float
    available_gib_per_device: float
    smaller_product: str | None = None
    smaller_usd_per_hour: float | None = None
    evidence: str = ""
    confidence: Confidence = "medium"


@dataclass(frozen=True)
class WorkloadFigures:
    """What one workload uses, costs and wastes.

    Attributes:
        accelerator: Product as the cluster names it; several are joined with `, `.
        accelerator_count: Units its pods hold (slices for MIG; shares count as their part of a device).
        devices: Physical devices its pods hold.
        replicas: Pods, or groups of pods, that hold accelerators or run.
        utilization_pct: Mean over the devices of all pods, 0..100.
        utilization_min_pct: Least used device; the spread tells imbalance.
        utilization_max_pct: Most used device.
        utilization_devices_seen: Devices whose utilization is known.
        utilization_source: `dcgm`, `prometheus`, `engine`, `exec`; several joined with `, `.
        mfu_pct: Model FLOPS utilization: 2 x active parameters x generated tokens/s over dense peak FLOPS.
        peak_flops: Dense peak of the devices at the model's precision, FLOP/s.
        usd_per_1k_tokens: Cost of 1,000 generated tokens over all replicas.
        idle_usd_per_day: Dollars of the time in which measured devices did nothing.
        tier_usd_per_day: Overpay against the reference's tier table (by parameter count alone).
        misplaced_usd_per_day: Overpay against `fit.smaller_product`, on the busy share only: no dollar of idle.
        age_hours: Since the topmost owner was created.
        memory_gib_per_device: Of the accelerator with the least.
        supports_bf16: The hardware computes in bfloat16; None where the product is not in the catalog.
        interconnect: `NVSwitch NVLink PCIe xgmi roce ici` among the devices of one node, by product and count.
        gpus_per_node: Accelerators installed on the node of the first pod.
        nodes: Nodes that its pods stand on.
    """

    id: str
    cluster: str
    namespace: str
    kind: str
    name: str
    accelerator: str | None
    accelerator_count: float | None
    devices: float | None
    replicas: int
    utilization_pct: float | None
    utilization_min_pct: float | None
    utilization_max_pct: float | None
    utilization_devices_seen: int
    utilization_source: str | None
    mfu_pct: float | None
    peak_flops: float | None
    generation_tokens_per_second: float | None
    usd_per_1k_tokens: float | None
    usd_per_hour: float | None
    idle_usd_per_day: float | None
    tier_usd_per_day: float | None
    misplaced_usd_per_day: float | None
    fit: Fit | None
    age_hours: float | None
    memory_gib_per_device: float | None = None
    supports_bf16: bool | None = None
    interconnect: str | None = None
    gpus_per_node: float | None = None
    nodes: int = 0
    unknown: tuple[Unknown, ...] = ()


@dataclass(frozen=True)
class PendingPod:
    """A pod that waits for accelerators, or for something else while it asks for them."""

    namespace: str
    name: str
    workload_id: str
    accelerators: float | None
    resource: str
    reason: str
    waiting_hours: float | None
    waits_for_accelerators: bool
    """False for a pod that is gated, or bound and still starting."""


@dataclass(frozen=True)
class Finding:
    """One thing that costs money or stands in the way, with its dollars.

    Attributes:
        subject: Workload id, or `cluster/node/NAME` for capacity.
        usd_per_day: Dollars a day; None where the price or the utilization is unknown.
        counted: Part of `waste_usd_per_day`; findings that are counted share no dollar.
        text: One sentence for people.
    """

    kind: FindingKind
    subject: str
    usd_per_day: float | None
    counted: bool
    text: str
    accelerators: float | None = None
    confidence: Confidence = "medium"


@dataclass(frozen=True)
class WasteSummary:
    """The totals; every figure is rounded to cents, so that the printed parts add up to the printed sums.

    Attributes:
        spend_usd_per_hour: Of the workloads.
        installed_usd_per_hour: Of all accelerators whose price is known.
        idle_usd_per_day: Sum over workloads whose utilization is known.
        unallocated_usd_per_day: Dark accelerators.
        misplacement_usd_per_day: By the reference's tier table.
        total_leak_usd_per_day: The reference's sum; its parts can share dollars.
        waste_usd_per_day: Idle, dark, fragmented, and misplacement by memory on the busy share: no dollar twice.
        unavailable_usd_per_day: Unhealthy, cordoned, not ready, tainted: paid, not usable, not counted as waste.
        avg_mfu_pct: Weighted by peak FLOPS.
    """

    spend_usd_per_hour: float | None
    installed_usd_per_hour: float | None
    idle_usd_per_day: float | None
    unallocated_usd_per_day: float | None
    misplacement_usd_per_day: float | None
    fragmentation_usd_per_day: float | None
    total_leak_usd_per_day: float | None
    total_leak_usd_per_year: float | None
    waste_usd_per_day: float | None
    unavailable_usd_per_day: float | None
    avg_mfu_pct: float | None


@dataclass(frozen=True)
class WasteReport:
    """What one cluster costs and wastes at the instant of its snapshot."""

    cluster: str
    workloads: tuple[WorkloadFigures, ...]
    capacity: tuple[PoolCapacity, ...] | None
    """None when nodes could not be read."""
    pending: tuple[PendingPod, ...]
    findings: tuple[Finding, ...]
    """Most expensive first."""
    summary: WasteSummary
    unknown: tuple[Unknown, ...] = ()
    by_workload: dict[str, WorkloadFigures] = field(default_factory=dict)
