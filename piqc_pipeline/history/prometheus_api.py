"""How is Prometheus' HTTP API asked, and what of its answers can be trusted?

Which queries are right belongs to `prometheus`. Works with Prometheus and whatever speaks its API (Thanos, Mimir,
VictoriaMetrics, managed services) by a bearer token, basic authentication, TLS and extra headers.
"""

import itertools
import ssl
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.errors import PrometheusError

MAX_POINTS = 10_000
"""Points of one series in one answer; Prometheus refuses more than 11,000."""
TRIES = 3
RETRY_PAUSE_SECONDS = 0.2
SPLITTABLE = (
    "exceeded maximum resolution",
    "deadline exceeded",
    "timed out",
    "too many samples",
    "too large",
    "exceeds the limit",
)
"""Words of answers that a smaller range may not provoke."""


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, float]] = []
    value: tuple[float, float] | None = None


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - Prometheus' name
    result: list[_Series] = []


class _Answer(msgspec.Struct):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    errorType: str = ""  # noqa: N815
    error: str = ""
    warnings: list[str] = []
    isPartial: bool = False  # noqa: N815 - VictoriaMetrics


_ANSWER = msgspec.json.Decoder(_Answer)
# Lax, because values stand in quotes; three times as fast as orjson with a cast after it.
_DATA = msgspec.json.Decoder(_Data, strict=False)
_NAMES = msgspec.json.Decoder(list[str])


@dataclass(frozen=True)
class Matrix:
    """The series of an answer, points laid end to end.

    Attributes:
        labels: Label set of each series.
        lengths: Points of each series.
        times: Seconds since 1970 of every point.
        values: Value of every point; may hold NaN and infinities.
        warnings: What the server said beside the result.
    """

    labels: list[dict[str, str]]
    lengths: NDArray[np.int64]
    times: NDArray[np.float64]
    values: NDArray[np.float64]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrometheusAccess:
    """How to reach a Prometheus.

    Attributes:
        url: Base address, `http://host:9090`; a path prefix (Mimir's `/prometheus`) belongs to it.
        timeout_seconds: Time limit of one request.
        token_file: File with a bearer token, read at each request because clusters rotate it.
        username, password: Basic authentication.
        ca_file: CA bundle that signed the server's certificate.
        headers: More headers, for instance `X-Scope-OrgID`.
        allow_partial: Take an answer that the server itself calls partial, with a warning.
    """

    url: str
    timeout_seconds: float = 30.0
    token_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_partial: bool = False


class PrometheusClient:
    """Asks one server; safe to share between threads; close it after use."""

    def __init__(self, access: PrometheusAccess, transport: httpx.BaseTransport | None = None) -> None:
        """Nothing is asked yet.

        Args:
            access: Where and how.
            transport: In place of the network, in tests.
        """
        self._access = access
        self._base = access.url.rstrip("/")
        credentials = (access.username, access.password or "") if access.username else None
        try:
            self._http = httpx.Client(
                timeout=access.timeout_seconds,
                auth=credentials,
                verify=_verify(access.ca_file),
                # gzip costs more than it saves in a cluster: 5.1 s against 2.0 s for a week of 1,000 series.
                headers={"Accept-Encoding": "identity", "Accept": "application/json", **access.headers},
                transport=transport,
                follow_redirects=True,
            )
        except (OSError, ValueError, TypeError) as error:
            raise PrometheusError(f"cannot use {self._base}: {error}; check the CA file and the headers") from error

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def __enter__(self) -> "PrometheusClient":
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def names(self, pattern: str, start: datetime, end: datetime) -> list[str]:
        """Names of the metrics that match the regular expression and have samples in the range."""
        form = {"match[]": f'{{__name__=~"{pattern}"}}', "start": _seconds(start), "end": _seconds(end)}
        data, _ = self._ask("/api/v1/label/__name__/values", form)
        try:
            return _NAMES.decode(data)
        except msgspec.MsgspecError as error:
            raise PrometheusError(f"{self._base} answers with something that is no list of names: {error}") from error

    def query(self, promql: str, moment: datetime) -> Matrix:
        """The value of an expression at an instant: one point a series, or all of a range selector's."""
        return self._matrix("/api/v1/query", {"query": promql, "time": _seconds(moment)})

    def query_range(self, promql: str, first: float, last: float, step_seconds: int) -> Matrix:
        """The values of an expression at `first`, `first + step`, ... up to `last` (seconds since 1970).

        Split below Prometheus' limit of points, and again in halves where the server times out or finds the range too
        large.

        Raises:
            PrometheusError: Nothing useful came back, however small the range.
        """
        span = step_seconds * (MAX_POINTS - 1)
        if last - first > span:
            half = first + (span // step_seconds) * step_seconds
            return _joined(
                self.query_range(promql, first, half, step_seconds),
                self.query_range(promql, half + step_seconds, last, step_seconds),
            )
        form = {
            "query": promql,
            "start": f"{first:.3f}",
            "end": f"{last:.3f}",
            "step": str(step_seconds),
            "nocache": "1",
        }
        try:
            return self._matrix("/api/v1/query_range", form)
        except _RangeTooLarge as error:
            points = round((last - first) / step_seconds) + 1
            if points < 2:
                raise PrometheusError(str(error)) from error
            half = first + (points // 2 - 1) * step_seconds
        return _joined(
            self.query_range(promql, first, half, step_seconds),
            self.query_range(promql, half + step_seconds, last, step_seconds),
        )

    def _matrix(self, path: str, form: dict[str, str]) -> Matrix:
        data, warnings = self._ask(path, form)
        try:
            decoded = _decoded(data)
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
            raise PrometheusError(f"{self._base} answers with something that is no result: {error}") from error
        points = [series.values if series.value is None else [series.value] for series in decoded.result]
        flat = np.fromiter(itertools.chain.from_iterable(itertools.chain.from_iterable(points)), dtype=np.float64)
        return Matrix(
            labels=[series.metric for series in decoded.result],
            lengths=np.array([len(values) for values in points], dtype=np.int64),
            times=flat[0::2],
            values=flat[1::2],
            warnings=warnings,
        )

    def _ask(self, path: str, form: dict[str, str]) -> tuple[bytes, tuple[str, ...]]:
        return _retried(lambda: self._ask_once(path, form))

    def _ask_once(self, path: str, form: dict[str, str]) -> tuple[bytes, tuple[str, ...]]:
        headers = {}
        if self._access.token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {self._access.token_file.read_text().strip()}"
            except OSError as error:
                raise PrometheusError(f"cannot read the token for {self._base}: {error}") from error
        try:
            if "/label/" in path:  # Prometheus answers 405 to a POST there; queries may be too long for a GET.
                response = self._http.get(self._base + path, params=form, headers=headers)
            else:
                response = self._http.post(self._base + path, data=form, headers=headers)
        except httpx.TimeoutException as error:
            raise _RangeTooLarge(
                f"{self._base} did not answer within {self._access.timeout_seconds:g} s: "
                "raise PIQC_PROMETHEUS_TIMEOUT_SECONDS, or ask for a shorter range"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _Passing(
                f"cannot reach Prometheus at {self._base}: {error}; check PIQC_PROMETHEUS_URL and that it runs"
            ) from error
        return self._checked(response)

    def _checked(self, response: httpx.Response) -> tuple[bytes, tuple[str, ...]]:
        status, body = response.status_code, response.content
        if status in (401, 403):
            raise PrometheusError(
                f"{self._base} refuses the credentials ({status}): set PIQC_PROMETHEUS_TOKEN_FILE, or user and password"
            )
        try:
            answer = _ANSWER.decode(body)
        except msgspec.MsgspecError as error:
            raise self._no_answer(response) from error
        if answer.status == "success" and status == 200:
            if answer.isPartial and not self._access.allow_partial:
                raise _Passing(
                    f"{self._base} answers with a part of its data only (isPartial): a storage node is down; "
                    "try again when it is back, so that no load is missed"
                )
            partial = ("the server calls its answer partial (isPartial)",) if answer.isPartial else ()
            return bytes(answer.data), (*answer.warnings, *partial)
        text = answer.error or f"status {status}"
        if any(words in text for words in SPLITTABLE):
            raise _RangeTooLarge(f"{self._base} cannot answer ({answer.errorType or status}): {text}")
        kind = _Passing if status == 429 or status >= 500 else PrometheusError
        raise kind(f"{self._base} answers with an error ({answer.errorType or status}): {text}")

    def _no_answer(self, response: httpx.Response) -> PrometheusError:
        status, head = response.status_code, response.content[:200].lstrip().lower()
        if head.startswith((b"<!doctype", b"<html", b"<")):
            text = (
                f"{self._base} answers with a web page (status {status}), not with Prometheus' API: "
                "is PIQC_PROMETHEUS_URL the address of a login page or of a proxy?"
            )
        else:
            text = (
                f"{self._base} answers with no result of Prometheus' API (status {status}): check PIQC_PROMETHEUS_URL"
            )
        return _Passing(text) if status == 429 or status >= 500 else PrometheusError(text)


class _Passing(PrometheusError):
    """May pass by itself: worth another try."""


class _RangeTooLarge(PrometheusError):
    """May succeed for a smaller range."""


def _retried(ask: Callable[[], tuple[bytes, tuple[str, ...]]]) -> tuple[bytes, tuple[str, ...]]:
    for attempt in range(1, TRIES + 1):
        try:
            return ask()
        except _Passing as error:
            if attempt == TRIES:
                raise PrometheusError(str(error)) from error
            clock.sleep(RETRY_PAUSE_SECONDS * 2**attempt)
    raise AssertionError


def _decoded(data: bytes) -> _Data:
    try:
        return _DATA.decode(data)
    except msgspec.ValidationError:
        # `+Inf` is no number to the fast decoder; the slow one knows it and refuses what is really none.
        plain = msgspec.json.decode(data)
        for series in plain["result"] if isinstance(plain, dict) else ():
            points = series["values"] if "values" in series else [series["value"]]
            for point in points:
                point[1] = float(point[1])
        return msgspec.convert(plain, _Data)


def _joined(one: Matrix, two: Matrix) -> Matrix:
    return Matrix(
        labels=one.labels + two.labels,
        lengths=np.concatenate([one.lengths, two.lengths]),
        times=np.concatenate([one.times, two.times]),
        values=np.concatenate([one.values, two.values]),
        warnings=tuple(dict.fromkeys(one.warnings + two.warnings)),
    )


def _verify(ca_file: Path | None) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=str(ca_file)) if ca_file else True


def _seconds(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).timestamp():.3f}"
