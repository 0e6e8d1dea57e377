"""How does one write a duration on the command line? As `90s`, `30m`, `5h`, `2d`, or a bare number of seconds."""

from typing import Any

import click

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST_SECONDS = 30 * 86_400
"""No horizon and no lead time is longer."""


class Duration(click.ParamType[int]):
    """A duration in whole seconds; the number before the unit may have a fraction: `1.5h`."""

    name = "duration"

    def __init__(self, least_seconds: int = 0) -> None:
        """Accept durations from `least_seconds` to `LONGEST_SECONDS`."""
        self.least_seconds = least_seconds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Seconds."""
        text = str(value).strip().lower()
        number, unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS else (text, "s")
        try:
            seconds = float(number) * _SECONDS[unit]
        except ValueError:
            self.fail(f"{value!r} is no duration; write 90s, 30m or 5h", param, ctx)
        if not self.least_seconds <= seconds <= LONGEST_SECONDS:
            self.fail(f"{value!r} is out of range; {self.least_seconds}s to 30d", param, ctx)
        return round(seconds)
