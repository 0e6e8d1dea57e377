"""How busy is an engine, and how fast does it answer? Its metrics, in V0 and V1 names, in one set of figures.

Rates and latencies come from two reads where counters moved between them. Names: vLLM `vllm/v1/metrics/loggers.py`
and `docs/design/metrics.md` (V0: `vllm/engine/metrics.py`); SGLang, TGI, TEI, Triton, TensorRT-LLM and Ray in their
own documentation.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from piqc_pipeline.cluster.exposition import Page
from piqc_pipeline.cluster.histograms import Buckets, add_buckets, count, latency, quantile, read_buckets, since
from piqc_pipeline.facts.snapshot import EngineRuntime, Latency, Unknown

Source = Literal["exec", "proxy", "pod-ip", "prometheus", "recorded", "none"]

MIN_WINDOW_SECONDS = 0.5
"""A shorter window makes a rate of counters that move once a step meaningless."""


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
    "nv_inference": Names(running=(), waiting=("nv_inference_pending_request_count",)),
}
"""By a mark in the names of the page; the first that is found counts."""

_MARKS = (
    *(prefix + end for prefix in ("vllm", "ray_vllm", "sglang") for end in ":_"),
    *("tgi_", "te_", "trtllm:", "trtllm_", "nv_inference_", "nv_trt_llm"),
)
_HISTOGRAMS = ("first_token", "per_token", "end_to_end", "prompt_tokens", "generation_tokens")


@dataclass(frozen=True)
class Scrape:
    """Two reads of one engine's metrics, or one.

    Attributes:
        later: The last page that could be read.
        earlier: The page before; None where only one could be read.
        seconds: Between the two reads.
    """

    later: Page
    earlier: Page | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Reading:
    """What one engine said, with the histograms, so that several engines can be added.

    Attributes:
        buckets: By histogram: observations in the window, or since the start where the window has none.
        windowed: Histograms whose observations fell into the window.
        hits: Tokens found in the prefix cache, and tokens asked for; in the window, or since the start.
    """

    runtime: EngineRuntime
    buckets: Mapping[str, Buckets] = field(default_factory=dict)
    windowed: frozenset[str] = frozenset()
    seconds: float | None = None
    hits: tuple[float, float] | None = None


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


def read_scrape(scrape: Scrape, source: Source, where: str) -> Reading | None:
    """What the engine's pages say; None where they hold no sample of an engine.

    Args:
        scrape: The pages.
        source: How they were read.
        where: The pod, for what stays unknown.
    """
    page = scrape.later
    names = names_of(page)
    if names is None:
        return None
    unknown: list[Unknown] = []
    seconds = scrape.seconds if scrape.seconds and scrape.seconds >= MIN_WINDOW_SECONDS else None
    running = _non_negative(page.total(*names.running))
    buckets, windowed = _histograms(scrape, names, seconds)
    hits = _hits(scrape, names)
    generation = _rate(scrape, names.generation_counter, names.generation_gauge, seconds, running, where, unknown)
    prompt = _rate(scrape, names.prompt_counter, names.prompt_gauge, seconds, None, where, [])
    for figure, wanted in (("requests running", names.running), ("KV cache use", names.kv_ratio)):
        if page.get(*wanted) and page.total(*wanted) is None:
            unknown.append(Unknown(f"{figure} of {where}", "the engine says NaN"))
    if page.malformed:
        unknown.append(Unknown(f"some metrics of {where}", f"{page.malformed} lines of its page cannot be read"))
    runtime = EngineRuntime(
        healthy=True,
        source=source,
        served_models=_models(page, names),
        requests_running=running,
        requests_waiting=_non_negative(page.total(*names.waiting)),
        generation_tokens_per_second=generation,
        prompt_tokens_per_second=prompt,
        kv_cache_usage_pct=_percent(page.mean(*names.kv_ratio)),
        prefix_cache_hit_pct=_hit_percent(hits, page, names),
        unknown=tuple(unknown),
    )
    reading = Reading(runtime, buckets, windowed, seconds, hits)
    return replace(reading, runtime=_with_quantiles(runtime, reading))


def add_readings(readings: Sequence[Reading]) -> EngineRuntime:
    """The engines of one workload as one: queues and rates add, cache use is a mean, histograms add by `le`.

    A figure that one of them does not know is unknown in the sum, and said so.
    """
    parts = [reading.runtime for reading in readings]
    healthy = [part.healthy for part in parts if part.healthy is not None]
    answering = [part for part in parts if part.healthy is not False]
    unknown = {entry: None for part in parts for entry in part.unknown}
    buckets: dict[str, Buckets] = {}
    windowed: set[str] = set()
    for name in _HISTOGRAMS:
        inside = [reading for reading in readings if name in reading.windowed]
        chosen = inside or [reading for reading in readings if reading.buckets.get(name)]
        if chosen:
            buckets[name] = add_buckets([reading.buckets[name] for reading in chosen])
            windowed |= {name} if inside else set()
    windows = [reading.seconds for reading in readings if reading.seconds is not None]
    hits = [reading.hits for reading in readings if reading.hits is not None]
    totals = (math.fsum(hit for hit, _ in hits), math.fsum(asked for _, asked in hits)) if hits else None
    ratios = [part.prefix_cache_hit_pct for part in parts if part.prefix_cache_hit_pct is not None]
    cache = [part.kv_cache_usage_pct for part in answering if part.kv_cache_usage_pct is not None]
    sources = {part.source for part in parts if part.source != "none"}
    merged = EngineRuntime(
        healthy=None if not healthy else all(healthy),
        source=sorted(sources)[0] if sources else "none",
        served_models=tuple(sorted({name for part in parts for name in part.served_models})),
        requests_running=_sum(part.requests_running for part in answering),
        requests_waiting=_sum(part.requests_waiting for part in answering),
        generation_tokens_per_second=_sum(part.generation_tokens_per_second for part in answering),
        prompt_tokens_per_second=_sum(part.prompt_tokens_per_second for part in answering),
        kv_cache_usage_pct=math.fsum(cache) / len(cache) if cache else None,
        prefix_cache_hit_pct=100 * totals[0] / totals[1]
        if totals and totals[1] > 0
        else math.fsum(ratios) / len(ratios)
        if ratios
        else None,
        unknown=tuple(unknown),
    )
    whole = Reading(merged, buckets, frozenset(windowed), max(windows, default=None))
    return _with_quantiles(merged, whole)


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return math.fsum(known) if known and len(known) == len(found) else None


def _with_quantiles(runtime: EngineRuntime, reading: Reading) -> EngineRuntime:
    def times(name: str) -> Latency | None:
        window = reading.seconds if name in reading.windowed else None
        return latency(reading.buckets.get(name, {}), window)

    def tokens(name: str, share: float) -> float | None:
        return quantile(reading.buckets.get(name, {}), share)

    return replace(
        runtime,
        time_to_first_token=times("first_token"),
        time_per_output_token=times("per_token"),
        end_to_end=times("end_to_end"),
        prompt_tokens_p50=tokens("prompt_tokens", 0.50),
        prompt_tokens_p95=tokens("prompt_tokens", 0.95),
        generation_tokens_p50=tokens("generation_tokens", 0.50),
        generation_tokens_p95=tokens("generation_tokens", 0.95),
    )


def _histograms(scrape: Scrape, names: Names, seconds: float | None) -> tuple[dict[str, Buckets], frozenset[str]]:
    """Observations of the window where there are any, else since the engine started."""
    found: dict[str, Buckets] = {}
    windowed = set()
    for name in _HISTOGRAMS:
        later = read_buckets(scrape.later, *getattr(names, name))
        if not later:
            continue
        found[name] = later
        if scrape.earlier is None or seconds is None:
            continue
        moved = since(later, read_buckets(scrape.earlier, *getattr(names, name)))
        if moved and count(moved) > 0:
            found[name] = moved
            windowed.add(name)
    return found, frozenset(windowed)


def _rate(
    scrape: Scrape,
    counters: tuple[str, ...],
    gauges: tuple[str, ...],
    seconds: float | None,
    running: float | None,
    where: str,
    unknown: list[Unknown],
) -> float | None:
    """Tokens per second: the engine's own gauge where it has one, else what its counter gained between two reads."""
    if scrape.later.get(*gauges):
        return _non_negative(scrape.later.total(*gauges))
    later = scrape.later.total(*counters)
    if later is None:
        return None
    figure = f"generated tokens per second of {where}"
    if scrape.earlier is None or seconds is None:
        unknown.append(Unknown(figure, "its counter was read once, and a rate needs two reads"))
        return None
    earlier = scrape.earlier.total(*counters)
    if earlier is None or later < earlier:
        unknown.append(Unknown(figure, "its counter began again between two reads"))
        return None
    if later == earlier and running:
        unknown.append(Unknown(figure, f"its counter stood still for {seconds:.1f} s although requests run"))
        return None
    return (later - earlier) / seconds


def _hits(scrape: Scrape, names: Names) -> tuple[float, float] | None:
    """Tokens found in the prefix cache, and asked for: gained between the reads, else since the start."""
    for hit_name, query_name in names.hit_counters:
        hit, asked = scrape.later.total(hit_name), scrape.later.total(query_name)
        if hit is None or asked is None or not 0 <= hit <= asked:
            continue
        if scrape.earlier is not None:
            before = scrape.earlier.total(hit_name), scrape.earlier.total(query_name)
            if before[0] is not None and before[1] is not None and 0 <= hit - before[0] <= asked - before[1] > 0:
                return hit - before[0], asked - before[1]
        return hit, asked
    return None


def _hit_percent(hits: tuple[float, float] | None, page: Page, names: Names) -> float | None:
    if hits is not None:
        return 100 * hits[0] / hits[1] if hits[1] > 0 and hits[0] <= hits[1] else None
    values = page.values(*names.hit_ratio)
    if not values or any(not 0 <= value <= 1 for value in values):
        return None
    return 100 * math.fsum(values) / len(values)


def _percent(ratio: float | None) -> float | None:
    return 100 * ratio if ratio is not None and 0 <= ratio <= 1 else None


def _non_negative(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None


def _models(page: Page, names: Names) -> tuple[str, ...]:
    found = set()
    for metric in (*names.running, *names.waiting, "nv_inference_request_success", "nv_inference_count"):
        for sample in page.samples.get(metric, ()):
            name = sample.labels.get("model_name") or sample.labels.get("model")
            if name:
                found.add(name[:200])
    return tuple(sorted(found))
