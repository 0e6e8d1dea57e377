"""Fit is by memory: quantization, context, parallelism and total parameters count; names do not."""

import pytest

from piqc_pipeline.facts.snapshot import ModelIdentity
from piqc_pipeline.waste import Fit, load_prices
from piqc_pipeline.waste.fit import Room, judge_fit, nominal_billions, tier_overpay_usd_per_hour, weights_gib

PRICES = load_prices()


def model(billions: float, **more: object) -> ModelIdentity:
    given: dict[str, object] = {
        "name": "m",
        "parameters_total": billions * 1e9,
        "parameters_active": billions * 1e9,
        "max_model_len": 8192,
    }
    return ModelIdentity(**{**given, **more})  # type: ignore[arg-type]


def room(product: str, devices: float = 1) -> Room:
    row = PRICES.catalog.find(product)
    assert row is not None
    assert row.memory_gib is not None
    return Room(devices, row.memory_gib, row, PRICES.of_product(product), row.vendor)


def judged(wanted: ModelIdentity, where: Room) -> Fit:
    fit, why = judge_fit(wanted, where, PRICES)
    assert why is None
    assert fit is not None
    return fit


H100, TWO_H100, FOUR_H100 = (room("NVIDIA-H100-80GB-HBM3", count) for count in (1, 2, 4))
EXPERTS = model(46.7, parameters_active=12.9e9)
R1 = model(671, quantization="fp8", parameters_active=37e9, tensor_parallel=8, pipeline_parallel=2)


@pytest.mark.parametrize(
    ("wanted", "where", "verdict"),
    [
        pytest.param(model(70.6), room("Tesla-T4"), "does not fit", id="70b-16-bit-on-one-t4"),
        pytest.param(model(70.6), H100, "does not fit", id="70b-16-bit-on-one-h100"),
        # 131.5 GiB of weights and 2.5 of cache over two, 1.5 each: 68.5 of 71.7 usable.
        pytest.param(model(70.6), TWO_H100, "fits", id="70b-16-bit-on-two-h100"),
        # 35.0 GiB each: an L40S has 40.5 usable.
        pytest.param(model(70.6), FOUR_H100, "oversized", id="70b-16-bit-on-four-h100"),
        pytest.param(model(70.6, quantization="awq"), H100, "fits", id="70b-4-bit-on-one-h100"),
        pytest.param(model(8.03), room("NVIDIA-A100-SXM4-80GB"), "oversized", id="8b-on-80-gb"),
        pytest.param(model(8.03), room("NVIDIA-L4"), "fits", id="8b-on-24-gb"),
        pytest.param(model(7.0, dtype="float16"), room("Tesla-T4"), "does not fit", id="7b-16-bit-on-16-gb"),
        pytest.param(model(0.335, dtype="float16"), room("Tesla-T4"), "fits", id="small-on-the-smallest"),
        pytest.param(EXPERTS, room("NVIDIA-L40S"), "does not fit", id="all-experts-need-memory"),
        pytest.param(R1, room("NVIDIA-H100-80GB-HBM3", 16), "fits", id="671b-8-bit-on-two-nodes"),
    ],
)
def test_verdict_by_memory(wanted: ModelIdentity, where: Room, verdict: str) -> None:
    assert judged(wanted, where).verdict == verdict


def test_tensor_parallelism_of_one_uses_one_device_of_eight() -> None:
    assert judged(model(70.6, tensor_parallel=1), room("NVIDIA-H100-80GB-HBM3", 8)).verdict == "does not fit"


def test_a_long_context_needs_more_than_a_short_one() -> None:
    short = judged(model(8.03, max_model_len=2048), room("NVIDIA-A100-SXM4-80GB"))
    long = judged(model(8.03, max_model_len=131_072), room("NVIDIA-A100-SXM4-80GB"))
    # 131,072 tokens x 128 KiB = 16 GiB; 2,048 tokens = 0.25 GiB.
    assert long.needed_gib_per_device - short.needed_gib_per_device == pytest.approx(15.75, abs=0.05)
    assert short.smaller_product == "NVIDIA-L4"
    assert long.smaller_product == "NVIDIA-L40S"


def test_weights_follow_the_quantization() -> None:
    gib = {name: weights_gib(model(8, quantization=name)) for name in ("fp8", "awq", "gptq", "bitsandbytes", None)}
    assert gib["fp8"] == pytest.approx(7.45, abs=0.01)
    assert gib["awq"] == gib["gptq"] == gib["bitsandbytes"] == pytest.approx(4.19, abs=0.01)
    assert gib[None] == pytest.approx(14.90, abs=0.01)
    assert weights_gib(model(8, quantization="never-heard-of")) is None


def test_an_unknown_size_or_quantization_gives_no_verdict() -> None:
    assert judge_fit(ModelIdentity("m"), room("NVIDIA-L4"), PRICES) == (None, "the size of the model is unknown")
    fit, why = judge_fit(model(8, quantization="never-heard-of"), room("NVIDIA-L4"), PRICES)
    assert fit is None
    assert why is not None


def test_a_bfloat16_model_is_not_sent_to_hardware_without_it() -> None:
    assert judged(model(3, dtype="bfloat16"), room("NVIDIA-A100-SXM4-40GB")).smaller_product == "NVIDIA-L4"
    assert judged(model(3, dtype="float16"), room("NVIDIA-A100-SXM4-40GB")).smaller_product == "Tesla-T4"


def test_slices_and_shares_are_replaced_by_nothing() -> None:
    row = PRICES.catalog.find("NVIDIA-A100-SXM4-80GB")
    part = Room(1, 9.75, row, None, "nvidia", whole=False)
    assert judged(model(1), part).verdict == "fits"


def test_the_name_rounds_the_size_and_a_wrong_number_in_it_does_not() -> None:
    assert nominal_billions(model(70.6, name="meta-llama/Llama-3-70B-Inst")) == 70
    assert nominal_billions(model(46.7, name="mistralai/Mixtral-8x7B-Instruct")) == pytest.approx(46.7)
    assert nominal_billions(model(109, name="Llama-4-Scout-17B-16E")) == 109
    assert nominal_billions(model(7.25, name="mistral-7b-instruct")) == 7


@pytest.mark.parametrize("name", ["NVIDIA-A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "NVIDIA-L40S", "NVIDIA L40S"])
def test_the_tier_does_not_depend_on_the_spelling(name: str) -> None:
    row, price = PRICES.catalog.find(name), PRICES.of_product(name)
    assert row is not None
    assert price is not None
    assert tier_overpay_usd_per_hour(model(8, name="a-8B"), row, price, PRICES) == price.usd_per_hour - 0.80
