"""What does a trained forecast consist of? The types that training writes and scaling, service and report read.

Files belong in `artifact`, arithmetic in `combine`, `intervals` and `refresh`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    Column = Sequence[float]
else:
    Column = tuple[float, ...]  # what pydantic decodes

SCHEMA_VERSION = "piqc-predictor.v1"

ENSEMBLE = "ensemble"
ENSEMBLE_WITHOUT_PROPHET = "ensemble_without_prophet"
PROPHET = "prophet"
PROPHET_SPECIFICATION = "prophet_specification"
LAST_VALUE = "last_value"
SAME_TIME_YESTERDAY = "same_time_yesterday"
SMA60 = "sma60"
CONSTANT = "constant"
"""Names of the models in `WorkloadForecast.scores`; `constant` is the median of two weeks, for scale."""

MODEL_LABELS = {
    ENSEMBLE: "ensemble",
    ENSEMBLE_WITHOUT_PROPHET: "ensemble without Prophet",
    PROPHET: "Prophet alone",
    LAST_VALUE: "last value",
    SAME_TIME_YESTERDAY: "same time yesterday",
    SMA60: "SMA-60",
    CONSTANT: "constant",
}
"""What a reader calls them, everywhere."""
COMPARED = (ENSEMBLE, PROPHET, LAST_VALUE, SAME_TIME_YESTERDAY, SMA60)
"""Those that a short table shows."""

LAST_DAY_30M, DAYS_30M, DAYS_5H = "30m", "30m_days", "5h_days"
"""Keys of each model's scores: rolling 30-minute forecasts over the last 24 h (the specification's figure), the same
over all scored days, and 5-hour forecasts over all scored days."""

WIRE = ConfigDict(
    alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, allow_inf_nan=False, extra="ignore"
)
"""How these types look as JSON: camel case, no NaN. A field that a newer program adds is passed over; a change that an
older program would misread gets another `SCHEMA_VERSION`."""


@dataclass(frozen=True)
class Score:
    """How far one model's rolling forecasts were from what came, over the days kept from training.

    Attributes:
        mae_pp: Mean absolute error in percentage points of utilization (demand / ready replicas); None without
            ready replicas.
        rmse_pp: Root mean squared error in the same unit.
        mae_demand: Mean absolute error in the series' own unit (replica-equivalents at 100 %).
        rmse_demand: Root mean squared error in the same unit.
        points: Forecast values compared.
    """

    __pydantic_config__: ClassVar[ConfigDict] = WIRE

    mae_pp: float | None
    rmse_pp: float | None
    mae_demand: float | None
    rmse_demand: float | None
    points: int


@dataclass(frozen=True)
class CheckOutcome:
    """One check of a candidate: the measured value beside its limit.

    Attributes:
        name: `mae_below_10_pp`, `rmse_recorded`, `beats_reference` or `interval_coverage`.
        passed: None where it cannot be measured; `detail` says why.
        value: What was measured.
        limit: What it was compared with.
        unit: Unit of both.
        detail: One sentence for a person.
        decides: Whether it takes part in `accepted`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = WIRE

    name: str
    passed: bool | None
    value: float | None
    limit: float | None
    unit: str
    detail: str
    decides: bool


@dataclass(frozen=True)
class ForecastTable:
    """What is expected in each coming bucket. All columns have the same length; demand units, never negative.

    Columns are tuples in an artifact and arrays in the table of a refresh, which are equal to none of them.

    Attributes:
        start: Start of the first bucket (UTC).
        step_seconds: Width of a bucket.
        q50: Median demand in the bucket.
        q90: Demand that the bucket exceeds one time in ten.
        lower: Demand that the bucket undercuts one time in ten.
        peak_q50: Median of the maximum over the lead window that starts with the bucket.
        peak_q90: 90 % quantile of that maximum.
        peak_q95: 95 % quantile of it, calibrated in the first bucket and scaled alike in the others: what the replica
            rule needs. Empty in artifacts that were made without it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = WIRE

    start: datetime
    step_seconds: int
    q50: Column
    q90: Column
    lower: Column
    peak_q50: Column
    peak_q90: Column
    peak_q95: Column = ()

    @property
    def ts(self) -> tuple[datetime, ...]:
        """Start of every bucket (UTC)."""
        return tuple(self.start + timedelta(seconds=self.step_seconds * i) for i in range(len(self.q50)))

    def index_at(self, moment: datetime) -> int | None:
        """Position of the bucket that holds `moment`; None outside the table."""
        position = int((moment - self.start).total_seconds() // self.step_seconds)
        return position if 0 <= position < len(self.q50) else None


@dataclass(frozen=True)
class DataCard:
    """What a workload's forecast was made from.

    Attributes:
        start: First bucket used.
        end: End of the last bucket used.
        rows: Buckets with a value.
        gaps: Buckets without one.
        censored_share: Share of buckets in which demand was cut off by saturation.
        notes: What was cleaned, dropped or failed, one sentence each.
        demand_q95: Quantile 0.95 of demand, in the series' unit; what a fallback must carry.
        demand_q999: Quantile 0.999 of demand; what the most replicas must carry.
    """

    __pydantic_config__: ClassVar[ConfigDict] = WIRE

    start: datetime | None
    end: datetime | None
    rows: int
    gaps: int
    censored_share: float | None
    notes: tuple[str, ...] = ()
    demand_q95: float | None = None
    demand_q999: float | None = None


@dataclass(frozen=True)
class Drift:
    """The forecast that was in use before, beside what came.

    Attributes:
        forecast_from: Start of the table that is compared (UTC).
        points: Buckets compared, at most the first 24 h of the table.
        mae_demand: Mean absolute error of the table's median, demand units; None under `drift.LEAST_POINTS` buckets.
        bias_demand: Mean of forecast minus demand: negative where demand was higher.
        expected_mae_demand: The error 5 hours ahead that the forecast's own card gave; None if unknown.
        inside_share: Share of buckets between the table's q10 and q90; 0.8 where it holds.
        drifted: Whether demand has left the forecast; None if it cannot be judged.
        detail: One sentence for a person.
    """

    __pydantic_config__: ClassVar[ConfigDict] = WIRE

    forecast_from: datetime
    points: int
    mae_demand: float | None
    bias_demand: float | None
    expected_mae_demand: float | None
    inside_share: float | None
    drifted: bool | None
    detail: str


@dataclass(frozen=True)
class WorkloadForecast:
    """One workload's forecast with its verdict; `accepted` is False when the plan must stay reactive.

    Attributes:
        workload: `cluster/namespace/Kind/name`.
        accepted: Whether the checks that decide were passed.
        reasons: Why not, or what limits it; one sentence each.
        confidence: `high`, `medium` or `low`; `low` marks under two days of history and the plain fallback (last value,
            wide interval).
        step_seconds: Width of a bucket.
        issued_at: When it was made (UTC).
        data_until: End of the last bucket it knows (UTC).
        valid_until: After this it must not be used (UTC).
        lead_seconds: Width of the lead window behind `peak_q50` and `peak_q90`.
        table: The next 48 h.
        scores: model name → `30m`, `30m_days`, `5h_days` → score, on days kept from training.
        checks: The checks behind `accepted`.
        coverage_q90: Share of finished lead windows whose maximum was at or under its `peak_q90`; None if too few.
        gpus_per_replica: Accelerators of one replica; None if unknown.
        unit: Unit of the table, normally `replicas` (replica-equivalents at 100 %).
        data: What it was made from.
        state: What a refresh and the next night need (`state`, `journal`), as JSON values; None for the fallback.
        drift: How the forecast before this one did; None where there was none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = WIRE

    workload: str
    accepted: bool
    reasons: tuple[str, ...]
    confidence: str
    step_seconds: int
    issued_at: datetime
    data_until: datetime
    valid_until: datetime
    lead_seconds: int
    table: ForecastTable
    scores: Mapping[str, Mapping[str, Score]]
    checks: tuple[CheckOutcome, ...]
    coverage_q90: float | None
    gpus_per_replica: float | None
    unit: str
    data: DataCard
    state: Mapping[str, Any] | None = None
    drift: Drift | None = None


@dataclass(frozen=True)
class CandidateModel:
    """What one training run made, before it is promoted.

    Attributes:
        trained_at: When (UTC).
        workloads: Forecast by workload id.
        failed: Workloads for which not even the fallback could be made, with the reason.
        versions: Versions of the packages that made it.
        policy: The training policy, as plain values, for the card.
        prophet_models: Pickled Prophet model by workload, for `prophet_model.pkl`; never read by us.
    """

    trained_at: datetime
    workloads: Mapping[str, WorkloadForecast]
    failed: Mapping[str, str]
    versions: Mapping[str, str]
    policy: Mapping[str, Any]
    prophet_models: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def accepted(self) -> tuple[str, ...]:
        """Workloads whose forecast was accepted."""
        return tuple(name for name, forecast in self.workloads.items() if forecast.accepted)

    @property
    def rejected(self) -> tuple[str, ...]:
        """Workloads whose forecast was not accepted, those that failed among them."""
        return tuple(name for name, forecast in self.workloads.items() if not forecast.accepted) + tuple(self.failed)


@dataclass(frozen=True)
class PredictorArtifact:
    """What the predictor service, the plan and the manifests read.

    Attributes:
        schema_version: `piqc-predictor.v1`.
        trained_at: When the newest training run behind it was (UTC).
        workloads: Forecast by workload id; an entry may be older than `trained_at` (a rejected candidate never
            replaces an accepted entry).
        failed: Workloads without any forecast, with the reason.
        versions: Versions of the packages that made it.
        policy: The training policy.
        sha256: Hash of `predictor.json`, which names this version.
    """

    schema_version: str
    trained_at: datetime
    workloads: Mapping[str, WorkloadForecast]
    failed: Mapping[str, str]
    versions: Mapping[str, str]
    policy: Mapping[str, Any]
    sha256: str
