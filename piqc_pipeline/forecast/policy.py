"""What is trained, how far ahead, and what must a forecast reach to be used?"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from piqc_pipeline.forecast.calendar import Calendar


@dataclass(frozen=True)
class TrainPolicy:
    """How forecasts are made and judged.

    Attributes:
        train_days: Days of demand used, at most.
        lead_seconds: From a decision to a ready replica; the lead window is this plus `refresh_seconds`.
        refresh_seconds: How often live demand is read.
        table_hours: How far the forecast table reaches.
        replay_nights: Past nights whose forecasts are replayed for weights, quantiles and scores at the first run; a
            nightly run goes on from the one before (`journal`).
        score_days: Days kept from training that the card shows; the checks look at the newest or at all of them.
        with_prophet: Whether Prophet is a member.
        prophet_nights: Past nights for which Prophet is fitted too (they are kept, so a nightly run fits one).
        valid_hours: How long after the data's end the forecast may be used.
        mae_limit_pp: Limit of `mae_below_10_pp`, percentage points of utilization (the specification).
        reference: What `beats_reference` compares with, fixed in advance.
        reference_slack: How much worse than the reference the ensemble may be, share.
        coverage_limits: Accepted share of lead-window maxima at or under their q90.
        calendar: The workloads' clock, holidays and known events.
    """

    train_days: int = 28
    lead_seconds: int = 600
    refresh_seconds: int = 30
    table_hours: int = 48
    replay_nights: int = 8
    score_days: int = 4
    with_prophet: bool = True
    prophet_nights: int = 4
    valid_hours: float = 36.0
    mae_limit_pp: float = 10.0
    reference: str = "last_value"
    reference_slack: float = 0.01
    coverage_limits: tuple[float, float] = (0.85, 0.97)
    calendar: Calendar = field(default_factory=Calendar)

    def plain(self) -> Mapping[str, Any]:
        """The policy as JSON values, for the card."""
        return {
            "train_days": self.train_days,
            "lead_seconds": self.lead_seconds,
            "refresh_seconds": self.refresh_seconds,
            "table_hours": self.table_hours,
            "replay_nights": self.replay_nights,
            "score_days": self.score_days,
            "with_prophet": self.with_prophet,
            "prophet_nights": self.prophet_nights,
            "valid_hours": self.valid_hours,
            "mae_limit_pp": self.mae_limit_pp,
            "reference": self.reference,
            "reference_slack": self.reference_slack,
            "coverage_limits": list(self.coverage_limits),
            "zone": self.calendar.zone,
            "country": self.calendar.country,
            "events": [event.name for event in self.calendar.events],
        }
