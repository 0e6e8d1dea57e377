"""How do the samples of a window lie in memory? Points end to end, each with the numbers of its series and bucket.

Whose they are and what they mean is said by series, because 288,000 points of a day share a thousand of them.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.history.signals import DeviceSignal

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """Buckets of equal width, one after the other: at most a day of them.

    Attributes:
        start: Where the first bucket begins.
        bucket_seconds: Width of a bucket.
        buckets: How many there are.
    """

    start: datetime
    bucket_seconds: int
    buckets: int

    @property
    def end(self) -> datetime:
        """Where the last bucket ends."""
        return self.start + timedelta(seconds=self.bucket_seconds * self.buckets)

    @property
    def seconds(self) -> int:
        """Length of the window."""
        return self.bucket_seconds * self.buckets


@dataclass(frozen=True)
class Entries:
    """Arrays of one length, an entry at each position of all."""

    def at(self, kept: NDArray[Any]) -> Self:
        """Those at these positions, or for which it is true."""
        if kept.dtype == np.bool_ and kept.all():
            return self
        return type(self)(*(getattr(self, field.name)[kept] for field in fields(self)))


@dataclass(frozen=True)
class Points(Entries):
    """Values in some buckets, all arrays of shape (points,).

    Attributes:
        series: Number of the series that a point belongs to.
        buckets: Number of its bucket, from 0.
        values: Its value.
    """

    series: Numbers
    buckets: Numbers
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """A figure of pods, or of workloads themselves.

    Attributes:
        points: Finite.
        workloads: Id of the workload of each series.
        pods: `namespace/name` of the pod of each series; empty where the workload itself is meant.
    """

    points: Points
    workloads: list[str]
    pods: list[str]


@dataclass(frozen=True)
class DeviceSamples(Samples):
    """A load signal of accelerators, as shares from 0 to about 1.

    Attributes:
        signal: Which.
        devices: Key of the device of each series.
        gpus: How much of a physical GPU the device of each series is.
        expected: Samples that a bucket of each series should have.
        seen: Samples that the bucket of each point has, shape (points,).
    """

    signal: DeviceSignal
    devices: list[str]
    gpus: NDArray[np.float64]
    expected: Numbers
    seen: Numbers


@dataclass(frozen=True)
class EngineSamples(Samples):
    """A figure of engines' endpoints, as the metrics of one family tell it.

    Attributes:
        family: Prefix of the metrics, of `signals.ENGINE_FAMILIES`.
        endpoints: Address and port of the endpoint of each series; empty where no label tells it.
    """

    family: str
    endpoints: list[str]


@dataclass(frozen=True)
class DaySamples:
    """What one window holds.

    Attributes:
        window: Its buckets.
        devices: One entry a load signal, best first.
        missing: Readiness (share of the bucket) of pods that hold accelerators, are ready, and have no device sample.
        unready: Readiness of pods that were ready in a part of the bucket only.
        wanted: Replicas of the owners' specs.
        engines: Figures of engines' pods by the names of `signals.ENGINE_GAUGES` and `ENGINE_COUNTERS`.
    """

    window: Window
    devices: list[DeviceSamples]
    missing: Samples
    unready: Samples
    wanted: Samples
    engines: dict[str, Samples]

    def all(self) -> list[Samples]:
        """Every figure."""
        return [*self.devices, self.missing, self.unready, self.wanted, *self.engines.values()]


class Numbering:
    """A number for every name, counted from 0 in the order of their first use."""

    def __init__(self, names: Iterable[Hashable] = ()) -> None:
        """Number some at once."""
        self._numbers: dict[Hashable, int] = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def __len__(self) -> int:
        """How many names there are."""
        return len(self._numbers)

    def of(self, names: Iterable[Hashable]) -> Numbers:
        """Their numbers; names that are new get the next ones."""
        return np.fromiter((self._numbers.setdefault(name, len(self._numbers)) for name in names), dtype=np.int64)
