from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.quantities import MAX_UNITS, gib, quantity, units


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", Decimal(8)),
        (8, Decimal(8)),
        ("1500m", Decimal("1.5")),
        ("64Gi", Decimal(64 * 1024**3)),
        ("262144Mi", Decimal(256 * 1024**3)),
        ("100M", Decimal(100_000_000)),
        ("8k", Decimal(8000)),
        ("1e3", Decimal(1000)),
        ("5E", Decimal(5 * 10**18)),
        (".5", Decimal("0.5")),
        ("-1", Decimal(-1)),
    ],
)
def test_quantities_follow_the_grammar_of_kubernetes(text: object, value: Decimal) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "n/a", "8 GPUs", "8K", "1e", "--1", "0x8", "٣", None, True, [], "1" + "0" * 50 + "Ei"]
)
def test_what_is_no_quantity_is_unknown(text: object) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize("text", ["8k", "-1", "1.5", "500m", str(MAX_UNITS + 1), "n/a"])
def test_what_no_machine_can_hold_is_no_count_of_accelerators(text: str) -> None:
    assert units(text) is None


def test_bytes_are_told_in_gib() -> None:
    assert gib("81559Mi") == pytest.approx(79.647, abs=0.001)


@given(st.text(max_size=60) | st.integers() | st.floats() | st.none())
def test_no_value_makes_it_fail(value: object) -> None:
    assert quantity(value) is None or isinstance(quantity(value), Decimal)
    count = units(value)
    assert count is None or 0 <= count <= MAX_UNITS
