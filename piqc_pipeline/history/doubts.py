"""What is missing or doubtful in history, and on how many days? One sentence each, however many days it befalls.

What is doubtful is found by the sources and by `table`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

SHOWN_NAMES = 3


@dataclass(frozen=True)
class Doubt:
    """Something about a range that its reader should know.

    Attributes:
        says: The sentence; `{count}`, `{number}` and `{names}` stand for the count, and for how many names and which.
            Only the first `{count}` does: the name of a file may come after it.
        count: Of rows or buckets; those of several days add up.
        names: Of pods, devices or workloads; those of several days are joined.
    """

    says: str
    count: int = 0
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """The sentence."""
        text = self.says.replace("{count}", str(self.count), 1) if self.count else self.says
        if not self.names:
            return text
        return text.replace("{number}", str(len(self.names))).replace("{names}", some(sorted(self.names)))


def together(doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """The same doubts as one, in the order of their first."""
    joined: dict[str, Doubt] = {}
    for doubt in doubts:
        known = joined.get(doubt.says, Doubt(doubt.says))
        joined[doubt.says] = replace(known, count=known.count + doubt.count, names=known.names | doubt.names)
    return tuple(joined.values())


def sentences(days: Mapping[datetime, Sequence[Doubt]]) -> tuple[str, ...]:
    """A sentence for each doubt; of a range of several days with the number of days that it befell, the first and last.

    Args:
        days: Doubts of each day of the range, days without any among them.
    """
    befell: dict[str, list[datetime]] = {}
    for day, doubts in days.items():
        for doubt in together(doubts):
            befell.setdefault(doubt.says, []).append(day)

    def when(found: list[datetime]) -> str:
        if len(days) == 1:
            return ""
        first = f"{min(found):%Y-%m-%d}"
        return f" ({first})" if len(found) == 1 else f" ({len(found)} days, {first} to {max(found):%Y-%m-%d})"

    return tuple(f"{doubt}{when(befell[doubt.says])}" for doubt in together(d for own in days.values() for d in own))


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
