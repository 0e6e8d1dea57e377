"""Values of influxdata/telegraf (MIT), plugins/inputs/amd_rocm_smi/testdata, from live cards."""

import json

from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.accelerators.rocm_smi import read_json

MI100 = {
    "Unique ID": "N/A",
    "Temperature (Sensor edge) (C)": "31.0",
    "Max Graphics Package Power (W)": "290.0",
    "Average Graphics Package Power (W)": "39.0",
    "GPU use (%)": "0",
    "GPU memory use (%)": "0",
    "Memory Activity": "N/A",
    "VRAM Total Memory (B)": "34342961152",
    "VRAM Total Used Memory (B)": "6782976",
    "Card series": "Arcturus GL-XL [Instinct MI100]",
}


def test_six_cards_and_a_system_entry_are_six_cards() -> None:
    listing = read_json(json.dumps({**{f"card{n}": MI100 for n in range(6)}, "system": {"Driver version": "5.18"}}))
    assert [reading.index for reading in listing.readings] == ["0", "1", "2", "3", "4", "5"]
    first = listing.readings[0]
    assert (first.utilization_pct, first.memory_used_mib, first.power_limit_watts) == (0.0, 6782976 / 1024**2, 290.0)
    assert first.memory_total_mib == 32752.0
    assert first.uuid is None, "'N/A' on every card is no key"


def test_a_series_that_is_a_raw_id_names_no_product() -> None:
    card = {**MI100, "Card series": "0x1002", "Card model": "0x1002", "Unique ID": "0x2f048617326b1ea"}
    (reading,) = read_json(json.dumps({"card0": card})).readings
    assert reading.product is None and reading.uuid == "0x2f048617326b1ea"


def test_newer_releases_name_the_power_otherwise() -> None:
    card = {
        "Card Series": "AMD Instinct MI300X",
        "Current Socket Graphics Package Power (W)": "132.0",
        "GPU use (%)": "97",
    }
    (reading,) = read_json(json.dumps({"card0": card})).readings
    assert (reading.product, reading.power_watts, reading.utilization_pct) == ("AMD Instinct MI300X", 132.0, 97.0)
    assert reading.memory_used_mib is None


def test_counters_are_no_percentages_and_the_busy_share_of_the_memory_has_two_names() -> None:
    # A card of ROCm 5 (telegraf's testdata) and one of ROCm 6.
    older = {"GPU use (%)": "10", "GFX Activity": "2469071528", "GPU memory use (%)": "5"}
    newer = {"GFX Activity": "408", "GPU Memory Allocated (VRAM%)": "90", "GPU Memory Read/Write Activity (%)": "31"}
    first, second = read_json(json.dumps({"card0": older, "card1": newer})).readings
    assert (first.utilization_pct, first.memory_bandwidth_pct) == (10.0, 5.0)
    assert (second.utilization_pct, second.memory_bandwidth_pct) == (None, 31.0)


def test_warnings_around_the_json_are_skipped() -> None:
    text = "WARNING: AMD GPU device(s) is/are in a low-power state.\n" + json.dumps({"card0": MI100}) + "\n"
    assert len(read_json(text).readings) == 1


def test_text_that_is_no_json_is_told() -> None:
    assert read_json("rocm-smi: command failed").problems
    assert read_json('{"card0": ').problems
    assert read_json("[1]{}").problems
    assert read_json("").problems == ()


@given(st.text(max_size=200))
def test_no_output_makes_it_fail(text: str) -> None:
    read_json(text)


@given(
    st.dictionaries(
        st.sampled_from(["card0", "card1", "system"]),
        st.dictionaries(st.sampled_from(list(MI100)), st.text() | st.integers() | st.none()),
    )
)
def test_no_json_makes_it_fail_or_guess(document: dict[str, object]) -> None:
    for reading in read_json(json.dumps(document)).readings:
        assert reading.utilization_pct is None or 0 <= reading.utilization_pct <= 100


def test_the_watts_of_a_card_that_measures_none_are_unknown() -> None:
    (reading,) = read_json(json.dumps({"card0": {**MI100, "Average Graphics Package Power (W)": "65535"}})).readings
    assert reading.power_watts is None and reading.power_limit_watts == 290.0
