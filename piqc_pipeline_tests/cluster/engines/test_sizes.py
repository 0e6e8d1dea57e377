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
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 8, 8),
        ("deepseek-r1:70b", 70, 70),
        ("deepseek-r1:671b", 671, 37),
        ("mixtral:8x7b", 46.7, 12.9),
        ("gpt-oss:20b", 20.9, 3.6),
        ("qwen3:30b", 30.5, 3.3),
        ("llama4:16x17b", 109, 17),
        ("ai21labs/AI21-Jamba-1.5-Large", 398, 94),
        ("ai21labs/AI21-Jamba-1.5-Mini", 52, 12),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", 675, 41),
        ("mistralai/Mistral-Large-Instruct-2407", 123, 123),
        ("MiniMaxAI/MiniMax-M2", 230, 10),
        ("tencent/Hunyuan-A13B-Instruct", 80, 13),
        ("ibm-granite/granite-3.1-3b-a800m-instruct", 3, 0.8),
        ("ibm-granite/granite-4.0-h-small", 32, 9),
        ("moonshotai/Kimi-K2-Instruct", 1000, 32),
        ("zai-org/GLM-4.5", 355, 32),
        ("zai-org/GLM-4.5V", 106, 12),
        ("zai-org/GLM-4.5-Air-FP8", 106, 12),
        ("zai-org/GLM-4.6V", 106, 12),
        ("zai-org/GLM-4.7", 355, 32),
        ("zai-org/GLM-4.7-Flash", 30, 3),
        ("zai-org/GLM-5-FP8", 744, 40),
        ("CohereForAI/c4ai-command-r-08-2024", 32, 32),
        ("CohereForAI/c4ai-command-r-v01", 35, 35),
        ("intfloat/e5-large-v2", 0.335, 0.335),
        ("intfloat/multilingual-e5-large", 0.56, 0.56),
    ],
)
def test_sizes_are_total_for_memory_and_active_for_flops(name: str, total: float, active: float) -> None:
    found = model_size(name)
    assert (found.total, found.active) == (pytest.approx(total * 1e9), pytest.approx(active * 1e9))


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("moonshotai/Kimi-K2-Instruct-0905", "fp8"),
        ("moonshotai/Kimi-K2.5", "int4"),
        ("moonshotai/Kimi-K2-Thinking", "int4"),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", "fp8"),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512-BF16", None),
        ("mistralai/Mistral-Large-3-675B-Base-2512", None),
        ("zai-org/GLM-4.6V-Flash", None),
    ],
)
def test_weights_that_are_published_quantized_are_known_so(name: str, weights: str | None) -> None:
    assert model_size(name).published_as == weights


@pytest.mark.parametrize(
    "name",
    [
        "org/web2b-crm",
        "zai-org/GLM-4.6V-Flash",
        "user/llama-7b-lora-13b-merge",
        "acme/model-4bit",
        "acme/model-8bit",
        "acme/Foo-4x3B",
        "google/gemma-3n-E4B-it",
        "deepseek-r1:latest",
        "acme/context-1M",
        "team/b200-model",
        "",
        None,
    ],
)
def test_a_name_without_one_clear_size_is_unknown(name: str | None) -> None:
    assert model_size(name).total is None and model_size(name).evidence


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("openai/gpt-oss-20b", "mxfp4"),
        ("unsloth/gpt-oss-20b-BF16", None),
        ("deepseek-ai/DeepSeek-V3.2-Speciale", "fp8"),
        ("moonshotai/Kimi-K2-Thinking", "int4"),
        ("moonshotai/Kimi-K2-Instruct", "fp8"),
        ("meta-llama/Llama-3.1-8B", None),
    ],
)
def test_weights_that_are_published_in_fewer_bits_are_known_unless_the_copy_is_widened(
    name: str, published: str | None
) -> None:
    assert model_size(name).published_as == published


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
