"""When is capacity short, by how much, and what does it cost? Spans of a plan that ask for more than the maximum.

What to buy, and by when: the point of capacity planning, so it is a finding and never a silent clamp.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from piqc_pipeline.scaling.limits import ReplicaLimits

if TYPE_CHECKING:
    from piqc_pipeline.scaling.plan import PlanStep


@dataclass(frozen=True)
class CapacityShortfall:
    """Hours in which demand may exceed what the cluster allows: what to buy, and by when.

    Attributes:
        start: First step that is short.
        end: End of the last one.
        replicas_wanted: The most that is asked for.
        replicas_allowed: The maximum.
        gpus_short: Accelerators missing at the worst step; None where a replica's size is unknown.
        usd_per_hour: Price of these; None where it is unknown, or where they stand in the cluster already.
        usd: Price over the whole span, where one is known.
        explain: The finding as one sentence.
    """

    start: datetime
    end: datetime
    replicas_wanted: int
    replicas_allowed: int
    gpus_short: float | None
    usd_per_hour: float | None
    usd: float | None
    explain: str


def count_of(replicas: int) -> str:
    """`1 replica`, `2 replicas`."""
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def shortfalls(
    steps: Sequence["PlanStep"], width: timedelta, limits: ReplicaLimits, usd_per_gpu_hour: float | None
) -> tuple[CapacityShortfall, ...]:
    """Spans of steps whose count before the limits is above the maximum.

    Args:
        steps: Of a plan, in order.
        width: Width of a step.
        limits: Of the workload.
        usd_per_gpu_hour: Price of one accelerator, where known.
    """
    found: list[CapacityShortfall] = []
    span: list[PlanStep] = []
    for step in [*steps, None]:
        if step is not None and step.unclamped > limits.max_replicas:
            span.append(step)
            continue
        if span:
            found.append(_shortfall(span, width, limits, usd_per_gpu_hour))
            span = []
    return tuple(found)


def _shortfall(
    span: Sequence["PlanStep"], width: timedelta, limits: ReplicaLimits, usd_per_gpu_hour: float | None
) -> CapacityShortfall:
    wanted = max(step.unclamped for step in span)
    short = wanted - limits.max_replicas
    gpus = short * limits.gpus_per_replica if limits.gpus_per_replica else None
    start, end = span[0].ts, span[-1].ts + width
    there = limits.schedulable_replicas is not None and limits.schedulable_replicas >= wanted
    usd_per_hour = None if there or gpus is None or usd_per_gpu_hour is None else gpus * usd_per_gpu_hour
    usd = usd_per_hour * (end - start).total_seconds() / 3600 if usd_per_hour is not None else None
    return CapacityShortfall(
        start=start,
        end=end,
        replicas_wanted=wanted,
        replicas_allowed=limits.max_replicas,
        gpus_short=gpus,
        usd_per_hour=usd_per_hour,
        usd=usd,
        explain=(
            f"{limits.workload} may need {wanted} replicas from {start:%Y-%m-%d %H:%M} to {end:%H:%M} UTC and "
            f"{limits.max_replicas} are allowed ({limits.max_reason}): {_remedy(short, gpus, limits, usd_per_hour)} "
            f"before {start:%H:%M}"
        ),
    )


def _remedy(short: int, gpus: float | None, limits: ReplicaLimits, usd_per_hour: float | None) -> str:
    size = (
        count_of(short)
        if gpus is None
        else f"{gpus:g} x {limits.product}"
        if limits.product
        else ("1 accelerator" if gpus == 1 else f"{gpus:g} accelerators")
    )
    if limits.schedulable_replicas is not None and limits.schedulable_replicas >= limits.max_replicas + short:
        return f"{size} more stand in the cluster; raise that limit"
    price = f", ${usd_per_hour:.2f} an hour" if usd_per_hour is not None else ""
    return f"{size} more{price}, ready"
