"""Cells as real drivers print them: utkuozdemir/nvidia_gpu_exporter (MIT), internal/captures; and issues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.accelerators.nvidia_smi import FIELDS, read_csv
from piqc_pipeline.facts.snapshot import AcceleratorReading

UUID = "GPU-00000000-0000-0000-0000-000000000000"


def row(**cells: object) -> str:
    usual: dict[str, object] = {
        "index": 0,
        "uuid": UUID,
        "name": "NVIDIA H200",
        "mig.mode.current": "Disabled",
        "memory.total": 143771,
        "memory.used": 0,
        "utilization.gpu": 0,
        "utilization.memory": 0,
        "temperature.gpu": 28,
        "power.draw": 77.71,
        "power.limit": "700.00",
    }
    return ", ".join(str({**usual, **cells}[field]) for field in FIELDS) + "\n"


def only(text: str) -> AcceleratorReading:
    (found,) = read_csv(text).readings
    return found


def test_an_idle_h200_reads_zero() -> None:
    found = only(row())
    assert (found.utilization_pct, found.memory_used_mib, found.memory_total_mib) == (0.0, 0.0, 143771.0)
    assert (found.power_watts, found.product, found.uuid, found.index) == (77.71, "NVIDIA H200", UUID, "0")


def test_units_in_cells_are_left_away() -> None:
    found = only(row(**{"utilization.gpu": "100 %", "memory.used": "32362 MiB", "power.draw": "627.40 W"}))
    assert (found.utilization_pct, found.memory_used_mib, found.power_watts) == (100.0, 32362.0, 627.4)


def test_under_mig_utilization_is_unknown_though_the_card_draws_433_watts() -> None:
    cells = {
        "mig.mode.current": "Enabled",
        "utilization.gpu": "[N/A]",
        "utilization.memory": "[N/A]",
        "memory.used": "11125 MiB",
        "power.draw": "433.78 W",
    }
    found = only(row(**cells))
    assert found.utilization_pct is None and found.memory_used_mib == 11125.0 and found.power_watts == 433.78


@pytest.mark.parametrize(
    "cell",
    ["[N/A]", "N/A", "ERR!", "[Insufficient Permissions]", "[GPU is lost]", "[Unknown Error]", "137", "-1", "", "٣"],
)
def test_a_cell_that_is_no_utilization_is_unknown_and_the_rest_of_the_row_is_kept(cell: str) -> None:
    found = only(row(**{"utilization.gpu": cell, "memory.used": 593}))
    assert found.utilization_pct is None and found.memory_used_mib == 593.0


def test_power_that_could_not_be_read_is_unknown() -> None:
    # Azure/azhpc-diagnostics#77: ERR! for the power of a V100, transient.
    assert only(row(**{"power.draw": "ERR!"})).power_watts is None


def test_a_comma_in_the_name_does_not_drop_the_gpu() -> None:
    assert only(row(name="NVIDIA H100, 80GB, HBM3")).product == "NVIDIA H100, 80GB, HBM3"


def test_one_bad_row_does_not_drop_the_good_ones() -> None:
    listing = read_csv(row(index=0) + "1, [GPU is lost]\n" + row(index=2, **{"utilization.gpu": 40}))
    assert [reading.index for reading in listing.readings] == ["0", "2"]
    assert listing.problems == ("1, [GPU is lost]",)


def test_a_card_that_fell_off_the_bus_is_told_and_not_idle() -> None:
    # NVIDIA/dcgm-exporter#604: this is then the whole output.
    listing = read_csv("Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error\n")
    assert listing.readings == ()
    assert listing.problems == ("Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error",)


def test_text_that_is_none_of_it_is_told_without_control_characters() -> None:
    (problem,) = read_csv("\x1b[31mgarbage").problems
    assert problem.isprintable()


def test_more_gpus_than_any_machine_holds_are_no_listing() -> None:
    assert read_csv("".join(row(index=at) for at in range(100))).readings == ()


def test_no_output_says_nothing() -> None:
    assert read_csv("") == read_csv("\n\n")


@given(st.text(max_size=300))
def test_no_output_makes_it_fail_or_guess(text: str) -> None:
    for reading in read_csv(text).readings:
        assert reading.utilization_pct is None or 0 <= reading.utilization_pct <= 100


@given(st.lists(st.text(alphabet="0123456789.-%[]NAERR! ", max_size=8), min_size=len(FIELDS), max_size=len(FIELDS) + 2))
def test_no_cells_make_it_fail_or_guess(cells: list[str]) -> None:
    for reading in read_csv(", ".join(cells)).readings:
        assert reading.utilization_pct is None or 0 <= reading.utilization_pct <= 100
        assert reading.memory_used_mib is None or reading.memory_used_mib >= 0


def test_decimal_commas_are_not_guessed_at() -> None:
    listing = read_csv(row(**{"power.draw": "77,71", "power.limit": "700,00"}))
    assert listing.readings == () and len(listing.problems) == 1
