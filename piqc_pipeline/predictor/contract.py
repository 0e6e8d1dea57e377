"""What exactly does a client read? The service's wire format, as OpenAPI shows it. Only types belong here."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from piqc_pipeline.scaling.plan import Binding


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Prediction(_Wire):
    """`GET /predict`: the load expected at one moment. Percentages are of the replicas in `replicas_basis`."""

    workload: str = Field(description="Id: cluster/namespace/Kind/name.")
    at: datetime = Field(description="The moment that is predicted: now + horizon.")
    horizon_seconds: int
    predicted_util: float = Field(ge=0, le=100, description="Expected mean GPU utilization, percent (median).")
    predicted_gpu_util: float = Field(ge=0, le=100, description="The same number under the metric's name.")
    predicted_busy_gpus: float | None = Field(
        description="Expected busy GPUs (demand x GPUs per replica); null where a replica's GPUs are unknown."
    )
    predicted_demand_replicas: float = Field(ge=0, description="Expected demand, replicas at 100 % (median).")
    desired_replicas: int = Field(ge=0, description="Replicas that the plan asks for at that moment.")
    lower: float = Field(ge=0, le=100, description="10 % quantile of the utilization, percent.")
    upper: float = Field(ge=0, le=100, description="90 % quantile of the utilization, percent.")
    replicas_basis: int = Field(ge=1, description="Replicas that the percentages refer to.")
    replicas_basis_source: Literal["live", "plan"] = Field(
        description="`live`: ready now, as Prometheus says; `plan`: what the plan asks for, where nobody says."
    )
    issued_at: datetime = Field(description="When the forecast was made, or moved to live demand.")
    data_until: datetime = Field(description="End of the newest demand it knows.")
    valid_until: datetime = Field(description="After this moment the service answers 503 unless it has refreshed.")
    live: bool = Field(description="Whether the forecast follows live demand.")
    confidence: str = Field(description="high, medium or low.")
    model: str = Field(description="Model and the artifact's SHA-256, shortened.")


class Desired(_Wire):
    """`GET /v1/desired/{namespace}/{name}`: the number for KEDA, in replicas, and why."""

    workload: str
    desired_replicas: int = Field(ge=0, description="Replicas wanted now, for the lead time ahead. KEDA: target 1.")
    binding: Binding = Field(
        description="The term that decided: the forecast's median or quantile, live demand, a limit, the hold on "
        "scale-in, or the other role of a prefill/decode pair."
    )
    explain: str = Field(description="The decision as a sentence.")
    min_replicas: int
    max_replicas: int
    accepted: bool = Field(description="Whether the workload's forecast was accepted; else live demand alone decides.")
    reasons: list[str] = Field(description="Why not, or what weakens the number.")
    demand_now: float | None = Field(description="Live demand, replicas at 100 %; null where it is not seen.")
    demand_q50: float | None = Field(description="Median of the highest demand within the lead time.")
    demand_q90: float | None = Field(description="Its upper quantile, which the rule uses.")
    lead_seconds: float
    issued_at: datetime
    data_until: datetime
    valid_until: datetime
    live: bool
    model: str


class WorkloadState(_Wire):
    """One row of `GET /v1/workloads`."""

    workload: str
    status: Literal["ok", "stale", "unavailable"]
    reason: str | None = Field(description="Code of the refusal, null when ok.")
    detail: str | None
    desired_replicas: int | None = Field(description="Null unless ok.")
    accepted: bool
    data_until: datetime | None
    valid_until: datetime | None


class Workloads(_Wire):
    """`GET /v1/workloads`: everything the artifact holds, and in which state."""

    artifact_sha256: str
    trained_at: datetime
    workloads: list[WorkloadState]


class Refusal(_Wire):
    """Every answer that is not 200: never a number."""

    reason: str = Field(
        description="bad_query, unauthorized, unknown_workload, ambiguous_workload, not_ready, stale, clock_skew, "
        "not_accepted, no_forecast, no_live_demand or too_long."
    )
    detail: str = Field(description="What is wrong and what to do, one sentence.")
    candidates: list[str] = Field(default=[], description="Ids that the name may mean.")
