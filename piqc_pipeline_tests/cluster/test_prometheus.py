"""Answers in the form of Prometheus 2.42 and VictoriaMetrics, from a server on loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from piqc_pipeline.cli.scan import scan_command
from piqc_pipeline.cluster.kubernetes import Deadline, ReadFailed, Stopped
from piqc_pipeline.cluster.prometheus import RATE_SECONDS, Prometheus
from piqc_pipeline.prometheus import client as prometheus_client
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Script
from piqc_pipeline_tests.cluster.clusters import pods
from piqc_pipeline_tests.cluster.scanning import live
from piqc_pipeline_tests.prometheus.guarded import PASSWORD, TENANT, USER, guarded_prometheus

EXPORTER = {"pod": "nvidia-dcgm-exporter-w", "namespace": "gpu-operator", "container": "nvidia-dcgm-exporter"}


class _Handler(BaseHTTPRequestHandler):
    answers: ClassVar[list[tuple[int, str]]] = []
    asked: ClassVar[list[dict[str, list[str]]]] = []

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, form: str) -> None:
        self.asked.append(parse_qs(form))
        status, text = self.answers[min(len(self.asked), len(self.answers)) - 1]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_client, "RETRY_PAUSE_SECONDS", 0.1)


@pytest.fixture
def prometheus() -> Iterator[str]:
    _Handler.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join(5)


def vector(*rows: tuple[dict[str, str], float | str], **more: object) -> tuple[int, str]:
    result = [{"metric": labels, "value": [1700000000.5, str(value)]} for labels, value in rows]
    return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def client(url: str) -> Prometheus:
    return Prometheus(PrometheusAccess(url, timeout_seconds=2), Deadline(10))


def test_a_gpu_belongs_to_the_exported_pod_and_not_to_the_exporter(prometheus: str) -> None:
    name = {"__name__": "DCGM_FI_DEV_GPU_UTIL"}
    _Handler.answers = [
        vector(
            ({**name, **EXPORTER, "UUID": "GPU-0", "gpu": "0", "exported_pod": "w", "exported_namespace": "ns"}, 42),
            ({**name, **EXPORTER, "UUID": "GPU-1", "gpu": "1"}, 0),
        )
    ]
    found = client(prometheus).devices()
    assert [(use.pod, use.reading.utilization_pct, use.reading.source) for use in found] == [
        (("ns", "w"), 42.0, "prometheus"),
        (None, 0.0, "prometheus"),
    ]


def test_success_without_series_is_no_data_and_not_zero(prometheus: str) -> None:
    _Handler.answers = [vector()]
    assert client(prometheus).devices() == ()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((400, '{"status":"error","errorType":"bad_data","error":"unclosed left parenthesis"}'), "unclosed"),
        ((422, '{"status":"error","errorType":"execution","error":"context deadline exceeded"}'), "deadline"),
        ((200, "<html>login</html>"), "a web page"),
        ((502, "Bad Gateway"), "502"),
        ((200, '{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}'), "no result"),
        (vector(isPartial=True), "a part of its data"),
    ],
)
def test_an_answer_that_is_none_is_told(prometheus: str, answer: tuple[int, str], why: str) -> None:
    _Handler.answers = [answer]
    with pytest.raises(ReadFailed) as error:
        client(prometheus).devices()
    assert why in error.value.why


def test_nobody_at_the_address_is_told() -> None:
    with pytest.raises(ReadFailed, match="cannot reach Prometheus"):
        client("http://127.0.0.1:1").devices()


def test_engines_are_read_at_two_moments(prometheus: str) -> None:
    labels = {"__name__": "vllm:generation_tokens_total", "namespace": "ns", "pod": "p"}
    _Handler.answers = [vector((labels, 1300)), vector((labels, 100))]
    found = client(prometheus).engines([("ns", "p")], 1_700_000_000)[("ns", "p")]
    assert found.earlier is not None and found.seconds == RATE_SECONDS
    assert (found.later.total("vllm:generation_tokens_total"), found.earlier.total("vllm:generation_tokens_total")) == (
        1300,
        100,
    )
    assert [float(row["time"][0]) for row in _Handler.asked] == [1_700_000_000, 1_700_000_000 - RATE_SECONDS]


def test_an_error_that_passes_is_asked_again_and_a_deadline_ends_it(prometheus: str) -> None:
    _Handler.answers = [(503, "starting"), vector()]
    assert client(prometheus).devices() == ()
    _Handler.answers = [(503, "starting")]
    with pytest.raises(Stopped):
        Prometheus(PrometheusAccess(prometheus), Deadline(0.1)).devices()


def test_a_scan_asks_prometheus_before_any_pod(prometheus: str, api: ApiServerDouble, tmp_path: Path) -> None:
    _Handler.answers = [
        vector(
            *(
                (
                    {
                        "__name__": "DCGM_FI_DEV_GPU_UTIL",
                        "UUID": f"GPU-{n}",
                        "exported_pod": f"llm-abc-{n // 4}",
                        "exported_namespace": "inference",
                        **EXPORTER,
                    },
                    n,
                )
                for n in range(8)
            )
        )
    ]
    api.scripts = {f"inference/llm-abc-{n}": Script() for n in range(2)}
    found = pods(live(api, tmp_path, prometheus=PrometheusAccess(prometheus), collect_runtime=False))
    assert [r.utilization_pct for r in found["llm-abc-1"].readings] == [4.0, 5.0, 6.0, 7.0]
    assert api.commands == []


def test_a_prometheus_that_fails_is_told_and_pods_are_asked(api: ApiServerDouble, tmp_path: Path) -> None:
    snapshot = live(api, tmp_path, prometheus=PrometheusAccess("http://127.0.0.1:1"), collect_runtime=False)
    assert any(entry.what == "accelerators by Prometheus" and entry.read_failed for entry in snapshot.unknown)
    assert api.commands


def test_the_command_gives_its_prometheus_the_credentials_of_the_settings(
    api: ApiServerDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded_prometheus(tmp_path, []) as guarded:
        monkeypatch.setenv("PIQC_PROMETHEUS_USERNAME", USER)
        monkeypatch.setenv("PIQC_PROMETHEUS_PASSWORD", PASSWORD)
        monkeypatch.setenv("PIQC_PROMETHEUS_CA_FILE", str(guarded.ca_file))
        monkeypatch.setenv("PIQC_PROMETHEUS_HEADERS", json.dumps({"X-Scope-OrgID": TENANT}))
        options = ["--kubeconfig", str(api.kubeconfig(tmp_path)), "--prometheus-url", guarded.url, "--timeout", "2"]
        result = CliRunner().invoke(scan_command, options)
    assert (result.exception, guarded.refused) == (None, 0), result.output
    assert "DCGM_FI_DEV_GPU_UTIL" in guarded.asked[0]
