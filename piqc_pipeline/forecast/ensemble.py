"""Which members make the ensemble, and which forecasts are only its references?"""

from dataclasses import dataclass

from piqc_pipeline.forecast.members import Member, Night, Season
from piqc_pipeline.forecast.members import prophet as prophet_member
from piqc_pipeline.forecast.members.levels import ExponentialSmoothing, LastValue, MovingAverage, SeasonalNaive
from piqc_pipeline.forecast.members.prophet import ProphetSettings
from piqc_pipeline.forecast.members.residuals import AutoregressiveSeason, CarriedSeason, PlainSeason, SeasonFit
from piqc_pipeline.forecast.members.seasons import fit_profile, fit_ridge
from piqc_pipeline.forecast.model import PROPHET, SAME_TIME_YESTERDAY

HOUR = 3600.0
PROPHET_MEMBERS = ("prophet_carried",)
REFERENCES = (SAME_TIME_YESTERDAY, PROPHET)
"""Replayed and scored, but no part of the ensemble (the last value and the moving average are members themselves)."""


class ProphetNights:
    """Prophet's fits, one a night from `first` on; those of earlier runs come with the kept nights.

    Attributes:
        pickled: The newest fitted model, for `prophet_model.pkl`.
    """

    def __init__(self, first: int, country: str | None = None) -> None:
        """Starts without a fit.

        Args:
            first: No fit is made for cutoffs before this index: it would cost more than it tells.
            country: Holidays for Prophet.
        """
        self.first = first
        self.settings = ProphetSettings(holidays_country=country)
        self.pickled: bytes | None = None

    def fit(self, night: Night) -> Season | None:
        """The season for a night; see `members.prophet.fit_prophet`."""
        if night.cutoff < self.first:
            return None
        found = prophet_member.fit_model(night, self.settings)
        if found is None:
            return None
        model, season = found
        self.pickled = prophet_member.pickled(model)
        return season


@dataclass(frozen=True)
class SeasonFits:
    """How the seasonal members are fitted.

    Attributes:
        ridge: Fourier terms with a trend.
        profile: Median day.
        prophet: Prophet; None leaves it out of the ensemble.
    """

    ridge: SeasonFit = fit_ridge
    profile: SeasonFit = fit_profile
    prophet: SeasonFit | None = None


def _kept(night: Night) -> Season | None:
    """Fits nothing: a season that the night does not hold yet stays absent."""
    return None


KEPT = SeasonFits(_kept, _kept, _kept)
"""For nights that were fitted before."""


def members_of(fits: SeasonFits) -> list[Member]:
    """The nine members, in a fixed order; eight without Prophet."""
    members: list[Member] = [
        LastValue(),
        MovingAverage(),
        ExponentialSmoothing(),
        SeasonalNaive("day_carried", 1),
        SeasonalNaive("week_carried", 7),
        CarriedSeason("ridge_carried", "ridge", fits.ridge, 6 * HOUR),
        AutoregressiveSeason("ridge_ar", "ridge", fits.ridge),
        AutoregressiveSeason("profile_ar", "profile", fits.profile),
    ]
    if fits.prophet is not None:
        members.append(CarriedSeason(PROPHET_MEMBERS[0], "prophet", fits.prophet, None))
    return members


def references_of(fits: SeasonFits) -> list[Member]:
    """Forecasts that are only compared with."""
    references: list[Member] = [SeasonalNaive(SAME_TIME_YESTERDAY, 1, carry=False)]
    if fits.prophet is not None:
        references.append(PlainSeason(PROPHET, "prophet", fits.prophet))
    return references
