"""How is text from a cluster shown so that nothing interprets it?

Names, images and messages are other people's text: control characters, terminal escapes and direction marks are
shown, not obeyed.
"""

import math


def printable(text: object) -> str:
    r"""The text with every character that a terminal might act on written out (`\x1b`, `\u202e`)."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode("ascii")
        for character in str(text).encode("utf-8", "replace").decode("utf-8")
    )


def usd(value: float | None) -> str:
    """Dollars with cents, thousands apart; `?` where unknown."""
    return "?" if value is None else f"${value:,.2f}"


def percent(value: float | None, digits: int = 0) -> str:
    """A percentage; `?` where unknown."""
    return "?" if value is None else f"{value:.{digits}f}%"


def count(value: float | None) -> str:
    """A number without a needless fraction; `?` where unknown."""
    return "?" if value is None else f"{value:g}"


def age(hours: float | None) -> str:
    """An age as kubectl prints it: minutes, hours, days."""
    if hours is None:
        return "?"
    if hours < 1:
        return f"{max(0, math.floor(hours * 60))}m"
    if hours < 48:
        return f"{math.floor(hours)}h"
    return f"{math.floor(hours / 24)}d"
