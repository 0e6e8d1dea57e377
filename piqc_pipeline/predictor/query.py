"""What does a client ask for: which workload, how far ahead? Parses and bounds everything that a URL can carry.

Which workloads exist belongs to `board`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qsl

MAX_QUERY_BYTES = 2048
MAX_NAME_CHARACTERS = 512
"""Longer than cluster (253), namespace (63), kind (63) and name (253) of any real workload with short cluster name."""

DEFAULT_HORIZON_SECONDS = 1800
MAX_HORIZON_SECONDS = 48 * 3600
"""No forecast table reaches further."""

_DURATION = re.compile(r"(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,7})s)?", re.ASCII)
_UNITS = (86_400, 3600, 60, 1)


class BadQuery(ValueError):
    """The request cannot be meant; the message says what would be."""


@dataclass(frozen=True)
class Query:
    """One parsed request.

    Attributes:
        workload: `NAMESPACE/NAME`, `NAMESPACE/KIND/NAME` or `CLUSTER/NAMESPACE/KIND/NAME`.
        horizon_seconds: How far ahead, 0 to 48 h.
    """

    workload: str
    horizon_seconds: int = DEFAULT_HORIZON_SECONDS


def parse_duration(text: str) -> int:
    """Seconds of `30m`, `1h30m`, `90s`, `2d` or a bare number of seconds.

    Raises:
        BadQuery: It is none, or outside 0 to 48 h.
    """
    if len(text) <= 7 and text.isascii() and text.isdigit():
        seconds = int(text)
    elif text and (match := _DURATION.fullmatch(text)):
        seconds = sum(int(part) * unit for part, unit in zip(match.groups(), _UNITS, strict=True) if part)
    else:
        raise BadQuery("horizon must be a duration such as 30m, 1h30m or 90s")
    if seconds > MAX_HORIZON_SECONDS:
        raise BadQuery(f"horizon must be from 0s to 48h, got {seconds} s")
    return seconds


def check_workload(text: str) -> str:
    """The name as it came, if it can name a workload.

    Raises:
        BadQuery: It is empty, too long, not printable or has too few or too many parts.
    """
    if not text or len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        raise BadQuery(f"workload must be NAMESPACE/NAME, at most {MAX_NAME_CHARACTERS} printable characters")
    if text.count("/") not in (1, 2, 3) or not all(text.split("/")):
        raise BadQuery("workload must be NAMESPACE/NAME, NAMESPACE/KIND/NAME or CLUSTER/NAMESPACE/KIND/NAME")
    return text


@lru_cache(maxsize=4096)
def parse_query(raw: bytes) -> Query:
    """The query string of `/predict`.

    Raises:
        BadQuery: Too long, malformed, unknown or repeated parameters, or values out of range.
    """
    if len(raw) > MAX_QUERY_BYTES:
        raise BadQuery(f"the query has {len(raw)} bytes; at most {MAX_QUERY_BYTES} are read")
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=8, errors="strict"
        )
    except (ValueError, UnicodeError) as error:
        raise BadQuery("the query must be workload=NAMESPACE/NAME&horizon=30m, percent-encoded UTF-8") from error
    values = dict(pairs)
    if len(values) != len(pairs):
        raise BadQuery("a parameter is given twice")
    if unknown := sorted(set(values) - {"workload", "horizon"}):
        raise BadQuery(f"unknown parameter {unknown[0][:64]!r}; known are workload and horizon")
    if "workload" not in values:
        raise BadQuery("workload is missing: workload=NAMESPACE/NAME")
    horizon = parse_duration(values["horizon"]) if "horizon" in values else DEFAULT_HORIZON_SECONDS
    return Query(check_workload(values["workload"]), horizon)
