"""How many parameters has a model, in all and per token? From a table of mixtures of experts, else from its name.

A name says a size only where it says exactly one. `4bit`, `web2b`, `1M` (context) and `8x7B` without a row are none.
"""

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files

_BOUNDARY = r"(?:^|(?<=[-_/ .:@(]))"
_SIZE = re.compile(_BOUNDARY + r"([0-9]{1,4}(?:\.[0-9]{1,3})?)([bBmM])(?=$|[-_/ .:@),])")
_ACTIVE = re.compile(_BOUNDARY + r"[aA]([0-9]{1,3}(?:\.[0-9]{1,2})?)([bBmM])(?=$|[-_/ .:@),])")
_EXPERTS = re.compile(_BOUNDARY + r"[0-9]{1,3}[xX][0-9]{1,3}(?:\.[0-9]{1,2})?[bB](?=$|[-_/ .:@),])")
_EFFECTIVE = re.compile(_BOUNDARY + r"[eE]([0-9]{1,2}(?:\.[0-9])?)[bB](?=$|[-_/ .:@),])")


_WIDENED = re.compile(_BOUNDARY + r"(?:bf16|fp16|f16)(?=$|[-_/ .:@),])", re.IGNORECASE)
"""A copy of a model in 16 bit, whatever its weights were published in."""


@dataclass(frozen=True)
class ModelSize:
    """Parameters of a model; None where they are unknown.

    Attributes:
        total: What weights need memory for.
        active: What one token is multiplied with.
        evidence: Where the figures come from, in one clause; why they are unknown, where they are.
    """

    total: float | None
    active: float | None
    evidence: str
    published_as: str | None = None
    """Quantization of the published weights, where they are not in 16 bit."""


@cache
def _table() -> tuple[tuple[re.Pattern[str], ModelSize], ...]:
    text = files("piqc_pipeline.cluster.engines").joinpath("models.toml").read_text(encoding="utf-8")
    return tuple(
        (
            re.compile(r"(?:^|(?<=[-_/ .:]))(?:" + row["match"] + r")(?=$|[-_/ .:@])", re.IGNORECASE),
            ModelSize(row["total_b"] * 1e9, row["active_b"] * 1e9, f"table row {row['name']}", row.get("weights")),
        )
        for row in tomllib.loads(text)["model"]
    )


@lru_cache(maxsize=4096)
def model_size(name: str | None) -> ModelSize:
    """Parameters of the model of this name (`Qwen/Qwen3-30B-A3B`, a path, a GGUF file)."""
    if not name:
        return ModelSize(None, None, "no model name")
    text = name[:300]
    for pattern, size in _table():
        if pattern.search(text):
            return replace(size, published_as=None) if _WIDENED.search(text) else size
    if _EXPERTS.search(text):
        return ModelSize(None, None, "a mixture of experts that is not in the table; its name does not give the total")
    if _EFFECTIVE.search(text):
        return ModelSize(None, None, "its name gives effective parameters only")
    billions = {float(number) for number, unit in _SIZE.findall(_ACTIVE.sub("", text)) if unit in "bB"}
    millions = {float(number) for number, unit in _SIZE.findall(text) if unit in "mM"}
    sizes = {size * 1e9 for size in billions} or {size * 1e6 for size in millions if size >= 2}
    sizes.discard(0.0)
    if len(sizes) != 1:
        return ModelSize(None, None, "its name holds several sizes" if sizes else "its name holds no size")
    total = sizes.pop()
    active = {float(number) * (1e9 if unit in "bB" else 1e6) for number, unit in _ACTIVE.findall(text)}
    if len(active) > 1 or any(part > total for part in active):
        return ModelSize(total, None, "size in the name")
    return ModelSize(total, active.pop() if active else total, "size in the name")


_QUANTIZATION = (
    (re.compile(r"nvfp4|(?<![a-z])fp4(?![a-z0-9])", re.IGNORECASE), "nvfp4"),
    (re.compile(r"mxfp4", re.IGNORECASE), "mxfp4"),
    (re.compile(r"(?<![a-z])awq(?![a-z])", re.IGNORECASE), "awq"),
    (re.compile(r"(?<![a-z])gptq(?![a-z])", re.IGNORECASE), "gptq"),
    (re.compile(r"(?<![a-z0-9])(i?q[2-8](?:_[0-9ksmlx]+)*)(?![a-z0-9])", re.IGNORECASE), ""),
    (re.compile(r"(?<![a-z0-9])(w4a16|w8a8|w8a16|w4a8)(?![a-z0-9])", re.IGNORECASE), ""),
    (re.compile(r"(?<![a-z])fp8(?![a-z0-9])|f8_e4m3", re.IGNORECASE), "fp8"),
    (re.compile(r"(?<![a-z])int8(?![0-9])|(?<![a-z0-9])8[-_]?bit(?![a-z])", re.IGNORECASE), "int8"),
    (re.compile(r"(?<![a-z])int4(?![0-9])|(?<![a-z0-9])4[-_]?bit(?![a-z])", re.IGNORECASE), "int4"),
)


def quantization_in_name(name: str | None) -> str | None:
    """The quantization that a model's name states (`awq`, `fp8`, `q4_k_m`), lower case; None where it states none."""
    for pattern, value in _QUANTIZATION:
        if name and (match := pattern.search(name[:300])):
            return value or match.group(1).lower()
    return None
