import gzip
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.prometheus import client as prometheus_client
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline.prometheus.client import PrometheusClient
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY

URL = "http://prometheus.test:9090"
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_client, "RETRY_PAUSE_SECONDS", 0)


def client(handler: Handler, **access: object) -> PrometheusClient:
    return PrometheusClient(PrometheusAccess(URL, **access), httpx.MockTransport(handler))  # type: ignore[arg-type]


def matrix(*values: tuple[float, str], warnings: list[str] | None = None, **more: object) -> dict[str, object]:
    result = [{"metric": {"pod": "chat-0"}, "values": list(values)}]
    answer: dict[str, object] = {"status": "success", "data": {"resultType": "matrix", "result": result}, **more}
    return answer | ({"warnings": warnings} if warnings else {})


def failing(status: int, kind: str, text: str) -> Handler:
    return lambda request: httpx.Response(status, json={"status": "error", "errorType": kind, "error": text})


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("[Errno 111] Connection refused", request=request)


def late(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("timed out", request=request)


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (refused, r"cannot reach Prometheus at http://prometheus.test:9090: .*refused; check PIQC_PROMETHEUS_URL"),
        (late, r"did not answer within 30 s: raise PIQC_PROMETHEUS_TIMEOUT_SECONDS"),
        (lambda _: httpx.Response(200, html="<!DOCTYPE html><p>Sign in"), r"answers with a web page \(status 200\)"),
        (lambda _: httpx.Response(502, html="<html>Bad Gateway"), r"answers with a web page \(status 502\)"),
        (lambda _: httpx.Response(200, text="ok"), r"no result of Prometheus' API \(status 200\)"),
        (lambda _: httpx.Response(200, content=b""), r"no result of Prometheus' API"),
        (lambda _: httpx.Response(401, text="no"), r"refuses the credentials \(401\)"),
        (
            failing(400, "bad_data", 'invalid parameter "query": 1:35: parse error: unclosed left parenthesis'),
            "unclosed left",
        ),
        (failing(422, "execution", "expanding series: context deadline exceeded"), "context deadline exceeded"),
        (failing(503, "unavailable", "not ready"), r"error \(unavailable\): not ready"),
        (
            lambda _: httpx.Response(200, json=matrix((0, "1"), isPartial=True)),
            r"a part of its data only \(isPartial\)",
        ),
        (lambda _: httpx.Response(200, json={"status": "success", "data": "?"}), "no result"),
    ],
    ids=[
        "refused",
        "timeout",
        "login",
        "bad gateway",
        "text",
        "empty",
        "401",
        "parse",
        "deadline",
        "503",
        "partial",
        "odd",
    ],
)
def test_a_useless_answer_is_one_sentence(handler: Handler, words: str) -> None:
    with pytest.raises(PrometheusError, match=words):
        client(handler).query_range("up", 0, 0, 300)


@pytest.mark.parametrize(
    ("status", "asked", "pauses"),
    [(429, "3", [3, 3]), (503, "1", [1, 1]), (503, "9999", [10, 10]), (429, "Wed, 21 Oct 2015 07:28:00 GMT", [0, 0])],
)
def test_a_server_that_has_too_much_to_do_says_when_to_come_again(
    status: int, asked: str, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(prometheus_client.clock, "sleep", slept.append)
    busy = client(lambda _: httpx.Response(status, text="too many requests", headers={"Retry-After": asked}))
    with pytest.raises(PrometheusError, match=rf"\(status {status}\): check .*; try again later"):
        busy.query_range("up", 0, 0, 300)
    assert slept == pauses


def test_what_cannot_be_decompressed_is_told_as_that() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(b"no gzip at all"), headers={"Content-Encoding": "gzip"})

    with pytest.raises(PrometheusError, match="answers with what cannot be decompressed"):
        client(handler).query("up", DAY)


def test_values_in_quotes_are_numbers_and_nan_stays_nan() -> None:
    answer = client(lambda _: httpx.Response(200, json=matrix((300, "18.635"), (600, "NaN"), (900, "+Inf"))))
    got = answer.query_range("up", 300, 900, 300)
    assert got.values[0] == 18.635
    assert got.values[1] != got.values[1]
    assert got.values[2] == float("inf")
    assert got.times.tolist() == [300, 600, 900]


def test_no_series_is_no_data() -> None:
    empty = {"status": "success", "data": {"resultType": "vector", "result": []}}
    got = client(lambda _: httpx.Response(200, json=empty)).query("up", DAY)
    assert (got.labels, got.values.tolist()) == ([], [])


def test_a_vector_of_victoriametrics_with_whole_seconds_is_read() -> None:
    vector = {
        "status": "success",
        "isPartial": False,
        "data": {"resultType": "vector", "result": [{"metric": {"gpu": "0"}, "value": [1772536457, "0"]}]},
        "stats": {"seriesFetched": "1", "executionTimeMsec": 1},
    }
    got = client(lambda _: httpx.Response(200, json=vector)).query("up", DAY)
    assert (got.times.tolist(), got.values.tolist()) == ([1772536457], [0])


def test_a_range_above_the_limit_of_points_is_asked_in_parts() -> None:
    spans = []

    def handler(request: httpx.Request) -> httpx.Response:
        form = request.url.params
        first, last = float(form["start"]), float(form["end"])
        points = round((last - first) / 15) + 1
        spans.append(points)
        if points > 11_000:
            return failing(400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries.")(request)
        return httpx.Response(200, json=matrix(*((first + 15 * i, "1") for i in range(points))))

    # 14 days of 15-second steps: 80,640 points.
    got = client(handler).query_range("up", 0, 14 * 86400 - 15, 15)
    assert got.times.tolist() == [15 * i for i in range(80_640)]
    assert max(spans) <= 11_000


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (422, "expanding series: context deadline exceeded"),
        (422, "query processing would load too many samples into memory in query execution"),
        (503, "query timed out in expression evaluation"),
        (400, "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution"),
    ],
)
def test_a_range_that_is_too_much_is_asked_in_halves(status: int, text: str) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        form = request.url.params
        first, last = float(form["start"]), float(form["end"])
        if last - first > 900:
            return failing(status, "execution", text)(request)
        points = round((last - first) / 300) + 1
        return httpx.Response(200, json=matrix(*((first + 300 * i, "1") for i in range(points))))

    assert client(handler).query_range("up", 0, 86_100, 300).times.tolist() == [300 * i for i in range(288)]


def test_an_error_that_passes_is_asked_again() -> None:
    answers = iter([httpx.Response(503, text="starting"), httpx.Response(200, json=matrix((0, "1")))])
    assert client(lambda _: next(answers)).query_range("up", 0, 0, 300).values.tolist() == [1]


def test_warnings_of_the_answer_are_kept() -> None:
    got = client(lambda _: httpx.Response(200, json=matrix((0, "1"), warnings=["store 2 is unavailable"]))).query(
        "up", DAY
    )
    assert got.warnings == ("store 2 is unavailable",)


def test_a_partial_answer_is_taken_with_a_warning_where_it_is_allowed() -> None:
    handler = lambda _: httpx.Response(200, json=matrix((0, "1"), isPartial=True))  # noqa: E731
    assert "partial" in client(handler, allow_partial=True).query("up", DAY).warnings[0]


def test_credentials_headers_and_encoding_are_sent(tmp_path: Path) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=matrix((0, "1")))

    token = tmp_path / "token"
    token.write_text("secret\n")
    client(handler, token_file=token, headers={"X-Scope-OrgID": "team-a"}).query("up", DAY)
    client(handler, username="me", password="pass").query("up", DAY)
    assert seen[0].headers["authorization"] == "Bearer secret"
    assert seen[0].headers["x-scope-orgid"] == "team-a"
    assert seen[0].headers["accept-encoding"] == "identity"
    assert seen[1].headers["authorization"] == "Basic bWU6cGFzcw=="


def test_a_token_that_was_rotated_is_sent_from_then_on(tmp_path: Path) -> None:
    sent = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["authorization"])
        return httpx.Response(200, json=matrix((0, "1")))

    token = tmp_path / "token"
    token.write_text("abc\n")
    asking = client(handler, token_file=token)
    asking.query("up", DAY)
    token.write_text("def\n")
    asking.query("up", DAY)
    assert sent == ["Bearer abc", "Bearer def"]


def test_a_long_question_goes_by_post_and_a_short_one_by_get() -> None:
    methods = []

    def handler(request: httpx.Request) -> httpx.Response:
        methods.append((request.method, "query" in request.url.params))
        return httpx.Response(200, json=matrix((0, "1")))

    asking = client(handler)
    asking.query("up", DAY)
    asking.query("up or " * 400 + "up", DAY)
    assert methods == [("GET", True), ("POST", False)]


@pytest.mark.parametrize("place", ["https://sso.example.test/login?state=secret", "/login?state=secret"])
def test_a_redirect_is_told_and_not_followed(place: str) -> None:
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(302, headers={"Location": place})

    with pytest.raises(PrometheusError, match=r"sends on to \S*/login \(302\)") as caught:
        client(handler, headers={"X-Key": "k"}).query("up", DAY)
    assert len(asked) == 1
    assert "secret" not in str(caught.value)


def test_an_answer_above_the_limit_is_asked_for_in_halves() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        first, last = (float(request.url.params[name]) for name in ("start", "end"))
        times = range(round(first), round(last) + 1, 300)
        return httpx.Response(200, json=matrix(*((at, "1") for at in times)))

    # One point is 9 bytes of about 110; 288 of them are asked for in parts.
    got = client(handler, max_answer_bytes=1000).query_range("up", 300, 86_400, 300)
    assert got.times.tolist() == list(range(300, 86_401, 300))
    with pytest.raises(PrometheusError, match="more than 50 bytes"):
        client(handler, max_answer_bytes=50).query_range("up", 300, 600, 300)


def test_gzip_that_was_not_asked_for_is_read_and_limited_by_what_it_holds() -> None:
    text = gzip.compress(json.dumps(matrix((0, "1"), warnings=["x" * 100_000])).encode())
    handler = lambda _: httpx.Response(200, content=text, headers={"Content-Encoding": "gzip"})  # noqa: E731
    assert client(handler).query("up", DAY).values.tolist() == [1]
    with pytest.raises(PrometheusError, match="more than 10000 bytes"):
        client(handler, max_answer_bytes=10_000).query("up", DAY)
    cut = lambda _: httpx.Response(200, content=text[:40], headers={"Content-Encoding": "gzip"})  # noqa: E731
    with pytest.raises(PrometheusError, match=r"prometheus\.test"):
        client(cut).query("up", DAY)


def test_secrets_do_not_show_in_the_access(tmp_path: Path) -> None:
    shown = repr(PrometheusAccess(URL, username="me", password="hidden", headers={"X-Key": "hidden"}))
    assert "hidden" not in shown


def test_a_missing_token_or_ca_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PrometheusError, match="cannot read the token"):
        client(lambda _: httpx.Response(200), token_file=tmp_path / "none").query("up", DAY)
    with pytest.raises(PrometheusError, match="none as the CA of Prometheus"):
        PrometheusClient(PrometheusAccess(URL, ca_file=tmp_path / "none"))
    (tmp_path / "image").write_bytes(b"\x89PNG")
    with pytest.raises(PrometheusError, match="it is no text"):
        PrometheusClient(PrometheusAccess(URL, token_file=tmp_path / "image"))


def test_names_are_asked_for_the_range() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.params["start"] == f"{DAY.timestamp():.3f}"
        return httpx.Response(200, content=json.dumps({"status": "success", "data": ["DCGM_FI_DEV_GPU_UTIL"]}))

    assert client(handler).names("DCGM.*", DAY, NEXT_DAY) == ["DCGM_FI_DEV_GPU_UTIL"]
