"""Which daily window deserves a floor that needs no model? Read off a plan of a whole day."""

import math
from collections.abc import Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo

from piqc_pipeline.scaling.options import CronFloor
from piqc_pipeline.scaling.plan import PlanStep, ReplicaPlan
from piqc_pipeline.scaling.policy import ScalingPolicy

FLOOR_SHARE = 0.5
"""The floor is this share of the day's peak: a plan that is gone costs half, not all."""
LEAST_HOURS = 20.0


def cron_floors(plans: Sequence[ReplicaPlan], policy: ScalingPolicy, zone: str) -> dict[str, CronFloor]:
    """One window by workload id, where the day has a busy part worth one."""
    return {plan.workload: floor for plan in plans if (floor := cron_floor(plan, policy, zone)) is not None}


def cron_floor(plan: ReplicaPlan, policy: ScalingPolicy, zone: str) -> CronFloor | None:
    """The longest part of the planned day at or above half its peak; None where that is all of it or the plan is short.

    The plan looks one lead time ahead by itself, so the window begins early enough.
    """
    steps = plan.steps
    if not plan.accepted or len(steps) < 2:
        return None
    width = steps[1].ts - steps[0].ts if len(steps) == 2 else steps[2].ts - steps[1].ts
    if steps[-1].ts + width - steps[0].ts < timedelta(hours=LEAST_HOURS):
        return None
    floor = max(plan.limits.min_replicas, math.ceil(FLOOR_SHARE * max(step.replicas for step in steps)))
    if floor <= plan.limits.min_replicas:
        return None
    window = _longest([step for step in steps if step.ts < steps[0].ts + timedelta(days=1)], floor)
    if window is None:
        return None
    start = window[0].ts.astimezone(ZoneInfo(zone))
    end = (window[-1].ts + width).astimezone(ZoneInfo(zone))
    if (start.hour, start.minute) == (end.hour, end.minute):
        return None
    return CronFloor(zone, f"{start.minute} {start.hour} * * *", f"{end.minute} {end.hour} * * *", floor)


def _longest(steps: Sequence[PlanStep], floor: int) -> list[PlanStep] | None:
    """Longest stretch at or above the floor; None where all steps are."""
    best: list[PlanStep] = []
    run: list[PlanStep] = []
    for step in steps:
        run = [*run, step] if step.replicas >= floor else []
        best = run if len(run) > len(best) else best
    return best if best and len(best) < len(steps) else None
