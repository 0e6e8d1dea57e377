"""How are a node's numbers read into a pool? What the vendors' plugins share: capacity, labels, instance types."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from piqc_pipeline.cluster.accelerators.plugin import Inventory, Listing, Tool
from piqc_pipeline.cluster.objects import NodeObject, PodObject
from piqc_pipeline.cluster.quantities import MAX_UNITS, units
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.facts.snapshot import AcceleratorPool, PodRequest, Sharing, Unknown

INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
MAX_DEVICES = 128
"""More physical accelerators than any one machine holds (the largest hold 16 GPUs, or 64 TPU chips over fabric)."""


@dataclass(frozen=True)
class InstanceType:
    """What a cloud's machine type has: product by the name of its vendor's labels, and how many."""

    vendor: str
    product: str
    count: int


@cache
def _instance_table() -> dict[str, InstanceType]:
    text = files("piqc_pipeline.cluster.accelerators").joinpath("instances.toml").read_text(encoding="utf-8")
    return {
        name: InstanceType(group["vendor"], group["product"], count)
        for group in tomllib.loads(text)["group"]
        for name, count in group["types"].items()
    }


def instance_type(node: NodeObject) -> str | None:
    """The cloud's machine type, as the node's label prints it."""
    return next((value for key in INSTANCE_LABELS if (value := node.metadata.label(key))), None)


def instance_accelerators(node: NodeObject, vendor: str) -> InstanceType | None:
    """The vendor's accelerators of the node's machine type; None where it has none or is not in the table."""
    row = _instance_table().get((instance_type(node) or "").lower())
    return row if row is not None and row.vendor == vendor else None


def count_label(node: NodeObject, *keys: str) -> int | None:
    """The first of these labels that holds a count, 0 to MAX_UNITS."""
    return next((number for key in keys if (number := units(node.metadata.label(key))) is not None), None)


def megabytes_label(node: NodeObject, *keys: str) -> float | None:
    """Memory in GiB of the first of these labels that holds MiB."""
    for key in keys:
        text = node.metadata.label(key)
        if text is not None and text.isascii() and text.isdigit() and 0 < int(text[:9]) < 10**7:
            return int(text) / 1024
    return None


def resource_keys(node: NodeObject) -> list[str]:
    """Every resource key of the node, in order."""
    return sorted({*(node.status.capacity or {}), *(node.status.allocatable or {})})


def read_pool(
    node: NodeObject, resource: str, pool: AcceleratorPool, unknown: list[Unknown], limit: int = MAX_UNITS
) -> AcceleratorPool:
    """The pool with capacity and allocatable of the node's status; a number that cannot be is unknown, and said so.

    Args:
        node: The node.
        resource: The resource key to read.
        pool: Everything else of the pool.
        unknown: Where to say what could not be read.
        limit: Units above which the quantity is no machine's.
    """
    capacity = _number(node, resource, "capacity", unknown, limit)
    allocatable = _number(node, resource, "allocatable", unknown, limit)
    if capacity is None and (node.status.capacity is None or resource not in node.status.capacity):
        capacity = allocatable
    if allocatable is not None and capacity is not None and allocatable > capacity:
        unknown.append(
            Unknown(
                f"capacity of {resource} on node {node.metadata.name}",
                f"allocatable ({allocatable}) is above capacity ({capacity})",
            )
        )
        capacity = None
    return replace(pool, capacity_units=capacity, allocatable_units=allocatable)


def _number(node: NodeObject, resource: str, field: str, unknown: list[Unknown], limit: int) -> int | None:
    table = node.status.capacity if field == "capacity" else node.status.allocatable
    if not table or resource not in table:
        return None
    number = units(table[resource])
    if number is not None and number <= limit:
        return number
    why = f"the node says {printable(str(table[resource]), 40)!r}, which is no count of accelerators"
    unknown.append(Unknown(f"{field} of {resource} on node {node.metadata.name}", why))
    return None


def missing_pool(node: NodeObject, pool: AcceleratorPool, count: int | None, unknown: list[Unknown]) -> AcceleratorPool:
    """Accelerators that are there by labels or machine type and that the node does not offer: paid, not schedulable."""
    if count is None:
        unknown.append(
            Unknown(
                f"number of accelerators on node {node.metadata.name}",
                f"its labels name {pool.product or pool.vendor}, but it offers none and no label or machine type says "
                "how many",
                about="node capacity",
            )
        )
    if node.status.capacity is None and node.status.allocatable is None:
        return replace(pool, capacity_units=count, allocatable_units=None)
    return replace(pool, capacity_units=count, allocatable_units=0, note="the node's device plugin does not offer them")


class PlainPlugin:
    """A vendor whose devices are requested whole, one unit a device. Base of the simple plugins."""

    vendor = ""
    tool: Tool | None = None
    pattern: re.Pattern[str]

    def owns(self, resource: str) -> bool:
        """Whether the key is one of this vendor's."""
        return self.pattern.fullmatch(resource) is not None

    def product(self, node: NodeObject) -> str | None:
        """The device's name by the node's labels."""
        return None

    def inventory(self, node: NodeObject) -> Inventory:
        """One pool a resource key, named by label, else by machine type."""
        keys = [key for key in resource_keys(node) if self.owns(key)]
        machine = instance_accelerators(node, self.vendor)
        label = self.product(node)
        if not keys and machine is None:
            return Inventory()
        unknown: list[Unknown] = []
        product = label or (machine.product if machine else None)
        base = AcceleratorPool(
            resource="",
            vendor=self.vendor,
            product=product,
            memory_gib=None,
            capacity_units=None,
            allocatable_units=None,
            product_source="label" if label else "instance-type" if machine else None,
        )
        if not keys and machine is not None:
            pool = replace(base, resource=self.main_key())
            return Inventory((missing_pool(node, pool, machine.count, unknown),), tuple(unknown))
        pools = tuple(read_pool(node, key, replace(base, resource=key), unknown, MAX_DEVICES) for key in keys)
        return Inventory(pools, tuple(unknown))

    def main_key(self) -> str:
        """The resource key under which the vendor's device plugin offers whole devices."""
        raise LookupError(self.vendor)

    def request(self, resource: str, units: int, pools: Sequence[AcceleratorPool]) -> PodRequest:
        """The units asked for, shared as the node's pool is."""
        return PodRequest(resource, float(units), sharing_of(resource, pools))

    def annotated(self, pod: PodObject) -> tuple[PodRequest, ...]:
        """Nothing: this vendor's devices are not requested by annotation."""
        return ()

    def read_tool(self, output: str) -> Listing:
        """Nothing: this vendor has no tool that prints utilization inside a pod."""
        return Listing()


def sharing_of(resource: str, pools: Iterable[AcceleratorPool]) -> Sharing:
    """How units of a resource share a device on a node with these pools."""
    return next((pool.sharing for pool in pools if pool.resource == resource), "none")
