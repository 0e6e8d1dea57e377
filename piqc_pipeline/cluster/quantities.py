"""How much is `1500m`, `64Gi` or `8k`? Kubernetes quantities, never guessed.

Grammar: apimachinery, `pkg/api/resource/quantity.go`.
"""

import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache

_NUMBER = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,2})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_SUFFIX = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
GIB = 1024**3

MAX_DIGITS = 40
MAX_UNITS = 4096
"""More shares of accelerators than any machine offers: 16 cards in 7 slices, time-sliced 32 ways, are 3,584."""


def quantity(value: object) -> Decimal | None:
    """The number that a quantity stands for, None where it is none (`n/a`, `8 GPUs`, an empty string, a boolean)."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return _parsed(str(value).strip())


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Decimal | None:
    match = _NUMBER.fullmatch(text) if len(text) <= MAX_DIGITS else None
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    try:
        return Decimal(number + (exponent or "")) * _SUFFIX.get(suffix or "", Decimal(1))
    except InvalidOperation:
        return None


def units(value: object) -> int | None:
    """Whole accelerator units, 0 to MAX_UNITS; None where the quantity is no such number."""
    number = quantity(value)
    if number is None or number != number.to_integral_value() or not 0 <= number <= MAX_UNITS:
        return None
    return int(number)


def amount(value: object) -> float | None:
    """A quantity of something that there is, 0 or more; None where it is none."""
    number = quantity(value)
    return None if number is None or number < 0 else float(number)


def gib(value: object) -> float | None:
    """A quantity of bytes in GiB."""
    size = amount(value)
    return None if size is None else size / GIB
