"""Which part of a card is a MIG slice? Profiles, and the space that no instance takes.

Source: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles": a card has 7 compute slices and 8 memory
slices; a profile `3g.40gb` takes 3 of the first and 40 GB of memory.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

COMPUTE_SLICES = 7
MEMORY_SLICES = 8
_PROFILE = re.compile(r"(?:([0-9])c\.)?([1-7])g\.([0-9]{1,3})gb(?:[.+](?:me|gfx|all|me\.all))*")
_ROUNDING = 0.05
"""Profile names round memory: two 3g.71gb fit a card of 141 GB."""


@dataclass(frozen=True)
class Profile:
    """A MIG profile: `name` without the suffixes of media engines, compute slices, memory in GB."""

    name: str
    compute_slices: int
    memory_gb: int
    share: float = 1.0
    """Part of the GPU instance that one compute instance has: 1 of `1c.3g.40gb` is a third."""


def profile(text: str) -> Profile | None:
    """The profile that a resource name or label names (`1g.10gb`, `1c.3g.40gb`, `1g.10gb+me`); None if none."""
    match = _PROFILE.fullmatch(text)
    if match is None:
        return None
    part, compute, memory = match.groups()
    share = int(part) / int(compute) if part else 1.0
    if share > 1:
        return None
    return Profile(text, int(compute), int(memory), share)


def instances_per_card(slice_: Profile, card_gb: float | None) -> int:
    """How many instances of one profile fill a card of this memory (of 8 memory slices if it is not known)."""
    by_compute = COMPUTE_SLICES // slice_.compute_slices
    if card_gb is None:
        return by_compute
    return max(1, min(by_compute, math.floor(card_gb / slice_.memory_gb + _ROUNDING)))


@dataclass(frozen=True)
class Geometry:
    """How the instances of a node lie on its cards.

    Attributes:
        units_per_card: Instances of each profile that make one card: 7 for 1g, 3.5 for 2g; fewer where the memory of
            the cards is full before their compute is, so that the parts sum to whole cards.
        free_slices: Compute slices, of 7 a card, that no instance takes and that still have memory.
    """

    units_per_card: dict[Profile, float]
    free_slices: int


def geometry(instances: Mapping[Profile, int], cards: int | None, card_gb: float | None) -> Geometry:
    """The part of a card that each instance is.

    Args:
        instances: Instances by profile (not yet multiplied by sharing).
        cards: Physical cards; if None, the fewest that can hold the instances.
        card_gb: Memory of one card in GB.
    """
    compute = sum(slice_.compute_slices * slice_.share * count for slice_, count in instances.items())
    gigabytes = sum(slice_.memory_gb * slice_.share * count for slice_, count in instances.items())
    needed = math.ceil(compute / COMPUTE_SLICES - 1e-9)
    if card_gb:
        needed = max(needed, math.ceil(gigabytes / card_gb - _ROUNDING))
    cards = max(cards or 0, needed)
    left = cards * COMPUTE_SLICES - compute
    if card_gb:
        left = min(left, math.floor((cards * card_gb - gigabytes) / (card_gb / MEMORY_SLICES) + _ROUNDING))
    free = max(0, math.floor(left + 1e-9))
    taken = cards * COMPUTE_SLICES - free
    scale = compute / taken if taken else 1.0
    per_card = {
        slice_: COMPUTE_SLICES / (slice_.compute_slices * slice_.share) * scale
        for slice_, count in instances.items()
        if count
    }
    return Geometry(per_card, free)
