"""How are values of unknown shape read? Nothing is trusted to be there, or to be of its kind."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_SUFFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}


@dataclass
class Report:
    """Faults of one object as `(rule, path, message)`, in the order found."""

    entries: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, rule: str, path: str, message: str) -> None:
        """Notes one fault."""
        self.entries.append((rule, path, "".join(char if char.isprintable() else "?" for char in message)[:400]))


def as_map(value: Any) -> Mapping[str, Any]:
    """The map, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_maps(value: Any) -> list[Mapping[str, Any]]:
    """The entries of the list, each as a map; none where it is no list."""
    return [as_map(entry) for entry in value] if isinstance(value, list) else []


def text(value: Any) -> str | None:
    """The text, or None."""
    return value if isinstance(value, str) else None


def integer(value: Any) -> int | None:
    """The whole number, or None; a boolean is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: Any) -> float | None:
    """A number written as number or text, or None."""
    try:
        found = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return found if found is not None and abs(found) < 1e30 else None


def quantity(value: Any) -> float | None:
    """A Kubernetes quantity such as `500m`, `1.5`, `10Gi`, or None."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    match = re.fullmatch(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?)([numkMGTPE]|[KMGTPE]i)?", str(value)[:64])
    return float(match[1]) * _SUFFIXES[match[2] or ""] if match else None
