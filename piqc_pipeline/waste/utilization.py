"""How busy are the devices of a workload, and what does their idle share cost?

The mean over all pods and devices. What was not measured is unknown: it is neither idle nor busy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from piqc_pipeline.facts.snapshot import AcceleratorReading, Pod, Unknown, Workload
from piqc_pipeline.waste.figures import HOURS_PER_DAY
from piqc_pipeline.waste.held import Held, joined

SOURCE_ORDER = ("dcgm", "prometheus", "engine", "exec")
"""Of several sources for the same pod the first that states a utilization is taken."""

SAME_WITHIN_POINTS = 1.0
"""Devices that a pod sees beyond its request are alike, and any of them may stand for its own, within this spread."""


@dataclass(frozen=True)
class Measured:
    """The utilization of the devices of one pod, percent each."""

    pod: Pod
    values: tuple[float, ...]
    source: str


def measure(workload: Workload, pods: Sequence[Pod], held: Sequence[Held], unknown: list[Unknown]) -> list[Measured]:
    """What is known of each pod; why the rest is not is added to `unknown`, once for the workload."""
    by_pod: dict[str, list[Held]] = {}
    for part in held:
        by_pod.setdefault(part.holding.pod.uid or part.holding.pod.name, []).append(part)
    measured: list[Measured] = []
    reasons: dict[str, int] = {}
    for pod in pods:
        parts = by_pod.get(pod.uid or pod.name, [])
        if not pod.holds or not (parts or pod.readings):
            continue
        found, why = _utilization_of(pod, parts)
        if found is not None:
            measured.append(found)
        if why is not None:
            reasons[why] = reasons.get(why, 0) + 1
    total = sum(reasons.values())
    if reasons:
        what = f"utilization of {workload.id}" if not measured else f"utilization of {total} pod(s) of {workload.id}"
        lost = [entry for pod in pods for entry in pod.unknown if entry.read_failed]
        refused = any(entry.about in ("utilization", None) for entry in lost)
        unknown.append(Unknown(what, joined(reasons), read_failed=refused, about="utilization"))
    return measured


def _utilization_of(pod: Pod, parts: Sequence[Held]) -> tuple[Measured | None, str | None]:
    """The pod's utilization and, where all or a part of it is unknown, why."""
    if any(part.shared for part in parts):
        return None, "the device is shared, so its use is not attributable to one pod"
    source, readings = _best_source(pod)
    values = [reading.utilization_pct for reading in readings if reading.utilization_pct is not None]
    if not values:
        reason = next((entry.why for entry in pod.unknown if entry.about == "utilization"), None)
        return None, reason or "no source states it"
    devices = sum(part.holding.units or 0 for part in parts) or float(len(values))
    if len(values) > devices:
        if max(values) - min(values) > SAME_WITHIN_POINTS:
            return None, f"the pod sees {len(values)} devices and requested {devices:g}; which are its own is unknown"
        values = [math.fsum(values) / len(values)] * max(1, math.ceil(devices))
    missing = math.ceil(devices) - len(values)
    why = f"{missing} of its {devices:g} devices did not answer" if missing > 0 else None
    return Measured(pod, tuple(values), source), why


def _best_source(pod: Pod) -> tuple[str, list[AcceleratorReading]]:
    for source in SOURCE_ORDER:
        readings = [reading for reading in pod.readings if reading.source == source]
        if any(reading.utilization_pct is not None for reading in readings):
            return source, readings
    return "none", []


def idle_usd_per_day(measured: Sequence[Measured], held: Sequence[Held]) -> float | None:
    """Dollars of the unused share of the devices that were measured; others are unknown, not idle."""
    usd_by_pod: dict[str, tuple[float, float]] = {}
    for part in held:
        key = part.holding.pod.uid or part.holding.pod.name
        if part.usd_per_hour is not None and part.holding.units:
            usd, units = usd_by_pod.get(key, (0.0, 0.0))
            usd_by_pod[key] = (usd + part.usd_per_hour, units + part.holding.units)
    parts = []
    for one in measured:
        usd, units = usd_by_pod.get(one.pod.uid or one.pod.name, (0.0, 0.0))
        if units:
            unused = math.fsum(1 - min(max(value, 0.0), 100.0) / 100 for value in one.values)
            parts.append(usd / units * min(unused, units) * HOURS_PER_DAY)
    return math.fsum(parts) if parts else None
