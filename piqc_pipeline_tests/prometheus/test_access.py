"""History, scan and predictor pass the same guards with the same settings, over real TLS on loopback."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from piqc_pipeline.cluster.kubernetes import Deadline
from piqc_pipeline.cluster.prometheus import Prometheus
from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.prometheus import PrometheusSource
from piqc_pipeline.predictor.live import Observed, prometheus_from_settings
from piqc_pipeline.prometheus.access import PrometheusAccess, access_from_settings
from piqc_pipeline.prometheus.client import PrometheusClient
from piqc_pipeline.settings import Settings
from piqc_pipeline_tests.prometheus.guarded import PASSWORD, Guarded, guarded_prometheus

NOW = datetime(2025, 1, 20, 12, tzinfo=UTC)
CHAT = WorkloadInventory("prod/llm/Deployment/chat", "llm", "Deployment", "chat", 1, 1, ("chat-7c9f8d6b54-x2lqk",))
SERIES: list[dict[str, object]] = [
    {
        "metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": "GPU-0", "namespace": "llm", "pod": CHAT.pods[0]},
        "value": [NOW.timestamp() + 299.999, "42"],
    },
    {
        "metric": {"__name__": "workload:gpu_demand:replicas", "namespace": "llm", "workload": "chat"},
        "value": [NOW.timestamp(), "0.42"],
    },
]


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    monkeypatch.setattr("piqc_pipeline.prometheus.client.RETRY_PAUSE_SECONDS", 0.01)
    with guarded_prometheus(tmp_path, SERIES) as server:
        yield server


def history(settings: Settings) -> list[float]:
    access = access_from_settings(settings)
    assert access is not None
    got = PrometheusSource(access).fetch(NOW, NOW + timedelta(minutes=5), (CHAT,), 300)
    return got.frame["utilization"].to_list()


def scan(settings: Settings) -> list[float]:
    access = access_from_settings(settings)
    assert access is not None
    return [use.reading.utilization_pct or 0 for use in Prometheus(access, Deadline(10)).devices()]


def predictor(settings: Settings) -> dict[tuple[str, str], Observed]:
    source = prometheus_from_settings(settings)
    assert source is not None

    async def read() -> dict[tuple[str, str], Observed]:
        try:
            return (await source.read(NOW, {}, 300)).observed
        finally:
            await source.close()

    return asyncio.run(read())


def test_all_three_pass_tls_credentials_and_tenant_and_outlast_a_restart(guarded: Guarded) -> None:
    for ask in (history, scan, predictor):
        guarded.times_down = 1
        found = ask(guarded.settings())
        assert found in ([0.42], [42.0], {("llm", "chat"): Observed(0.42, 0.42)})
    assert guarded.refused == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"prometheus_password": "wrong"}, "refuses the credentials"),
        ({"prometheus_headers": {}}, "refuses the credentials"),
        ({"prometheus_ca_file": None}, "certificate verify failed"),
    ],
    ids=["password", "tenant", "CA"],
)
def test_one_wrong_setting_is_one_sentence(guarded: Guarded, wrong: dict[str, object], words: str) -> None:
    access = access_from_settings(guarded.settings(**wrong))
    assert access is not None
    with PrometheusClient(access) as client, pytest.raises(PrometheusError, match=words) as caught:
        client.query("up")
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("s3cret\nmore", "more than one line"),
        ("s3c\x00ret", "more than one"),
    ],
)
def test_a_token_that_cannot_be_sent_is_refused_and_never_shown(token: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(PrometheusError, match=words) as caught:
        PrometheusClient(PrometheusAccess("http://p.test", token_file=file))
    assert "s3c" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("X-Key", "s3cret\r\nHost: x", "its value holds something else"),
        ("X-Key", "s3cret\u00e9", "its value holds something else"),
        ("X Key", "s3cret", "HTTP allows no header of that name"),
        ("", "s3cret", "HTTP allows no header of that name"),
        ("Content-Length", "5", "HTTP allows no header of that name"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_and_its_value_never_shown(name: str, value: str, words: str) -> None:
    with pytest.raises(PrometheusError, match=f"cannot send the header '{name}' .*: {words}") as caught:
        PrometheusClient(PrometheusAccess("http://p.test", headers={name: value}))
    assert "s3cret" not in str(caught.value)
