"""Whose are the accelerators that a pod sees? What it was asked for is cross-checked with what was seen."""

from collections.abc import Callable
from dataclasses import replace

from piqc_pipeline.cluster.probing import Told
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.facts.snapshot import AcceleratorReading, Node, Pod, Unknown


def attribute(pod: Pod, told: Told, node: Node | None, note: Callable[[Pod], Unknown | None]) -> Pod:
    """The pod with readings of its own accelerators, its engine's figures, and what stays unknown.

    Args:
        pod: The pod by its spec.
        told: What it told.
        node: Its node, where it was read.
        note: Why it has no utilization, where nothing else says so.
    """
    unknown = [*pod.unknown, *told.unknown]
    if pod.visible_devices is not None and pod.holds:
        seen = printable(pod.visible_devices, 60)
        why = f"it sees devices of its node (NVIDIA_VISIBLE_DEVICES={seen}) without a request"
        unknown.append(Unknown(f"accelerators that pod {pod.namespace}/{pod.name} uses", why, about="devices seen"))
    readings = _own(pod, told.readings, unknown)
    where = f"{pod.namespace}/{pod.name}"
    holds = pod.holds and bool(pod.requests) and pod.phase == "Running"
    if holds and not any(reading.utilization_pct is not None for reading in readings):
        if not any(entry.about in ("utilization", "devices seen") for entry in unknown):
            entry = _silent(where, readings) if readings else note(pod)
            unknown += [entry] if entry else []
    elif holds:
        missing = sum(reading.utilization_pct is None for reading in readings)
        expected = _devices(pod)
        if missing:
            unknown.append(_unused(f"{missing} accelerators of pod {where}", "their tool prints none"))
        if expected is not None and len(readings) < expected:
            text = f"{len(readings)} of the {int(expected)} accelerators that it holds were seen"
            unknown.append(_unused(f"{int(expected) - len(readings)} accelerators of pod {where}", text))
    reading = told.runtime
    return replace(
        pod,
        readings=readings,
        runtime=reading.runtime if reading is not None else None,
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _devices(pod: Pod) -> float | None:
    """Whole devices that the pod holds; None where it holds shares, or an unknown amount."""
    if any(request.units is None or request.sharing != "none" for request in pod.requests):
        return None
    return sum(request.units for request in pod.requests if request.units is not None)


def _own(pod: Pod, readings: tuple[AcceleratorReading, ...], unknown: list[Unknown]) -> tuple[AcceleratorReading, ...]:
    """The readings of the accelerators that the pod holds; a privileged pod sees those of its neighbors too."""
    expected = _devices(pod)
    if (
        not pod.requests
        or expected is None
        or len(readings) <= expected
        or readings[0].source in ("dcgm", "prometheus")
    ):
        return readings
    same = {(r.utilization_pct, r.product) for r in readings}
    if len(same) == 1:
        return readings[: int(expected)]
    unknown.append(
        _unused(
            f"pod {pod.namespace}/{pod.name}",
            f"it sees {len(readings)} accelerators and holds {int(expected)}; which are its own is not told",
        )
    )
    return ()


def _silent(where: str, readings: tuple[AcceleratorReading, ...]) -> Unknown:
    why = "its tool prints none; under MIG it does not exist there, and DCGM's GR_ENGINE_ACTIVE tells it"
    return _unused(f"pod {where}", why if readings[0].source == "exec" else "no metric of it has a value")


def _unused(whose: str, why: str) -> Unknown:
    return Unknown(f"utilization of {whose}", why, about="utilization")
