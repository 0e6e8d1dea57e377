"""MFU by active parameters over the dense peak at the model's precision; averages weighted by peak."""

import pytest

from piqc_pipeline.facts.snapshot import ModelIdentity
from piqc_pipeline.waste.catalog import load_catalog
from piqc_pipeline.waste.efficiency import mfu_pct, peak_flops, usd_per_1k_tokens, weighted_mfu_pct


@pytest.mark.parametrize(
    ("product", "model", "tera"),
    [
        pytest.param("NVIDIA-H100-80GB-HBM3", ModelIdentity("m"), 989.4, id="16-bit"),
        pytest.param("NVIDIA-H100-80GB-HBM3", ModelIdentity("m", quantization="fp8"), 1978.9, id="fp8"),
        pytest.param("NVIDIA-A100-SXM4-80GB", ModelIdentity("m", quantization="fp8"), 312.0, id="no-fp8-there"),
        pytest.param("NVIDIA-A100-SXM4-80GB", ModelIdentity("m", quantization="awq"), 312.0, id="weights-only"),
        pytest.param("NVIDIA-A100-SXM4-80GB", ModelIdentity("m", quantization="w8a8"), 624.0, id="int8"),
        pytest.param("Tesla-T4", ModelIdentity("m", dtype="float16"), 65.0, id="fp16-only"),
    ],
)
def test_the_peak_is_the_dense_one_at_the_precision_of_the_model(
    product: str, model: ModelIdentity, tera: float
) -> None:
    assert peak_flops(load_catalog().find(product), model) == pytest.approx(tera * 1e12)


def test_an_unknown_product_has_no_peak() -> None:
    assert peak_flops(None, ModelIdentity("m")) is None
    assert peak_flops(load_catalog().find("Tesla-P4"), ModelIdentity("m")) is None


def test_a_missing_part_gives_no_share() -> None:
    assert mfu_pct(None, 1.0, 1.0) is None
    assert mfu_pct(1.0, None, 1.0) is None
    assert mfu_pct(1.0, 1.0, None) is None
    assert mfu_pct(8e9, 0.0, 1e15) == 0.0


def test_tokens_that_are_not_made_have_no_price() -> None:
    assert usd_per_1k_tokens(4.0, 0.0) is None
    assert usd_per_1k_tokens(None, 10.0) is None
    assert usd_per_1k_tokens(3.6, 1000.0) == pytest.approx(0.001)


def test_one_busy_eight_gpu_workload_outweighs_nine_idle_small_ones() -> None:
    # (35 x 8 + 0 x 9) / 17
    assert weighted_mfu_pct([(35.0, 8.0), *[(0.0, 1.0)] * 9]) == pytest.approx(16.47, abs=0.01)
    assert weighted_mfu_pct([(None, 8.0), (5.0, None)]) is None
