"""What is the demand of every workload right now? Reads the recording rules of `k8s/monitoring` from Prometheus.

What becomes of it belongs to `board`. Errors are raised as `PrometheusError`; nothing unknown becomes 0.
"""

import math
import ssl
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import httpx
import msgspec

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.settings import Settings

DEMAND = "workload:gpu_demand:replicas"
READY = "workload:gpu_pods:count"
WANTED = "workload:replicas_wanted:count"
WAITING = "workload:requests_waiting:sum"
"""Names of the recording rules, labelled by `namespace` and `workload`. The last two are optional."""

QUERY_TIMEOUT_SECONDS = 10.0
"""Under half of the shortest useful refresh; a slow Prometheus must not pile up reads."""
ATTEMPTS = 2
MAX_ANSWER_BYTES = 64 * 2**20

Key = tuple[str, str]
"""(namespace, workload name): what the rules are labelled with."""


@dataclass(frozen=True)
class Observed:
    """What Prometheus says of one workload now; None where it does not say."""

    demand: float | None = None
    demand_window_max: float | None = None
    replicas_ready: int | None = None
    replicas_wanted: int | None = None
    waiting_requests: float | None = None


@dataclass(frozen=True)
class Reading:
    """One look at Prometheus.

    Attributes:
        taken_at: When it was asked (UTC).
        observed: By (namespace, workload).
        buckets: By step in seconds and (namespace, workload): mean demand by the epoch second at which a bucket ends.
    """

    taken_at: datetime
    observed: dict[Key, Observed] = field(default_factory=dict)
    buckets: dict[int, dict[Key, dict[int, float]]] = field(default_factory=dict)


class DemandSource(Protocol):
    """Where live demand comes from; tests pass their own."""

    async def read(self, now: datetime, since: dict[int, datetime], window_seconds: int) -> Reading:
        """Demand now, and the finished buckets after `since` for each step in seconds.

        Raises:
            PrometheusError: No usable answer.
        """
        ...

    async def close(self) -> None:
        """Give connections back."""
        ...


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


class PrometheusDemand:
    """Live demand from a Prometheus, with a timeout and one retry."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        """Ask through `client`; `url` is the base address, without `/api/v1`."""
        self._client = client
        self._url = url.rstrip("/")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def read(self, now: datetime, since: dict[int, datetime], window_seconds: int) -> Reading:
        """One instant query for everything known now, one for the window's maximum, one range query a step."""
        names = "|".join((DEMAND, READY, WANTED, WAITING))
        stamp = f"{now.timestamp():.3f}"
        current = await self._ask("query", {"query": f'{{__name__=~"{names}"}}', "time": stamp})
        highest = await self._ask("query", {"query": f"max_over_time({DEMAND}[{window_seconds}s])", "time": stamp})
        found: dict[Key, dict[str, float]] = {}
        for series in current:
            _put(found, series, series.metric.get("__name__", ""))
        for series in highest:
            _put(found, series, "highest")
        observed = {
            key: Observed(
                demand=values.get(DEMAND),
                demand_window_max=values.get("highest"),
                replicas_ready=_count(values.get(READY)),
                replicas_wanted=_count(values.get(WANTED)),
                waiting_requests=values.get(WAITING),
            )
            for key, values in found.items()
        }
        buckets = {step: await self._buckets(step, start, now) for step, start in since.items()}
        return Reading(now, observed, buckets)

    async def _buckets(self, step: int, since: datetime, now: datetime) -> dict[Key, dict[int, float]]:
        last = int(now.timestamp()) // step * step
        first = int(since.timestamp()) // step * step + step
        if first > last:
            return {}
        first = max(first, last - 10_000 * step)  # Prometheus refuses more than 11,000 points
        parameters = {"query": f"avg_over_time({DEMAND}[{step}s])", "start": str(first), "end": str(last)}
        found: dict[Key, dict[int, float]] = {}
        for series in await self._ask("query_range", {**parameters, "step": str(step)}):
            key = (series.metric.get("namespace", ""), series.metric.get("workload", ""))
            rows = {int(at): value for at, text in series.values if (value := _number(text)) is not None}
            found.setdefault(key, {}).update(rows)
        return found

    async def _ask(self, path: str, parameters: dict[str, str]) -> list[_Series]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._ask_once(path, parameters)
            except (PrometheusError, httpx.HTTPError) as error:
                if attempt == ATTEMPTS:
                    raise PrometheusError(
                        f"cannot read live demand from {self._url}: {str(error) or type(error).__name__}; "
                        "check PIQC_PROMETHEUS_URL and that Prometheus answers /api/v1/query"
                    ) from error
        raise AssertionError("unreachable")

    async def _ask_once(self, path: str, parameters: dict[str, str]) -> list[_Series]:
        request = self._client.build_request("GET", f"{self._url}/api/v1/{path}", params=parameters)
        response = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_ANSWER_BYTES:
                    raise PrometheusError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        finally:
            await response.aclose()
        try:
            answer = _decode(body)
        except msgspec.DecodeError as error:
            raise PrometheusError(f"status {response.status_code} and no answer of Prometheus' form") from error
        if answer.status != "success" or answer.data is None:
            raise PrometheusError(f"status {response.status_code}: {answer.error[:200]}")
        return answer.data.result


class TokenFile(httpx.Auth):
    """A bearer token read for each request: Kubernetes rotates a service account's token every hour."""

    def __init__(self, path: Path) -> None:
        """Read the file once.

        Raises:
            PrometheusError: It cannot be read.
        """
        self._path = path
        _token(path)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the token that is in the file now."""
        request.headers["Authorization"] = f"Bearer {_token(self._path)}"
        yield request


def prometheus_from_settings(
    settings: Settings, transport: httpx.AsyncBaseTransport | None = None
) -> PrometheusDemand | None:
    """The Prometheus that the settings name; None where none is named.

    Args:
        settings: Address, credentials and time limit.
        transport: What carries the requests; the network if None.

    Raises:
        PrometheusError: The token file cannot be read.
    """
    if not settings.prometheus_url:
        return None
    headers = {name: value.get_secret_value() for name, value in settings.prometheus_headers.items()}
    headers["Accept-Encoding"] = "identity"  # gzip halves the speed of large answers
    auth: httpx.Auth | None = TokenFile(settings.prometheus_token_file) if settings.prometheus_token_file else None
    if settings.prometheus_username and settings.prometheus_password:
        auth = httpx.BasicAuth(settings.prometheus_username, settings.prometheus_password.get_secret_value())
    client = httpx.AsyncClient(
        headers=headers,
        auth=auth,
        verify=_tls(settings.prometheus_ca_file),
        timeout=min(settings.prometheus_timeout_seconds, QUERY_TIMEOUT_SECONDS),
        transport=transport,
    )
    return PrometheusDemand(client, settings.prometheus_url)


def _token(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise PrometheusError(f"cannot read the token of Prometheus from {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PrometheusError(f"cannot read the token of Prometheus from {path}: it is no text") from error


def _tls(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise PrometheusError(f"cannot use {ca_file} as the CA of Prometheus: {error}") from error


def _put(found: dict[Key, dict[str, float]], series: _Series, name: str) -> None:
    value = _number(series.value[1]) if series.value else None
    key = (series.metric.get("namespace", ""), series.metric.get("workload", ""))
    if value is not None and all(key):
        found.setdefault(key, {})[name] = value


def _number(text: str) -> float | None:
    """A finite count from 0 to what any cluster could hold; else None: NaN, Inf and negative demand are no demand."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < 1e9 else None


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)


def bucket_end(step: int, moment: datetime) -> datetime:
    """End of the last finished bucket at `moment`."""
    return datetime.fromtimestamp(int(moment.timestamp()) // step * step, UTC)


def grid(buckets: dict[int, float], start: datetime, step: int) -> list[float]:
    """Buckets on an even grid from `start` to the newest one; NaN where none was measured."""
    first = int(start.timestamp()) + step
    if not buckets or max(buckets) < first:
        return []
    return [buckets.get(at, math.nan) for at in range(first, max(buckets) + 1, step)]


def newest(buckets: dict[int, float]) -> datetime | None:
    """End of the newest measured bucket."""
    return datetime.fromtimestamp(max(buckets), UTC) if buckets else None
