"""Does the HTTP service keep its contract, and what does it do with everything else?"""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from piqc_pipeline.errors import UsageError
from piqc_pipeline.predictor.contract import Desired, Prediction, Refusal, Workloads
from piqc_pipeline.predictor.engine import Engine
from piqc_pipeline.predictor.service import create_service
from piqc_pipeline.predictor.token import BearerToken
from piqc_pipeline_tests.predictor.world import CHAT, Clock, Folder, ToldDemand, artifact, engine, forecast, tick


class Client:
    """Asks the application itself; no socket, no loop of its own ticks."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.send("GET", path, **headers)

    def send(self, method: str, path: str, **headers: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(ask())


@pytest.fixture
def running(tmp_path: Path) -> Engine:
    running = engine(Folder(tmp_path / "m", artifact()), ToldDemand(demand=2.0, replicas_ready=5))
    tick(running)
    return running


@pytest.fixture
def client(running: Engine) -> Iterator[Client]:
    yield Client(create_service(running))


def test_predict_keeps_the_contract(client: Client) -> None:
    response = client.get("/predict?workload=inference/chat-8b&horizon=30m")
    assert response.status_code == 200
    body = Prediction.model_validate_json(response.content)
    assert body.workload == CHAT and body.predicted_util == body.predicted_gpu_util == 60.0


def test_desired_keeps_the_contract(client: Client) -> None:
    body = Desired.model_validate_json(client.get("/v1/desired/inference/chat-8b").content)
    assert (body.desired_replicas, body.binding) == (4, "fcq")
    assert client.get("/v1/desired/inference/Deployment/chat-8b").status_code == 200


def test_workloads_lists_every_state(client: Client) -> None:
    body = Workloads.model_validate_json(client.get("/v1/workloads").content)
    assert [(row.workload, row.status, row.desired_replicas) for row in body.workloads] == [(CHAT, "ok", 4)]


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/predict?workload=inference/nobody", 404, "unknown_workload"),
        ("/v1/desired/inference/nobody", 404, "unknown_workload"),
        ("/predict?workload=inference/chat-8b&horizon=1000y", 400, "bad_query"),
        ("/predict?workload=inference/chat-8b&horizon=47h", 400, "bad_query"),
        ("/predict", 400, "bad_query"),
        ("/predict?workload=" + "x" * 5000, 400, "bad_query"),
        ("/v1/desired/inference/" + "x" * 5000, 400, "bad_query"),
        ("/v1/desired/a/b/c/d/e", 400, "bad_query"),
        ("/v1/desired/%00/%0a", 400, "bad_query"),
    ],
)
def test_refusal_has_a_reason_and_no_number(client: Client, path: str, status: int, reason: str) -> None:
    response = client.get(path)
    assert response.status_code == status
    assert Refusal.model_validate_json(response.content).reason == reason
    assert "desired" not in response.json()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_get_is_allowed(client: Client, method: str) -> None:
    assert client.send(method, "/predict?workload=inference/chat-8b").status_code == 405


def test_stale_answers_503_everywhere_and_metrics_drop_the_number(tmp_path: Path) -> None:
    clock = Clock()
    running = engine(Folder(tmp_path / "m", artifact()), ToldDemand(demand=2.0), clock)
    tick(running)
    client = Client(create_service(running))
    assert 'predicted_gpu_util{cluster="demo"' in client.get("/metrics").text
    clock.forward(hours=1)
    for path in ("/predict?workload=inference/chat-8b", "/v1/desired/inference/chat-8b"):
        response = client.get(path)
        assert (response.status_code, response.json()["reason"]) == (503, "stale")
    text = client.get("/metrics").text
    assert "predicted_gpu_util{" not in text and "piqc_desired_replicas{" not in text
    assert 'piqc_predictor_stale{cluster="demo",namespace="inference",kind="Deployment",workload="chat-8b"} 1' in text
    assert client.get("/v1/workloads").json()["workloads"][0]["status"] == "stale"


def test_metrics_are_valid_exposition_and_agree_with_the_answers(client: Client) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    client.get("/v1/desired/inference/chat-8b")
    client.get("/v1/desired/inference/nobody")
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    (util,) = families["predicted_gpu_util"].samples
    assert util.value == 60.0 and util.labels["workload"] == "chat-8b"
    assert families["piqc_desired_replicas"].samples[0].value == 4
    counts = {sample.labels["status"]: sample.value for sample in families["piqc_predictor_requests"].samples}
    assert counts == {"200": 1, "404": 1}


def test_label_with_quotes_and_newline_cannot_break_the_page(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    odd = 'cl"us\nter\\/inference/Deployment/chat'
    running = engine(Folder(tmp_path / "m", artifact(forecast(odd))))
    tick(running)
    text = Client(create_service(running)).get("/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples if "cluster" in s.labels]
    assert {sample.labels["cluster"] for sample in samples} == {'cl"us\nter\\'}


def test_without_artifact_it_is_alive_but_not_ready(tmp_path: Path) -> None:
    running = engine(Folder(tmp_path / "m", None))
    tick(running)
    client = Client(create_service(running))
    assert client.get("/healthz").status_code == 200
    response = client.get("/readyz")
    assert response.status_code == 503 and "predictor.json" in response.json()["detail"]
    assert client.get("/v1/desired/inference/chat-8b").json()["reason"] == "not_ready"
    assert "piqc_predictor_artifact_loaded 0" in client.get("/metrics").text


def test_ready_names_the_artifact(client: Client) -> None:
    assert client.get("/readyz").json() == {"status": "ready", "artifact_sha256": "ab" * 32}


def test_hanging_loop_is_unhealthy(running: Engine, client: Client) -> None:
    running.counters.last_tick_monotonic = time.monotonic() - 301
    response = client.get("/healthz")
    assert response.status_code == 503 and "no refresh for 301 s" in response.json()["detail"]


def test_token_is_needed_for_numbers_and_not_for_probes(running: Engine, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    client = Client(create_service(running, BearerToken(path)))
    for header in ("", "Bearer", "Bearer wrong", "Basic s3cret", "s3cret"):
        response = client.get("/v1/desired/inference/chat-8b", Authorization=header)
        assert (response.status_code, response.json()["reason"]) == (401, "unauthorized")
    assert client.get("/v1/desired/inference/chat-8b", Authorization="Bearer s3cret").status_code == 200
    assert client.get("/healthz").status_code == client.get("/metrics").status_code == 200


def test_rotated_token_is_taken_and_a_missing_one_keeps_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("piqc_pipeline.predictor.token.RECHECK_SECONDS", 0.0)
    path = tmp_path / "token"
    path.write_text("old")
    token = BearerToken(path)
    path.unlink()
    assert token.admits(b"Bearer old")
    path.write_text("new")
    assert token.admits(b"Bearer new") and not token.admits(b"Bearer old")


@pytest.mark.parametrize("content", [None, "", " \n"], ids=["missing", "empty", "blank"])
def test_unusable_token_file_is_an_error_at_the_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match="token"):
        BearerToken(path)


def test_openapi_names_every_route_field_and_refusal(client: Client) -> None:
    page = client.get("/openapi.json").json()
    assert set(page["paths"]) == {
        "/predict",
        "/v1/desired/{namespace}/{name}",
        "/v1/workloads",
        "/metrics",
        "/healthz",
        "/readyz",
    }
    predict = page["paths"]["/predict"]["get"]
    assert [parameter["name"] for parameter in predict["parameters"]] == ["workload", "horizon"]
    assert {"200", "400", "401", "404", "409", "503"} <= set(predict["responses"])
    fields = page["components"]["schemas"]["Prediction"]["properties"]
    assert {
        "predicted_util",
        "predicted_gpu_util",
        "predicted_busy_gpus",
        "desired_replicas",
        "lower",
        "upper",
        "issued_at",
        "data_until",
        "valid_until",
        "model",
    } <= set(fields)


@pytest.mark.parametrize(
    "path",
    [
        "/predict?workload=inference/chat-8b&horizon=30m",
        "/predict?workload=%2e%2e/x",
        "/v1/desired/inference/chat-8b",
        "/v1/desired/inference/nobody",
        "/v1/desired/x",
    ],
)
def test_fastapi_answers_as_the_shortcut_in_front_of_it(running: Engine, path: str) -> None:
    service = create_service(running)
    behind = Client(service.app).get(path)
    front = Client(service).get(path)
    assert (front.status_code, front.content) == (behind.status_code, behind.content) or path == "/v1/desired/x"
    assert front.headers["content-type"] == behind.headers["content-type"] == "application/json"


def test_answers_of_two_moments_differ(tmp_path: Path) -> None:
    clock = Clock()
    running = engine(Folder(tmp_path / "m", artifact()), None, clock)
    tick(running)
    client = Client(create_service(running))
    first = client.get("/predict?workload=inference/chat-8b&horizon=0").json()["at"]
    clock.forward(minutes=10)
    tick(running)
    assert client.get("/predict?workload=inference/chat-8b&horizon=0").json()["at"] != first
    assert clock.now - timedelta(minutes=10) == forecast().issued_at
