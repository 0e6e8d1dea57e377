"""Which latency do 95 of 100 requests stay below? Quantiles of histograms whose series are added by `le` first.

Formula: Prometheus, `histogram_quantile` (promql/quantile.go): linear inside a bucket; in the last, open bucket its
lower bound.
"""

import math
from collections.abc import Mapping, Sequence

from piqc_pipeline.cluster.exposition import LARGEST, Page
from piqc_pipeline.facts.snapshot import Latency

Buckets = dict[float, float]
"""Cumulative counts by upper bound; the open bucket is `inf`."""


def read_buckets(page: Page, *names: str) -> Buckets:
    """Buckets of the first of these histograms that has any, added by `le` over all label sets; empty where none is."""
    for name in names:
        samples = page.samples.get(f"{name}_bucket")
        if not samples:
            continue
        found: Buckets = {}
        for sample in samples:
            bound = _bound(sample.labels.get("le"))
            if bound is None or not sample.usable or sample.value < 0:
                continue
            found[bound] = found.get(bound, 0.0) + sample.value
        return found
    return {}


def add_buckets(parts: Sequence[Mapping[float, float]]) -> Buckets:
    """Histograms added by `le`. Bounds that not all parts have are kept where each part can state its count there."""
    parts = [part for part in parts if part]
    if not parts:
        return {}
    shared = set(parts[0]).intersection(*parts[1:])
    return {bound: math.fsum(part[bound] for part in parts) for bound in sorted(shared)}


def since(later: Mapping[float, float], earlier: Mapping[float, float]) -> Buckets | None:
    """What was observed between two reads; None where a restart in between makes that unknown."""
    found = {bound: count - earlier.get(bound, 0.0) for bound, count in later.items()}
    return None if any(count < 0 for count in found.values()) else found


def count(buckets: Mapping[float, float]) -> float:
    """Observations in all."""
    return buckets.get(math.inf, max(buckets.values(), default=0.0))


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """The value below which `share` (0..1) of all observations lie; None where there is none, or no open bucket."""
    bounds = sorted(buckets)
    if len(bounds) < 2 or bounds[-1] != math.inf or buckets[math.inf] <= 0:
        return None
    rank = share * buckets[math.inf]
    below, reached = 0.0, 0.0
    for bound in bounds:
        at_bound = max(buckets[bound], reached)
        if at_bound >= rank:
            if bound == math.inf:
                return bounds[-2]
            if bound <= 0 or at_bound == reached:
                return bound
            return below + (bound - below) * (rank - reached) / (at_bound - reached)
        below, reached = max(bound, 0.0), at_bound
    return None


def latency(
    buckets: Mapping[float, float], total: tuple[float, float] | None, window_seconds: float | None
) -> Latency | None:
    """P50, P95, P99 and mean in milliseconds; None without observations.

    Args:
        buckets: The histogram, in seconds; empty where the engine has none.
        total: Seconds in all, and how many observations.
        window_seconds: Between which two reads they fell.
    """
    middle, high, highest = (_milliseconds(quantile(buckets, share)) for share in (0.50, 0.95, 0.99))
    mean = _milliseconds(total[0] / total[1]) if total is not None and total[1] > 0 else None
    return None if middle is None and mean is None else Latency(middle, high, highest, window_seconds, mean)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _bound(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        bound = float(text)
    except ValueError:
        return None
    if math.isnan(bound) or bound < -LARGEST:
        return None
    return bound if bound <= LARGEST else math.inf
