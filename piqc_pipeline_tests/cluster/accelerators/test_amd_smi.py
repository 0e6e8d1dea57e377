"""Shapes of amd-smi's JSON as public outputs show them: a bare list (henrygd/beszel#737), and within `gpu_data`."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.accelerators.amd import Amd
from piqc_pipeline.cluster.accelerators.amd_smi import COMMANDS, read_json


def figure(value: object, unit: str) -> dict[str, object]:
    return {"value": value, "unit": unit}


BUSY: dict[str, Any] = {
    "gpu": 0,
    "usage": {"gfx_activity": figure(94, "%"), "umc_activity": figure(61, "%"), "vcn_activity": ["N/A", "N/A"]},
    "power": {"socket_power": figure(612, "W"), "gfx_voltage": "N/A"},
    "temperature": {"edge": "N/A", "hotspot": figure(58, "C"), "mem": figure(41, "C")},
    "mem_usage": {"total_vram": figure(196592, "MB"), "used_vram": figure(17153, "MB")},
}
SILENT: dict[str, Any] = {"gpu": 1, "usage": "N/A", "power": {"socket_power": "N/A"}, "mem_usage": "N/A"}
STATIC = {"gpu_data": [{"gpu": n, "asic": {"market_name": "AMD Instinct MI300X"}} for n in range(2)]}


def test_figures_and_names_of_both_documents_become_one_reading_a_gpu() -> None:
    listing = read_json(json.dumps({"gpu_data": [BUSY, SILENT]}, indent=4) + "\n" + json.dumps(STATIC))
    busy, silent = listing.readings
    assert (busy.index, busy.product, busy.utilization_pct) == ("0", "AMD Instinct MI300X", 94.0)
    assert (busy.memory_used_mib, busy.memory_total_mib, busy.memory_bandwidth_pct) == (17153.0, 196592.0, 61.0)
    assert (busy.power_watts, busy.temperature_celsius) == (612.0, 58.0)
    assert (silent.product, silent.utilization_pct, silent.memory_total_mib) == ("AMD Instinct MI300X", None, None)
    assert listing.problems == ()


def test_older_releases_print_a_bare_list_and_a_plugin_reads_either_tool() -> None:
    (reading,) = Amd().read_tool("WARNING: User is missing the group [render]\n" + json.dumps([BUSY])).readings
    assert (reading.utilization_pct, reading.product) == (94.0, None)
    (card,) = Amd().read_tool(json.dumps({"card0": {"GPU use (%)": "7"}})).readings
    assert card.utilization_pct == 7.0


def test_impossible_figures_are_unknown() -> None:
    odd = {
        "gpu": 0,
        "usage": {"gfx_activity": figure(137, "%")},
        "power": {"socket_power": figure(65535, "W")},
        "mem_usage": {"total_vram": figure(0, "MB"), "used_vram": figure(-1, "MB")},
    }
    (reading,) = read_json(json.dumps([odd])).readings
    assert (reading.utilization_pct, reading.power_watts) == (None, None)
    assert (reading.memory_used_mib, reading.memory_total_mib) == (None, None)


def test_text_without_a_gpu_is_told() -> None:
    assert read_json("amd-smi: error").problems and read_json('[{"gpu": "0"}, 3]').problems
    assert read_json("[" * 5000).problems and read_json("").problems == ()


def test_metric_and_static_are_asked_in_one_command() -> None:
    assert COMMANDS[0] == (
        "sh",
        "-c",
        "amd-smi metric --usage --mem-usage --power --temperature --json && amd-smi static --asic --json",
    )


_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*BUSY, "gpu_data", "value"]), inner),
    max_leaves=12,
)


@given(_VALUES)
def test_no_document_breaks_the_reader(document: object) -> None:
    for reading in read_json(json.dumps(document)).readings:
        assert reading.utilization_pct is None or 0 <= reading.utilization_pct <= 100
