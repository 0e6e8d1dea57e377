"""By which names does each engine export its figures?

vLLM: `vllm/v1/metrics/loggers.py` and `docs/design/metrics.md` (V0: `vllm/engine/metrics.py`); SGLang, TGI, TEI,
Triton, TensorRT-LLM and Ray: their own documentation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from piqc_pipeline.cluster.exposition import Page, Sample
from piqc_pipeline.prometheus.labels import SAME_REQUESTS

HISTOGRAMS = ("first_token", "per_token", "end_to_end", "prompt_tokens", "generation_tokens", "batch")
"""Fields of `Names` that are histograms."""
TIMES = ("first_token", "per_token", "end_to_end")
"""Those in seconds."""


@dataclass(frozen=True)
class Names:
    """Metric names of one engine, newest first. An empty tuple: the engine does not tell."""

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    generation_counter: tuple[str, ...] = ()
    prompt_counter: tuple[str, ...] = ()
    generation_gauge: tuple[str, ...] = ()
    prompt_gauge: tuple[str, ...] = ()
    kv_ratio: tuple[str, ...] = ()
    hit_counters: tuple[tuple[str, str], ...] = ()
    hit_ratio: tuple[str, ...] = ()
    first_token: tuple[str, ...] = ()
    per_token: tuple[str, ...] = ()
    end_to_end: tuple[str, ...] = ()
    prompt_tokens: tuple[str, ...] = ()
    generation_tokens: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()
    mean_counters: tuple[str, str, float] | None = None
    """Counters of time in requests and of requests, for engines without a histogram; seconds of one unit."""

    def series(self) -> set[str]:
        """Every series that the figures are made of."""
        pairs = {name for pair in self.hit_counters for name in pair} | set((self.mean_counters or ())[:2])
        plain = (self.running, self.waiting, self.generation_counter, self.prompt_counter, self.generation_gauge,
                 self.prompt_gauge, self.kv_ratio, self.hit_ratio)  # fmt: skip
        whole = {name for field in HISTOGRAMS for name in getattr(self, field)}
        parts = {f"{name}_{end}" for name in whole for end in ("bucket", "sum", "count")}
        return {*pairs, *parts, *(name.partition("/")[0] for names in plain for name in names)}


def _prefixed(prefixes: Sequence[str], *names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names for prefix in prefixes)


def _vllm(*prefixes: str) -> Names:
    def named(*names: str) -> tuple[str, ...]:
        return _prefixed(prefixes, *names)

    return Names(
        running=named("num_requests_running"),
        waiting=named("num_requests_waiting"),
        generation_counter=named("generation_tokens_total", "generation_tokens"),
        prompt_counter=named("prompt_tokens_total", "prompt_tokens"),
        generation_gauge=named("avg_generation_throughput_toks_per_s"),
        prompt_gauge=named("avg_prompt_throughput_toks_per_s"),
        kv_ratio=named("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        hit_counters=tuple(
            (f"{prefix}{kind}prefix_cache_hits{end}", f"{prefix}{kind}prefix_cache_queries{end}")
            for kind in ("", "gpu_")
            for end in ("_total", "")
            for prefix in prefixes
        ),
        hit_ratio=named("gpu_prefix_cache_hit_rate"),
        first_token=named("time_to_first_token_seconds"),
        per_token=named(
            "request_time_per_output_token_seconds", "time_per_output_token_seconds", "inter_token_latency_seconds"
        ),
        end_to_end=named("e2e_request_latency_seconds"),
        prompt_tokens=named("request_prompt_tokens"),
        generation_tokens=named("request_generation_tokens"),
    )


def _sglang(*prefixes: str) -> Names:
    def named(*names: str) -> tuple[str, ...]:
        return _prefixed(prefixes, *names)

    return Names(
        running=named("num_running_reqs"),
        waiting=named("num_queue_reqs"),
        generation_counter=named("generation_tokens_total"),
        prompt_counter=named("prompt_tokens_total"),
        generation_gauge=named("gen_throughput"),
        kv_ratio=named("token_usage"),
        hit_ratio=named("cache_hit_rate"),
        first_token=named("time_to_first_token_seconds"),
        per_token=named("time_per_output_token_seconds", "inter_token_latency_seconds"),
        end_to_end=named("e2e_request_latency_seconds"),
        prompt_tokens=named("prompt_tokens_histogram"),
        generation_tokens=named("generation_tokens_histogram"),
    )


NAMES: dict[str, Names] = {
    "vllm:": _vllm("vllm:", "vllm_"),
    "ray_vllm": _vllm("ray_vllm:", "ray_vllm_"),
    "sglang": _sglang("sglang:", "sglang_"),
    "tgi_": Names(
        running=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
        generation_counter=("tgi_request_generated_tokens_sum",),
        prompt_counter=("tgi_request_input_length_sum",),
        per_token=("tgi_request_mean_time_per_token_duration",),
        end_to_end=("tgi_request_duration",),
        prompt_tokens=("tgi_request_input_length",),
        generation_tokens=("tgi_request_generated_tokens",),
        batch=("tgi_batch_next_size",),
    ),
    "te_": Names(running=(), waiting=("te_queue_size",), end_to_end=("te_request_duration",)),
    "trtllm": Names(
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        kv_ratio=("trtllm_kv_cache_utilization",),
        hit_ratio=("trtllm_kv_cache_hit_rate",),
        first_token=("trtllm_time_to_first_token_seconds",),
        per_token=("trtllm_time_per_output_token_seconds",),
        end_to_end=("trtllm_e2e_request_latency_seconds",),
    ),
    "nim": Names(
        running=("num_requests_running",),
        waiting=("num_requests_waiting",),
        generation_counter=("generation_tokens_total",),
        prompt_counter=("prompt_tokens_total",),
        kv_ratio=("gpu_cache_usage_perc",),
        first_token=("time_to_first_token_seconds",),
        per_token=("time_per_output_token_seconds",),
        end_to_end=("e2e_request_latency_seconds",),
        prompt_tokens=("request_prompt_tokens",),
        generation_tokens=("request_generation_tokens",),
    ),
    "nv_trt_llm": Names(
        running=("nv_trt_llm_request_metrics/scheduled",),
        waiting=("nv_trt_llm_request_metrics/waiting",),
        kv_ratio=("nv_trt_llm_kv_cache_block_metrics/fraction",),
        mean_counters=("nv_inference_request_duration_us", "nv_inference_request_success", 1e-6),
    ),
    "nv_inference": Names(
        running=(),
        waiting=("nv_inference_pending_request_count",),
        mean_counters=("nv_inference_request_duration_us", "nv_inference_request_success", 1e-6),
    ),
}
"""By a mark in the names of the page; the first that is found counts."""

_MARKS = (
    *(prefix + end for prefix in ("vllm", "ray_vllm", "sglang") for end in ":_"),
    *("tgi_", "te_", "trtllm:", "trtllm_", "nv_inference_", "nv_trt_llm"),
)


_FIGURE_LABELS = {
    "nv_trt_llm_request_metrics": "request_type",
    "nv_trt_llm_kv_cache_block_metrics": "kv_cache_block_type",
}
"""Metrics of Triton's TensorRT-LLM backend that hold several figures, told apart by a label."""


def figures_of(page: Page) -> Page:
    """The page with each figure once: several in one metric are named apart, those of one request's ranks are one."""
    return _ranks_as_one(_named_apart(page))


def _ranks_as_one(page: Page) -> Page:
    """Of SGLang's ranks that export the same requests the largest figure counts."""
    merged = {}
    for name, samples in page.samples.items():
        if name.startswith("sglang") and len(samples) > 1 and any("tp_rank" in sample.labels for sample in samples):
            largest: dict[frozenset[tuple[str, str]], Sample] = {}
            for sample in sorted(samples, key=lambda one: (one.usable, one.value if one.usable else 0)):
                largest[frozenset(item for item in sample.labels.items() if item[0] not in SAME_REQUESTS)] = sample
            merged[name] = list(largest.values())
    return Page({**page.samples, **merged}, page.malformed) if merged else page


def _named_apart(page: Page) -> Page:
    """The page with `metric/figure` beside each metric that holds several figures."""
    added: dict[str, list[Sample]] = {}
    for name, label in _FIGURE_LABELS.items():
        for sample in page.samples.get(name, ()):
            if figure := sample.labels.get(label):
                added.setdefault(f"{name}/{figure}", []).append(sample)
    return Page({**page.samples, **added}, page.malformed) if added else page


def names_of(page: Page) -> Names | None:
    """The engine's names that the page uses; None where it has no engine's metrics."""
    for mark, names in NAMES.items():
        if mark == "nim":
            if "num_requests_running" in page.samples:
                return names
        elif any(name.startswith(mark) for name in page.samples):
            return names
    return None


def metric_prefixes(page: Page) -> tuple[str, ...]:
    """Prefixes of signatures that the page's names begin with."""
    return tuple(mark for mark in _MARKS if any(name.startswith(mark) for name in page.samples))
