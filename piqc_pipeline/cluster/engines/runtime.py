"""How busy is an engine, and how fast does it answer? Its metrics, in V0 and V1 names, in one set of figures.

Rates and latencies come from two reads where counters moved between them. The metrics' names are in `names.py`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from piqc_pipeline.cluster.engines.names import HISTOGRAMS, TIMES, Names, figures_of, names_of
from piqc_pipeline.cluster.exposition import Page
from piqc_pipeline.cluster.histograms import Buckets, add_buckets, count, latency, quantile, read_buckets, since
from piqc_pipeline.facts.snapshot import EngineRuntime, Latency, Subject, Unknown

Source = Literal["exec", "proxy", "pod-ip", "prometheus", "recorded", "none"]

MIN_WINDOW_SECONDS = 0.5
"""A shorter window makes a rate of counters that move once a step meaningless."""


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
        sums: By latency: seconds in all, and how many observations; in the window, or since the start.
        hits: Tokens found in the prefix cache, and tokens asked for; in the window, or since the start.
    """

    runtime: EngineRuntime
    buckets: Mapping[str, Buckets] = field(default_factory=dict)
    windowed: frozenset[str] = frozenset()
    seconds: float | None = None
    sums: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    hits: tuple[float, float] | None = None


def read_scrape(scrape: Scrape, source: Source, where: str) -> Reading | None:
    """What the engine's pages say; None where they hold no sample of an engine.

    Args:
        scrape: The pages.
        source: How they were read.
        where: The pod, for what stays unknown.
    """
    earlier = None if scrape.earlier is None else figures_of(scrape.earlier)
    scrape = replace(scrape, later=figures_of(scrape.later), earlier=earlier)
    page = scrape.later
    names = names_of(page)
    if names is None:
        return None
    unknown: list[Unknown] = []
    seconds = scrape.seconds if scrape.seconds and scrape.seconds >= MIN_WINDOW_SECONDS else None
    running = _gauge(page, names.running, math.inf, f"requests running of {where}", unknown, "requests running")
    waiting = _gauge(page, names.waiting, math.inf, f"requests waiting of {where}", unknown)
    cache = _gauge(page, names.kv_ratio, 1.0, f"KV cache use of {where}", unknown, "cache use")
    buckets, sums, windowed = _histograms(scrape, names, seconds)
    hits = _hits(scrape, names)
    generation = _rate(
        scrape, names.generation_counter, names.generation_gauge, seconds, any(running or ()), where, unknown
    )
    prompt = _rate(scrape, names.prompt_counter, names.prompt_gauge, seconds, False, where, [])
    if page.malformed:
        unknown.append(Unknown(f"some metrics of {where}", f"{page.malformed} lines of its page cannot be read"))
    runtime = EngineRuntime(
        healthy=True,
        source=source,
        served_models=_models(page, names),
        requests_running=None if running is None else math.fsum(running),
        requests_waiting=None if waiting is None else math.fsum(waiting),
        generation_tokens_per_second=generation,
        prompt_tokens_per_second=prompt,
        kv_cache_usage_pct=None if cache is None else 100 * math.fsum(cache) / len(cache),
        prefix_cache_hit_pct=_hit_percent(hits, page, names),
        requests_per_second=_ended_per_second(scrape, names, seconds),
        unknown=tuple(unknown),
    )
    reading = Reading(runtime, buckets, windowed, seconds, sums, hits)
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
    sums: dict[str, tuple[float, float]] = {}
    windowed: set[str] = set()
    for name in HISTOGRAMS:
        inside = [reading for reading in readings if name in reading.windowed]
        windowed |= {name} if inside else set()
        chosen = inside or readings
        if told := [found for reading in chosen if (found := reading.buckets.get(name))]:
            buckets[name] = add_buckets(told)
        if spent := [reading.sums[name] for reading in chosen if name in reading.sums]:
            sums[name] = math.fsum(total for total, _ in spent), math.fsum(seen for _, seen in spent)
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
        requests_per_second=_sum(part.requests_per_second for part in answering),
        unknown=tuple(unknown),
    )
    whole = Reading(merged, buckets, frozenset(windowed), max(windows, default=None), sums)
    return _with_quantiles(merged, whole)


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return math.fsum(known) if known and len(known) == len(found) else None


def _with_quantiles(runtime: EngineRuntime, reading: Reading) -> EngineRuntime:
    def times(name: str) -> Latency | None:
        window = reading.seconds if name in reading.windowed else None
        return latency(reading.buckets.get(name, {}), reading.sums.get(name), window)

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
        batch_p95=tokens("batch", 0.95),
    )


def _histograms(
    scrape: Scrape, names: Names, seconds: float | None
) -> tuple[dict[str, Buckets], dict[str, tuple[float, float]], frozenset[str]]:
    """Observations and their sums: of the window where there are any, else since the engine started."""
    found: dict[str, Buckets] = {}
    sums: dict[str, tuple[float, float]] = {}
    windowed = set()
    earlier = scrape.earlier if seconds is not None else None
    for name in HISTOGRAMS:
        metric = _metric(scrape.later, getattr(names, name))
        later = read_buckets(scrape.later, *metric)
        if later:
            found[name] = later
            moved = since(later, read_buckets(earlier, *metric)) if earlier is not None else None
            if moved and count(moved) > 0:
                found[name] = moved
                windowed.add(name)
        totals = _totals(scrape.later, names, name, metric)
        if totals is not None:
            before = _totals(earlier, names, name, metric) if earlier is not None else None
            gained = _gained(totals, before)
            if gained is not None and not later:
                windowed.add(name)
            sums[name] = gained if gained is not None and name in windowed else totals
    return found, sums, frozenset(windowed)


def _metric(page: Page, names: tuple[str, ...]) -> tuple[str, ...]:
    """The first of these histograms that the page has."""
    return tuple(name for name in names if page.samples.get(f"{name}_bucket") or page.samples.get(f"{name}_sum"))[:1]


def _totals(page: Page, names: Names, name: str, metric: tuple[str, ...]) -> tuple[float, float] | None:
    """Seconds in all, and how many observations, since the engine started."""
    if name not in TIMES:
        return None
    if name == "end_to_end" and names.mean_counters is not None:
        time_name, count_name, unit = names.mean_counters
        spent, seen = page.total(time_name), page.total(count_name)
        return (spent * unit, seen) if spent is not None and seen and spent >= 0 < seen else None
    if not metric:
        return None
    spent, seen = page.total(f"{metric[0]}_sum"), page.total(f"{metric[0]}_count")
    return (spent, seen) if spent is not None and seen and spent >= 0 < seen else None


def _gained(later: tuple[float, float], earlier: tuple[float, float] | None) -> tuple[float, float] | None:
    """What came to both between two reads; None where nothing did, or the engine began again."""
    if earlier is None or later[1] <= earlier[1] or later[0] < earlier[0]:
        return None
    return later[0] - earlier[0], later[1] - earlier[1]


def _ended_per_second(scrape: Scrape, names: Names, seconds: float | None) -> float | None:
    """Requests that ended between the two reads, per second; None where none did: that tells no rate."""
    if scrape.earlier is None or seconds is None:
        return None
    metric = _metric(scrape.later, names.end_to_end)
    counter = names.mean_counters[1] if names.mean_counters else f"{metric[0]}_count" if metric else ""
    later, earlier = scrape.later.total(counter), scrape.earlier.total(counter)
    return None if later is None or earlier is None or later <= earlier else (later - earlier) / seconds


def _rate(
    scrape: Scrape,
    counters: tuple[str, ...],
    gauges: tuple[str, ...],
    seconds: float | None,
    running: bool,
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
        unknown.append(Unknown(figure, "its counter was read once, and a rate needs two reads", about="tokens"))
        return None
    earlier = scrape.earlier.total(*counters)
    if earlier is None or later < earlier:
        unknown.append(Unknown(figure, "its counter began again between two reads", about="tokens"))
        return None
    if later == earlier and running:
        unknown.append(
            Unknown(figure, f"its counter stood still for {seconds:.1f} s although requests run", about="tokens")
        )
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


def _gauge(
    page: Page, names: tuple[str, ...], most: float, what: str, unknown: list[Unknown], about: Subject | None = None
) -> list[float] | None:
    """A gauge of every rank and model; None where there is none, or where one says what cannot be, which is told."""
    values = [sample.value for sample in page.get(*names)]
    odd = next((value for value in values if not (0 <= value <= most and math.isfinite(value))), None)
    if odd is not None:
        unknown.append(Unknown(what, f"the engine says {'NaN' if math.isnan(odd) else f'{odd:g}'}", about=about))
    return values if values and odd is None else None


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
