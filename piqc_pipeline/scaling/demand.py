"""How many replicas' worth of work is there right now? From devices, whatever a replica is made of.

Demand is `sum(s_i * u_i) / g` over the devices of ready pods: `s_i` is 1 for a whole device and its compute slices over
7 for a MIG instance, `u_i` its activity as a share, `g` the devices (or slices) of one replica. Unlike utilization it
does not fall when replicas are added. What it will be belongs to `forecast`, history from Prometheus to `history`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from piqc_pipeline.facts.snapshot import AcceleratorReading, ClusterSnapshot, Workload

LEAST_COVERAGE = 0.8
"""Share of expected devices that must answer; above it the rest is taken to be as busy, below it demand is unknown."""
SATURATED = 0.95
"""Activity from which on demand is cut off by what there is."""
IMBALANCE = 0.15
"""A wider spread of activity inside one replica is worth a warning: one of its devices waits for the others."""
LARGEST_ACTIVITY = 1.05
"""Sentinels of unsupported counters are about 9.2e18; rounding reaches a few percent."""
MIG_SLICES = 7
BACKLOG_SECONDS = 120.0
"""Waiting work is to be served within this time."""


@dataclass(frozen=True)
class Device:
    """One device, or MIG instance, of a ready pod.

    Attributes:
        activity: Share of time it worked, 0 to 1; None where it did not say.
        replica: Which replica (pod, or group of pods) it belongs to.
        share: Of a whole device: 1, or compute slices / 7.
    """

    activity: float | None
    replica: str
    share: float = 1.0


@dataclass(frozen=True)
class LiveDemand:
    """Demand of one workload at one instant.

    Attributes:
        replicas: In replicas at 100 %; None where too few devices answered.
        coverage: Share of the expected devices that answered.
        censored: Demand is cut off: devices are saturated or requests wait; the true demand is higher.
        reason: Why it is unknown, or what weakens it; empty otherwise.
    """

    replicas: float | None
    coverage: float
    censored: bool
    reason: str = ""


def live_demand(
    devices: Sequence[Device],
    devices_per_replica: float,
    expected_devices: int,
    *,
    waiting_requests: float | None = None,
    requests_per_second_per_replica: float | None = None,
) -> LiveDemand:
    """Demand from the devices of ready replicas.

    Args:
        devices: Those that could be asked.
        devices_per_replica: Devices (or whole-device shares, for MIG) that one replica has; above 0.
        expected_devices: How many there should be.
        waiting_requests: Requests that wait, where known.
        requests_per_second_per_replica: What one replica serves at 100 %; without it waiting work is only marked.
    """
    answers = [device for device in devices if _usable(device.activity)]
    coverage = len(answers) / expected_devices if expected_devices > 0 else 0.0
    if expected_devices <= 0:
        return LiveDemand(None, 0.0, False, "no replica is ready")
    if coverage < LEAST_COVERAGE:
        return LiveDemand(None, coverage, False, f"only {len(answers)} of {expected_devices} devices answered")
    busy = sum(device.share * min(device.activity or 0.0, 1.0) for device in answers)
    demand = busy / devices_per_replica / min(coverage, 1.0)
    mean = sum(min(device.activity or 0.0, 1.0) for device in answers) / len(answers)
    waiting = waiting_requests or 0.0
    if waiting and requests_per_second_per_replica:
        demand += waiting / (requests_per_second_per_replica * BACKLOG_SECONDS)
    return LiveDemand(demand, min(coverage, 1.0), mean >= SATURATED or waiting > 0, _imbalance(answers))


def _usable(activity: float | None) -> bool:
    return activity is not None and math.isfinite(activity) and 0 <= activity <= LARGEST_ACTIVITY


def _imbalance(devices: Sequence[Device]) -> str:
    """Tensor-parallel devices work in step; a wide spread inside one replica means that one holds the others up."""
    spans: dict[str, list[float]] = {}
    for device in devices:
        spans.setdefault(device.replica, []).append(device.activity or 0.0)
    widest = max(spans, key=lambda name: max(spans[name]) - min(spans[name]))
    spread = max(spans[widest]) - min(spans[widest])
    if spread <= IMBALANCE:
        return ""
    return f"devices of replica {widest} differ by {100 * spread:.0f} points: the mean hides one that is full"


def mig_share(profile: str | None) -> float | None:
    """Compute slices over 7 of a MIG profile such as `1g.10gb` or `1c.3g.20gb`; None where it is none."""
    match = re.search(r"(?:^|\.)(\d)g\.", profile or "")
    if match is None or not 1 <= int(match[1]) <= MIG_SLICES:
        return None
    instance = re.match(r"(\d)c\.", profile or "")
    return int(instance[1] if instance else match[1]) / MIG_SLICES


def demand_of(snapshot: ClusterSnapshot, workload: Workload) -> LiveDemand:
    """Demand of a workload at the instant of a snapshot.

    A replica is a pod, or a group of pods (LeaderWorkerSet, Ray). Devices shared by time-slicing or MPS cannot be split
    by pod: demand is unknown then, and an engine's own metrics are needed.
    """
    if snapshot.pods is None:
        return LiveDemand(None, 0.0, False, "pods could not be read")
    pods = [pod for pod in snapshot.pods if pod.workload_id == workload.id and pod.ready and not pod.deleting]
    if any(request.sharing in ("time-slicing", "mps", "fraction") for pod in pods for request in pod.requests):
        return LiveDemand(None, 0.0, False, "its devices are shared by time-slicing or MPS: not attributable to pods")
    devices = [
        Device(_activity(reading), pod.group or pod.name, mig_share(reading.profile) or 1.0)
        for pod in pods
        for reading in pod.readings
    ]
    expected = sum(request.units or 0.0 for pod in pods for request in pod.requests)
    size = workload.gpus_per_replica
    if not size:
        return LiveDemand(None, 0.0, False, "the size of a replica is unknown")
    shares = [device.share for device in devices]
    # All instances of one profile: a replica of two 1g instances is 2 x 1/7 of a device.
    unit = sum(shares) / len(shares) if shares else 1.0
    waiting = workload.runtime.requests_waiting if workload.runtime is not None else None
    return live_demand(devices, size * unit, round(expected), waiting_requests=waiting)


def _activity(reading: AcceleratorReading) -> float | None:
    """Share of time the device worked, by the best signal it gave."""
    for value in (reading.sm_active_pct, reading.utilization_pct):
        if value is not None:
            return value / 100
    return None
