"""What does one accelerator cost here? The user's own prices first, then the catalog's list price, else unknown.

What an accelerator can do belongs to `catalog.py`. A price is USD for one physical device and one hour.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from piqc_pipeline.errors import PricesUnreadable
from piqc_pipeline.waste.catalog import Catalog, Product, load_catalog, spelling
from piqc_pipeline.waste.figures import Price

POOL_LABELS = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/provisioner-name",
    "alpha.eksctl.io/nodegroup-name",
)
"""Labels in which the providers write a node pool's name."""

MAX_USD_PER_HOUR = 1_000_000
"""More than any machine costs; totals of a year stay numbers that JSON can hold."""

_RULE_KEYS = {
    "label": {"key", "value", "product", "usd_per_hour"},
    "pool": {"name", "product", "usd_per_hour"},
}


@dataclass(frozen=True)
class PriceRule:
    """A price for nodes with one label, or of one node pool, of one product or of any."""

    source: str
    usd_per_hour: float
    label: str | None
    value: str
    product: str | None = None

    def matches(self, labels: Mapping[str, str], product: str | None) -> bool:
        """Whether this node, and this product, is meant."""
        if self.product is not None and (product is None or spelling(product) != spelling(self.product)):
            return False
        if self.label is not None:
            return labels.get(self.label) == self.value
        return any(labels.get(label) == self.value for label in POOL_LABELS)


@dataclass(frozen=True)
class PriceList:
    """Prices in the order in which they count: one for all, node pool, label, product, list price.

    Attributes:
        flat_usd_per_hour: `--gpu-cost`: every accelerator costs this.
        unallocated_usd_per_hour: `--node-cost`: every accelerator that nobody holds costs this.
    """

    catalog: Catalog
    products: dict[str, float] = field(default_factory=dict)
    rules: tuple[PriceRule, ...] = ()
    flat_usd_per_hour: float | None = None
    unallocated_usd_per_hour: float | None = None

    def find(self, product: str | None, labels: Mapping[str, str]) -> Price | None:
        """What one device of this product costs on a node with these labels; None: price unknown."""
        row = self.catalog.find(product)
        name = row.name if row else None
        if self.flat_usd_per_hour is not None:
            return Price(self.flat_usd_per_hour, "--gpu-cost", name)
        for rule in self.rules:
            if rule.matches(labels, product) or (name is not None and rule.matches(labels, name)):
                return Price(rule.usd_per_hour, rule.source, name)
        return self.of_product(product)

    def of_product(self, product: str | None) -> Price | None:
        """What the product costs anywhere: the user's row, else the list price."""
        if product is None:
            return None
        row = self.catalog.find(product)
        name = row.name if row else None
        for candidate in (product, *((row.name, *row.aliases) if row else ())):
            if spelling(candidate) in self.products:
                return Price(self.products[spelling(candidate)], "price file, product", name)
        if row is not None and row.usd_per_hour is not None:
            return Price(row.usd_per_hour, f"{row.price_source}, {row.price_date}", name)
        return None

    def unallocated(self, price: Price | None) -> float | None:
        """What a device costs that nobody holds, given its price in use."""
        if self.unallocated_usd_per_hour is not None:
            return self.unallocated_usd_per_hour
        return price.usd_per_hour if price else None

    def scale(self, row: Product | None, price: Price) -> float:
        """How the user's price of a product compares with its list price; 1 where there is none to compare with."""
        if row is None or not row.usd_per_hour:
            return 1.0
        return price.usd_per_hour / row.usd_per_hour

    def with_flat(self, gpu_cost: float | None, node_cost: float | None) -> "PriceList":
        """The same list under `--gpu-cost` and `--node-cost`."""
        return replace(self, flat_usd_per_hour=gpu_cost, unallocated_usd_per_hour=node_cost)


def load_prices(path: Path | None = None) -> PriceList:
    """The catalog's prices, and above them those of the user's TOML file.

    The file has `[product]` (name = USD per hour), `[[label]]` (key, value, usd_per_hour, optionally product) and
    `[[pool]]` (name, usd_per_hour, optionally product).

    Raises:
        PricesUnreadable: The file is missing or no TOML, or a row cannot be meant; the message names the row.
    """
    catalog = load_catalog()
    if path is None:
        return PriceList(catalog)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PricesUnreadable(f"cannot read prices from {path}: {error.strerror or error}; check --prices") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PricesUnreadable(f"cannot read prices from {path}: {error}; write it as TOML") from error
    strangers = sorted(set(document) - {"product", "label", "pool"})
    if strangers:
        raise PricesUnreadable(
            f"cannot read prices from {path}: unknown table {strangers[0]!r}; use product, label and pool"
        )
    products: dict[str, float] = {}
    for name, usd in _table(path, document).items():
        if spelling(name) in products:
            raise PricesUnreadable(f"cannot read prices from {path}: product {name} has two rows; keep one")
        products[spelling(name)] = _usd(path, f"product {name}", usd)
    rules = (*_rules(path, document, "pool"), *_rules(path, document, "label"))
    return PriceList(catalog, products, rules)


def _table(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    table = document.get("product", {})
    if not isinstance(table, dict):
        raise PricesUnreadable(f"cannot read prices from {path}: write [product] once, with NAME = USD_PER_HOUR rows")
    return table


def _rules(path: Path, document: dict[str, Any], kind: str) -> list[PriceRule]:
    rows = document.get(kind, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise PricesUnreadable(f"cannot read prices from {path}: write [[{kind}]] once for each row")
    return [_rule(path, kind, number, row) for number, row in enumerate(rows, start=1)]


def _rule(path: Path, kind: str, number: int, row: dict[str, Any]) -> PriceRule:
    where = f"{kind} row {number}"
    strangers = sorted(set(row) - _RULE_KEYS[kind])
    if strangers:
        raise PricesUnreadable(f"cannot read prices from {path}: {where} has an unknown key {strangers[0]!r}")
    for key in ("key", "value") if kind == "label" else ("name",):
        if not isinstance(row.get(key), str) or not row[key]:
            raise PricesUnreadable(f"cannot read prices from {path}: {where} needs {key} = a text")
    product = row.get("product")
    if product is not None and not isinstance(product, str):
        raise PricesUnreadable(f"cannot read prices from {path}: {where} needs product = a text")
    usd = _usd(path, where, row.get("usd_per_hour"))
    if kind == "label":
        return PriceRule(f"price file, label {row['key']}={row['value']}", usd, row["key"], row["value"], product)
    return PriceRule(f"price file, pool {row['name']}", usd, None, row["name"], product)


def _usd(path: Path, where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_USD_PER_HOUR:
        raise PricesUnreadable(
            f"cannot read prices from {path}: {where} must be USD per hour, 0 to {MAX_USD_PER_HOUR:,}, and is {value!r}"
        )
    return float(value)
