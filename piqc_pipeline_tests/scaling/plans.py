"""Small plans that several tests of manifests share."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from piqc_pipeline.scaling.limits import ReplicaLimits
from piqc_pipeline.scaling.plan import ReplicaPlan, plan_workload
from piqc_pipeline.scaling.policy import ScalingPolicy

NOW = datetime(2025, 1, 20, tzinfo=UTC)
POLICY = ScalingPolicy()
CHAT = "demo/inference/Deployment/chat-8b"


@dataclass(frozen=True)
class Table:
    start: datetime
    step_seconds: int
    q50: tuple[float, ...]
    peak_q50: tuple[float, ...]
    peak_q90: tuple[float, ...]


@dataclass(frozen=True)
class Forecast:
    table: Table
    accepted: bool = True
    reasons: tuple[str, ...] = ()
    lead_seconds: int = 600
    valid_until: datetime = NOW + timedelta(hours=36)


def forecast(q50: list[float], q90: list[float], **fields: Any) -> Forecast:
    return Forecast(Table(NOW, 600, tuple(q50), tuple(q50), tuple(q90)), **fields)


def limits(workload: str = CHAT, **fields: Any) -> ReplicaLimits:
    given = {"min_replicas": 2, "max_replicas": 12, "gpus_per_replica": 1.0, **fields}
    return ReplicaLimits(workload, **given)


def plan(workload: str = CHAT, *, accepted: bool = True, **fields: Any) -> ReplicaPlan:
    given = forecast([4.4], [5.1]) if accepted else forecast([4.4], [5.1], accepted=False, reasons=("MAE 14 pp",))
    return plan_workload(given, None, limits(workload, **fields), POLICY, NOW)
