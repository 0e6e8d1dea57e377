"""What does the predictor make of Prometheus' answers, good and bad?"""

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.predictor.live import Observed, Reading, grid, prometheus_from_settings
from piqc_pipeline.settings import Settings


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("piqc_pipeline.prometheus.client.RETRY_PAUSE_SECONDS", 0)


NOW = datetime(2025, 1, 20, 12, 7, 30, tzinfo=UTC)
LABELS = {"namespace": "inference", "workload": "chat-8b"}


def success(*series: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": list(series)}})


def sample(name: str, value: str, **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **LABELS, **labels}, "value": [NOW.timestamp(), value]}


class Server:
    """Answers by the query's text and keeps what it was asked."""

    def __init__(self, **answers: httpx.Response | Exception) -> None:
        self.answers = answers
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(dict(request.url.params))
        query = request.url.params["query"]
        name = "range" if "start" in request.url.params else "highest" if query.startswith("max") else "now"
        answer = self.answers.get(name, success())
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content)

    def read(self, since: dict[int, datetime] | None = None) -> Reading:
        async def ask() -> Reading:
            source = prometheus_from_settings(
                Settings(prometheus_url="http://prometheus:9090/"), httpx.MockTransport(self)
            )
            assert source is not None
            try:
                return await source.read(NOW, since or {}, 300)
            finally:
                await source.close()

        return asyncio.run(ask())


def test_everything_known_of_a_workload_comes_in_two_instant_queries() -> None:
    server = Server(
        now=success(
            sample("workload:gpu_demand:replicas", "3.25"),
            sample("workload:gpu_pods:count", "5"),
            sample("workload:replicas_wanted:count", "6"),
            sample("workload:requests_waiting:sum", "2"),
        ),
        highest=success(sample("workload:gpu_demand:replicas", "4.5")),
    )
    assert server.read().observed == {("inference", "chat-8b"): Observed(3.25, 4.5, 5, 6, 2.0)}
    assert len(server.asked) == 2
    assert server.asked[1]["query"] == "max_over_time(workload:gpu_demand:replicas[300s])"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-0.5", "1e12", "null", ""])
def test_no_number_is_unknown_and_never_zero(value: str) -> None:
    server = Server(now=success(sample("workload:gpu_demand:replicas", value), sample("workload:gpu_pods:count", "5")))
    assert server.read().observed == {("inference", "chat-8b"): Observed(replicas_ready=5)}


def test_series_without_labels_are_nobodys() -> None:
    server = Server(now=success({"metric": {"__name__": "workload:gpu_demand:replicas"}, "value": [0, "3"]}))
    assert server.read().observed == {}


def test_finished_buckets_are_asked_once_and_aligned() -> None:
    values = [[datetime(2025, 1, 20, 12, m, tzinfo=UTC).timestamp(), str(m)] for m in (0, 5)]
    server = Server(range=success({"metric": LABELS, "values": values}))
    reading = server.read({300: datetime(2025, 1, 20, 11, 55, tzinfo=UTC)})
    # The bucket that ends 12:05 is the last finished one at 12:07:30; the one after 11:55 ends 12:00.
    start, end = (datetime.fromtimestamp(float(server.asked[-1][key]), UTC) for key in ("start", "end"))
    assert (start.minute, end.minute, server.asked[-1]["step"]) == (0, 5, "300")
    assert list(reading.buckets[300]["inference", "chat-8b"].values()) == [0.0, 5.0]


def test_buckets_outside_what_was_asked_are_none() -> None:
    end = 1737374700  # 12:05, the last bucket that has ended at 12:07:30
    year = 365 * 86_400
    rows = [[end - year, "1"], [end - 300, "2"], [end, "3"], [end + 300, "4"], [end + year, "5"]]
    server = Server(range=success({"metric": {"__name__": "workload:gpu_demand:replicas", **LABELS}, "values": rows}))
    reading = server.read({300: datetime(2025, 1, 20, 11, 55, tzinfo=UTC)})
    assert reading.buckets == {300: {("inference", "chat-8b"): {end - 300: 2.0, end: 3.0}}}


def test_nothing_is_asked_before_a_bucket_has_finished() -> None:
    server = Server()
    assert server.read({300: datetime(2025, 1, 20, 12, 5, tzinfo=UTC)}).buckets == {300: {}}
    assert len(server.asked) == 2


def test_a_long_absence_is_asked_within_prometheus_limit_of_points() -> None:
    server = Server()
    server.read({60: NOW - timedelta(days=30)})
    points = (float(server.asked[-1]["end"]) - float(server.asked[-1]["start"])) / 60 + 1
    assert points <= 11_000


@pytest.mark.parametrize(
    ("answer", "says", "times"),
    [
        (httpx.ConnectError("connection refused"), "connection refused", 3),
        (httpx.ReadTimeout(""), "did not answer within 10 s", 1),
        (httpx.Response(200, text="<html>sign in</html>"), "a web page", 1),
        (httpx.Response(502, text="Bad Gateway"), "status 502", 3),
        (httpx.Response(200, json={"status": "error", "error": "query timed out"}), "query timed out", 1),
        (httpx.Response(200, text='{"status":"success","data":null}'), "no result", 1),
        (httpx.Response(200, text='{"status":"success","data":{"result":[{"metr'), "no result", 1),
        (httpx.Response(401, text=""), "401", 1),
    ],
    ids=["refused", "timeout", "html", "gateway", "error", "null", "cut off", "401"],
)
def test_every_bad_answer_is_one_error_that_names_the_server(
    answer: httpx.Response | Exception, says: str, times: int
) -> None:
    server = Server(now=answer)
    with pytest.raises(PrometheusError, match="http://prometheus:9090") as caught:
        server.read()
    assert says in str(caught.value)
    assert len(server.asked) == times  # what may pass is asked again, twice


def test_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("piqc_pipeline.predictor.live.MAX_ANSWER_BYTES", 1000)
    with pytest.raises(PrometheusError, match="more than 1000 bytes"):
        Server(now=httpx.Response(200, text=json.dumps(["x" * 5000]))).read()


def test_gaps_of_the_grid_are_unknown() -> None:
    start = datetime(2025, 1, 20, tzinfo=UTC)
    at = int(start.timestamp())
    got = grid({at + 300: 1.0, at + 900: 3.0, at - 300: 9.0}, start, 300)
    assert got[0] == 1.0 and math.isnan(got[1]) and got[2] == 3.0 and len(got) == 3
    assert grid({at: 9.0}, start, 300) == grid({}, start, 300) == []


def test_settings_name_the_server_its_token_and_its_ca(tmp_path: Path) -> None:
    assert prometheus_from_settings(Settings()) is None
    token = tmp_path / "token"
    token.write_text("abc\n")
    settings = Settings(prometheus_url="https://p:9090", prometheus_token_file=token)
    source = prometheus_from_settings(settings)
    assert source is not None
    asyncio.run(source.close())
    with pytest.raises(PrometheusError, match="token of Prometheus"):
        prometheus_from_settings(Settings(prometheus_url="https://p", prometheus_token_file=tmp_path / "none"))
    with pytest.raises(PrometheusError, match="CA of Prometheus"):
        prometheus_from_settings(Settings(prometheus_url="https://p", prometheus_ca_file=token))
    (tmp_path / "image").write_bytes(b"\x89PNG")
    with pytest.raises(PrometheusError, match="it is no text"):
        prometheus_from_settings(Settings(prometheus_url="https://p", prometheus_token_file=tmp_path / "image"))


def test_a_token_that_was_rotated_is_sent_from_then_on(tmp_path: Path) -> None:
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["authorization"])
        return success()

    async def read_twice() -> None:
        token.write_text("abc\n")
        settings = Settings(prometheus_url="https://p:9090", prometheus_token_file=token)
        source = prometheus_from_settings(settings, httpx.MockTransport(answer))
        assert source is not None
        await source.read(NOW, {}, 600)
        token.write_text("def\n")
        await source.read(NOW, {}, 600)
        token.unlink()
        with pytest.raises(PrometheusError, match="token of Prometheus"):
            await source.read(NOW, {}, 600)
        await source.close()

    token = tmp_path / "token"
    asyncio.run(read_twice())
    assert sent == ["Bearer abc"] * 2 + ["Bearer def"] * 2
