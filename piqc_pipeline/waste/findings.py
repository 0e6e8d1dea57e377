"""What should somebody look at, and what does each thing cost a day?

Sentences and dollars only; the figures come from `workloads.py` and `capacity.py`. Findings that are `counted`
share no dollar, so that their sum is the waste.
"""

from collections.abc import Iterable, Sequence

from piqc_pipeline.waste.figures import (
    HOURS_PER_DAY,
    Bucket,
    Finding,
    FindingKind,
    PendingPod,
    PoolCapacity,
    WorkloadFigures,
)

_CAPACITY: tuple[tuple[Bucket, FindingKind, bool, str], ...] = (
    ("dark", "dark", True, "nobody uses"),
    ("fragmented", "fragmentation", True, "are free, but too few for any shape that is asked for"),
    ("unhealthy", "unhealthy", False, "are installed and cannot be used"),
    ("cordoned", "cordoned", False, "are free on a cordoned node"),
    ("not_ready", "not-ready", False, "are free on a node that is not ready"),
    ("tainted", "tainted", False, "are free behind a taint"),
)


def find(
    cluster: str,
    workloads: Sequence[WorkloadFigures],
    capacity: Sequence[PoolCapacity] | None,
    pending: Sequence[PendingPod],
) -> tuple[Finding, ...]:
    """All findings, most expensive first; unknown dollars last, ties by subject."""
    found = [*_of_workloads(workloads), *_of_capacity(cluster, capacity or ()), *_of_pending(pending)]
    return tuple(sorted(found, key=lambda one: (-(one.usd_per_day or 0.0), one.subject, one.kind)))


def _of_workloads(workloads: Iterable[WorkloadFigures]) -> Iterable[Finding]:
    for one in workloads:
        if one.idle_usd_per_day:
            used = f"{one.utilization_pct:.0f} %" if one.utilization_pct is not None else "an unknown share"
            yield Finding(
                "idle",
                one.id,
                one.idle_usd_per_day,
                True,
                f"{one.name} uses {used} of its {_count(one.accelerator_count)} {one.accelerator or 'accelerators'}",
                one.accelerator_count,
                "medium",
            )
        if one.fit is not None and one.fit.verdict == "oversized":
            yield Finding(
                "misplacement",
                one.id,
                one.misplaced_usd_per_day,
                True,
                f"{one.name} needs {one.fit.needed_gib_per_device:.1f} GiB a device and has "
                f"{one.fit.available_gib_per_device:.1f}; {one.fit.smaller_product} holds it",
                one.accelerator_count,
                "low",
            )
        if one.fit is not None and one.fit.verdict == "does not fit":
            yield Finding(
                "does-not-fit",
                one.id,
                None,
                False,
                f"{one.name} needs {one.fit.needed_gib_per_device:.1f} GiB a device and has "
                f"{one.fit.available_gib_per_device:.1f}",
                one.accelerator_count,
                one.fit.confidence,
            )


def _of_capacity(cluster: str, capacity: Iterable[PoolCapacity]) -> Iterable[Finding]:
    for pool in capacity:
        for bucket, kind, counted, words in _CAPACITY:
            units = pool.count(bucket)
            if units == 0:
                continue
            usd = pool.usd_per_hour(bucket)
            reason = f" ({pool.reason})" if pool.reason else ""
            yield Finding(
                kind,
                f"{cluster}/node/{pool.node}",
                None if usd is None else usd * HOURS_PER_DAY,
                counted,
                f"{_count(units)} of {_count(pool.installed)} {pool.product or pool.resource} on {pool.node} "
                f"{words}{reason}",
                units,
                "high",
            )


def _of_pending(pending: Iterable[PendingPod]) -> Iterable[Finding]:
    for pod in pending:
        if pod.waits_for_accelerators:
            waited = "" if pod.waiting_hours is None else f" since {pod.waiting_hours:.1f} h"
            yield Finding(
                "pending",
                pod.workload_id,
                None,
                False,
                f"{pod.namespace}/{pod.name} waits for {_count(pod.accelerators)} {pod.resource}{waited}: {pod.reason}",
                pod.accelerators,
                "high",
            )


def _count(number: float | None) -> str:
    return "an unknown number of" if number is None else f"{number:g}"
