"""Answers of public Prometheus-like servers, transcribed: label sets and values as they were published.

Sources: NVIDIA/aicr docs/conformance/cncf/evidence/accelerator-metrics.md (16 x H100), cncf/k8s-ai-conformance
v1.35/ericsson-ccd (VictoriaMetrics) and v1.35/upcloud (L40S), Apache-2.0.
"""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.prometheus import PrometheusSource
from piqc_pipeline.history.samples import FetchedHistory
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline_tests.history.rows import DAY

WORKER = "vllm-agg-0-vllmdecodeworker-s65j5"
OWNER = WorkloadInventory(
    "prod/dynamo-workload/PodCliqueSet/vllm-agg", "dynamo-workload", "PodCliqueSet", "vllm-agg", 1, 1, (WORKER,)
)
EXPORTER = {
    "Hostname": "gpu-node-1",
    "container": "nvidia-dcgm-exporter",
    "endpoint": "gpu-metrics",
    "instance": "192.0.2.1:9400",
    "job": "nvidia-dcgm-exporter",
    "modelName": "NVIDIA H100 80GB HBM3",
    "namespace": "gpu-operator",
    "pod": "nvidia-dcgm-exporter-wqqqn",
    "service": "nvidia-dcgm-exporter",
}
HELD = {**EXPORTER, "container": "main", "namespace": "dynamo-workload", "pod": WORKER}
VICTORIA = {
    "Hostname": "gpu-node-1",
    "app": "nvidia-dcgm-exporter",
    "gpu": "0",
    "instance": "192.0.2.1:9400",
    "job": "kubernetes-service-endpoints",
    "kubernetes_name": "nvidia-dcgm-exporter",
    "kubernetes_namespace": "gpu-operator",
    "modelName": "Tesla T4",
}


GPU_UTIL, GR_ENGINE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
Gauge = tuple[dict[str, str], str]
"""Labels and value throughout; the metric is `__name__`, else GPU_UTIL."""


def fetched(
    series: list[Gauge],
    *,
    inventory: tuple[WorkloadInventory, ...] = (OWNER,),
    asked: Any = None,
    stray_times: tuple[float, ...] = (),
    **answer: Any,
) -> FetchedHistory:
    """An hour from a server whose gauges have these values throughout, and at times that nobody asked for."""
    asked = [] if asked is None else asked
    metrics = sorted({labels.get("__name__", GPU_UTIL) for labels, _ in series} or {GPU_UTIL})

    def handler(request: httpx.Request) -> httpx.Response:
        if "/label/" in request.url.path:
            return httpx.Response(200, json={"status": "success", "data": metrics})
        form = request.url.params
        asked.append(form["query"])
        own = [(labels, value) for labels, value in series if labels.get("__name__", GPU_UTIL) in form["query"]]
        if form["query"].startswith("count_over_time"):
            counts = [] if "<" in form["query"] else own
            result: list[Any] = [{"metric": labels, "values": [[float(form["start"]), "10"]]} for labels, _ in counts]
        elif form["query"].endswith("s]"):
            result = [{"metric": labels, "values": [[DAY.timestamp(), value]]} for labels, value in own]
        elif request.url.path.endswith("/query"):
            result = [{"metric": labels, "value": [float(form["time"]), "10"]} for labels, _ in own]
        else:
            stamps = [*(float(form["start"]) + 300 * i for i in range(12)), *stray_times]
            result = [{"metric": labels, "values": [[at, value] for at in stamps]} for labels, value in own]
        return httpx.Response(
            200, json={"status": "success", "data": {"resultType": "matrix", "result": result}, **answer}
        )

    source = PrometheusSource(PrometheusAccess("http://prometheus.test"), transport=httpx.MockTransport(handler))
    return source.fetch(DAY, DAY + timedelta(hours=1), inventory, 300)


def test_of_sixteen_gpus_the_one_with_a_workload_is_a_workloads() -> None:
    series = [({**HELD, "UUID": "GPU-0"}, "0")] + [({**EXPORTER, "UUID": f"GPU-{i}"}, "0") for i in range(1, 16)]
    got = fetched(series)
    assert set(got.frame["workload"]) == {OWNER.id}
    assert set(got.frame["devices_seen"]) == {1}
    assert set(got.frame["utilization"]) == {0.0}


def test_a_gpu_without_any_pod_label_belongs_to_nobody() -> None:
    assert fetched([(VICTORIA, "0")], isPartial=False).frame.is_empty()


def test_no_series_is_no_row() -> None:
    assert fetched([]).frame.is_empty()


@pytest.mark.parametrize("stray", [-5.0, 1e18, 1e300, -1e300])
def test_times_outside_the_window_change_nothing(stray: float) -> None:
    series = [({**HELD, "UUID": "GPU-0"}, "50")]
    assert fetched(series, stray_times=(stray,)).frame.equals(fetched(series).frame)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "9.223372036854776e+18"])
def test_what_cannot_be_is_no_row(value: str) -> None:
    assert fetched([({**HELD, "UUID": "GPU-0"}, value)]).frame.is_empty()


def test_warnings_of_the_server_are_kept_once() -> None:
    got = fetched([({**HELD, "UUID": "GPU-0"}, "5")], warnings=["receive series from store: deadline"])
    assert got.warnings.count("Prometheus warns: receive series from store: deadline") == 1
