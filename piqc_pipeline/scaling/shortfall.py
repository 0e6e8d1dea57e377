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
        usd_per_hour: Price of these, where prices are known.
        usd: Price over the whole span, where prices are known.
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
    usd_per_hour = gpus * usd_per_gpu_hour if gpus is not None and usd_per_gpu_hour is not None else None
    usd = usd_per_hour * (end - start).total_seconds() / 3600 if usd_per_hour is not None else None
    size = f"{gpus:g} accelerators" if gpus is not None else count_of(short)
    price = f", ${usd_per_hour:.2f} an hour" if usd_per_hour is not None else ""
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
            f"{limits.max_replicas} are allowed ({limits.max_reason}): {size} more{price}, ready before {start:%H:%M}"
        ),
    )
