"""How busy were a workload's accelerators, and how many should have shown? Arithmetic on points, no frames.

A cell is a bucket of a workload; its number is the workload's times the buckets of the window plus the bucket's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.history.points import DaySamples, DeviceSamples, Entries, Numbering, Numbers, Points, Samples

MIN_SIGNAL_SHARE = 0.8
"""A better signal is taken when it has at least this share of the points of the most complete one."""
SILENT_ZERO_CHECK = 0.05
"""A signal that is zero all day while another one means more than this share is dead, not idle (dcgm-exporter #662)."""
HALF = 0.5
"""A pod counts in a bucket in which it was ready at least half of the time."""


@dataclass(frozen=True)
class DevicePoints(Entries):
    """One entry a device and bucket: numbers of workload, pod, device and bucket, and what was seen there."""

    workloads: Numbers
    pods: Numbers
    devices: Numbers
    buckets: Numbers
    values: NDArray[np.float64]
    gpus: NDArray[np.float64]
    seen: Numbers
    expected: Numbers


@dataclass(frozen=True)
class ReadyDevices:
    """Devices of ready pods by the best signal of their workload, and what should have been seen.

    Attributes:
        signals: Position in `DaySamples.devices` of the signal of each workload; -1 where it has none.
        points: What was seen.
        usual: Devices of a usual pod of each workload; 0 where none was seen.
        ready_pods, devices_expected: Of every cell, shape (workloads x buckets,).
    """

    signals: Numbers
    points: DevicePoints
    usual: Numbers
    ready_pods: NDArray[np.int32]
    devices_expected: NDArray[np.int32]


def ready_devices(samples: DaySamples, workloads: Numbering) -> ReadyDevices:
    """Choose signals and count.

    Args:
        samples: What the window holds, with one load signal at least.
        workloads: Numbers of all workloads in it.
    """
    buckets, pods = samples.window.buckets, Numbering()
    signals = chosen_signals(samples.devices, workloads)
    points = _points(samples.devices, signals, workloads, pods)
    unready = _by_pods(samples.unready, samples.unready.points.values < HALF, pods)
    silent = _by_pods(samples.missing, samples.missing.points.values >= HALF, pods)
    if len(unready.series):
        points = points.at(~np.isin(points.pods * buckets + points.buckets, unready.series * buckets + unready.buckets))
    points = _each_once(points, buckets)
    owner = np.zeros(len(pods), dtype=np.int64)
    for own in (*samples.devices, samples.missing, samples.unready):
        owner[pods.of(_names_of_pods(own))] = workloads.of(own.workloads)
    return ReadyDevices(signals, points, *_due(points, silent, unready, owner, (len(workloads), buckets)))


def _due(
    points: DevicePoints, silent: Points, unready: Points, owner: Numbers, cells: tuple[int, int]
) -> tuple[Numbers, NDArray[np.int32], NDArray[np.int32]]:
    """Devices of usual pods, and the ready pods and devices that each cell should show."""
    workloads, buckets = cells
    first, last = np.full(len(owner), buckets), np.full(len(owner), -1)
    np.minimum.at(first, points.pods, points.buckets)
    np.maximum.at(last, points.pods, points.buckets)
    holder = np.full(int(points.devices.max(initial=-1)) + 1, -1)
    holder[points.devices] = points.pods
    size = np.bincount(holder[holder >= 0], minlength=len(owner))
    usual = _usual(owner, size, workloads)

    def within(these: Points) -> NDArray[np.bool_]:
        return (these.buckets >= first[these.series]) & (these.buckets <= last[these.series])

    # A pod is expected from its first to its last sample of the window: those that begin, less those that have ended;
    # and wherever kube-state-metrics calls it ready; but never where that does not.
    more = silent.at(~within(silent) & (usual[owner[silent.series]] > 0))
    less = unready.at(within(unready))
    counts = np.zeros((2, workloads, buckets + 1), dtype=np.int32)
    for count, each, usually in zip(counts, (np.sign(size), size), (np.sign(usual), usual), strict=True):
        np.add.at(count, (owner, first), each)
        np.add.at(count, (owner, last + 1), -each)
        np.cumsum(count, axis=1, out=count)
        np.add.at(count, (owner[more.series], more.buckets), usually[owner[more.series]])
        np.add.at(count, (owner[less.series], less.buckets), -each[less.series])
    return usual, *counts[:, :, :-1].reshape(2, -1)


def chosen_signals(signals: Sequence[DeviceSamples], workloads: Numbering) -> Numbers:
    """Position of the best usable signal of each workload, -1 where it has none.

    Args:
        signals: Best first.
        workloads: Numbers of all workloads.
    """
    owners = [workloads.of(own.workloads)[own.points.series] for own in signals]
    points = np.array([np.bincount(owner, minlength=len(workloads)) for owner in owners])
    sums = np.array(
        [np.bincount(owner, own.points.values, len(workloads)) for owner, own in zip(owners, signals, strict=True)]
    )
    means = sums / np.maximum(points, 1)
    dead = (sums == 0) & (means.max(axis=0) > SILENT_ZERO_CHECK)
    usable = (points > 0) & (points >= MIN_SIGNAL_SHARE * points.max(axis=0)) & ~dead
    return np.where(usable.any(axis=0), usable.argmax(axis=0), -1)


def _points(signals: Sequence[DeviceSamples], chosen: Numbers, workloads: Numbering, pods: Numbering) -> DevicePoints:
    """Points of all signals, each signal for the workloads that it was chosen for."""
    devices, parts = Numbering(), []
    for rank, signal in enumerate(signals):
        keys = zip(signal.workloads, signal.pods, signal.devices, strict=True)
        series = signal.points.series
        points = DevicePoints(
            workloads.of(signal.workloads)[series],
            pods.of(_names_of_pods(signal))[series],
            devices.of(keys)[series],
            signal.points.buckets,
            signal.points.values,
            signal.gpus[series],
            signal.seen,
            signal.expected[series],
        )
        parts.append(points.at(chosen[points.workloads] == rank))
    if len(parts) == 1:
        return parts[0]
    return DevicePoints(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(parts[0])))


def _names_of_pods(samples: Samples) -> Iterable[tuple[str, str]]:
    """What tells a pod from others: a name may come again under another workload."""
    return zip(samples.workloads, samples.pods, strict=True)


def _by_pods(samples: Samples, kept: NDArray[np.bool_], pods: Numbering) -> Points:
    """The kept points, with the numbers of their pods in place of their series."""
    numbers, points = pods.of(_names_of_pods(samples)), samples.points.at(kept)
    return replace(points, series=numbers[points.series])


def _each_once(points: DevicePoints, buckets: int) -> DevicePoints:
    """One entry a device and bucket, where two jobs scrape one exporter, too."""
    keys = points.devices * buckets + points.buckets
    if np.bincount(keys, minlength=1).max() < 2:
        return points
    _, firsts, entry = np.unique(keys, return_index=True, return_inverse=True)
    times, seen, expected = np.bincount(entry), *np.zeros((2, len(firsts)), dtype=np.int64)
    np.maximum.at(seen, entry, points.seen)
    np.maximum.at(expected, entry, points.expected)
    return replace(
        points.at(firsts),
        values=np.bincount(entry, points.values) / times,
        gpus=np.bincount(entry, points.gpus) / times,
        seen=seen,
        expected=expected,
    )


def _usual(owner: Numbers, size: Numbers, workloads: int) -> Numbers:
    """The commonest size of a workload's pods, of equally common ones the largest; 0 where it has none."""
    largest = int(size.max(initial=0))
    frequencies = np.zeros((workloads, largest + 1), dtype=np.int64)
    np.add.at(frequencies, (owner[size > 0], size[size > 0]), 1)
    return np.where(frequencies.any(axis=1), largest - frequencies[:, ::-1].argmax(axis=1), 0)
