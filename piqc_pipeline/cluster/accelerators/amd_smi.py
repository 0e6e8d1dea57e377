"""What did amd-smi print? The JSON of its `metric` and `static`. Never an exception, never a guess.

Shape, from outputs in ROCm/rocm-systems#2720 and henrygd/beszel#737 and in tests of public readers: a list with one
object a GPU, in newer releases within `{"gpu_data": […]}`; a figure is `{"value": 42, "unit": "%"}`, or `N/A` where the
GPU has none, as may be a whole group (`"usage": "N/A"`). Its MB are MiB: an MI300X with 192 GiB says 196592.
"""

import json
from collections.abc import Iterator
from typing import Any

from piqc_pipeline.cluster.accelerators.nvidia_smi import MAX_GPUS, amount, first, number, percent
from piqc_pipeline.cluster.accelerators.plugin import Listing
from piqc_pipeline.cluster.accelerators.rocm_smi import watts
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.facts.snapshot import AcceleratorReading

_ASK = "{0} metric --usage --mem-usage --power --temperature --json && {0} static --asic --json"
COMMANDS = tuple(("sh", "-c", _ASK.format(path)) for path in ("amd-smi", "/opt/rocm/bin/amd-smi"))
"""`metric` names no product, and `static` has no figures that change."""

_MAX_STARTS = 100
"""Documents, and brackets in lines of warnings; an output with more is not of amd-smi."""
_POWERS = ("socket_power", "current_socket_power", "average_socket_power")
_TEMPERATURES = ("edge", "hotspot", "junction")


def read_json(output: str) -> Listing:
    """The GPUs in the outputs of `amd-smi metric --json` and `amd-smi static --json`, one after the other."""
    gpus: dict[int, dict[str, Any]] = {}
    for document in _documents(output):
        rows = document.get("gpu_data") if isinstance(document, dict) else document
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and type(index := row.get("gpu")) is int and 0 <= index < MAX_GPUS:
                gpus.setdefault(index, {}).update(row)
    readings = tuple(_reading(index, gpu) for index, gpu in sorted(gpus.items()))
    return Listing(readings, () if readings or not output.strip() else ("it names no GPU",))


def _documents(output: str) -> Iterator[Any]:
    """JSON documents of an output, with lines of warnings before, between and behind them."""
    decoder = json.JSONDecoder()
    at = 0
    for _ in range(_MAX_STARTS):
        starts = [place for mark in "[{" if (place := output.find(mark, at)) >= 0]
        if not starts:
            return
        try:
            document, at = decoder.raw_decode(output, min(starts))
            yield document
        except (ValueError, RecursionError):
            at = min(starts) + 1


def _reading(index: int, gpu: dict[str, Any]) -> AcceleratorReading:
    name = _cell(gpu, "asic", "market_name")
    return AcceleratorReading(
        source="exec",
        index=str(index),
        product=printable(name, 80) if name and name != "N/A" else None,
        utilization_pct=percent(_cell(gpu, "usage", "gfx_activity")),
        memory_bandwidth_pct=percent(_cell(gpu, "usage", "umc_activity")),
        memory_used_mib=amount(_cell(gpu, "mem_usage", "used_vram")),
        memory_total_mib=amount(_cell(gpu, "mem_usage", "total_vram")) or None,
        power_watts=first(watts(_cell(gpu, "power", key)) for key in _POWERS),
        temperature_celsius=first(number(_cell(gpu, "temperature", key)) for key in _TEMPERATURES),
        signal="gfx_activity",
        confidence="medium",
    )


def _cell(gpu: dict[str, Any], group: str, key: str) -> str:
    """A figure's text without its unit; empty where there is none."""
    found = gpu.get(group)
    value = found.get(key) if isinstance(found, dict) else None
    value = value.get("value") if isinstance(value, dict) else value
    return "" if value is None or isinstance(value, bool | list | dict) else str(value)
