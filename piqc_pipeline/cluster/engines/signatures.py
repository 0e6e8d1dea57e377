"""What gives an engine away? Images, programs, flags, variables, labels and ports of each, as data.

Weights are in `identify.py`. Order matters only between engines of one score: the more specific one stands first.
"""

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Signature:
    """The marks of one engine.

    Attributes:
        image: Pattern of the image's name without registry digest and tag.
        programs: Pattern of the program, or of the first words of the command.
        flags: Flags that this engine has and others mostly have not.
        strong_env: Variables that only this engine reads.
        weak_env: Variables that go with this engine, and with others.
        labels: Values of the labels `app`, `app.kubernetes.io/name`, `framework`, `inference-engine` and the like.
        port: Where it listens unless told otherwise.
        metrics: Prefixes of its metrics.
        metrics_path: Where its metrics are.
    """

    name: str
    image: re.Pattern[str]
    programs: re.Pattern[str]
    flags: frozenset[str] = frozenset()
    strong_env: tuple[str, ...] = ()
    weak_env: tuple[str, ...] = ()
    labels: frozenset[str] = field(default_factory=frozenset)
    port: int = 8000
    metrics: tuple[str, ...] = ()
    metrics_path: str = "/metrics"
    wraps: str | None = None
    """The engine whose programs and flags count for this one too, once its own image is seen."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_NOTHING = re.compile(r"(?!)")

VLLM_FLAGS = frozenset(
    {
        "served-model-name",
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "max-model-len",
        "max-num-batched-tokens",
        "max-num-seqs",
        "gpu-memory-utilization",
        "disable-log-stats",
        "disable-log-requests",
        "trust-remote-code",
        "download-dir",
        "load-format",
        "kv-cache-dtype",
        "enforce-eager",
        "enable-prefix-caching",
        "enable-chunked-prefill",
        "kv-transfer-config",
        "data-parallel-size",
        "enable-expert-parallel",
        "swap-space",
        "limit-mm-per-prompt",
        "enable-auto-tool-choice",
        "tool-call-parser",
        "reasoning-parser",
        "distributed-executor-backend",
        "speculative-config",
        "compilation-config",
        "enable-lora",
        "max-loras",
        "max-seq-len-to-capture",
        "block-size",
        "async-scheduling",
    }
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "llm-d",
        image=_pattern(r"(^|/)llm-d(/|-)(llm-d|cuda|xpu|tpu|dev|inference)?[\w-]*$"),
        programs=_NOTHING,
        strong_env=("LLMD_ROLE",),
        labels=frozenset({"llm-d"}),
        port=8000,
        metrics=("vllm:",),
        wraps="vllm",
    ),
    Signature(
        "kserve",
        image=_pattern(r"(^|/)kserve[/-](\w+-)*?(huggingface|lgb|paddle|pmml|sklearn|xgb|tensorflow)\w*server"),
        programs=_pattern(r"^(huggingfaceserver|sklearnserver|xgbserver|lgbserver|kserve)\b"),
        flags=frozenset({"model-name", "model-id", "model-dir", "backend", "task"}),
        labels=frozenset({"kserve"}),
        port=8080,
        metrics=("vllm:", "request_predict_seconds"),
        wraps="vllm",
    ),
    Signature(
        "nim",
        image=_pattern(r"(^|/)nvcr\.io/nim/|(^|/)nim/(meta|nvidia|mistralai|qwen|deepseek-ai|google|microsoft|ibm)/"),
        programs=_pattern(r"start[-_]?server\.sh|nim[-_]\w*server|/opt/nim/"),
        strong_env=(
            "NIM_MODEL_NAME",
            "NIM_SERVED_MODEL_NAME",
            "NIM_MODEL_PROFILE",
            "NIM_CACHE_PATH",
            "NIM_MANIFEST_PROFILE",
            "NIM_MAX_MODEL_LEN",
            "NIM_SERVER_PORT",
            "NIM_HTTP_API_PORT",
        ),
        labels=frozenset({"nim", "nim-llm"}),
        port=8000,
        metrics=("vllm:", "num_requests_running", "nv_trt_llm"),
        metrics_path="/v1/metrics",
        wraps="vllm",
    ),
    Signature(
        "sglang",
        image=_pattern(r"(^|/)sglang(?!-?(router|gateway))(-[\w.]+)?$|lmsysorg/sglang|(^|/)sglang/"),
        programs=_pattern(r"sglang\.(launch_server|srt)|^sglang$"),
        flags=frozenset(
            {
                "model-path",
                "mem-fraction-static",
                "context-length",
                "chunked-prefill-size",
                "disaggregation-mode",
                "enable-dp-attention",
                "enable-metrics",
                "max-running-requests",
                "attention-backend",
                "schedule-policy",
                "tp",
                "dp",
                "nnodes",
                "dist-init-addr",
            }
        ),
        strong_env=("SGLANG_MODEL_PATH", "SGL_MODEL", "SGLANG_HOST", "SGLANG_USE_MODELSCOPE"),
        labels=frozenset({"sglang"}),
        port=30000,
        metrics=("sglang:", "sglang_"),
    ),
    Signature(
        "tensorrt-llm",
        image=_pattern(r"tensorrt-llm|tensorrt_llm|(^|/)trt-?llm|trtllm-python"),
        programs=_pattern(r"trtllm-serve|trtllm-llmapi-launch|tensorrt_llm|launch_triton_server\.py"),
        flags=frozenset(
            {
                "tp-size",
                "pp-size",
                "ep-size",
                "max-seq-len",
                "kv-cache-free-gpu-memory-fraction",
                "extra-llm-api-options",
            }
        ),
        strong_env=("TRTLLM_ENGINE_DIR", "TRTLLM_MODEL", "TLLM_LOG_LEVEL"),
        labels=frozenset({"tensorrt-llm", "trtllm"}),
        port=8000,
        metrics=("trtllm:", "trtllm_", "nv_trt_llm"),
        metrics_path="/prometheus/metrics",
    ),
    Signature(
        "triton",
        image=_pattern(r"(^|/)tritonserver|triton-inference-server|(^|/)pytriton"),
        programs=_pattern(r"^tritonserver$|tritonserver"),
        flags=frozenset(
            {"model-repository", "model-store", "model-control-mode", "strict-model-config", "http-port", "grpc-port"}
        ),
        labels=frozenset({"triton", "tritonserver", "triton-inference-server"}),
        port=8000,
        metrics=("nv_inference_", "nv_gpu_"),
    ),
    Signature(
        "tei",
        image=_pattern(r"text-embeddings-inference|(^|/)tei(-|$)"),
        programs=_pattern(r"text-embeddings-router"),
        flags=frozenset({"model-id", "pooling", "max-batch-tokens", "max-client-batch-size", "auto-truncate"}),
        labels=frozenset({"tei", "text-embeddings-inference"}),
        port=80,
        metrics=("te_",),
    ),
    Signature(
        "tgi",
        image=_pattern(r"text-generation-inference|(^|/)tgi(-|$)|huggingface-text-generation|tgi-gaudi|optimum-tpu"),
        programs=_pattern(r"text-generation-(launcher|server)|tgi-entrypoint"),
        flags=frozenset(
            {
                "model-id",
                "num-shard",
                "sharded",
                "max-total-tokens",
                "max-input-length",
                "max-input-tokens",
                "max-batch-prefill-tokens",
                "quantize",
                "max-concurrent-requests",
                "cuda-memory-fraction",
            }
        ),
        strong_env=("HF_MODEL_ID", "NUM_SHARD", "MAX_TOTAL_TOKENS", "MAX_INPUT_LENGTH", "MAX_BATCH_PREFILL_TOKENS"),
        weak_env=("MODEL_ID", "QUANTIZE"),
        labels=frozenset({"tgi", "text-generation-inference"}),
        port=80,
        metrics=("tgi_",),
    ),
    Signature(
        "ollama",
        image=_pattern(r"(^|/)ollama(/ollama)?(-rocm)?$"),
        programs=_pattern(r"^ollama$"),
        strong_env=(
            "OLLAMA_MODELS",
            "OLLAMA_HOST",
            "OLLAMA_NUM_PARALLEL",
            "OLLAMA_KEEP_ALIVE",
            "OLLAMA_MODEL",
            "OLLAMA_FLASH_ATTENTION",
        ),
        labels=frozenset({"ollama"}),
        port=11434,
    ),
    Signature(
        "vllm",
        image=_pattern(
            r"(^|[/_.-])vllm(-openai|-tpu|-cpu|-rocm|-gaudi|-hpu|-neuron|-xpu|-ascend|-cuda|-server|-omni|-nightly|-base|-dev|-runtime)*$|"
            r"(^|/)vllm/(?!vllm-router)|(^|/)vllm-(openai|tpu|rocm|hpu)|(^|/)rhaiis/vllm|(^|/)rocm/vllm|"
            r"deep-learning-containers/vllm|(^|/)ai-dynamo/vllm|(^|/)pytorch-vllm"
        ),
        programs=_pattern(r"vllm\.entrypoints|^vllm$|vllm\.v1|^vllm\.|dynamo\.vllm"),
        flags=VLLM_FLAGS,
        strong_env=(
            "VLLM_VERSION",
            "VLLM_ENGINE",
            "VLLM_ENGINE_ITERATION_TIMEOUT_S",
            "VLLM_ATTENTION_BACKEND",
            "VLLM_USE_MODELSCOPE",
            "VLLM_USE_V1",
            "VLLM_MODEL",
            "VLLM_WORKER_MULTIPROC_METHOD",
            "VLLM_API_KEY",
            "VLLM_LOGGING_LEVEL",
            "VLLM_HOST_IP",
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        ),
        weak_env=(
            "SERVED_MODEL_NAME",
            "TENSOR_PARALLEL_SIZE",
            "PIPELINE_PARALLEL_SIZE",
            "MODEL_NAME",
            "MAX_MODEL_LEN",
            "GPU_MEMORY_UTILIZATION",
            "DTYPE",
            "QUANTIZATION",
        ),
        labels=frozenset({"vllm", "vllm-openai", "vllm-server"}),
        port=8000,
        metrics=("vllm:", "vllm_", "ray_vllm:", "ray_vllm_"),
    ),
    Signature(
        "ray-serve",
        image=_pattern(r"(^|/)rayproject/|(^|/)ray(-ml|-llm)?$|anyscale/"),
        programs=_pattern(r"^ray$|ray\.serve|^serve$"),
        strong_env=("RAY_SERVE_ENABLE_EXPERIMENTAL_STREAMING", "RAY_ADDRESS", "RAY_CLUSTER_NAME"),
        labels=frozenset({"ray-serve", "rayserve"}),
        port=8000,
        metrics=("ray_",),
        wraps="vllm",
    ),
)

BY_NAME = {signature.name: signature for signature in SIGNATURES}

OTHER_ENGINES = (
    ("lmdeploy", _pattern(r"(^|/)lmdeploy")),
    ("llama.cpp", _pattern(r"llama[.-]?cpp|(^|/)llama-server")),
    ("mlc-llm", _pattern(r"mlc[-_]llm")),
    ("torchserve", _pattern(r"(^|/)torchserve|pytorch/torchserve")),
    ("aphrodite", _pattern(r"aphrodite-engine")),
)
"""Engines that are told apart from `unknown`, and of which no more is known than their name."""

NOT_AN_ENGINE = _pattern(
    r"router|gateway|proxy|litellm|operator|endpoint-?picker|(^|/)epp$|(^|/)envoy|exporter|device-plugin|controller|webhook|"
    r"(^|/)busybox|(^|/)pause|scheduler|autoscaler|dashboard|benchmark|inference-sim|guidellm|genai-perf|open-webui|"
    r"gateway-api-inference|gpu-feature-discovery|node-feature-discovery|dcgm|nvidia/driver|cuda-validator|istio|linkerd"
)
"""Images that stand beside engines, and whose names hold theirs."""
