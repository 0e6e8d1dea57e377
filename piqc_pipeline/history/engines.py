"""What do the engines of a pod tell together? Each server once, whatever names it goes by; all servers added up.

A page may hold the metrics of two engines for the same requests (TGIS on vLLM), and a collector may pass on what is
scraped directly, too, under names without colons. Queries stand in `questions`, the names in `signals`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from piqc_pipeline.history.points import EngineSamples, Numbering, Points, Samples
from piqc_pipeline.history.signals import ENGINE_FAMILIES

Pod = tuple[str, str]
"""Workload and pod."""
Told = tuple[Pod, str, str]
"""Pod, endpoint and family of a series."""
_ORDER = list(ENGINE_FAMILIES)


def of_pods(figures: Mapping[str, Sequence[EngineSamples]], buckets: int) -> dict[str, Samples]:
    """One series a pod of every figure.

    Of an endpoint the family counts that has most points, of an engine in a pod the spelling that has most; of equals
    the first of `ENGINE_FAMILIES`. A figure that this family lacks comes from the next one of the endpoint.

    Args:
        figures: What endpoints tell, each family by itself.
        buckets: Of the window.
    """
    ranks = _ranks([own for told in figures.values() for own in told])
    return {figure: _added(told, ranks, buckets) for figure, told in figures.items()}


def _ranks(samples: Sequence[EngineSamples]) -> dict[Told, tuple[int, int]]:
    """How good each family of an endpoint is, the lowest best; the lesser spellings of an engine in a pod have none."""
    known, spelled = Counter[Told](), defaultdict[tuple[Pod, str], Counter[str]](Counter)
    for own in samples:
        counts = np.bincount(own.points.series, minlength=len(own.pods)).tolist()
        for told, count in zip(_keys(own), counts, strict=True):
            known[told] += count
            spelled[told[0], ENGINE_FAMILIES[own.family]][own.family] += count

    def rank(family: str, count: int) -> tuple[int, int]:
        return -count, _ORDER.index(family)

    best = {key: min(counts, key=lambda family: rank(family, counts[family])) for key, counts in spelled.items()}
    kept = {(pod, family) for (pod, _), family in best.items()}
    return {told: rank(told[2], count) for told, count in known.items() if (told[0], told[2]) in kept}


def _added(told: Sequence[EngineSamples], ranks: Mapping[Told, tuple[int, int]], buckets: int) -> Samples:
    """The points of every endpoint's best family, whoever tells them twice, added up over the endpoints of a pod."""
    keys = [_keys(own) for own in told]
    chosen: dict[tuple[Pod, str], Told] = {}
    for own, names in zip(told, keys, strict=True):
        for key in (names[number] for number in np.unique(own.points.series)):
            if key in ranks:
                chosen[key[:2]] = min(chosen.get(key[:2], key), key, key=ranks.__getitem__)
    endpoints, pods = Numbering(chosen), list(dict.fromkeys(pod for pod, _ in chosen))
    values = np.full(len(chosen) * buckets, np.nan)
    for own, names in zip(told, keys, strict=True):
        counts = np.array([chosen.get(key[:2]) == key for key in names], dtype=bool)
        points = own.points.at(counts[own.points.series])
        cells = endpoints.of(key[:2] for key in names)[points.series] * buckets + points.buckets
        np.fmax.at(values, cells, points.values)
    known = np.flatnonzero(~np.isnan(values))
    cells = Numbering(pods).of(pod for pod, _ in chosen)[known // buckets] * buckets + known % buckets
    held, entry = np.unique(cells, return_inverse=True)
    sums = np.zeros(len(held))
    np.add.at(sums, entry, values[known])
    return Samples(Points(held // buckets, held % buckets, sums), [name for name, _ in pods], [pod for _, pod in pods])


def _keys(own: EngineSamples) -> list[Told]:
    pods = zip(own.workloads, own.pods, strict=True)
    return [(pod, endpoint, own.family) for pod, endpoint in zip(pods, own.endpoints, strict=True)]
