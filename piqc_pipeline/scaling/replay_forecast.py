"""Which forecast would each past moment have had? Rolling, without look-ahead, by the same code that trains.

Only the maximum over the lead window is needed: that is what a plan is made of. Between two buckets the forecast is
moved to live demand, as the predictor does every 30 s.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.forecast.ensemble import REFERENCES, SeasonFits, members_of, references_of
from piqc_pipeline.forecast.grid import prepare
from piqc_pipeline.forecast.intervals import Calibration, coverage, pinball
from piqc_pipeline.forecast.rolling import Replay, nightly_cutoffs, replay
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.scaling.plan import LIVE_LOWERS_AT_MOST
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay_engine import OBSERVED_TICKS, TICK_SECONDS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ENSEMBLE = "ensemble"
YESTERDAY = "same_time_yesterday"
LIVE_SECONDS = ScalingPolicy().live_seconds
MOST_PHASES = 5
"""Moments inside a bucket at which the forecast is moved to live demand."""
REFRESH_SECONDS = 30.0


@dataclass(frozen=True)
class PeakForecast:
    """Quantiles of the maximum over the lead window, one value a phase; NaN before the first forecast.

    Attributes:
        median: Maximum of the expected path.
        unlikely: The policy's quantile.
        point: Expected demand one lead time ahead.
        coverage: Share of finished windows whose maximum was at or under `unlikely`, over the scored part.
        pinball: Mean pinball loss of `unlikely`, replicas.
        mae: Mean absolute error of `median` against the maximum that came, replicas.
    """

    median: Floats
    unlikely: Floats
    point: Floats
    coverage: float
    pinball: float
    mae: float


def phases_of(ticks_per_bucket: int) -> int:
    """Phases of a bucket: the most that divide it, at least a minute long."""
    most = max(1, min(MOST_PHASES, ticks_per_bucket * TICK_SECONDS // 60))
    return next(phases for phases in range(most, 0, -1) if ticks_per_bucket % phases == 0)


def rolling_peaks(
    series: DemandSeries, demand: Floats, lead_seconds: float, first_scored: int, quantile: float = 0.9
) -> dict[str, PeakForecast]:
    """Forecasts of the ensemble (without Prophet) and of "same time yesterday", from every phase of every bucket.

    Args:
        series: Demand, replicas at 100 %.
        demand: The same at ticks of 15 s.
        lead_seconds: From decision to a ready replica.
        first_scored: First bucket whose scores count.
        quantile: Which demand counts as unlikely.
    """
    grid = prepare(series)
    skipped, end = len(series.demand) - len(grid.values), len(grid.values)
    least = min(2 * grid.day, max(1, end // 4))
    cutoffs = nightly_cutoffs(grid, end - 1, max(1, (end - least) // grid.day), least=least)
    steps = int(np.ceil((lead_seconds + REFRESH_SECONDS) / series.step_seconds)) + 2
    fits = SeasonFits()
    played = replay(grid, members_of(fits) + references_of(fits), cutoffs, end - 1, steps)
    last = played.short[:, :, played.names.index("last_value")]
    ensemble = played.combine(played.origins, played.short, without=REFERENCES)
    yesterday = played.short[:, :, played.names.index(YESTERDAY)]
    scored = max(0, first_scored - skipped)
    view = _View(played, skipped, series, demand, lead_seconds, quantile, scored)
    return {
        ENSEMBLE: view.peaks(np.where(np.isfinite(ensemble), ensemble, last), follows_live=True),
        YESTERDAY: view.peaks(np.where(np.isfinite(yesterday), yesterday, last), follows_live=False),
    }


@dataclass(frozen=True)
class _View:
    """One series as seen from each origin."""

    played: Replay
    skipped: int
    series: DemandSeries
    demand: Floats
    lead_seconds: float
    quantile: float
    scored: int

    def peaks(self, paths: Floats, *, follows_live: bool) -> PeakForecast:
        """Calibrated quantiles of a forecast's lead-window maximum."""
        per_bucket = self.series.step_seconds // TICK_SECONDS
        phases = phases_of(per_bucket)
        size = len(self.series.demand)
        median, unlikely, point = (np.full((size, phases), np.nan) for _ in range(3))
        figures = []
        rows = self.played.origins + self.skipped
        judged = self.played.origins >= self.scored
        # As in the forecast table: the reserve is calibrated on forecasts made when a bucket ends, and moves with them.
        path, window = self._window(paths, 0, follows_live=False)
        peaks = path.max(axis=1)
        reserve = self._calibrated(peaks, self._came(0, window), window) - peaks
        for phase in range(phases):
            offset = phase * per_bucket // phases
            path, window = self._window(paths, offset, follows_live=follows_live)
            actual = self._came(offset, window)
            middle = path.max(axis=1)
            median[rows, phase], unlikely[rows, phase], point[rows, phase] = middle, middle + reserve, path[:, -1]
            high, came, error = (middle + reserve)[judged], actual[judged], np.abs(actual - middle)[judged]
            mean = float(np.nanmean(error)) if np.isfinite(error).any() else float("nan")
            figures.append((coverage(came, high), pinball(came, high, self.quantile), mean))
        means = np.mean(np.array(figures), axis=0)
        columns = [column.reshape(-1) for column in (median, unlikely, point)]
        return PeakForecast(columns[0], columns[1], columns[2], float(means[0]), float(means[1]), float(means[2]))

    def _window(self, paths: Floats, offset: int, *, follows_live: bool) -> tuple[Floats, int]:
        """The forecast over the lead window from a phase on, at ticks of a minute, and the window's width in ticks."""
        per_bucket = self.series.step_seconds // TICK_SECONDS
        origins = self.played.origins
        before = self.played.grid.values[np.maximum(origins - 1, 0)]
        points = np.concatenate([before[:, None], paths], axis=1)
        width = int(np.ceil((self.lead_seconds + REFRESH_SECONDS) / TICK_SECONDS))
        at = offset + np.append(np.arange(0, width, 4), width)
        window = _between(points, at / per_bucket)
        if follows_live:
            # Live demand is a 2-minute mean: it stands for the moment one minute ago.
            seen = (origins + self.skipped) * per_bucket + offset
            sums = np.concatenate([[0.0], np.cumsum(self.demand)])
            low = np.maximum(seen - OBSERVED_TICKS, 0)
            live = (sums[seen] - sums[low]) / np.maximum(seen - low, 1)
            expected = _between(points, np.array([(offset - OBSERVED_TICKS / 2) / per_bucket]))[:, 0]
            surprise = np.maximum(live - expected, -LIVE_LOWERS_AT_MOST * expected)
            ahead = (at - offset) * TICK_SECONDS
            window = np.maximum(window + surprise[:, None] * np.exp(-ahead / LIVE_SECONDS)[None, :], 0.0)
        return window, width

    def _came(self, offset: int, width: int) -> Floats:
        """Maximum that came in each window; NaN where a bucket of it was not measured."""
        per_bucket = self.series.step_seconds // TICK_SECONDS
        rows = self.played.origins + self.skipped
        padded = np.append(self.demand, np.full(width + 1, np.nan))
        actual = np.lib.stride_tricks.sliding_window_view(padded, width + 1)[rows * per_bucket + offset].max(axis=1)
        known = np.isfinite(self.series.demand)
        reach = self._reach(offset, width)
        whole = np.lib.stride_tricks.sliding_window_view(np.append(known, np.ones(reach, dtype=bool)), reach)
        came: Floats = np.where(whole[rows].all(axis=1), actual, np.nan)
        return came

    def _reach(self, offset: int, width: int) -> int:
        """Buckets until a window's maximum is known."""
        return int(np.ceil((offset + width) / (self.series.step_seconds // TICK_SECONDS))) + 1

    def _calibrated(self, peaks: Floats, actual: Floats, width: int) -> Floats:
        """Quantile of the maximum from its own past misses."""
        grid, origins, reach = self.played.grid, self.played.origins, self._reach(0, width)
        largest = np.maximum.accumulate(grid.values)[np.maximum(origins - 1, 0)]
        calibration = Calibration(reach, grid.day, origins, peaks, actual, largest)
        high = calibration.run(self.quantile, min(len(origins) - 1, 2 * reach)).quantile
        unlikely: Floats = np.where(np.isfinite(high), np.maximum(high, peaks), 1.2 * peaks)
        return unlikely


def _between(points: Floats, at: Floats) -> Floats:
    """Straight lines between the middles of buckets; column 0 is the bucket before the origin, `at` in buckets."""
    position = np.clip(at + 0.5, 0.0, points.shape[1] - 1.0)
    left = np.minimum(position.astype(np.int64), points.shape[1] - 2)
    share = position - left
    lines: Floats = points[:, left] * (1 - share) + points[:, left + 1] * share
    return lines
