"""How does one write a number on the command line? As a finite one: NaN passes every comparison with a range."""

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number in a range, as `click.FloatRange`, that refuses NaN and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is no number", param, ctx)
        return found
