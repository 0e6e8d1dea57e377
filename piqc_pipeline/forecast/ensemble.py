"""Which members make the ensemble, and which forecasts are only its references?"""

from piqc_pipeline.forecast.members import Member, Night
from piqc_pipeline.forecast.members import prophet as prophet_member
from piqc_pipeline.forecast.members.levels import ExponentialSmoothing, LastValue, MovingAverage, SeasonalNaive
from piqc_pipeline.forecast.members.prophet import ProphetSeason, ProphetSettings
from piqc_pipeline.forecast.members.residuals import AutoregressiveSeason, CarriedSeason, PlainSeason
from piqc_pipeline.forecast.members.seasons import fit_profile, fit_ridge
from piqc_pipeline.forecast.model import PROPHET, SAME_TIME_YESTERDAY, WorkloadForecast

HOUR = 3600.0
PROPHET_MEMBERS = ("prophet_carried",)
REFERENCES = (SAME_TIME_YESTERDAY, PROPHET)
"""Replayed and scored, but no part of the ensemble (the last value and the moving average are members themselves)."""


class ProphetNights:
    """Prophet's fits, one a night from `first` on; those of earlier runs are taken from the artifact.

    Attributes:
        pickled: The newest fitted model, for `prophet_model.pkl`.
        fits: Every season used, by cutoff (seconds since 1970 UTC).
    """

    def __init__(self, first: int, previous: WorkloadForecast | None = None, country: str | None = None) -> None:
        """Keeps what earlier runs fitted.

        Args:
            first: No fit is made for cutoffs before this index: it would cost more than it tells.
            previous: The workload's entry in the last artifact.
            country: Holidays for Prophet.
        """
        self.first = first
        self.settings = ProphetSettings(holidays_country=country)
        self.pickled: bytes | None = None
        self.fits: dict[int, ProphetSeason] = {}
        state = (previous.state or {}) if previous else {}
        self.kept = dict(state.get("prophet", {})) if state.get("country") == country else {}

    def fit(self, night: Night) -> ProphetSeason | None:
        """The season for a night; see `members.prophet.fit_prophet`."""
        if night.cutoff < self.first:
            return None
        grid = night.grid
        moment = int(grid.start_seconds + night.cutoff * grid.step_seconds)
        if str(moment) in self.kept:
            self.fits[moment] = ProphetSeason.from_plain(grid, self.kept[str(moment)])
            return self.fits[moment]
        found = prophet_member.fit_model(night, self.settings)
        if found is None:
            return None
        model, season = found
        self.pickled = prophet_member.pickled(model)
        self.fits[moment] = season
        return season


def members_of(with_prophet: bool = True, nights: ProphetNights | None = None) -> list[Member]:
    """The nine members of the design (section 1) and the references, in a fixed order."""
    members: list[Member] = [
        LastValue(),
        MovingAverage(),
        ExponentialSmoothing(),
        SeasonalNaive("day_carried", 1),
        SeasonalNaive("week_carried", 7),
        CarriedSeason("ridge_carried", "ridge", fit_ridge, 6 * HOUR),
        AutoregressiveSeason("ridge_ar", "ridge", fit_ridge),
        AutoregressiveSeason("profile_ar", "profile", fit_profile),
        SeasonalNaive(SAME_TIME_YESTERDAY, 1, carry=False),
    ]
    if with_prophet:
        fit = (nights or ProphetNights(0)).fit
        members += [CarriedSeason("prophet_carried", "prophet", fit, None), PlainSeason(PROPHET, "prophet", fit)]
    return members
