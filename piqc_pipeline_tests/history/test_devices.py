from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piqc_pipeline.history.devices import chosen_signals, ready_devices
from piqc_pipeline.history.points import DaySamples, Numbering
from piqc_pipeline.history.signals import DEVICE_SIGNALS
from piqc_pipeline_tests.history.points import Told, day, of_devices, of_pods

BUCKETS = 12
SM_ACTIVE, GR_ENGINE, GPU_UTIL = DEVICE_SIGNALS[:3]
ALL_DAY = [("w-0", bucket, 0.5) for bucket in range(10)]
IDLE = [("w-0", bucket, 0.0) for bucket in range(10)]


@pytest.mark.parametrize(
    ("better", "worse", "chosen"),
    [
        (ALL_DAY, ALL_DAY, 0),
        (ALL_DAY[:8], ALL_DAY, 0),
        (ALL_DAY[:7], ALL_DAY, 1),
        (IDLE, ALL_DAY, 1),
        (IDLE, [(pod, bucket, 0.04) for pod, bucket, _ in ALL_DAY], 0),
        (IDLE, ALL_DAY[:7], -1),
        ([], [], -1),
    ],
    ids=["the better one", "with 80 % of the points", "with less", "dead", "idle", "dead, the other too thin", "none"],
)
def test_the_best_usable_signal_is_chosen(better: list[Told], worse: list[Told], chosen: int) -> None:
    signals = [of_devices(*better, signal=SM_ACTIVE), of_devices(*worse, signal=GPU_UTIL)]
    assert chosen_signals(signals, Numbering(["w"])).tolist() == [chosen]


def test_each_workload_has_its_own_signal() -> None:
    signals = [
        of_devices(*IDLE, ("v-0", 0, 0.5), signal=GR_ENGINE),
        of_devices(*ALL_DAY, ("v-0", 0, 0.4), signal=GPU_UTIL),
    ]
    samples = day(*signals)
    got = ready_devices(samples, Numbering(["v", "w"]))
    assert got.signals.tolist() == [0, 1]
    assert got.points.values[got.points.workloads == 0].tolist() == [0.5]
    assert got.points.values[got.points.workloads == 1].tolist() == [0.5] * 10


def test_a_device_that_two_jobs_scrape_counts_once_with_the_fuller_of_both() -> None:
    twice = of_devices(("w-0", 0, 0.2), ("w-0", 1, 0.6))
    twice = replace(
        twice,
        points=replace(twice.points, series=np.array([0, 1]), buckets=np.array([3, 3])),
        workloads=["w", "w"],
        pods=["w-0", "w-0"],
        devices=["a", "a"],
        gpus=np.ones(2),
        expected=np.array([10, 20]),
        seen=np.array([10, 5]),
    )
    points = ready_devices(day(twice), Numbering(["w"])).points
    told = [points.buckets, points.values, points.gpus, points.seen, points.expected]
    assert [each.tolist() for each in told] == [[3], [0.4], [1.0], [10], [20]]


def naive(samples: DaySamples) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Devices seen, ready pods and devices expected of each workload and bucket, pod by pod, one signal."""
    (signal,) = samples.devices
    seen: dict[tuple[str, str], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    unready, silent = (
        {
            ((own.workloads[s], own.pods[s]), b)
            for s, b, value in zip(*(each.tolist() for each in vars(own.points).values()), strict=True)
            if (value >= 0.5) == is_silent
        }
        for own, is_silent in ((samples.unready, False), (samples.missing, True))
    )
    for s, b in zip(signal.points.series.tolist(), signal.points.buckets.tolist(), strict=True):
        pod = signal.workloads[s], signal.pods[s]
        if (pod, b) not in unready:
            seen[pod][b].add(signal.devices[s])
    size = {pod: len(set().union(*buckets.values())) for pod, buckets in seen.items()}
    usual = {}
    for workload in {pod[0] for pod in size}:
        common = Counter(count for pod, count in size.items() if pod[0] == workload)
        usual[workload] = max(count for count in common if common[count] == max(common.values()))
    told: dict[tuple[str, int], tuple[int, int, int]] = {}
    for workload in usual:
        for bucket in range(samples.window.buckets):
            devices = pods = expected = 0
            for pod in {*size, *(pod for pod, _ in silent)}:
                if pod[0] != workload:
                    continue
                within = pod in size and min(seen[pod]) <= bucket <= max(seen[pod])
                devices += len(seen[pod][bucket]) if pod in size and bucket in seen[pod] else 0
                if within and (pod, bucket) not in unready:
                    pods, expected = pods + 1, expected + size[pod]
                if not within and (pod, bucket) in silent:
                    pods, expected = pods + 1, expected + usual[workload]
            told[workload, bucket] = devices, pods, expected
    return told


def told_by_pods(share: st.SearchStrategy[float]) -> st.SearchStrategy[list[Told]]:
    pods = st.sampled_from(["a-0", "a-1", "a-2", "b-0", "b-1"])
    one = st.tuples(pods, st.integers(0, BUCKETS - 1), share)
    return st.lists(one, max_size=30, unique_by=lambda told: told[:2])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(told_by_pods(st.just(0.5)), min_size=1, max_size=3),
    told_by_pods(st.sampled_from([0.0, 0.3, 0.5, 0.9])),
    told_by_pods(st.sampled_from([0.3, 0.5, 1.0])),
)
def test_counts_are_those_of_a_naive_reference(
    devices: list[list[Told]], unready: list[Told], missing: list[Told]
) -> None:
    parts = [of_devices(*told, devices=(str(number),)) for number, told in enumerate(devices)]
    ends = np.cumsum([0, *(len(part.devices) for part in parts)])
    signal = replace(
        parts[0],
        points=replace(
            parts[0].points,
            series=np.concatenate([part.points.series + first for part, first in zip(parts, ends[:-1], strict=True)]),
            buckets=np.concatenate([part.points.buckets for part in parts]),
            values=np.concatenate([part.points.values for part in parts]),
        ),
        workloads=[name for part in parts for name in part.workloads],
        pods=[name for part in parts for name in part.pods],
        devices=[name for part in parts for name in part.devices],
        gpus=np.ones(ends[-1]),
        expected=np.full(ends[-1], 10),
        seen=np.full(sum(map(len, devices)), 10),
    )
    samples = day(signal, buckets=BUCKETS, unready=of_pods(*unready), missing=of_pods(*missing))
    got = ready_devices(samples, Numbering(["a", "b"]))
    seen = np.bincount(got.points.workloads * BUCKETS + got.points.buckets, minlength=2 * BUCKETS)
    counts = zip(seen.tolist(), got.ready_pods.tolist(), got.devices_expected.tolist(), strict=True)
    cells = [(name, bucket) for name in ("a", "b") for bucket in range(BUCKETS)]
    expected = naive(samples)
    assert dict(zip(cells, counts, strict=True)) == {cell: expected.get(cell, (0, 0, 0)) for cell in cells}
