"""What keeps the answers true? The loop that reads live demand, moves forecasts to it, and swaps the board.

One tick: look for a new artifact, read Prometheus, move each forecast whose newest bucket is new, decide, swap. The
work is cut into pieces of about a millisecond, so that requests are answered in between.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.forecast.model import PredictorArtifact, WorkloadForecast
from piqc_pipeline.predictor import heap
from piqc_pipeline.predictor.board import Board, Entry, decide, name_index, paired_entries, split_id
from piqc_pipeline.predictor.limits_watch import LimitsWatch
from piqc_pipeline.predictor.live import DemandSource, Key, Reading, bucket_end, grid, newest
from piqc_pipeline.predictor.memory import WorkloadMemory
from piqc_pipeline.predictor.reload import ArtifactWatch
from piqc_pipeline.scaling.limits import DEFAULT_MAX_REPLICAS, ReplicaLimits
from piqc_pipeline.scaling.policy import ScalingPolicy

log = logging.getLogger(__name__)

CATCH_UP = timedelta(hours=48)
"""How far back buckets are asked for: a forecast that is older is not valid any more."""


class Anchor(Protocol):
    """What moves forecasts to live demand; `anchor.LiveAnchor`, or a test's own."""

    def reset(self) -> None:
        """A new artifact has come."""
        ...

    def move(
        self, forecast: WorkloadForecast, start: datetime, values: Sequence[float], now: datetime
    ) -> WorkloadForecast | None:
        """The forecast after more buckets; None where it cannot be moved."""
        ...


@dataclass
class Counters:
    """What `/metrics` counts."""

    reloads: int = 0
    refused: int = 0
    prometheus_errors: int = 0
    ticks: int = 0
    tick_failures: int = 0
    tick_seconds: float = 0.0
    last_read: datetime | None = None
    last_tick_monotonic: float | None = None


@dataclass(frozen=True)
class EngineOptions:
    """How the engine works.

    Attributes:
        policy: The rule's numbers.
        refresh_seconds: Time between two ticks.
        limits: Fewest and most replicas of the workloads that manifests were written for; else the policy's.
    """

    policy: ScalingPolicy = ScalingPolicy()
    refresh_seconds: float = 30.0
    limits: LimitsWatch = field(default_factory=lambda: LimitsWatch(None))


class Engine:
    """Owns the board that requests read."""

    def __init__(
        self,
        watch: ArtifactWatch,
        source: DemandSource | None,
        anchor: Anchor,
        options: EngineOptions,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Nothing is read before the first `tick`."""
        self.options = options
        self.clock = clock
        self.counters = Counters()
        self.board: Board | None = None
        self.refused: str | None = None
        self.prometheus_error: str | None = None
        self._watch = watch
        self._source = source
        self._anchor = anchor
        self._artifact: PredictorArtifact | None = None
        self._names: Mapping[str, tuple[str, ...]] = {}
        self._forecasts: dict[str, WorkloadForecast] = {}
        self._until: dict[str, datetime] = {}
        self._asked_until: dict[int, datetime] = {}
        self._buckets: dict[tuple[int, Key], dict[int, float]] = {}
        self._memory: dict[str, WorkloadMemory] = {}

    @property
    def follows_live(self) -> bool:
        """Whether a Prometheus is configured."""
        return self._source is not None

    async def run(self) -> None:
        """Tick until canceled; a failed tick is logged and the board of before stays until it goes stale."""
        while True:
            started = time.monotonic()
            try:
                await self.tick()
            except Exception:  # noqa: BLE001 - the service's last resort: one bad tick must not end all answers
                self.counters.tick_failures += 1
                log.exception("a refresh failed; the answers of before stay until they are stale")
            spent = time.monotonic() - started
            await asyncio.sleep(max(0.1, self.options.refresh_seconds - spent))

    async def close(self) -> None:
        """Give connections back."""
        if self._source is not None:
            await self._source.close()

    async def tick(self) -> None:
        """One refresh."""
        started = time.monotonic()
        await self._look()
        if self._artifact is not None:
            reading = await self._read(self._artifact)
            await self._build(self._artifact, reading)
            await asyncio.to_thread(heap.trim)
        self.counters.ticks += 1
        self.counters.last_tick_monotonic = time.monotonic()
        self.counters.tick_seconds = time.monotonic() - started

    async def _look(self) -> None:
        await asyncio.to_thread(self.options.limits.look)
        look = await asyncio.to_thread(self._watch.look)
        self.refused = look.refused
        if look.refused is not None and look.changed:
            self.counters.refused += 1
            kept = f"; {self._artifact.sha256[:12]} stays in use" if self._artifact else ""
            log.error("artifact refused: %s%s", look.refused, kept)
        if look.artifact is not None:
            self._adopt(look.artifact)

    def _adopt(self, artifact: PredictorArtifact) -> None:
        # Moved forecasts take the place of the artifact's own: two tables a workload would be 24 MiB for a thousand.
        self._forecasts = dict(artifact.workloads)
        self._artifact = replace(artifact, workloads=self._forecasts)
        known = {**dict.fromkeys(artifact.failed), **artifact.workloads}
        self._names = name_index(known)
        self._anchor.reset()
        self._until, self._asked_until, self._buckets = {}, {}, {}
        self._memory = {name: self._memory.get(name, WorkloadMemory()) for name in known}
        self.counters.reloads += 1
        log.info("artifact %s loaded: %d workloads, trained %s", artifact.sha256[:12], len(known), artifact.trained_at)

    async def _read(self, artifact: PredictorArtifact) -> Reading | None:
        if self._source is None:
            return None
        now = self.clock()
        try:
            reading = await self._source.read(now, self._since(artifact, now), self.options.policy.down_window_seconds)
        except PrometheusError as error:
            self.counters.prometheus_errors += 1
            if self.prometheus_error is None:
                log.warning("%s", error)
            self.prometheus_error = str(error)
            return None
        if self.prometheus_error is not None:
            log.info("Prometheus answers again")
        self.prometheus_error = None
        self.counters.last_read = now
        self._store(artifact, reading, now)
        return reading

    def _since(self, artifact: PredictorArtifact, now: datetime) -> dict[int, datetime]:
        """For each width of bucket, from where to ask: the artifact's end at first, two buckets back later."""
        since: dict[int, datetime] = {}
        for forecast in artifact.workloads.values():
            step = forecast.step_seconds
            start = max(forecast.data_until, now - CATCH_UP)
            since[step] = min(since.get(step, start), start)
        for step, until in self._asked_until.items():
            if step in since:
                since[step] = max(since[step], until - timedelta(seconds=2 * step))
        return since

    def _store(self, artifact: PredictorArtifact, reading: Reading, now: datetime) -> None:
        known = {_key(workload) for workload in artifact.workloads}
        for step, series in reading.buckets.items():
            self._asked_until[step] = bucket_end(step, now)
            for key in known & set(series):
                self._buckets.setdefault((step, key), {}).update(series[key])

    async def _build(self, artifact: PredictorArtifact, reading: Reading | None) -> None:
        entries: dict[str, Entry] = {}
        for workload in list(self._forecasts):
            if self._behind(workload, self._forecasts[workload]):
                await asyncio.to_thread(self._follow, workload, self._forecasts[workload])  # requests go on
            entries[workload] = self._entry(workload, self._forecasts[workload], None, reading)
            await asyncio.sleep(0)
        for workload, why in artifact.failed.items():
            if workload not in entries:
                entries[workload] = self._entry(workload, None, why, reading)
        entries |= paired_entries(entries)
        self.board = Board(artifact, entries, self._names, self.options.policy)

    def _entry(
        self, workload: str, forecast: WorkloadForecast | None, failed: str | None, reading: Reading | None
    ) -> Entry:
        until = self._until.get(workload)
        return decide(
            workload,
            forecast,
            failed,
            reading.observed.get(_key(workload)) if reading else None,
            until or (forecast.data_until if forecast else None),
            self._memory[workload],
            self._limits(workload, forecast),
            self.options.policy,
            self.clock(),
            live=self._source is not None,
            refresh_seconds=self.options.refresh_seconds,
        )

    def _behind(self, workload: str, forecast: WorkloadForecast) -> bool:
        """Whether a bucket has come that the forecast does not know."""
        end = newest(self._buckets.get((forecast.step_seconds, _key(workload)), {}))
        return end is not None and end > self._until.get(workload, forecast.data_until)

    def _follow(self, workload: str, forecast: WorkloadForecast) -> None:
        """Move the forecast to the newest bucket."""
        step = forecast.step_seconds
        start = self._until.get(workload, forecast.data_until)
        buckets = self._buckets[step, _key(workload)]
        values, end = grid(buckets, start, step), newest(buckets)
        if end is None:
            return
        if forecast.accepted:
            moved = self._anchor.move(forecast, start, values, self.clock())
            if moved is None:
                return
            self._forecasts[workload] = moved
        self._until[workload] = end
        edge = int(end.timestamp())
        self._buckets[step, _key(workload)] = {at: value for at, value in buckets.items() if at >= edge}

    def _limits(self, workload: str, forecast: WorkloadForecast | None) -> ReplicaLimits:
        _, namespace, _, name = split_id(workload)
        given, policy = self.options.limits.limits, self.options.policy
        size = forecast.gpus_per_replica if forecast else None
        written = given.get(workload) or given.get(f"{namespace}/{name}")
        if written is not None:
            return replace(written, workload=workload, gpus_per_replica=size)
        most = max(policy.max_replicas or DEFAULT_MAX_REPLICAS, policy.min_replicas, 1)
        why = "set by the policy" if policy.max_replicas else "KEDA's default: no manifest was written for it"
        return ReplicaLimits(workload, policy.min_replicas, most, max_reason=why, gpus_per_replica=size)


def _key(workload: str) -> Key:
    _, namespace, _, name = split_id(workload)
    return namespace, name


async def stop(task: "asyncio.Task[None]") -> None:
    """Cancel the loop and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
