"""Which accelerator does which pod use, by the exporters' metrics? DCGM, AMD's exporter, and engines that export it.

An exporter behind Prometheus carries the workload in `exported_pod`, and its own pod in `pod`; asked directly, the
workload in `pod`. Under MIG `GPU_UTIL` does not exist, and `GR_ENGINE_ACTIVE`, a ratio, takes its place.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from piqc_pipeline.cluster.exposition import Page, Sample
from piqc_pipeline.facts.snapshot import AcceleratorReading

PREFIXES = ("DCGM_FI_", "gpu_", "amd_gpu_")
Source = Literal["dcgm", "prometheus"]
PodKey = tuple[str, str]
"""Namespace and name."""

_EXPORTER = re.compile(r"dcgm-exporter|metrics-exporter|gpu-exporter")
MAX_TEMPERATURE = 150.0
MAX_POWER_WATTS = 10_000.0
MAX_MEMORY_MIB = 10_000_000.0
"""No device takes as much. DCGM writes 2147483632 and more where it has no value (`dcgm_structs.h`), AMD 65535."""
_DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_pct", 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_bandwidth_pct", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_mib", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_watts", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_celsius", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_pct", 100.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_pct", 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_pct", 100.0),
}
_AMD_PLAIN = {
    "gpu_gfx_activity": ("utilization_pct", 1.0),
    "gpu_umc_activity": ("memory_bandwidth_pct", 1.0),
    "gpu_used_vram": ("memory_used_mib", 1.0),
    "gpu_total_vram": ("memory_total_mib", 1.0),
    "gpu_power_usage": ("power_watts", 1.0),
    "gpu_package_power": ("power_watts", 1.0),
    "gpu_edge_temperature": ("temperature_celsius", 1.0),
    "gpu_junction_temperature": ("temperature_celsius", 1.0),
}
_AMD = _AMD_PLAIN | {f"amd_{name}": field for name, field in _AMD_PLAIN.items()}
"""AMD's exporter puts `MetricsFieldPrefix` of its configuration, `amd_`, before every name."""
ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
METRICS = (*_DCGM, ENGINE_ACTIVE, "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED", *_AMD)


@dataclass(frozen=True)
class DeviceUse:
    """One accelerator, or MIG instance, and who uses it.

    Attributes:
        pod: The pod that holds it by the exporter's labels; None where none is named.
        host: Node by the exporter's labels, where they name one.
    """

    pod: PodKey | None
    host: str | None
    reading: AcceleratorReading


def read_devices(pages: Iterable[Page], source: Source) -> tuple[DeviceUse, ...]:
    """Every device on the pages, in order of its identity."""
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    labels: dict[tuple[str, ...], dict[str, str]] = {}
    for page in pages:
        for sample in page:
            key = _device_key(sample)
            if key is None or not sample.usable:
                continue
            rows.setdefault(key, {})[sample.name] = sample.value
            labels.setdefault(key, dict(sample.labels))
    return tuple(_use(labels[key], rows[key], source) for key in sorted(rows))


def workload_of(labels: Mapping[str, str]) -> PodKey | None:
    """The pod that uses a device: `exported_pod` where Prometheus moved it, else `pod`; never the exporter's own."""
    for prefix in ("exported_", ""):
        pod, namespace = labels.get(f"{prefix}pod", ""), labels.get(f"{prefix}namespace", "")
        if not pod or not namespace:
            continue
        container = labels.get(f"{prefix}container", "")
        if _EXPORTER.search(pod) or _EXPORTER.search(container):
            continue
        return namespace, pod
    return None


def _device_key(sample: Sample) -> tuple[str, ...] | None:
    """Device, instance, and who uses it: a shared card is told once for each of its users."""
    labels = sample.labels
    if sample.name not in METRICS:
        return None
    host = labels.get("Hostname") or labels.get("hostname") or labels.get("node") or labels.get("instance") or ""
    uuid = labels.get("UUID") or labels.get("gpu_uuid") or labels.get("uuid") or ""
    index = labels.get("gpu") or labels.get("gpu_id") or ""
    instance = labels.get("GPU_I_ID") or ""
    partition = labels.get("gpu_partition_id") or ""
    if not uuid and not index:
        return None
    user = workload_of(labels) or ("", "")
    return (uuid or host, index, instance or partition, *user)


def _use(labels: Mapping[str, str], values: Mapping[str, float], source: Source) -> DeviceUse:
    instance = labels.get("GPU_I_ID") or None
    reading = AcceleratorReading(
        source=source,
        uuid=labels.get("UUID") or labels.get("gpu_uuid") or None,
        index=labels.get("gpu") or labels.get("gpu_id") or None,
        product=labels.get("modelName") or labels.get("card_series") or labels.get("card_model") or None,
        instance=instance,
        profile=labels.get("GPU_I_PROFILE") or None,
        confidence="high",
    )
    fields: dict[str, float] = {}
    for name, (attribute, scale) in (*_DCGM.items(), *_AMD.items()):
        if name in values and attribute not in fields:
            fields[attribute] = values[name] * scale
    possible: dict[str, Any] = {key: value for key, value in fields.items() if _possible(key, value)}
    reading = _with_utilization(replace(reading, **possible), values, whole=instance is None)
    host = labels.get("Hostname") or labels.get("hostname") or labels.get("node")
    return DeviceUse(workload_of(labels), host, reading)


def _with_utilization(reading: AcceleratorReading, values: Mapping[str, float], *, whole: bool) -> AcceleratorReading:
    used, free, reserved = (values.get(f"DCGM_FI_DEV_FB_{part}") for part in ("USED", "FREE", "RESERVED"))
    if used is not None and free is not None and _possible("memory_total_mib", total := used + free + (reserved or 0)):
        reading = replace(reading, memory_total_mib=total)
    if whole and reading.utilization_pct is not None:
        signal = next(name for name in ("DCGM_FI_DEV_GPU_UTIL", *_AMD) if name in values)
        return replace(reading, signal=signal)
    active = values.get(ENGINE_ACTIVE)
    if active is not None and 0 <= active <= 1:
        return replace(reading, utilization_pct=100 * active, signal=ENGINE_ACTIVE)
    return replace(reading, utilization_pct=None)


def _possible(attribute: str, value: float) -> bool:
    if attribute.endswith("_pct"):
        return 0 <= value <= 100
    if attribute == "temperature_celsius":
        return 0 < value < MAX_TEMPERATURE
    return 0 <= value < (MAX_MEMORY_MIB if attribute.endswith("_mib") else MAX_POWER_WATTS)


def engine_devices(page: Page) -> tuple[AcceleratorReading, ...]:
    """GPUs that an engine itself reports (Triton: `nv_gpu_utilization`, a ratio)."""
    found: dict[str, AcceleratorReading] = {}
    for name, attribute, scale in (
        ("nv_gpu_utilization", "utilization_pct", 100.0),
        ("nv_gpu_memory_used_bytes", "memory_used_mib", 1 / 1024**2),
        ("nv_gpu_memory_total_bytes", "memory_total_mib", 1 / 1024**2),
        ("nv_gpu_power_usage", "power_watts", 1.0),
    ):
        for sample in page.samples.get(name, ()):
            uuid = sample.labels.get("gpu_uuid")
            value = sample.value * scale
            if not uuid or not sample.usable or not _possible(attribute, value):
                continue
            reading = found.setdefault(uuid, AcceleratorReading("engine", uuid, signal="nv_gpu_utilization"))
            found[uuid] = replace(reading, **{attribute: value})  # type: ignore[arg-type]
    return tuple(found[uuid] for uuid in sorted(found))
