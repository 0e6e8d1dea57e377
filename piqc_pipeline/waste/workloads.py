"""What does one workload use, cost and waste? Figures over all of its pods, never of the first one times the count.

Which accelerators it holds is answered by `capacity.py`; the totals of the cluster by `assess.py`.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from piqc_pipeline.facts.snapshot import Pod, Unknown, Workload
from piqc_pipeline.waste.efficiency import mfu_pct, peak_flops, usd_per_1k_tokens
from piqc_pipeline.waste.figures import HOURS_PER_DAY, Fit, WorkloadFigures
from piqc_pipeline.waste.fit import Room, judge_fit, smaller_products, tier_overpay_usd_per_hour
from piqc_pipeline.waste.held import Held, joined, why_unpriced
from piqc_pipeline.waste.prices import PriceList
from piqc_pipeline.waste.utilization import idle_usd_per_day, measure

_T = TypeVar("_T")

NVSWITCH_FROM_GPUS = 8

AGE_FLAG_HOURS = 72.0
"""A workload older than this is marked in the table."""


def workload_figures(
    workload: Workload,
    pods: Sequence[Pod],
    held: Sequence[Held],
    memory: dict[tuple[str, str], float],
    *,
    prices: PriceList,
    now: datetime,
) -> WorkloadFigures:
    """All figures of one workload.

    Args:
        workload: The workload.
        pods: Its pods, ordered by name.
        held: What they hold, priced.
        memory: GiB of one unit by (node, resource), where known.
        prices: Prices and catalog.
        now: The instant of the snapshot.
    """
    unknown: list[Unknown] = []
    if not any(pod.holds for pod in pods):
        unknown.append(
            Unknown(f"use, tokens and fit of {workload.id}", "none of its pods stands on a node", about="placement")
        )
        return _nothing_placed(workload, now, unknown)
    usd = _usd_per_hour(workload, held, unknown)
    measured = measure(workload, pods, held, unknown)
    values = [value for part in measured for value in part.values]
    mean = math.fsum(values) / len(values) if values else None
    idle = idle_usd_per_day(measured, held)
    tokens, mfu, flops, per_1k = _efficiency(workload, pods, held, unknown)
    fit, room = _fit(workload, held, memory, prices, unknown)
    unknown.extend(_unstated(workload, held))
    tier = _tier_usd_per_day(workload, held, prices)
    misplaced = _misplaced(workload, fit, room, mean, len(values), prices, unknown)
    units: list[float | None] = [part.holding.units for part in held]
    devices: list[float | None] = [part.holding.devices for part in held]
    if not held and any(pod.readings for pod in pods if pod.holds):
        # It uses devices that it did not request: how many are its own nobody can say, so not 0 either.
        units, devices = [None], [None]
    return WorkloadFigures(
        id=workload.id,
        cluster=workload.cluster,
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        accelerator=_names(part.pool.product for part in held if part.pool),
        accelerator_count=_sum(units),
        devices=_sum(devices),
        replicas=replicas(workload, pods),
        utilization_pct=mean,
        utilization_min_pct=min(values, default=None),
        utilization_max_pct=max(values, default=None),
        utilization_devices_seen=len(values),
        utilization_source=_names(part.source for part in measured),
        mfu_pct=mfu,
        peak_flops=flops,
        generation_tokens_per_second=tokens,
        usd_per_1k_tokens=per_1k,
        usd_per_hour=usd,
        idle_usd_per_day=idle if usd is not None else None,
        tier_usd_per_day=tier,
        misplaced_usd_per_day=misplaced,
        fit=fit,
        age_hours=_age_hours(workload, now),
        memory_gib_per_device=min(
            (gib for gib in (memory.get((one.holding.node, one.holding.resource)) for one in held) if gib is not None),
            default=None,
        ),
        supports_bf16=_same([one.product.bf16 if one.product else None for one in held]),
        interconnect=_same([_interconnect(one) for one in held]),
        gpus_per_node=next((one.pool.installed for one in held if one.pool), None),
        nodes=len({pod.node for pod in pods if pod.holds and pod.node}),
        unknown=(*_of_itself(workload, pods), *unknown),
    )


def _unstated(workload: Workload, held: Sequence[Held]) -> Iterable[Unknown]:
    """Why figures that hang on the workload's identity are missing."""
    model = workload.model
    if not workload.is_inference:
        yield Unknown(f"model, tokens, MFU and fit of {workload.id}", "no inference engine was recognized")
    elif model.parameters_total is None:
        named = model.name or model.served_name
        why = "its name states no size that can be relied on" if named else "the model is unknown"
        yield Unknown(f"parameters of {workload.id}", why, about="parameters")
    elif model.parameters_active is None:
        why = "how many experts a token meets is unknown"
        yield Unknown(f"active parameters of {workload.id}", why, about="parameters")
    if held and not any(part.pool and part.pool.product for part in held):
        yield Unknown(f"accelerator of {workload.id}", why_unpriced(held[0]), about="product")
    if workload.created_at is None:
        yield Unknown(f"age of {workload.id}", "its owner does not say when it was made", about="age")


def _of_itself(workload: Workload, pods: Sequence[Pod]) -> list[Unknown]:
    """What is unknown of the workload, without what single pods did not tell: that is said once, in sum."""
    told = {entry for pod in pods for entry in told_by_pod(pod)}
    return [entry for entry in workload.unknown if entry not in told]


def told_by_pod(pod: Pod) -> list[Unknown]:
    """What one pod did not tell and its workload says in sum; single figures that an engine left out stay apart."""
    engine = pod.runtime.unknown if pod.runtime is not None else ()
    return [*pod.unknown, *(entry for entry in engine if entry.about == "engine metrics")]


def _age_hours(workload: Workload, now: datetime) -> float | None:
    return None if workload.created_at is None else max(0.0, (now - workload.created_at).total_seconds() / 3600)


def _nothing_placed(workload: Workload, now: datetime, unknown: Sequence[Unknown]) -> WorkloadFigures:
    """A workload that holds nothing: it costs nothing, and nothing else can be said of it."""
    return WorkloadFigures(
        id=workload.id,
        cluster=workload.cluster,
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        accelerator=None,
        accelerator_count=0.0,
        devices=0.0,
        replicas=0,
        utilization_pct=None,
        utilization_min_pct=None,
        utilization_max_pct=None,
        utilization_devices_seen=0,
        utilization_source=None,
        mfu_pct=None,
        peak_flops=None,
        generation_tokens_per_second=None,
        usd_per_1k_tokens=None,
        usd_per_hour=0.0,
        idle_usd_per_day=0.0,
        tier_usd_per_day=None,
        misplaced_usd_per_day=0.0,
        fit=None,
        age_hours=_age_hours(workload, now),
        unknown=(*workload.unknown, *unknown),
    )


def _same(values: Sequence[_T | None]) -> _T | None:
    """The value on which all agree, else None."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _interconnect(part: Held) -> str | None:
    """How the devices of one node are joined.

    NVSwitch joins eight or more SXM boards from Ampere on; V100 boards and four-board servers have direct NVLink.
    """
    if part.product is None or part.pool is None:
        return None
    if part.product.link != "nvlink":
        return {"pcie": "PCIe"}.get(part.product.link, part.product.link)
    switched = (part.pool.installed or 0) >= NVSWITCH_FROM_GPUS and part.product.bf16
    return "NVSwitch" if switched else "NVLink"


def replicas(workload: Workload, pods: Sequence[Pod]) -> int:
    """Groups of a multi-node workload, else pods that stand on a node."""
    bound = [pod for pod in pods if pod.holds]
    if workload.topology is not None:
        return len({pod.group for pod in bound if pod.group is not None}) or workload.topology.groups
    return len(bound)


def _names(names: Iterable[str | None]) -> str | None:
    return ", ".join(sorted({name for name in names if name})) or None


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return math.fsum(known) if len(known) == len(parts) else None


def _usd_per_hour(workload: Workload, held: Sequence[Held], unknown: list[Unknown]) -> float | None:
    if not held:
        unknown.append(Unknown(f"cost of {workload.id}", "its pods request no accelerator"))
        return None
    reasons = sorted({why_unpriced(part) for part in held if part.usd_per_hour is None})
    if reasons:
        unknown.append(Unknown(f"cost of {workload.id}", joined(reasons)))
        return None
    return _sum([part.usd_per_hour for part in held])


def _efficiency(
    workload: Workload, pods: Sequence[Pod], held: Sequence[Held], unknown: list[Unknown]
) -> tuple[float | None, float | None, float | None, float | None]:
    """Tokens a second, MFU, peak FLOP/s of all devices, and USD per 1,000 tokens: over the pods that were asked."""
    flops = _sum([_flops(part, workload) for part in held]) if held else None
    rates = {
        pod.name: pod.runtime.generation_tokens_per_second
        for pod in pods
        if pod.runtime is not None and pod.runtime.generation_tokens_per_second is not None
    }
    if rates:
        tokens: float | None = math.fsum(rates.values())
        asked = {pod.group or pod.name for pod in pods if pod.name in rates}
        part = [one for one in held if (one.holding.pod.group or one.holding.pod.name) in asked]
    else:
        tokens = workload.runtime.generation_tokens_per_second if workload.runtime is not None else None
        part = list(held)
    if tokens is None:
        if workload.is_inference:
            unknown.append(Unknown(f"tokens/s, MFU and $/1K tokens of {workload.id}", _why_no_tokens(workload, pods)))
        return None, None, flops, None
    usd = _sum([one.usd_per_hour for one in part]) if part else None
    share = mfu_pct(workload.model.parameters_active, tokens, _sum([_flops(one, workload) for one in part]))
    if share is None:
        unknown.append(Unknown(f"MFU of {workload.id}", _why_no_mfu(workload, part)))
    if tokens <= 0:
        unknown.append(Unknown(f"$/1K tokens of {workload.id}", "nothing was generated while it was measured"))
    return tokens, share, flops, usd_per_1k_tokens(usd, tokens)


def _flops(part: Held, workload: Workload) -> float | None:
    peak = peak_flops(part.product, workload.model)
    return None if peak is None or part.holding.devices is None else peak * part.holding.devices


def _why_no_tokens(workload: Workload, pods: Sequence[Pod]) -> str:
    runtimes = [runtime for runtime in (workload.runtime, *(pod.runtime for pod in pods)) if runtime is not None]
    for runtime in runtimes:
        for entry in runtime.unknown:
            return entry.why
    if any(runtime.source != "none" for runtime in runtimes):
        return "its engine's metrics do not tell how many tokens it generates"
    return "no engine metrics were read"


def _why_no_mfu(workload: Workload, held: Sequence[Held]) -> str:
    if workload.model.parameters_active is None:
        return "the number of active parameters is unknown"
    if not held or any(_flops(part, workload) is None for part in held):
        return "the dense peak of its accelerators is unknown"
    return "the result is above 100 %: a counter or the model's size is wrong"


def _fit(
    workload: Workload,
    held: Sequence[Held],
    memory: dict[tuple[str, str], float],
    prices: PriceList,
    unknown: list[Unknown],
) -> tuple[Fit | None, Room | None]:
    if not workload.is_inference or not held:
        return None, None
    smallest = min(
        held, key=lambda part: (memory.get((part.holding.node, part.holding.resource), math.inf), part.holding.node)
    )
    gib = memory.get((smallest.holding.node, smallest.holding.resource))
    if gib is None:
        unknown.append(Unknown(f"fit of {workload.id}", "the memory of its accelerators is unknown", about="memory"))
        return None, None
    pool = smallest.pool
    per_replica = workload.gpus_per_replica or max(part.holding.units or 0 for part in held) or 1.0
    room = Room(
        devices=per_replica,
        memory_gib=gib,
        product=smallest.product,
        price=smallest.price,
        vendor=pool.vendor if pool else "",
        whole=pool is not None and pool.sharing == "none" and not smallest.shared,
    )
    fit, why = judge_fit(workload.model, room, prices)
    if why is not None:
        unknown.append(Unknown(f"fit of {workload.id}", why))
    return fit, room


def _tier_usd_per_day(workload: Workload, held: Sequence[Held], prices: PriceList) -> float | None:
    parts = []
    for part in held:
        if part.price is not None and part.holding.devices is not None:
            overpay = tier_overpay_usd_per_hour(workload.model, part.product, part.price, prices)
            if overpay is not None:
                parts.append(overpay * part.holding.devices * HOURS_PER_DAY)
    return math.fsum(parts) if parts else None


def _misplaced(
    workload: Workload,
    fit: Fit | None,
    room: Room | None,
    mean_pct: float | None,
    devices: int,
    prices: PriceList,
    unknown: list[Unknown],
) -> float | None:
    """Overpay on the busy share against the cheapest smaller product that can also carry the measured load."""
    if fit is None or room is None:
        return None
    if fit.verdict != "oversized":
        return 0.0
    if room.price is None:
        return None
    if mean_pct is None:
        why = "utilization is unknown, so that a smaller product might not carry the load"
        unknown.append(Unknown(f"dollars of misplacement of {workload.id}", why))
        return None
    busy = min(max(mean_pct, 0.0), 100.0) / 100
    own_peak = peak_flops(room.product, workload.model)
    for product, usd in smaller_products(workload.model, room, prices, fit.needed_gib_per_device):
        peak = peak_flops(product, workload.model)
        if usd is not None and own_peak and peak and busy * own_peak <= peak:
            return busy * (room.price.usd_per_hour - usd) * devices * HOURS_PER_DAY
    return 0.0
