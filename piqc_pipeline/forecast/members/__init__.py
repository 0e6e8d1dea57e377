"""Which forecasters take part? One small protocol (fit in the night, predict from any origin of the day after).

Combining them, and their errors, do not belong here.
"""

from dataclasses import dataclass, field
from typing import Protocol

from piqc_pipeline.forecast.grid import Floats, Grid, Ints


@dataclass
class Night:
    """What was known at a cutoff, shared by the members fitted there.

    Attributes:
        grid: The series; only buckets before `cutoff` may be read while fitting.
        cutoff: Index of the first bucket that is not known yet.
        seasons: Seasonal fits made so far, by name, so that two members share one.
        coefficients: Autoregressive fits made so far, by member.
        earlier: The nights before, oldest first; their seasons give out-of-sample residuals.
        rows: Training rows of the day after this night, by season, once that day is over.
    """

    grid: Grid
    cutoff: int
    seasons: dict[str, "Season"] = field(default_factory=dict)
    coefficients: dict[str, Floats] = field(default_factory=dict)
    earlier: tuple["Night", ...] = ()
    rows: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)


class Season(Protocol):
    """A fitted seasonal shape."""

    def values(self, index: Ints) -> Floats:
        """Expected demand in the buckets; no later demand is read."""
        ...


class Predictor(Protocol):
    """A fitted member."""

    def predict(self, origins: Ints, horizon: int) -> Floats:
        """Paths of shape (origins, horizon); the path of origin o reads only buckets before o."""
        ...


class Member(Protocol):
    """A forecaster that is fitted once a night."""

    @property
    def name(self) -> str:
        """Its name in scores, weights and the model card."""
        ...

    def fit(self, night: Night) -> Predictor | None:
        """The member fitted on what was known at `night.cutoff`; None where there is too little history."""
        ...
