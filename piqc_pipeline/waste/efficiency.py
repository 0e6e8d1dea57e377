"""What does a token cost, and what share of the hardware's arithmetic does the model use?

MFU is 2 x active parameters x generated tokens/s / dense peak FLOP/s of all devices that made them (Chowdhery et al.,
PaLM, 2022, appendix B, for the forward pass: 2 FLOP a parameter and token).
"""

from collections.abc import Iterable

from piqc_pipeline.facts.snapshot import ModelIdentity
from piqc_pipeline.waste.catalog import Product

FLOP_PER_PARAMETER_AND_TOKEN = 2.0


def peak_flops(product: Product | None, model: ModelIdentity) -> float | None:
    """Dense peak of one device at the precision in which the model multiplies, FLOP/s; None where unknown.

    Weight-only quantizations (AWQ, GPTQ, 4-bit) multiply in 16 bit; FP8 and INT8 in 8 bit where the device can.
    """
    if product is None:
        return None
    for precision in (*_narrow(model), "bf16", "fp16"):
        if precision in product.peak_tflops:
            return product.peak_tflops[precision] * 1e12
    return None


def _narrow(model: ModelIdentity) -> tuple[str, ...]:
    words = f"{model.quantization or ''} {model.dtype or ''}".lower()
    if "fp8" in words:
        return ("fp8",)
    if "w8a8" in words or "int8" in words:
        return ("int8",)
    return ()


def mfu_pct(active_parameters: float | None, tokens_per_second: float | None, flops: float | None) -> float | None:
    """Model FLOPS utilization, percent; None where a part is unknown or the result is impossible (above 100)."""
    if active_parameters is None or tokens_per_second is None or not flops:
        return None
    share = FLOP_PER_PARAMETER_AND_TOKEN * active_parameters * tokens_per_second / flops
    return share * 100 if 0 <= share <= 1 else None


def usd_per_1k_tokens(usd_per_hour: float | None, tokens_per_second: float | None) -> float | None:
    """Cost of 1,000 generated tokens; None where unknown, or while nothing is generated."""
    if usd_per_hour is None or not tokens_per_second or tokens_per_second < 0:
        return None
    return usd_per_hour / (tokens_per_second * 3600) * 1000


def weighted_mfu_pct(parts: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Mean of (MFU percent, peak FLOP/s) pairs, weighted by peak; None where no pair is whole."""
    known = [(mfu, flops) for mfu, flops in parts if mfu is not None and flops]
    weight = sum(flops for _, flops in known)
    return sum(mfu * flops for mfu, flops in known) / weight if weight else None
