"""What would one more accelerator for a workload be, and what would it cost? For what to buy where capacity is short.

Prices themselves belong to `waste.prices`.
"""

from dataclasses import dataclass

from piqc_pipeline.facts.snapshot import AcceleratorPool, ClusterSnapshot, Node, Workload
from piqc_pipeline.scaling.room import admitting_nodes, own_pods, resources_of
from piqc_pipeline.waste.prices import PriceList


@dataclass(frozen=True)
class UnitPrice:
    """The accelerator unit that a workload's replicas take.

    Attributes:
        product: Name of the device; None where nothing names it.
        usd_per_hour: Price of one unit (a share of a device for MIG or time-slicing); None where unknown.
    """

    product: str | None = None
    usd_per_hour: float | None = None


def unit_price(snapshot: ClusterSnapshot, workload: Workload, prices: PriceList) -> UnitPrice:
    """The dearest unit among the nodes that its pods stand on, else among those that would admit one."""
    own = own_pods(snapshot, workload)
    resources, standing = resources_of(own), {pod.node for pod in own}
    nodes = [node for node in snapshot.nodes or () if node.name in standing] or admitting_nodes(snapshot, workload)
    found = [_price(node, pool, prices) for node in nodes for pool in node.pools if pool.resource in resources]
    return max(found, key=lambda unit: (unit.usd_per_hour is not None, unit.usd_per_hour or 0.0), default=UnitPrice())


def _price(node: Node, pool: AcceleratorPool, prices: PriceList) -> UnitPrice:
    price = prices.find(pool.product, node.labels)
    if price is None or not pool.units_per_device:
        return UnitPrice(pool.product)
    return UnitPrice(pool.product, price.usd_per_hour / pool.units_per_device)
