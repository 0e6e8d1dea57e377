from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.engines.commands import environment_of, invocations
from piqc_pipeline.cluster.engines.identify import ContainerView, confirm, identify, image_name, version_of
from piqc_pipeline.cluster.engines.model import model_of
from piqc_pipeline.cluster.objects import Container
from piqc_pipeline.facts.snapshot import EngineIdentity, ModelIdentity


def view(image: str, args: list[str] | None = None, **more: Any) -> ContainerView:
    env = [{"name": key, "value": value} for key, value in more.pop("env", {}).items()]
    container = msgspec.convert({"name": "c", "image": image, "args": args, "env": env, **more}, Container)
    environment = environment_of(container)
    return ContainerView(container, tuple(invocations(container, environment)), environment)


def seen(found: ContainerView, labels: dict[str, str] | None = None) -> tuple[EngineIdentity, ModelIdentity]:
    engine = identify(found, labels or {})
    return engine, model_of(found, engine, labels or {})


@pytest.mark.parametrize(
    ("image", "args", "env", "engine", "model"),
    [
        ("vllm/vllm-openai:v0.8.5", ["--model", "a/b-7B"], {}, "vllm", "a/b-7B"),
        ("lmcache/vllm-openai:x", ["serve", "mistralai/Mistral-7B-v0.1"], {}, "vllm", "mistralai/Mistral-7B-v0.1"),
        ("rocm/vllm:latest", ["--model", "a/b-7B"], {}, "vllm", "a/b-7B"),
        ("acme/qwen-vllm:1", ["--model", "a/b-7B"], {}, "vllm", "a/b-7B"),
        (
            "registry.local/own:1",
            ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=m-7B"],
            {},
            "vllm",
            "m-7B",
        ),
        (
            "kserve/huggingfaceserver:v0.14-gpu",
            ["--model_name=llama3", "--model_id=meta-llama/Llama-3.1-8B-Instruct", "--backend=vllm"],
            {},
            "kserve",
            "meta-llama/Llama-3.1-8B-Instruct",
        ),
        ("lmsysorg/sglang:v0.4.6", ["--model-path", "Qwen/Qwen2.5-32B", "--tp", "4"], {}, "sglang", "Qwen/Qwen2.5-32B"),
        ("ghcr.io/huggingface/text-generation-inference:3.0", ["--model-id", "m/x-7B"], {}, "tgi", "m/x-7B"),
        ("ghcr.io/huggingface/text-generation-inference:3.0", None, {"HF_MODEL_ID": "m/x-7B"}, "tgi", "m/x-7B"),
        ("ghcr.io/huggingface/text-embeddings-inference:1.6", ["--model-id", "BAAI/bge-m3"], {}, "tei", "BAAI/bge-m3"),
        ("nvcr.io/nvidia/tritonserver:24.05-py3", ["tritonserver", "--model-repository=/models"], {}, "triton", None),
        (
            "nvcr.io/nvidia/tensorrt-llm/release:1.0",
            ["trtllm-serve", "meta-llama/L-8B"],
            {},
            "tensorrt-llm",
            "meta-llama/L-8B",
        ),
        ("nvcr.io/nim/meta/llama-3.1-8b-instruct:1.3", None, {}, "nim", "meta/llama-3.1-8b-instruct"),
        ("ollama/ollama:0.5", None, {"OLLAMA_MODELS": "/models"}, "ollama", None),
        (
            "ghcr.io/llm-d/llm-d-cuda:v0.3.0",
            ["vllm serve Qwen/Qwen3-32B --tensor-parallel-size 4"],
            {},
            "llm-d",
            "Qwen/Qwen3-32B",
        ),
        ("rayproject/ray-llm:2.40", None, {}, "ray-serve", None),
    ],
)
def test_engines_and_their_models_are_named(
    image: str, args: list[str] | None, env: dict[str, str], engine: str, model: str | None
) -> None:
    found, what = seen(view(image, args, env=env))
    assert (found.name, what.name) == (engine, model)
    assert found.evidence


@pytest.mark.parametrize(
    "image",
    [
        "lmcache/lmstack-router:latest",
        "registry.local/vllm-router:1",
        "registry.k8s.io/gateway-api-inference-extension/epp:v0.5",
        "nvcr.io/nvidia/gpu-operator:v25",
        "nvcr.io/nvidia/driver:550",
        "ghcr.io/berriai/litellm:main",
        "nvcr.io/nvidia/k8s/dcgm-exporter:3.3.5",
        "registry.local/lab:1",
        "pytorch/pytorch:2.4",
        "",
    ],
)
def test_what_stands_beside_engines_is_none(image: str) -> None:
    assert identify(view(image, env={"MODEL_NAME": "x"}), {}).name == "unknown"


def test_the_more_is_seen_the_surer_it_is() -> None:
    weak = identify(view("own:1", ["--model", "m", "--tensor-parallel-size", "8"]), {"app": "vllm"})
    image = identify(view("vllm/vllm-openai:v1"), {})
    full = identify(view("vllm/vllm-openai:v1", ["vllm", "serve", "m", "--max-model-len", "8", "--dtype", "auto"]), {})
    assert [found.confidence for found in (weak, image, full)] == ["low", "medium", "high"]
    assert weak.score < image.score < full.score


def test_many_flags_of_one_engine_name_it_without_its_image() -> None:
    flags = [
        "--max-model-len=1",
        "--gpu-memory-utilization=.9",
        "--max-num-seqs=1",
        "--enforce-eager",
        "--swap-space=1",
    ]
    assert identify(view("registry.local/own:1", flags), {}).name == "vllm"


def test_metrics_raise_confidence_and_name_an_engine_that_nothing_else_named() -> None:
    unknown = identify(view("registry.local/own:1"), {})
    assert confirm(unknown, ["sglang:"]).name == "sglang"
    vllm = identify(view("vllm/vllm-openai:v1"), {})
    assert confirm(vllm, ["vllm:"]).confidence == "high"
    assert confirm(vllm, ["tgi_"]) == vllm


def test_roles_are_read_from_labels_and_commands() -> None:
    assert identify(view("vllm/vllm-openai:v1"), {"llm-d.ai/role": "decode"}).role == "decode"
    arguments = ["python3", "-m", "sglang.launch_server", "--disaggregation-mode", "prefill"]
    assert identify(view("lmsysorg/sglang:v1", arguments), {}).role == "prefill"
    assert identify(view("vllm/vllm-openai:v1"), {"leaderworkerset.sigs.k8s.io/worker-index": "1"}).role == "worker"


@pytest.mark.parametrize(
    ("image", "name", "version"),
    [
        ("vllm/vllm-openai:v0.8.5", "vllm/vllm-openai", "v0.8.5"),
        ("host:5000/a/b", "host:5000/a/b", None),
        ("a/b:latest", "a/b", None),
        ("a/b:v1@sha256:00", "a/b", "v1"),
    ],
)
def test_images_are_taken_apart(image: str, name: str, version: str | None) -> None:
    assert (image_name(image), version_of(image)) == (name, version)


@given(
    st.text(max_size=60),
    st.lists(st.text(max_size=40), max_size=6),
    st.dictionaries(st.text(max_size=10), st.text(max_size=10)),
)
def test_no_container_makes_it_fail(image: str, args: list[str], labels: dict[str, str]) -> None:
    engine, model = seen(view(image, args), labels)
    assert 0 <= engine.score <= 1
    assert model.tensor_parallel is None or model.tensor_parallel > 0
