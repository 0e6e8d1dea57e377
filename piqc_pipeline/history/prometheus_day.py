"""Whose is what Prometheus answers about a window, and how much of it can be believed? From series to samples of pods.

Queries stand in `questions`, the meaning of labels in `attribution`, sums over pods in `devices` and `rows`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.history.attribution import Owners, PodName, device, gpus_of_device, holder, is_placeholder
from piqc_pipeline.history.doubts import Doubt
from piqc_pipeline.history.engines import of_pods
from piqc_pipeline.history.points import (
    DaySamples,
    DeviceSamples,
    EngineSamples,
    Numbering,
    Numbers,
    Points,
    Samples,
    Window,
)
from piqc_pipeline.history.questions import Answer, DayQuestions
from piqc_pipeline.history.signals import OVERSHOOT, DeviceSignal
from piqc_pipeline.prometheus.answers import Matrix, joined

MAX_REREAD_SERIES = 50
KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet", "replicaset": "ReplicaSet", "job_name": "Job"}
"""Kinds by the label in which kube-state-metrics names their objects."""

Labels = dict[str, str]
Owned = tuple[str, str]
"""Workload and pod of a series; no pod where the workload itself is meant."""
Whose = Callable[[Labels], Owned | None]


class PrometheusDay:
    """Reads the answers about one window of at most a day; what is doubtful is kept in `doubts`."""

    def __init__(self, asked: DayQuestions, window: Window) -> None:
        """Nothing is read yet.

        Args:
            asked: The questions.
            window: What they are about.
        """
        self._asked, self._window = asked, window
        self.doubts: list[Doubt] = []

    def owners(self) -> tuple[dict[PodName, tuple[str, str]], dict[tuple[str, str, str], tuple[str, str]]]:
        """Owners of pods, ReplicaSets and Jobs during the window, where kube-state-metrics is scraped."""
        pods: dict[PodName, tuple[str, str]] = {}
        controllers: dict[tuple[str, str, str], tuple[str, str]] = {}
        for labels in (labels for answer in self._asked.owners for labels in self._read(answer).labels):
            if labels.get("owner_kind") in (None, "", "<none>"):
                continue
            owner, owned = (labels["owner_kind"], labels["owner_name"]), _named(labels)
            if owned:
                controllers[_space(labels), *owned] = owner
            else:
                pods[_space(labels), labels.get("exported_pod") or labels.get("pod", "")] = owner
        return pods, controllers

    def samples(self, owners: Owners) -> DaySamples:
        """Device samples of every signal there is, and what engines and kube-state-metrics say beside."""

        def of_pod(labels: Labels) -> Owned | None:
            pod = holder(labels)
            workload = owners.workload(pod) if pod else None
            return (workload, f"{pod[0]}/{pod[1]}") if pod and workload else None

        def of_spec(labels: Labels) -> Owned | None:
            named = _named(labels)
            workload = owners.named(_space(labels), *named) if named else None
            return (workload, "") if workload else None

        asked = self._asked
        usual = {signal.name: self._usual_count(signal.name) for signal in asked.signals}
        short = {name: asked.short_counts(name, count) for name, count in usual.items()}
        return DaySamples(
            window=self._window,
            devices=[self._devices(each, of_pod, usual[each.name], short[each.name]) for each in asked.signals],
            missing=self._samples(asked.missing, of_pod),
            unready=self._samples(asked.unready, of_pod),
            wanted=self._samples(asked.wanted, of_spec),
            engines=of_pods(
                {
                    figure: [self._endpoints(family, answer, of_pod) for family, answer in answers.items()]
                    for figure, answers in asked.engines.items()
                },
                self._window.buckets,
            ),
        )

    def _usual_count(self, name: str) -> int:
        """The commonest number of samples in a bucket: of one every two hours, or of all where those are empty."""
        counts = self._read(self._asked.sparse_counts[name]).values
        if not len(counts):
            counts = self._read(self._asked.counts(name)).values
        if not len(counts):
            return 1
        values, frequencies = np.unique(counts.astype(np.int64), return_counts=True)
        return int(values[np.argmax(frequencies)])

    def _samples(self, answers: Sequence[Answer], whose: Whose) -> Samples:
        return self._labeled(answers, whose)[0]

    def _endpoints(self, family: str, answer: Answer, whose: Whose) -> EngineSamples:
        samples, labels = self._labeled([answer], whose)
        endpoints = [each.get("exported_instance") or each.get("instance", "") for each in labels]
        return EngineSamples(samples.points, samples.workloads, samples.pods, family, endpoints)

    def _labeled(self, answers: Sequence[Answer], whose: Whose) -> tuple[Samples, list[Labels]]:
        """What is somebody's and finite, with the labels of its series."""
        labels, points = self._points(answers)
        owned = [whose(each) for each in labels]
        points = _of_series(points.at(np.isfinite(points.values)), [owner is not None for owner in owned])
        samples = Samples(points, [owner[0] for owner in owned if owner], [owner[1] for owner in owned if owner])
        return samples, [each for each, owner in zip(labels, owned, strict=True) if owner]

    def _devices(self, signal: DeviceSignal, whose: Whose, usual: int, short: Answer) -> DeviceSamples:
        """Mean of every device and bucket as a share, with the number of samples seen and expected."""
        labels, points = self._points([self._asked.loads[signal.name]])
        scale = self._full_scale(signal, points.values)
        owned = [whose(each) for each in labels]
        self._tell_unattributed(labels, owned)
        points = _of_series(points, [owner is not None for owner in owned])
        labels = [each for each, owner in zip(labels, owned, strict=True) if owner]
        expected, counts = self._counts(labels, points, usual, short)
        points = self._without_sentinels(signal.name, scale, labels, replace(points, values=points.values / scale))
        seen = expected[points.series]
        if len(counts.values):
            _, here, there = np.intersect1d(self._moments(points), self._moments(counts), return_indices=True)
            seen[here] = counts.values[there]
        return DeviceSamples(
            points=points,
            workloads=[owner[0] for owner in owned if owner],
            pods=[owner[1] for owner in owned if owner],
            signal=signal,
            devices=[device(each) for each in labels],
            gpus=np.array([gpus_of_device(each) for each in labels]),
            expected=expected,
            seen=seen,
        )

    def _full_scale(self, signal: DeviceSignal, values: NDArray[np.float64]) -> float:
        """What means 100 %: 100 where many values are above a ratio's scale and none far above, not a few sentinels."""
        if signal.full_scale > 1:
            return signal.full_scale
        above = (values > OVERSHOOT) & (values <= 100 * OVERSHOOT)
        if above.sum() <= 0.01 * len(values):
            return signal.full_scale
        says = f"{signal.name} comes in percent here although its exporter writes ratios: divided by 100"
        self.doubts.append(Doubt(says))
        return 100.0

    def _counts(self, labels: list[Labels], points: Points, usual: int, short: Answer) -> tuple[Numbers, Points]:
        """The number of samples to expect of each series, and the counts of the buckets that have fewer than usual."""
        of_short, counts = self._points([short])
        series = Numbering(map(_key, labels)).of(map(_key, of_short))[counts.series]
        counts = replace(counts, series=series).at(series < len(labels))
        most = np.zeros(len(labels), dtype=np.int64)
        np.maximum.at(most, counts.series, counts.values.astype(np.int64))
        # A series that is short in every bucket is scraped less often: its own best bucket is what to expect.
        buckets, all_buckets = (np.bincount(each.series, minlength=len(labels)) for each in (counts, points))
        return np.where((buckets > 0) & (buckets >= all_buckets), most, usual), counts

    def _without_sentinels(self, name: str, scale: float, labels: list[Labels], points: Points) -> Points:
        """Drop impossible shares; a bucket that a sentinel spoilt is averaged again from its raw samples."""
        possible = _possible(points.values)
        if possible.all():
            return points
        spoilt = points.at(~possible)
        series = np.unique(spoilt.series)
        says = f"{name}: {{count}} buckets of {{number}} devices hold impossible values, dropped"
        self.doubts.append(Doubt(says, len(spoilt.values), frozenset(device(labels[number]) for number in series)))
        parts = [points.at(possible)]
        asked = {number: self._asked.samples(name, dict(_key(labels[number]))) for number in series[:MAX_REREAD_SERIES]}
        for number, answer in asked.items():
            raw = self._read(answer)
            buckets = (raw.times - self._window.start.timestamp()) // self._window.bucket_seconds
            wanted = np.isin(buckets, spoilt.buckets[spoilt.series == number]) & _possible(raw.values / scale)
            again, entry = np.unique(buckets[wanted], return_inverse=True)
            means = np.bincount(entry, raw.values[wanted] / scale) / np.bincount(entry)
            parts.append(Points(np.full(len(again), number), again.astype(np.int64), means))
        return Points(
            np.concatenate([part.series for part in parts]),
            np.concatenate([part.buckets for part in parts]),
            np.concatenate([part.values for part in parts]),
        )

    def _tell_unattributed(self, labels: list[Labels], owned: list[Owned | None]) -> None:
        placeholders = frozenset(device(each) for each in labels if is_placeholder(each))
        if placeholders:
            says = "{number} accelerators belong to a fractional scheduler's reservation: not attributable"
            self.doubts.append(Doubt(says, names=placeholders))
        lost = {holder(each) for each, owner in zip(labels, owned, strict=True) if not owner}
        names = frozenset("/".join(pod) for pod in lost if pod)
        if names:
            says = "{number} pods belong to no known workload and are left out: {names}"
            self.doubts.append(Doubt(says, names=names))

    def _points(self, answers: Sequence[Answer]) -> tuple[list[Labels], Points]:
        """Labels of each series and where its points lie; what came in parts or from several metrics is one series."""
        matrix = joined(*(self._read(answer) for answer in answers))
        numbers = Numbering().of(map(_key, matrix.labels))
        labels = list(dict(zip(numbers.tolist(), matrix.labels, strict=True)).values())
        width = self._window.bucket_seconds
        buckets = np.rint((matrix.times - (self._window.start.timestamp() + width - 0.001)) / width)
        within = (buckets >= 0) & (buckets < self._window.buckets)
        numbered = np.where(within, buckets, 0).astype(np.int64)
        return labels, Points(np.repeat(numbers, matrix.lengths), numbered, matrix.values).at(within)

    def _moments(self, points: Points) -> Numbers:
        return points.series * self._window.buckets + points.buckets

    def _read(self, answer: Answer) -> Matrix:
        matrix = answer.result()
        self.doubts += [Doubt(f"Prometheus warns: {text}") for text in matrix.warnings]
        return matrix


def _of_series(points: Points, kept: Sequence[bool]) -> Points:
    """The points of the kept series, which are numbered anew."""
    known = np.array(kept, dtype=bool)
    if known.all():
        return points
    points = points.at(known[points.series])
    return replace(points, series=(np.cumsum(known) - 1)[points.series])


def _possible(shares: NDArray[np.float64]) -> NDArray[np.bool_]:
    return (shares >= 0) & (shares <= OVERSHOOT)


def _key(labels: Labels) -> frozenset[tuple[str, str]]:
    """What makes a series the same in the answers to two questions."""
    return frozenset(item for item in labels.items() if item[0] != "__name__")


def _named(labels: Labels) -> tuple[str, str] | None:
    """Kind and name of the object that is no pod."""
    return next(((kind, labels[label]) for label, kind in KINDS.items() if label in labels), None)


def _space(labels: Labels) -> str:
    return labels.get("exported_namespace") or labels.get("namespace", "")
