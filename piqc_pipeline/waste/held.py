"""What does each pod hold, and what does it cost?

Which bucket an accelerator is in belongs to `capacity.py`; what a pod does with it to `utilization.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from piqc_pipeline.facts.snapshot import Node
from piqc_pipeline.waste.capacity import Holding
from piqc_pipeline.waste.catalog import Product
from piqc_pipeline.waste.figures import PoolCapacity, Price
from piqc_pipeline.waste.prices import PriceList

SHOWN_REASONS = 3


@dataclass(frozen=True)
class Held:
    """One pod's part of one pool, priced."""

    holding: Holding
    pool: PoolCapacity | None
    product: Product | None
    price: Price | None

    @property
    def usd_per_hour(self) -> float | None:
        """Cost of this part; None where the count or the price is unknown."""
        if self.price is None or self.holding.devices is None:
            return None
        return self.holding.devices * self.price.usd_per_hour

    @property
    def shared(self) -> bool:
        """True where the device is shared without a partition, so that its use belongs to nobody in particular."""
        if self.pool is not None and self.pool.sharing in ("time-slicing", "mps", "fraction"):
            return True
        return any(
            request.sharing in ("time-slicing", "mps", "fraction")
            for request in self.holding.pod.requests
            if request.resource == self.holding.resource
        )


def price_holdings(
    holdings: Iterable[Holding], pools: dict[tuple[str, str], PoolCapacity], nodes: dict[str, Node], prices: PriceList
) -> list[Held]:
    """What each holding costs, by the product and the labels of its node."""
    found: dict[tuple[str, str], tuple[Product | None, Price | None]] = {}
    held = []
    for holding in holdings:
        key = (holding.node, holding.resource)
        pool, node = pools.get(key), nodes.get(holding.node)
        if key not in found:
            name = pool.product if pool else None
            price = prices.find(name, node.labels) if pool and node else None
            found[key] = (prices.catalog.find(name), price)
        product, price = found[key]
        held.append(Held(holding, pool, product, price))
    return held


def why_unpriced(part: Held) -> str:
    """Why a part has no price, one clause."""
    if part.pool is None:
        return f"node {part.holding.node} or its {part.holding.resource} could not be read"
    if part.pool.product is None:
        return f"no label names the product of {part.holding.resource} on node {part.holding.node}"
    if part.price is None:
        return f"no price of {part.pool.product}; add it with --prices"
    return f"how many share a device of {part.holding.resource} on node {part.holding.node} is unknown"


def joined(reasons: Iterable[str]) -> str:
    """At most three reasons, and how many there are beside."""
    ordered = sorted(reasons)
    more = [f"and {len(ordered) - SHOWN_REASONS} more reasons"] if len(ordered) > SHOWN_REASONS else []
    return "; ".join([*ordered[:SHOWN_REASONS], *more])
