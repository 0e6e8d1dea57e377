"""Does a model's memory fit its accelerators, and would a cheaper product hold it?

By memory, not by name: weights by quantization, KV cache for one full context, tensor and pipeline parallelism.
The reference's tier table, which knows names only, is here too (`tier_needed`), for the figure that copies it.
"""

import math
import re
from dataclasses import dataclass

from piqc_pipeline.facts.snapshot import Confidence, ModelIdentity
from piqc_pipeline.waste.catalog import Product
from piqc_pipeline.waste.figures import Fit, FitVerdict, Price
from piqc_pipeline.waste.prices import PriceList

GIB = 2.0**30

BYTES_PER_PARAMETER = {
    "float32": 4.0,
    "float": 4.0,
    "fp32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "half": 2.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "auto": 2.0,
}
"""By dtype; published checkpoints are 16-bit, so `auto` is 2."""

QUANTIZED_BYTES = (
    (re.compile(r"q2_|iq2|2bit"), 0.36),
    (re.compile(r"q3_|iq3|3bit"), 0.49),
    (re.compile(r"q4_|iq4|awq|gptq|marlin|int4|w4a|4bit|nf4|mxfp4|nvfp4|fp4|squeezellm"), 0.5625),
    (re.compile(r"q5_"), 0.71),
    (re.compile(r"q6_"), 0.82),
    (re.compile(r"q8_|fp8|int8|w8a|8bit|eetq|modelopt"), 1.0),
    (re.compile(r"bitsandbytes|bnb"), 0.5625),
    (re.compile(r"bf16|fp16|f16|float16|bfloat16|none"), 2.0),
)
"""Bytes a parameter by quantization: bits plus the scale of each group (4.5 bits at group size 128 with 16-bit scale
and zero; llama.cpp's table of bits per weight for `q*_`)."""

KV_BYTES_AT_8B = 131_072.0
KV_EXPONENT = 0.42
"""KV cache of one token in 16 bit: Llama-3-8B has 32 layers x 8 heads x 128 x 2 x 2 bytes = 131,072; Llama-3-70B has
80 layers, 327,680. The power law goes through both; models without grouped heads need up to four times as much,
latent attention a third, so a verdict `does not fit` never hangs on this figure alone."""

ENGINE_GIB = 1.5
"""CUDA context, kernels and activations of one process, GiB (vLLM prints 0.5 to 2 at start)."""

DEFAULT_MEMORY_SHARE = 0.90
"""vLLM's default of --gpu-memory-utilization; other engines keep a like reserve."""

ASSUMED_CONTEXT = 8192
"""Context where none is stated, tokens."""

SMALLER_BY = 0.95
"""A product counts as smaller when it has under this share of the memory."""


@dataclass(frozen=True)
class Room:
    """What one replica of a workload has.

    Attributes:
        devices: Units that one replica holds.
        memory_gib: Memory of one unit.
        whole: False for slices and shares, which no other product replaces.
    """

    devices: float
    memory_gib: float
    product: Product | None
    price: Price | None
    vendor: str
    whole: bool = True


def judge_fit(model: ModelIdentity, room: Room, prices: PriceList) -> tuple[Fit | None, str | None]:
    """The verdict by memory, or None and why it cannot be told."""
    weights = weights_gib(model)
    if model.parameters_total is None:
        return None, "the size of the model is unknown"
    if weights is None:
        return None, f"bytes a parameter of quantization {model.quantization or model.dtype!r} are unknown"
    shards = _shards(model, room.devices)
    kv = kv_cache_gib(model)
    needed = (weights + kv) / shards + ENGINE_GIB
    share = _memory_share(model)
    available = room.memory_gib * share
    least = (weights + kv / 2) / shards + ENGINE_GIB
    candidate = None
    if least > available:
        verdict: FitVerdict = "does not fit"
    else:
        candidate = smaller_products(model, room, prices, needed)[:1]
        verdict = "oversized" if candidate else "fits"
    smaller = candidate[0] if candidate else None
    confidence: Confidence = "low" if kv > weights else "medium"
    evidence = (
        f"{weights:.1f} GiB of weights and {kv:.1f} GiB of KV cache over {shards:g} device(s), "
        f"{ENGINE_GIB:g} GiB for the engine: {needed:.1f} of {available:.1f} GiB usable"
    )
    return (
        Fit(
            verdict,
            needed,
            room.memory_gib,
            smaller[0].name if smaller else None,
            smaller[1] if smaller else None,
            evidence,
            confidence,
        ),
        None,
    )


def smaller_products(
    model: ModelIdentity, room: Room, prices: PriceList, needed_gib: float
) -> list[tuple[Product, float | None]]:
    """Products of the same vendor with less memory that hold the model at the same count, cheapest first.

    Each comes with its price on the scale of the workload's own; None where the workload's own price is unknown.
    """
    if not room.whole:
        return []
    share = _memory_share(model)
    found: list[tuple[Product, float | None]] = []
    for product in prices.catalog.products:
        if product.vendor != room.vendor or product.memory_gib is None or not _computes(product, model):
            continue
        if product.memory_gib >= room.memory_gib * SMALLER_BY or needed_gib > product.memory_gib * share:
            continue
        own = prices.of_product(product.name)
        if own is None:
            continue
        if room.price is None:
            found.append((product, None))
            continue
        if prices.flat_usd_per_hour is None and own.source.startswith("price file"):
            usd = own.usd_per_hour
        else:
            usd = own.usd_per_hour * prices.scale(room.product, room.price)
        if usd < room.price.usd_per_hour:
            found.append((product, usd))
    return sorted(found, key=lambda entry: (entry[1] or 0.0, entry[0].memory_gib or 0.0, entry[0].name))


def _computes(product: Product, model: ModelIdentity) -> bool:
    """Whether the hardware has the arithmetic that the model asks for; 16-bit checkpoints are bfloat16 by default."""
    half = (model.dtype or "").lower() in ("float16", "half", "fp16", "float32", "float", "fp32")
    return half or product.bf16


def weights_gib(model: ModelIdentity) -> float | None:
    """Memory of the weights, GiB: total parameters times bytes a parameter; None where either is unknown."""
    if model.parameters_total is None:
        return None
    per_parameter = _bytes_per_parameter(model)
    return None if per_parameter is None else model.parameters_total * per_parameter / GIB


def _bytes_per_parameter(model: ModelIdentity) -> float | None:
    quantization = (model.quantization or "").lower()
    if quantization:
        return next((size for pattern, size in QUANTIZED_BYTES if pattern.search(quantization)), None)
    dtype = (model.dtype or "auto").lower()
    if dtype in BYTES_PER_PARAMETER:
        return BYTES_PER_PARAMETER[dtype]
    return next((size for pattern, size in QUANTIZED_BYTES if pattern.search(dtype)), None)


def kv_cache_gib(model: ModelIdentity) -> float:
    """KV cache of one request with a full context, GiB; estimated by size (see `KV_BYTES_AT_8B`)."""
    parameters = model.parameters_active or model.parameters_total
    if not parameters:
        return 0.0
    per_token = KV_BYTES_AT_8B * math.pow(parameters / 8.03e9, KV_EXPONENT)
    if "fp8" in (model.kv_cache_dtype or "") or "int8" in (model.kv_cache_dtype or ""):
        per_token /= 2
    return per_token * (model.max_model_len or ASSUMED_CONTEXT) / GIB


def _shards(model: ModelIdentity, devices: float) -> float:
    """Over how many devices one copy is spread; over all of the replica's where nothing is stated."""
    devices = max(devices, 1.0)
    if model.tensor_parallel is None and model.pipeline_parallel is None:
        return devices / (model.data_parallel or 1) if (model.data_parallel or 1) <= devices else devices
    shards = (model.tensor_parallel or 1) * (model.pipeline_parallel or 1)
    if model.expert_parallel and model.data_parallel:
        shards *= model.data_parallel
    return float(min(max(shards, 1), devices))


def _memory_share(model: ModelIdentity) -> float:
    share = model.gpu_memory_utilization
    return share if share is not None and 0.1 <= share <= 1.0 else DEFAULT_MEMORY_SHARE


_SIZE_IN_NAME = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")


def nominal_billions(model: ModelIdentity) -> float | None:
    """The size as the name rounds it (70 for Llama-3-70B with its 70.6), else the total; billions."""
    if model.parameters_total is None:
        return None
    total = model.parameters_total / 1e9
    for found in _SIZE_IN_NAME.finditer((model.name or model.served_name or "").lower()):
        stated = float(found.group(1))
        if abs(stated - total) <= 0.25 * total:
            return stated
    return total


def tier_overpay_usd_per_hour(
    model: ModelIdentity, product: Product | None, price: Price, prices: PriceList
) -> float | None:
    """Overpay of one device against the reference's tier table, USD per hour; None where either is not in it.

    The tier's price is put on the scale of the price paid, so that an own price changes both sides.
    """
    billions = nominal_billions(model)
    if billions is None or product is None or product.tier is None:
        return None
    tiers = prices.catalog.tiers
    needed = tiers.needed(billions)
    if product.tier <= needed:
        return 0.0
    return max(0.0, price.usd_per_hour - tiers.usd_per_hour[needed] * prices.scale(product, price))
