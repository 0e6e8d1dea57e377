"""Figures of endpoints, told as pod, endpoint, family and value in each of some buckets."""

import numpy as np
import pytest

from piqc_pipeline.history.engines import of_pods
from piqc_pipeline.history.points import EngineSamples, Points
from piqc_pipeline.history.signals import ENGINE_COUNTERS, ENGINE_FAMILIES, ENGINE_GAUGES, engine_metrics

BUCKETS = 3
POD = "llm/chat-0"


def told(family: str, *series: tuple[str, str, list[float | None]]) -> EngineSamples:
    """A series a pod and endpoint; None is a bucket without a sample."""
    entries = [
        (number, bucket, value)
        for number, (_, _, values) in enumerate(series)
        for bucket, value in enumerate(values)
        if value is not None
    ]
    numbers, buckets, values = (np.array([entry[place] for entry in entries]) for place in range(3))
    points = Points(numbers.astype(np.int64), buckets.astype(np.int64), values.astype(np.float64))
    pods = [pod for pod, _, _ in series]
    return EngineSamples(points, ["chat"] * len(pods), pods, family, [endpoint for _, endpoint, _ in series])


def running(*samples: EngineSamples) -> dict[str, list[float | None]]:
    """Requests running of every pod, bucket after bucket."""
    return figure("running", running=list(samples))


def figure(name: str, **figures: list[EngineSamples]) -> dict[str, list[float | None]]:
    added = of_pods(figures, BUCKETS)[name]
    found: dict[str, list[float | None]] = {pod: [None] * BUCKETS for pod in added.pods}
    for number, bucket, value in zip(
        added.points.series.tolist(), added.points.buckets.tolist(), added.points.values.tolist(), strict=True
    ):
        assert found[added.pods[number]][bucket] is None
        found[added.pods[number]][bucket] = value
    return found


def test_the_endpoints_of_a_pod_add_up_and_pods_stay_apart() -> None:
    got = running(
        told(
            "vllm:", (POD, ":8000", [1, 2, None]), (POD, ":8001", [10, None, None]), ("llm/chat-1", ":8000", [5, 5, 5])
        ),
        told("sglang:", (POD, ":9000", [100, 100, 100])),
    )
    assert got == {POD: [111, 102, 100], "llm/chat-1": [5, 5, 5]}


@pytest.mark.parametrize("turned", [False, True], ids=["as asked", "the other way round"])
def test_of_two_engines_on_one_page_the_one_that_knows_most_counts_whatever_the_order(turned: bool) -> None:
    samples = [told("vllm:", (POD, ":8000", [0, None, None])), told("tgi_", (POD, ":8000", [3, 4, 5]))]
    assert running(*samples[:: -1 if turned else 1]) == {POD: [3, 4, 5]}
    equal = [told("vllm:", (POD, ":8000", [7, 7, 7])), told("tgi_", (POD, ":8000", [3, 4, 5]))]
    assert running(*equal[:: -1 if turned else 1]) == {POD: [7, 7, 7]}


def test_what_knows_most_is_judged_by_all_figures_and_a_figure_it_lacks_comes_from_the_other() -> None:
    samples = {
        "running": [told("vllm:", (POD, ":8000", [1, 1, 1])), told("tgi_", (POD, ":8000", [3, None, None]))],
        "waiting": [told("vllm:", (POD, ":8000", [2, 2, None])), told("tgi_", (POD, ":8000", [9, 9, 9]))],
        "finished": [told("tgi_", (POD, ":8000", [6, 6, 6]))],
        "prompt": [told("vllm:", (POD, ":8000", [8, 8, 8]))],
    }
    assert {name: figure(name, **samples)[POD] for name in samples} == {
        "running": [1, 1, 1],
        "waiting": [2, 2, None],
        "finished": [6, 6, 6],
        "prompt": [8, 8, 8],
    }


def test_two_spellings_of_one_engine_are_one_server_on_whatever_endpoint() -> None:
    direct = told("vllm:", (POD, "10.0.0.5:8000", [4, 4, None]))
    passed_on = told("vllm_", (POD, "collector:8889", [4, 4, 4]))
    assert running(direct, passed_on) == running(passed_on, direct) == {POD: [4, 4, 4]}


def test_one_endpoint_that_is_told_under_two_sets_of_labels_counts_once() -> None:
    assert running(told("vllm:", (POD, ":8000", [4, 5, None]), (POD, ":8000", [4, 4, 4]))) == {POD: [4, 5, 4]}


def test_no_engine_at_all_tells_nothing() -> None:
    assert running() == {} == running(told("vllm:"))


def test_every_figure_of_every_engine_has_a_name_in_each_of_its_spellings() -> None:
    figures = {**ENGINE_GAUGES, **ENGINE_COUNTERS}
    assert {engine for names in figures.values() for engine in names} == set(ENGINE_FAMILIES.values())
    assert engine_metrics(ENGINE_GAUGES["running"]) == {
        "vllm:": "vllm:num_requests_running",
        "vllm_": "vllm_num_requests_running",
        "ray_vllm:": "ray_vllm:num_requests_running",
        "ray_vllm_": "ray_vllm_num_requests_running",
        "sglang:": "sglang:num_running_reqs",
        "sglang_": "sglang_num_running_reqs",
        "tgi_": "tgi_batch_current_size",
    }
