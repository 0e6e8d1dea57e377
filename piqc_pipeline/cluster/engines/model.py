"""Which model does an engine serve, in how many parts, at which length? By its arguments, then its environment.

Every spelling counts: `--model X`, `--model=X`, `vllm serve X`, `-tp 4`, `--tensor_parallel_size 4`, a configuration
file.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec
import yaml

from piqc_pipeline.cluster.engines.commands import Invocation, file_name, known
from piqc_pipeline.cluster.engines.identify import ContainerView, image_name
from piqc_pipeline.cluster.engines.sizes import model_size, quantization_in_name
from piqc_pipeline.cluster.redact import is_secret_name, printable
from piqc_pipeline.facts.snapshot import EngineIdentity, ModelIdentity

NAME_FLAGS = ("model", "model-path", "model-id", "model-tag", "model-dir", "model-name-or-path", "hf-model-id")
LLAMA_CPP_FLAGS = ("m", "hf-repo", "hf", "hfr")
SERVED_FLAGS = ("served-model-name", "model-name", "served-name", "alias")
NAME_ENV = (
    "VLLM_MODEL",
    "MODEL_ID",
    "HF_MODEL_ID",
    "MODEL_PATH",
    "SGLANG_MODEL_PATH",
    "SGL_MODEL",
    "TRTLLM_MODEL",
    "OLLAMA_MODEL",
    "MODEL_NAME",
    "MODEL",
    "NIM_MODEL_NAME",
)
SERVED_ENV = ("SERVED_MODEL_NAME", "NIM_SERVED_MODEL_NAME")
MODEL_LABELS = ("llm-d.ai/model", "model", "ai.model/name")

_FLAGS: dict[str, tuple[str, ...]] = {
    "tensor_parallel": ("tensor-parallel-size", "tp", "tp-size", "num-shard", "tensor-parallel"),
    "pipeline_parallel": ("pipeline-parallel-size", "pp", "pp-size"),
    "data_parallel": ("data-parallel-size", "dp", "dp-size"),
    "max_model_len": ("max-model-len", "context-length", "max-seq-len", "max-total-tokens", "ctx-size"),
    "max_num_seqs": ("max-num-seqs", "max-running-requests", "max-batch-size", "max-concurrent-requests"),
    "max_num_batched_tokens": ("max-num-batched-tokens", "max-batch-total-tokens"),
    "gpu_memory_utilization": ("gpu-memory-utilization", "mem-fraction-static", "cuda-memory-fraction"),
    "dtype": ("dtype",),
    "quantization": ("quantization", "q", "quantize"),
    "kv_cache_dtype": ("kv-cache-dtype",),
    "tokenizer": ("tokenizer", "tokenizer-path"),
}
_ENV: dict[str, tuple[str, ...]] = {
    "tensor_parallel": ("TENSOR_PARALLEL_SIZE", "NUM_SHARD", "NIM_TENSOR_PARALLEL_SIZE"),
    "pipeline_parallel": ("PIPELINE_PARALLEL_SIZE",),
    "max_model_len": ("MAX_MODEL_LEN", "NIM_MAX_MODEL_LEN", "MAX_TOTAL_TOKENS"),
    "max_num_seqs": ("MAX_NUM_SEQS",),
    "max_num_batched_tokens": ("MAX_NUM_BATCHED_TOKENS",),
    "gpu_memory_utilization": ("GPU_MEMORY_UTILIZATION",),
    "dtype": ("DTYPE",),
    "quantization": ("QUANTIZATION", "QUANTIZE"),
    "kv_cache_dtype": ("KV_CACHE_DTYPE",),
    "tokenizer": ("TOKENIZER",),
}
_SHORT = {"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size", "q": "quantization"}
_ABBREVIABLE = tuple(
    sorted(
        {name for names in _FLAGS.values() for name in names if len(name) > 8} | {"served-model-name", "enforce-eager"}
    )
)
_SERVE_WORDS = {
    "vllm": ("serve",),
    "trtllm-serve": ("serve", ""),
    "ollama": ("run", "serve", "pull"),
    "lmdeploy": ("api_server",),
    "sglang": ("serve",),
}
_HUMAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKmMgG]?)")
_HUMAN_UNITS = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 1024**2, "g": 10**9, "G": 1024**3}
_TRUE = ("", "true", "1", "yes", "True")
_PATH_LIKE = re.compile(r"[\w.@:/+~-]+")
_NAMED_VARIABLE = re.compile(r"\$[({]?([A-Za-z_]\w*)")
MAX_CONFIG_BYTES = 262_144


def config_variables(invocations: Iterable[Invocation]) -> frozenset[str]:
    """Variables that say something of the model: those that engines read, and those that the arguments name."""
    named = {name for item in invocations for word in item.words for name in _NAMED_VARIABLE.findall(word)}
    return frozenset({*NAME_ENV, *SERVED_ENV, *(name for names in _ENV.values() for name in names), *named})


def model_of(
    view: ContainerView,
    engine: EngineIdentity,
    labels: Mapping[str, str],
    config_text: Mapping[str, str] | None = None,
) -> ModelIdentity:
    """The model and its settings; what is not stated is None.

    Args:
        view: The container.
        engine: The engine that it runs.
        labels: Labels of the pod.
        config_text: Text of configuration files by path, where a ConfigMap holds them and could be read.
    """
    flags = _all_flags(view.invocations, config_text or {})
    env = {name: value for name, value in view.environment.items() if known(value)}
    for item in view.invocations:
        env.update({name: value for name, value in item.environment.items() if known(value)})
    evidence: list[str] = []
    name = _name(view, engine, flags, env, labels, evidence)
    served = _first(flags, SERVED_FLAGS) or _first(env, SERVED_ENV)
    if served is not None:
        served = served.split()[0].split(",")[0] if served.split() else None
        evidence.append("served name in arguments")
    size = model_size(name or served)
    if size.total is None and name and served and name != served:
        size = model_size(served) if model_size(served).total is not None else size
    evidence.append(f"parameters: {size.evidence}")
    text = {key: _first(flags, names) or _first(env, _ENV.get(key, ())) for key, names in _FLAGS.items()}
    transfer = _transfer_config(flags.get("kv-transfer-config"))
    connector = _text(transfer.get("kv_connector"))
    return ModelIdentity(
        name=_shown(name),
        served_name=_shown(served),
        parameters_total=size.total,
        parameters_active=size.active,
        dtype=_word(text["dtype"]),
        quantization=_word(text["quantization"]) or quantization_in_name(name or served) or size.published_as,
        max_model_len=human_integer(text["max_model_len"]),
        tensor_parallel=_count(text["tensor_parallel"]),
        pipeline_parallel=_count(text["pipeline_parallel"]),
        data_parallel=_count(text["data_parallel"]),
        expert_parallel=_expert_parallel(flags),
        max_num_seqs=_count(text["max_num_seqs"]),
        gpu_memory_utilization=_share(text["gpu_memory_utilization"]),
        kv_cache_dtype=_word(text["kv_cache_dtype"]),
        chunked_prefill=_switch(flags, "enable-chunked-prefill"),
        kv_role=_text(transfer.get("kv_role")),
        kv_connector=connector,
        lmcache_enabled=True if _lmcache(connector, view.environment) else None,
        enforce_eager=_switch(flags, "enforce-eager"),
        max_num_batched_tokens=human_integer(text["max_num_batched_tokens"]),
        trust_remote_code=_switch(flags, "trust-remote-code"),
        tokenizer=_shown(text["tokenizer"]),
        evidence=tuple(evidence),
    )


def human_integer(text: str | None) -> int | None:
    """`8192`, `32k` (32,000), `32K` (32,768), `25.6k`; None for `-1` (as long as the model allows) and for no number.

    Source: vLLM, `human_readable_int` (vllm/engine/arg_utils.py).
    """
    match = _HUMAN.fullmatch((text or "").strip())
    if match is None:
        return None
    value = float(match.group(1)) * _HUMAN_UNITS[match.group(2)]
    return int(value) if 0 < value < 10**10 and value == int(value) else None


def config_paths(invocations: Iterable[Invocation]) -> tuple[str, ...]:
    """Configuration files that the commands name."""
    names = ("config", "config-file", "extra-llm-api-options", "model-config-file")
    return tuple(path for item in invocations if (path := item.flag(*names)) is not None)


def _all_flags(invocations: Iterable[Invocation], config_text: Mapping[str, str]) -> dict[str, str]:
    """Flags of every command, files first so that arguments beat them, abbreviations written out."""
    invocations = tuple(invocations)
    found: dict[str, str] = {}
    for path in config_paths(invocations):
        found.update(_file_flags(config_text.get(path, "")))
    for item in invocations:
        for name, value in item.flags.items():
            found[_full_name(name)] = value
    return found


def _file_flags(text: str) -> dict[str, str]:
    try:
        document = yaml.safe_load(text[:MAX_CONFIG_BYTES]) if text else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {
        str(key).replace("_", "-").lower(): value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in document.items()
        if isinstance(value, str | int | float | bool | dict) and not is_secret_name(str(key))
    }


def _full_name(name: str) -> str:
    """Short flags and unambiguous abbreviations written out, as argparse takes them."""
    if name in _SHORT:
        return _SHORT[name]
    if len(name) < 9:
        return name
    longer = [full for full in _ABBREVIABLE if full.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def _name(
    view: ContainerView,
    engine: EngineIdentity,
    flags: Mapping[str, str],
    env: Mapping[str, str],
    labels: Mapping[str, str],
    evidence: list[str],
) -> str | None:
    if name := _first(flags, (*NAME_FLAGS, *(LLAMA_CPP_FLAGS if engine.name == "llama.cpp" else ()))):
        evidence.append("model in arguments")
        return name
    if name := _positional(view, engine):
        evidence.append("model in the command")
        return name
    if engine.name == "nim" and (
        match := re.search(r"(?:^|/)nim/([\w.-]+/[\w.-]+)$", image_name(view.container.image))
    ):
        evidence.append("model in the image's name")
        return match.group(1)
    if name := _first(env, NAME_ENV):
        evidence.append("model in the environment")
        return name
    if name := _first(flags, SERVED_FLAGS) or _first(env, SERVED_ENV):
        evidence.append("only the served name is stated")
        return name.split()[0] if name.split() else None
    if engine.name != "unknown" and (name := _first(labels, MODEL_LABELS)):
        evidence.append("model in a label")
        return name
    return None


def _positional(view: ContainerView, engine: EngineIdentity) -> str | None:
    """The MODEL of `vllm serve MODEL`, `trtllm-serve MODEL`, or of arguments that the image's entrypoint gets."""
    for item in view.invocations:
        words = list(item.positionals)
        program = file_name(words[0]) if words else ""
        if program in _SERVE_WORDS:
            rest = words[1:]
            if rest and rest[0] in ("serve", "run", "pull", "api_server"):
                rest = rest[1:] if rest[0] != "serve" or program != "lmdeploy" else rest[2:]
        elif words and words[0] == "serve" and engine.name not in ("unknown", "ray-serve"):
            rest = words[1:]
        elif engine.name in ("vllm", "llm-d") and not view.container.command and _is_model(program, words):
            rest = words
        else:
            continue
        if rest and known(rest[0]) and _PATH_LIKE.fullmatch(rest[0]):
            return rest[0]
    return None


def _is_model(program: str, words: list[str]) -> bool:
    first = words[0] if words else ""
    return (
        first.count("/") == 1
        and not first.startswith(("/", "."))
        and not first.endswith((".sh", ".py"))
        and bool(program)
    )


def _first(table: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((value for name in names if known(value := table.get(name))), None)


def _shown(text: str | None) -> str | None:
    return printable(text, 200) if text else None


def _word(text: str | None) -> str | None:
    return text.lower() if text and re.fullmatch(r"[\w.-]{1,40}", text) else None


def _text(value: object) -> str | None:
    return printable(value, 80) if isinstance(value, str) else None


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and 0 < int(text[:7]) <= 100_000 else None


def _share(text: str | None) -> float | None:
    if not text or not re.fullmatch(r"0?\.[0-9]+|[01](?:\.[0-9]+)?", text):
        return None
    value = float(text)
    return value if 0 < value <= 1 else None


def _switch(flags: Mapping[str, str], name: str) -> bool | None:
    """True, False where it is switched off, None where it is not stated: the default depends on the version."""
    if f"no-{name}" in flags:
        return False
    if name not in flags:
        return None
    return flags[name] in _TRUE or flags[name].startswith("-") or flags[name].lower() not in ("false", "0", "no", "off")


def _expert_parallel(flags: Mapping[str, str]) -> bool | None:
    size = _count(_first(flags, ("ep-size", "ep", "expert-parallel-size", "moe-expert-parallel-size")))
    if size is not None:
        return size > 1
    return _switch(flags, "enable-expert-parallel")


def _transfer_config(text: str | None) -> dict[str, object]:
    try:
        value = msgspec.json.decode(text.encode("utf-8", "replace")) if text else {}
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _lmcache(connector: str | None, environment: Mapping[str, str]) -> bool:
    return "lmcache" in (connector or "").lower() or any(name.startswith("LMCACHE_") for name in environment)
