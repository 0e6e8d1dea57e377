"""Small literal samples for the tests of rows and devices: told as pod, bucket and value."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from piqc_pipeline.history.points import DaySamples, DeviceSamples, Points, Samples, Window
from piqc_pipeline.history.signals import DEVICE_SIGNALS, ENGINE_COUNTERS, ENGINE_GAUGES, DeviceSignal
from piqc_pipeline_tests.history.rows import DAY

STEP = 300
GPU_UTIL = next(signal for signal in DEVICE_SIGNALS if signal.name == "DCGM_FI_DEV_GPU_UTIL")
Told = tuple[str, int, float]
"""A pod, the number of a bucket, and a value; the workload is the pod's name up to the last dash."""


def of_pods(*told: Told) -> Samples:
    """One series a pod."""
    pods = sorted({pod for pod, _, _ in told})
    return Samples(
        Points(
            np.array([pods.index(pod) for pod, _, _ in told], dtype=np.int64),
            np.array([bucket for _, bucket, _ in told], dtype=np.int64),
            np.array([value for _, _, value in told], dtype=np.float64),
        ),
        workloads=[pod.rsplit("-", 1)[0] for pod in pods],
        pods=pods,
    )


def of_devices(
    *told: tuple[str, int, float], devices: Sequence[str] = ("0",), signal: DeviceSignal = GPU_UTIL
) -> DeviceSamples:
    """The same for each of some devices of every pod, each a series; ten samples seen of ten."""
    pods = of_pods(*told)
    count, series = len(devices), len(pods.pods)
    return DeviceSamples(
        Points(
            np.concatenate([pods.points.series + series * number for number in range(count)]),
            np.tile(pods.points.buckets, count),
            np.tile(pods.points.values, count),
        ),
        workloads=pods.workloads * count,
        pods=pods.pods * count,
        signal=signal,
        devices=[f"{pod}/{name}" for name in devices for pod in pods.pods],
        gpus=np.ones(series * count),
        expected=np.full(series * count, 10),
        seen=np.full(len(told) * count, 10),
    )


def day(*devices: DeviceSamples, buckets: int = 12, **figures: Samples) -> DaySamples:
    """What an hour holds, with the given figures of pods; the others are empty."""
    nothing = of_pods()
    engines = {name: figures.pop(name, nothing) for name in (*ENGINE_GAUGES, *ENGINE_COUNTERS)}
    empty = DaySamples(Window(DAY, STEP, buckets), list(devices), nothing, nothing, nothing, engines)
    return replace(empty, **figures)  # type: ignore[arg-type]
