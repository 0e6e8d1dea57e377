"""Which two workloads are the prefill and the decode role of one service, and which ratio do their counts keep?

One plan a role; where one role needs more, the other follows so far that the ratio stays within its limits. Roles are
told by labels (llm-d, Dynamo) or the engine's arguments; see `cluster.engines`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from piqc_pipeline.facts.snapshot import ClusterSnapshot, Workload
from piqc_pipeline.scaling.limits import PairBound
from piqc_pipeline.scaling.plan import PlanStep, ReplicaPlan, with_steps

SERVICE_LABELS = (
    "nvidia.com/dynamo-graph-deployment-name",
    "nvidia.com/dynamo-namespace",
    "llm-d.ai/model",
    "llm-d.ai/inference-serving-group",
    "app.kubernetes.io/instance",
)
"""Labels that both roles of one service carry with one value; the served model counts where none of them is there."""

RATIO_SLACK = 2.0
"""Without a ratio from the user, the one that runs now may halve or double: prompts get longer and shorter, but a role
of half or twice its share waits for the other one."""


@dataclass(frozen=True)
class Pair:
    """Two roles of one service.

    Attributes:
        prefill: Id of the workload that reads prompts.
        decode: Id of the workload that generates.
        least: Fewest prefill replicas a decode replica, above 0.
        most: Most of them.
        why: Where the ratio comes from, one clause.
    """

    prefill: str
    decode: str
    least: float
    most: float
    why: str

    def bounds(self) -> dict[str, PairBound]:
        """What each of the two owes to the other, by workload id."""
        return {
            self.prefill: PairBound(self.decode, self.least, self.why),
            self.decode: PairBound(self.prefill, 1 / self.most, self.why),
        }


def pairs_of(snapshot: ClusterSnapshot, ratio: tuple[float, float] | None = None) -> tuple[Pair, ...]:
    """The pairs that the snapshot tells: one prefill and one decode workload of a service in a namespace.

    Args:
        snapshot: What one scan saw.
        ratio: Fewest and most prefill replicas a decode replica; None: around what runs now.

    Returns:
        In the order of the prefill ids. A service with several workloads of a role is none: which belong together is
        not known. Nor is, without `ratio`, one in which a role has no replica: there is no ratio to keep.
    """
    services: dict[tuple[str, str], dict[str, list[Workload]]] = {}
    for workload in snapshot.workloads:
        if workload.engine.role in ("prefill", "decode"):
            roles = services.setdefault((workload.namespace, _service(workload)), {"prefill": [], "decode": []})
            roles[workload.engine.role].append(workload)
    found = []
    for roles in services.values():
        if len(roles["prefill"]) == len(roles["decode"]) == 1:
            prefill, decode = roles["prefill"][0], roles["decode"][0]
            if ratio is not None:
                found.append(
                    Pair(prefill.id, decode.id, *ratio, f"{ratio[0]:g} to {ratio[1]:g} prefill a decode replica")
                )
            elif prefill.replicas_wanted and decode.replicas_wanted:
                now = prefill.replicas_wanted / decode.replicas_wanted
                why = f"{prefill.replicas_wanted} prefill and {decode.replicas_wanted} decode replicas run now"
                found.append(Pair(prefill.id, decode.id, now / RATIO_SLACK, now * RATIO_SLACK, why))
    return tuple(sorted(found, key=lambda pair: pair.prefill))


def _service(workload: Workload) -> str:
    for label in SERVICE_LABELS:
        if label in workload.labels:
            return f"{label}={workload.labels[label]}"
    return workload.model.served_name or workload.model.name or ""


def paired_plans(plans: Sequence[ReplicaPlan]) -> list[ReplicaPlan]:
    """The same plans; the two of each pair (`limits.pair`) raised to their ratio, step by step."""
    by_id = {plan.workload: plan for plan in plans}
    for plan in plans:
        bound = plan.limits.pair
        mate = by_id.get(bound.mate) if bound else None
        if bound is not None and mate is not None and mate.limits.pair is not None and plan.workload < mate.workload:
            by_id[plan.workload], by_id[mate.workload] = pair_plans(by_id[plan.workload], by_id[mate.workload])
    return [by_id[plan.workload] for plan in plans]


def pair_plans(one: ReplicaPlan, other: ReplicaPlan) -> tuple[ReplicaPlan, ReplicaPlan]:
    """Two plans on the same steps, each with a `limits.pair` that names the other: the smaller counts are raised.

    A count never exceeds its own maximum; what the ratio would have needed is a shortfall then.
    """
    assert one.limits.pair is not None and other.limits.pair is not None, "both plans must know their ratio"
    ones, others = [], []
    for mine, theirs in zip(one.steps, other.steps, strict=False):
        wanted = paired(mine.replicas, theirs.replicas, one.limits.pair.per_mate, other.limits.pair.per_mate)
        ones.append(_raised(mine, one, wanted[0], f"{other.limits.name} has {wanted[1]}"))
        others.append(_raised(theirs, other, wanted[1], f"{one.limits.name} has {wanted[0]}"))
    return (
        with_steps(one, (*ones, *one.steps[len(ones) :])),
        with_steps(other, (*others, *other.steps[len(others) :])),
    )


def paired(one: int, other: int, one_per_other: float, other_per_one: float) -> tuple[int, int]:
    """Counts of two roles of which each needs a share of the other; a count is only ever raised.

    Args:
        one: Replicas that the one role needs.
        other: Replicas that the other role needs.
        one_per_other: Fewest of the one for each of the other, above 0.
        other_per_one: Fewest of the other for each of the one, above 0; the product of both is at most 1.

    Returns:
        The smallest counts at or above those needed; where whole numbers do not meet so narrow limits, the nearest
        above.
    """
    one, other = max(1, one), max(1, other)
    if one < one_per_other * other - 1e-9:
        one = math.ceil(one_per_other * other - 1e-9)
    elif other < other_per_one * one - 1e-9:
        other = math.ceil(other_per_one * one - 1e-9)
        one = max(one, math.ceil(one_per_other * other - 1e-9))
    return one, other


def _raised(step: PlanStep, plan: ReplicaPlan, wanted: int, why: str) -> PlanStep:
    count = plan.limits.clamp(wanted)
    if wanted <= step.replicas:
        return step
    short = f", {wanted} would keep the ratio" if wanted > count else ""
    explain = f"{count} replicas: {why}{short}; {step.explain}"
    return replace(
        step, replicas=max(count, step.replicas), binding="pair", explain=explain, unclamped=max(wanted, step.unclamped)
    )
