"""A small world for the predictor's tests: artifacts made by hand, a Prometheus that says what it is told."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from piqc_pipeline.errors import ArtifactMissing, ForecastError, PrometheusError
from piqc_pipeline.forecast.model import DataCard, ForecastTable, PredictorArtifact, WorkloadForecast
from piqc_pipeline.predictor.engine import Engine, EngineOptions
from piqc_pipeline.predictor.live import Key, Observed, Reading
from piqc_pipeline.predictor.reload import ArtifactWatch
from piqc_pipeline.scaling.policy import ScalingPolicy

NOW = datetime(2025, 1, 20, tzinfo=UTC)
CHAT = "demo/inference/Deployment/chat-8b"
STEP = 300
POLICY = ScalingPolicy(
    u_mid=0.80, u_cap=0.90, u_observed=0.80, u_after_removal=0.85, quantile=0.90, max_replicas=20, live_seconds=0
)
"""The rule's numbers written out, without its correction between refreshes: a test's numbers are the forecast's own."""


def forecast(workload: str = CHAT, q50: float = 3.0, q90: float = 3.5, **changes: object) -> WorkloadForecast:
    """A flat forecast of 48 h made at NOW: median and 90 % quantile of demand, the same for the lead window."""
    rows = 48 * 3600 // STEP
    table = ForecastTable(NOW, STEP, (q50,) * rows, (q90,) * rows, (q50 - 0.5,) * rows, (q50,) * rows, (q90,) * rows)
    made = WorkloadForecast(
        workload=workload,
        accepted=True,
        reasons=(),
        confidence="high",
        step_seconds=STEP,
        issued_at=NOW,
        data_until=NOW,
        valid_until=NOW + timedelta(hours=36),
        lead_seconds=600,
        table=table,
        scores={},
        checks=(),
        coverage_q90=0.9,
        gpus_per_replica=2.0,
        unit="replicas",
        data=DataCard(NOW - timedelta(days=14), NOW, 4032, 0, 0.0),
        state={},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def artifact(
    *forecasts: WorkloadForecast, failed: dict[str, str] | None = None, sha256: str = "ab" * 32
) -> PredictorArtifact:
    """An artifact of these forecasts."""
    found = {entry.workload: entry for entry in forecasts or (forecast(),)}
    return PredictorArtifact("piqc-predictor.v1", NOW, found, failed or {}, {}, {}, sha256)


class Clock:
    """A clock that tests set."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


class ToldDemand:
    """A Prometheus that says what it is told, or fails."""

    def __init__(self, **figures: float) -> None:
        self.observed: dict[Key, Observed] = {}
        self.error: str | None = None
        self.buckets: dict[Key, dict[int, float]] = {}
        if figures:
            self.say("inference", "chat-8b", **figures)

    def say(self, namespace: str, name: str, **figures: float) -> None:
        self.observed[namespace, name] = Observed(**figures)  # type: ignore[arg-type]

    async def read(self, now: datetime, since: dict[int, datetime], window_seconds: int) -> Reading:
        if self.error:
            raise PrometheusError(self.error)
        end = int(now.timestamp()) // STEP * STEP
        told = {key: {end: seen.demand} for key, seen in self.observed.items() if seen.demand is not None}
        return Reading(now, dict(self.observed), {STEP: {**told, **self.buckets}})

    async def close(self) -> None:
        return None


class OnlyDates:
    """Stands for the real refresh: only the dates move. `refuses` makes it fail."""

    refuses = False

    def reset(self) -> None:
        return None

    def move(
        self, made: WorkloadForecast, start: datetime, values: Sequence[float], now: datetime
    ) -> WorkloadForecast | None:
        end = start + timedelta(seconds=STEP * len(values))
        return None if self.refuses else replace(made, issued_at=now, data_until=end)


class Folder:
    """A folder whose artifact the test sets; the loader that reads it."""

    def __init__(self, path: Path, content: PredictorArtifact | ForecastError | None) -> None:
        self.path = path
        self.content: PredictorArtifact | ForecastError | None = None
        self.put(content)

    def put(self, content: PredictorArtifact | ForecastError | None) -> None:
        self.content = content
        self.path.mkdir(exist_ok=True)
        (self.path / "predictor.json.sha256").write_text(repr(content)[:64] + str(id(content)))

    def load(self, path: Path) -> PredictorArtifact:
        if isinstance(self.content, ForecastError):
            raise self.content
        if self.content is None:
            raise ArtifactMissing(f"there is no predictor.json in {path}")
        return self.content


def engine(
    folder: Folder,
    source: ToldDemand | None = None,
    clock: Clock | None = None,
    policy: ScalingPolicy | None = None,
    **options: object,
) -> Engine:
    """An engine over a folder, not yet ticking."""
    return Engine(
        ArtifactWatch(folder.path, folder.load),
        source,
        OnlyDates(),
        EngineOptions(policy or POLICY, 30.0, **options),  # type: ignore[arg-type]
        clock or Clock(),
    )


def tick(running: Engine) -> None:
    """One refresh, now."""
    asyncio.run(running.tick())
