from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.engines.endpoints import endpoint_of
from piqc_pipeline.cluster.engines.identify import ContainerView, identify
from piqc_pipeline.cluster.engines.model import human_integer, model_of
from piqc_pipeline.facts.snapshot import ModelIdentity
from piqc_pipeline_tests.cluster.engines.test_identify import view


def model(found: ContainerView, **more: Any) -> ModelIdentity:
    return model_of(found, identify(found, {}), {}, **more)


def vllm(*args: str, **more: Any) -> ModelIdentity:
    return model(view("vllm/vllm-openai:v0.9", list(args), **more))


@pytest.mark.parametrize(
    "args",
    [
        ["--model", "a/b-70B", "--tensor-parallel-size", "8"],
        ["--model=a/b-70B", "--tensor_parallel_size=8"],
        ["--model", "a/b-70B", "-tp", "8"],
        ["--model", "a/b-70B", "-tp=8"],
        ["a/b-70B", "--tensor-parallel-size", "8"],
        ["serve", "a/b-70B", "--tensor-parallel", "8"],
        ["vllm serve a/b-70B --tensor-parallel-size 8"],
        ["--model a/b-70B", "--tensor-parallel-size 8"],
    ],
    ids=" ".join,
)
def test_every_spelling_of_arguments_is_read(args: list[str]) -> None:
    found = vllm(*args)
    assert (found.name, found.tensor_parallel, found.parameters_total) == ("a/b-70B", 8, 70e9)


@pytest.mark.parametrize(
    ("command", "args", "env"),
    [
        (["sh", "-c", "vllm serve a/b-70B --tensor-parallel-size 8"], [], {}),
        (["/bin/bash", "-lc"], ["export M=a/b-70B\nexec vllm serve $M \\\n  --tensor-parallel-size ${TP:-8}"], {}),
        (["sh", "-ec", "cd /x && MODEL=1 vllm serve a/b-70B -tp $TP; echo done"], [], {"TP": "8"}),
        (["vllm", "serve", "$(MODEL)", "-tp", "$(TP)"], [], {"MODEL": "a/b-70B", "TP": "8"}),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["--model", "a/b-70B", "-tp", "8"], {}),
        (["/usr/bin/tini", "--", "vllm", "serve", "a/b-70B", "-tp", "8"], [], {}),
    ],
    ids=["sh -c", "bash -lc", "variables", "$(VAR)", "python -m", "tini"],
)
def test_commands_are_read_through_shells_and_variables(
    command: list[str], args: list[str], env: dict[str, str]
) -> None:
    found = vllm(*args, command=command, env=env)
    assert (found.name, found.tensor_parallel) == ("a/b-70B", 8)


@pytest.mark.parametrize("value", ["$(SECRET_MODEL)", "$MODEL", "${MODEL}"])
def test_a_variable_that_nobody_can_expand_is_no_model(value: str) -> None:
    assert vllm("--model", value).name is None


def test_an_escaped_variable_stays_as_it_is_meant() -> None:
    assert vllm("--model", "a/b-7B", "--chat-template", "$$(x)").name == "a/b-7B"


def test_a_configuration_file_is_read_where_it_is_at_hand_and_arguments_beat_it() -> None:
    text = "model: a/b-70B\ntensor-parallel-size: 8\nmax_model_len: 4096\napi-key: CANARY\n"
    container = view("vllm/vllm-openai:v1", ["--config", "/etc/v/c.yaml", "--max-model-len", "8192"])
    found = model(container, config_text={"/etc/v/c.yaml": text})
    assert (found.name, found.tensor_parallel, found.max_model_len) == ("a/b-70B", 8, 8192)
    assert "CANARY" not in repr(found)
    assert model(container).name is None


@pytest.mark.parametrize("text", ["- a\n- b", "a: [", "x", ":", "!!python/object:os.system x", ""])
def test_a_configuration_file_that_is_none_says_nothing(text: str) -> None:
    container = view("vllm/vllm-openai:v1", ["--config", "/c.yaml"])
    assert model(container, config_text={"/c.yaml": text}).name is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8192", 8192),
        ("32k", 32_000),
        ("32K", 32_768),
        ("25.6k", 25_600),
        ("1m", 1_000_000),
        ("-1", None),
        ("auto", None),
        ("", None),
        (None, None),
        ("0", None),
    ],
)
def test_lengths_are_read_as_vllm_reads_them(text: str | None, value: int | None) -> None:
    assert human_integer(text) == value


def test_what_is_not_stated_is_unknown_and_not_a_default() -> None:
    found = vllm("--model", "a/b-7B")
    assert (found.chunked_prefill, found.enforce_eager, found.max_model_len, found.tensor_parallel) == (None,) * 4
    assert (found.gpu_memory_utilization, found.dtype, found.kv_role, found.lmcache_enabled) == (None,) * 4


def test_switches_are_read_in_their_three_states() -> None:
    assert vllm("--model", "m", "--enable-chunked-prefill").chunked_prefill is True
    assert vllm("--model", "m", "--no-enable-chunked-prefill").chunked_prefill is False
    assert vllm("--model", "m", "--enable-chunked-prefill=False").chunked_prefill is False


def test_transfer_of_the_cache_between_roles_is_read() -> None:
    found = vllm("--model", "m", "--kv-transfer-config", '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}')
    assert (found.kv_connector, found.kv_role, found.lmcache_enabled) == ("LMCacheConnectorV1", "kv_both", True)


def test_settings_of_other_engines_have_other_names() -> None:
    tgi = model(
        view("ghcr.io/huggingface/text-generation-inference:3", None, env={"MODEL_ID": "m-7B", "NUM_SHARD": "2"})
    )
    assert (tgi.name, tgi.tensor_parallel) == ("m-7B", 2)
    args = ["--model-path", "m-8B", "--context-length", "4096", "--mem-fraction-static", "0.85", "--dp-size", "2"]
    sglang = model(view("lmsysorg/sglang:v0.5", args))
    assert (sglang.max_model_len, sglang.gpu_memory_utilization, sglang.data_parallel) == (4096, 0.85, 2)


def test_the_quantization_is_that_of_the_flag_then_of_the_name_then_of_the_publisher() -> None:
    assert vllm("--model", "a/b-70B-AWQ", "--quantization", "awq_marlin").quantization == "awq_marlin"
    assert vllm("--model", "a/b-70B-AWQ").quantization == "awq"
    assert vllm("--model", "deepseek-ai/DeepSeek-R1").quantization == "fp8"
    assert vllm("--model", "a/b-70B").quantization is None


def test_only_a_served_name_is_told_as_such() -> None:
    found = vllm("--served-model-name", "llama-13b", "--port", "80")
    assert (found.name, found.served_name) == ("llama-13b", "llama-13b")
    assert "only the served name is stated" in found.evidence


@given(st.lists(st.text(max_size=30), max_size=8))
def test_no_arguments_make_it_fail(args: list[str]) -> None:
    found = vllm(*args)
    assert found.max_model_len is None or found.max_model_len > 0


@given(st.text(max_size=200))
def test_no_script_makes_it_fail(script: str) -> None:
    vllm(command=["sh", "-c", script])


def test_the_application_that_ray_serves_is_no_model() -> None:
    found = view("rayproject/ray-llm:2.46", [], command=["serve", "run", "serve:app"])
    assert identify(found, {}).name == "ray-serve" and model(found).name is None


def test_a_file_of_llama_cpp_is_its_model() -> None:
    command = ["/app/llama-server", "-m", "/models/Llama-3.3-70B-Instruct-Q4_K_M.gguf"]
    found = model(view("ghcr.io/ggml-org/llama.cpp:server-cuda", [], command=command))
    assert (found.parameters_total, found.quantization) == (70e9, "q4_k_m")


def test_a_port_of_ray_is_not_the_engines() -> None:
    script = "ray start --head --port=6379; vllm serve a/b-70B -tp 8"
    found = view("vllm/vllm-openai:v0.9", [], command=["sh", "-c", script])
    assert endpoint_of(found, "vllm").http_port != 6379
    assert endpoint_of(view("vllm/vllm-openai:v0.9", ["--model", "a/b", "--port", "9000"]), "vllm").http_port == 9000


@pytest.mark.parametrize(("flag", "role"), [("--is-prefill-worker", "prefill"), ("--is-decode-worker", "decode")])
def test_dynamo_workers_say_their_role_in_the_command(flag: str, role: str) -> None:
    command = ["python3", "-m", "dynamo.vllm", "--model", "Qwen/Qwen3-32B", flag]
    found = view("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.4.0", [], command=command)
    assert (identify(found, {}).role, model(found).name) == (role, "Qwen/Qwen3-32B")
