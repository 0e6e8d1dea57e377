"""What is the demand of every workload right now? Reads the recording rules of `k8s/monitoring` from Prometheus.

What becomes of it belongs to `board`. Errors are raised as `PrometheusError`; nothing unknown becomes 0.
"""

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

import httpx

from piqc_pipeline.prometheus.access import access_from_settings
from piqc_pipeline.prometheus.client import MAX_POINTS, AsyncPrometheusClient
from piqc_pipeline.settings import Settings

DEMAND = "workload:gpu_demand:replicas"
READY = "workload:gpu_pods:count"
WANTED = "workload:replicas_wanted:count"
WAITING = "workload:requests_waiting:sum"
"""Names of the recording rules, labeled by `namespace` and `workload`. The last two are optional."""

QUERY_TIMEOUT_SECONDS = 10.0
"""Under half of the shortest useful refresh; a slow Prometheus must not pile up reads."""
MAX_ANSWER_BYTES = 64 * 2**20

Key = tuple[str, str]
"""(namespace, workload name): what the rules are labeled with."""


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


class PrometheusDemand:
    """Live demand from a Prometheus."""

    def __init__(self, client: AsyncPrometheusClient) -> None:
        """Ask through `client`, which `close` closes."""
        self._client = client

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def read(self, now: datetime, since: dict[int, datetime], window_seconds: int) -> Reading:
        """One instant query for everything known now, one for the window's maximum, one range query a step."""
        names = "|".join((DEMAND, READY, WANTED, WAITING))
        current = await self._client.query(f'{{__name__=~"{names}"}}', now)
        highest = await self._client.query(f"max_over_time({DEMAND}[{window_seconds}s])", now)
        found: dict[Key, dict[str, float]] = {}
        for name, matrix in (("", current), ("highest", highest)):
            for labels, _, values in matrix.series():
                if all(key := _key(labels)) and values and _possible(values[-1]):
                    found.setdefault(key, {})[name or labels.get("__name__", "")] = values[-1]
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
        first = max(first, last - (MAX_POINTS - 1) * step)
        matrix = await self._client.query_range(f"avg_over_time({DEMAND}[{step}s])", first, last, step)
        found: dict[Key, dict[int, float]] = {}
        for labels, times, values in matrix.series():
            rows = {
                round(at): value  # a bucket outside what was asked is none: an answer from another time
                for at, value in zip(times, values, strict=True)
                if _possible(value) and first <= round(at) <= last
            }
            found.setdefault(_key(labels), {}).update(rows)
        return found


def prometheus_from_settings(
    settings: Settings, transport: httpx.AsyncBaseTransport | None = None
) -> PrometheusDemand | None:
    """The Prometheus that the settings name; None where none is named.

    Args:
        settings: Address, credentials and time limit.
        transport: What carries the requests; the network if None.

    Raises:
        PrometheusError: The token or CA file cannot be used.
    """
    access = access_from_settings(settings)
    if access is None:
        return None
    seconds = min(access.timeout_seconds, QUERY_TIMEOUT_SECONDS)
    access = replace(access, timeout_seconds=seconds, max_answer_bytes=MAX_ANSWER_BYTES)
    return PrometheusDemand(AsyncPrometheusClient(access, transport))


def _key(labels: dict[str, str]) -> Key:
    return labels.get("namespace", ""), labels.get("workload", "")


def _possible(value: float) -> bool:
    """A finite count from 0 to what any cluster could hold: NaN, Inf and negative demand are no demand."""
    return math.isfinite(value) and 0 <= value < 1e9


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
