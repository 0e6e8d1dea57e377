"""What is known of an accelerator product: memory, dense peak, list price, each with its source?

A name matches a row exactly, or nothing is known. Which price a user pays belongs to `prices.py`.
"""

import re
import tomllib
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Any

_SEPARATORS = re.compile(r"[\s_]+")
_PARTITION = re.compile(r"-(shared|mig-[0-9a-z.+]+)$")


@dataclass(frozen=True)
class Product:
    """One row of the catalog.

    Attributes:
        name: Canonical name.
        memory_gib: As the device reports it; None where the name does not tell.
        peak_tflops: Dense peak by precision (`bf16 fp16 fp8 int8`), 10^12 operations a second.
        bf16: The hardware computes in bfloat16.
        link: How devices of one node are joined: `nvlink pcie xgmi ici roce`.
        usd_per_hour: List price; None: unknown.
        tier: Place in the reference's tier table; None: not in it.
    """

    name: str
    vendor: str
    memory_gib: float | None
    peak_tflops: dict[str, float]
    bf16: bool
    link: str
    usd_per_hour: float | None
    tier: int | None
    spec_source: str
    spec_date: date
    price_source: str | None = None
    price_date: date | None = None
    aliases: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True)
class Tiers:
    """The reference's tier table: which tier a model of a size needs, and what each tier costs."""

    up_to_billion_parameters: tuple[float, ...]
    needed_tier: tuple[int, ...]
    usd_per_hour: tuple[float, ...]

    def needed(self, billions: float) -> int:
        """The tier that a model of this many billion parameters needs."""
        for limit, tier in zip(self.up_to_billion_parameters, self.needed_tier, strict=False):
            if billions <= limit:
                return tier
        return self.needed_tier[-1]


@dataclass(frozen=True)
class Catalog:
    """All products, found by exact name."""

    products: tuple[Product, ...]
    tiers: Tiers
    index: dict[str, Product] = field(default_factory=dict, repr=False)

    def find(self, name: str | None) -> Product | None:
        """The product of this name, or None. Never by a part of the name."""
        return self.index.get(spelling(name)) if name else None


@lru_cache(maxsize=4096)
def spelling(name: str) -> str:
    """One spelling for the same name from a label or from a tool.

    GPU feature discovery turns the spaces of what nvidia-smi prints into dashes and appends `-SHARED` or
    `-MIG-<profile>`; AMD's labels use underscores.
    """
    dashed = _SEPARATORS.sub("-", name.strip()).casefold()
    return _PARTITION.sub("", dashed)


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalog shipped with the program (`catalog.toml`)."""
    return parse_catalog(files("piqc_pipeline.waste").joinpath("catalog.toml").read_text("utf-8"))


def parse_catalog(text: str) -> Catalog:
    """A catalog from its TOML text.

    Raises:
        ValueError: Two rows claim the same name.
    """
    document = tomllib.loads(text)
    products = tuple(_product(row) for row in document["product"])
    index: dict[str, Product] = {}
    for product in products:
        for name in (product.name, *product.aliases):
            if index.setdefault(spelling(name), product) is not product:
                raise ValueError(f"the catalog has two rows for {name}")
    tiers = document["tiers"]
    return Catalog(
        products,
        Tiers(
            tuple(float(limit) for limit in tiers["up_to_billion_parameters"]),
            tuple(tiers["needed_tier"]),
            tuple(tiers["usd_per_hour"]),
        ),
        index,
    )


def _product(row: dict[str, Any]) -> Product:
    return Product(
        name=row["name"],
        vendor=row["vendor"],
        memory_gib=row.get("memory_gib"),
        peak_tflops=dict(row.get("peak_tflops", {})),
        bf16=row["bf16"],
        link=row["link"],
        usd_per_hour=row.get("usd_per_hour"),
        tier=row.get("tier"),
        spec_source=row["spec_source"],
        spec_date=row["spec_date"],
        price_source=row.get("price_source"),
        price_date=row.get("price_date"),
        aliases=tuple(row.get("aliases", ())),
        note=row.get("note"),
    )
