"""How does a question reach Prometheus and its answer come back? Time limits, a size limit, bounded retries."""

import asyncio
import time as clock
from collections.abc import Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import Protocol, Self

import httpx

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline.prometheus.answers import (
    Matrix,
    Passing,
    RangeTooLarge,
    failed,
    joined,
    matrix_of,
    names_of,
    result_of,
    too_long,
)

MAX_POINTS = 10_000
"""Points of one series in one answer; Prometheus refuses more than 11,000."""
TRIES = 3
RETRY_PAUSE_SECONDS = 0.2
MAX_LINE = 1800
"""Bytes of a question that goes by GET. POST needs more rights with some proxies, but has no limit of length."""
Result = tuple[memoryview, tuple[str, ...]]


class Patience(Protocol):
    """How long may be asked and waited; a scan's deadline."""

    def check(self) -> None:
        """Raise where nothing more may be asked."""
        ...

    def remaining(self) -> float:
        """Seconds left."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; raise where nothing more may be asked."""
        ...


class _Unhurried:
    """No limit but those of each request."""

    def check(self) -> None:
        pass

    def remaining(self) -> float:
        return float("inf")

    def sleep(self, seconds: float) -> None:
        clock.sleep(seconds)


class PrometheusClient:
    """Asks one server; safe to share between threads; close it after use."""

    def __init__(
        self,
        access: PrometheusAccess,
        transport: httpx.BaseTransport | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            access: Where and how.
            transport: In place of the network, in tests.
            patience: A limit of all requests together.

        Raises:
            PrometheusError: The CA or token file, or a header, cannot be used.
        """
        self._access = access
        self._patience = patience or _Unhurried()
        try:
            self._http = httpx.Client(**access.client_options(), transport=transport)
        except (ValueError, TypeError) as error:
            raise PrometheusError(f"cannot use {access.base}: {error}; check the headers") from error

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def names(self, pattern: str, start: datetime, end: datetime) -> list[str]:
        """Names of the metrics that match the regular expression and have samples in the range."""
        form = {"match[]": f'{{__name__=~"{pattern}"}}', "start": _seconds(start), "end": _seconds(end)}
        return names_of(self._ask("/api/v1/label/__name__/values", form)[0], self._access)

    def query(self, promql: str, moment: datetime | None = None) -> Matrix:
        """The value of an expression at an instant, else now: one point a series, or all of a range selector's."""
        return matrix_of(*self._ask("/api/v1/query", _instant(promql, moment)), self._access)

    def query_range(self, promql: str, first: float, last: float, step_seconds: int) -> Matrix:
        """The values of an expression at `first`, `first + step`, ... up to `last` (seconds since 1970).

        Split below Prometheus' limit of points, and again in halves where the server times out or finds the range too
        large.

        Raises:
            PrometheusError: Nothing useful came back, however small the range.
        """
        points = round((last - first) / step_seconds) + 1
        if points > MAX_POINTS:
            return self._parts(promql, first, last, step_seconds, MAX_POINTS)
        try:
            return matrix_of(*self._ask("/api/v1/query_range", _range(promql, first, last, step_seconds)), self._access)
        except RangeTooLarge as error:
            if points < 2:
                raise PrometheusError(str(error)) from error
        return self._parts(promql, first, last, step_seconds, points // 2)

    def _parts(self, promql: str, first: float, last: float, step_seconds: int, points: int) -> Matrix:
        """Asked as the first points, and the rest."""
        end = first + (points - 1) * step_seconds
        return joined(
            self.query_range(promql, first, end, step_seconds),
            self.query_range(promql, end + step_seconds, last, step_seconds),
        )

    def _ask(self, path: str, form: Mapping[str, str]) -> Result:
        for attempt in range(1, TRIES):
            try:
                return self._ask_once(path, form)
            except Passing as error:
                self._patience.sleep(max(error.after_seconds, RETRY_PAUSE_SECONDS * 2**attempt))
        return self._ask_once(path, form)

    def _ask_once(self, path: str, form: Mapping[str, str]) -> Result:
        self._patience.check()
        seconds = min(self._access.timeout_seconds, max(0.05, self._patience.remaining()))
        body, ends = BytesIO(), clock.monotonic() + seconds
        try:
            request = _request(self._http, self._access, path, form, seconds)
            response = self._http.send(request, stream=True)
            try:
                for part in response.iter_bytes():
                    _take(body, part, self._access, ends)
            finally:
                response.close()
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise failed(error, self._access) from error
        return result_of(response, body.getvalue(), self._access)


class AsyncPrometheusClient:
    """The same for an event loop: what the predictor asks with."""

    def __init__(self, access: PrometheusAccess, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Nothing is asked yet; arguments and errors as those of `PrometheusClient`."""
        self._access = access
        try:
            self._http = httpx.AsyncClient(**access.client_options(), transport=transport)
        except (ValueError, TypeError) as error:
            raise PrometheusError(f"cannot use {access.base}: {error}; check the headers") from error

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def query(self, promql: str, moment: datetime) -> Matrix:
        """The value of an expression at an instant."""
        return await self._matrix("/api/v1/query", _instant(promql, moment))

    async def query_range(self, promql: str, first: float, last: float, step_seconds: int) -> Matrix:
        """The values of an expression on a grid of at most `MAX_POINTS` points; not split."""
        return await self._matrix("/api/v1/query_range", _range(promql, first, last, step_seconds))

    async def _matrix(self, path: str, form: Mapping[str, str]) -> Matrix:
        for attempt in range(1, TRIES):
            try:
                return matrix_of(*await self._ask_once(path, form), self._access)
            except Passing as error:
                await asyncio.sleep(max(error.after_seconds, RETRY_PAUSE_SECONDS * 2**attempt))
        return matrix_of(*await self._ask_once(path, form), self._access)

    async def _ask_once(self, path: str, form: Mapping[str, str]) -> Result:
        seconds = self._access.timeout_seconds
        body, ends = BytesIO(), clock.monotonic() + seconds
        try:
            request = _request(self._http, self._access, path, form, seconds)
            response = await self._http.send(request, stream=True)
            try:
                async for part in response.aiter_bytes():
                    _take(body, part, self._access, ends)
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise failed(error, self._access) from error
        return result_of(response, body.getvalue(), self._access)


def _instant(promql: str, moment: datetime | None) -> dict[str, str]:
    return {"query": promql, **({"time": _seconds(moment)} if moment else {})}


def _range(promql: str, first: float, last: float, step_seconds: int) -> dict[str, str]:
    """The fields of a question for a range; VictoriaMetrics would round the ends were it let cache."""
    return {
        "query": promql,
        "start": f"{first:.3f}",
        "end": f"{last:.3f}",
        "step": str(step_seconds),
        "nocache": "1",
    }


def _request(
    http: httpx.Client | httpx.AsyncClient,
    access: PrometheusAccess,
    path: str,
    form: Mapping[str, str],
    timeout_seconds: float,
) -> httpx.Request:
    timeout = httpx.Timeout(timeout_seconds, connect=min(5.0, timeout_seconds))
    if "/label/" in path or sum(map(len, form.values())) <= MAX_LINE:
        return http.build_request("GET", access.base + path, params=form, timeout=timeout)
    return http.build_request("POST", access.base + path, data=dict(form), timeout=timeout)


def _take(body: BytesIO, part: bytes, access: PrometheusAccess, ends: float) -> None:
    body.write(part)
    if body.tell() > access.max_answer_bytes:
        raise too_long(access)
    if clock.monotonic() > ends:
        raise TimeoutError


def _seconds(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).timestamp():.3f}"
