import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.engines.sizes import model_size, quantization_in_name


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.7, 12.9),
        ("NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO", 46.7, 12.9),
        ("mistralai/Mixtral-8x22B-v0.1", 140.6, 39.1),
        ("Qwen/Qwen3-30B-A3B", 30.5, 3.3),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", 235, 22),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", 480, 35),
        ("deepseek-ai/DeepSeek-R1", 671, 37),
        ("casperhansen/deepseek-r1-8bit", 671, 37),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", 70, 70),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 109, 17),
        ("openai/gpt-oss-120b", 116.8, 5.1),
        ("TheBloke/Llama-2-70B-AWQ", 70, 70),
        ("neuralmagic/Llama-3.1-405B-FP8", 405, 405),
        ("mlx/Phi-3-mini-4bit", 3.8, 3.8),
        ("bartowski/Llama-3.3-70B.Q4_K_M.gguf", 70, 70),
        ("facebook/opt-125m", 0.125, 0.125),
        ("BAAI/bge-m3", 0.568, 0.568),
        ("embedding-bge-large", 0.335, 0.335),
        ("microsoft/phi-4", 14.7, 14.7),
        ("Qwen/Qwen2.5-VL-72B-Instruct", 72, 72),
        ("Qwen/Qwen2.5-7B-Instruct-1M", 7, 7),
        ("Qwen2.5-0.5B", 0.5, 0.5),
        ("databricks/dbrx-instruct", 132, 36),
        ("ibm/granite-3b-code", 3, 3),
        ("/models/llama-3-8b/", 8, 8),
        ("llama3.1:70b-instruct-q4_K_M", 70, 70),
        ("m/x-70B-NVIDIA-H200", 70, 70),
    ],
)
def test_sizes_are_total_for_memory_and_active_for_flops(name: str, total: float, active: float) -> None:
    found = model_size(name)
    assert (found.total, found.active) == (pytest.approx(total * 1e9), pytest.approx(active * 1e9))


@pytest.mark.parametrize(
    "name",
    [
        "org/web2b-crm",
        "user/llama-7b-lora-13b-merge",
        "acme/model-4bit",
        "acme/model-8bit",
        "acme/Foo-4x3B",
        "google/gemma-3n-E4B-it",
        "acme/context-1M",
        "team/b200-model",
        "",
        None,
    ],
)
def test_a_name_without_one_clear_size_is_unknown(name: str | None) -> None:
    assert model_size(name).total is None and model_size(name).evidence


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("TheBloke/Llama-2-70B-AWQ", "awq"),
        ("x-GPTQ-Int4", "gptq"),
        ("x-FP8", "fp8"),
        ("x-w4a16", "w4a16"),
        ("x.Q4_K_M.gguf", "q4_k_m"),
        ("x-bnb-4bit", "int4"),
        ("nvidia/x-FP4", "nvfp4"),
        ("meta-llama/Llama-3.1-8B", None),
        ("Qwen/Qwen3-32B", None),
    ],
)
def test_the_quantization_in_a_name_is_read(name: str, quantization: str | None) -> None:
    assert quantization_in_name(name) == quantization


@given(st.text(max_size=80))
def test_no_name_makes_it_fail_or_guess_a_size_without_a_number(name: str) -> None:
    found = model_size(name)
    assert found.total is None or found.total > 0
    assert found.active is None or found.total is None or found.active <= found.total
