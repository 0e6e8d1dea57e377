"""A real Prometheus that holds dense data, and dies in the middle of a range."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.history.fill import fill
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.openmetrics import GaugeSeries
from piqc_pipeline.history.prometheus import PrometheusSource
from piqc_pipeline.history.store import open_store
from piqc_pipeline.prometheus import client as prometheus_client
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline.prometheus.client import PrometheusClient
from piqc_pipeline_tests.history.rows import DAY
from piqc_pipeline_tests.history.server import needs_prometheus, prometheus_with

pytestmark = [pytest.mark.service, needs_prometheus]

CHAT = WorkloadInventory("prod/llm/Deployment/chat", "llm", "Deployment", "chat", gpus_per_replica=1)
DAYS, STEP = 14, 15


def test_two_weeks_of_15_second_data_come_by_chunks_and_a_server_that_dies_leaves_whole_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_client, "RETRY_PAUSE_SECONDS", 0.01)
    points = DAYS * 86_400 // STEP
    values = np.random.default_rng(5).integers(0, 101, points).astype(float)
    times = DAY.timestamp() + STEP * np.arange(points)
    series = GaugeSeries(
        {"UUID": "GPU-0", "namespace": "llm", "pod": "chat-7c9f8d6b54-x2lqk"}, times.tolist(), values.tolist()
    )
    end = DAY + timedelta(days=DAYS)
    store = open_store(tmp_path / "history.duckdb")
    with prometheus_with(tmp_path, {"DCGM_FI_DEV_GPU_UTIL": [series]}) as (url, server):
        access = PrometheusAccess(url, timeout_seconds=30)
        with PrometheusClient(access) as client:
            dense = client.query_range("DCGM_FI_DEV_GPU_UTIL", times[0], times[-1], STEP)
        assert dense.values.tolist() == values.tolist()
        with pytest.raises(PrometheusError, match="cannot reach Prometheus"):
            fill(store, PrometheusSource(access), DAY, end, (CHAT,), 300, end, on_day=server.kill)
    stored = store.read()
    means = values.reshape(-1, 300 // STEP).mean(axis=1)
    assert stored.height == 288
    assert np.abs(stored["utilization"].to_numpy() * 100 - means[:288]).max() < 0.1
    assert set(stored["samples_seen"]) == {20}
