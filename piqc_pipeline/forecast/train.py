"""How is tonight's forecast made? One workload at a time: replay, combine, calibrate, score, judge, tabulate.

Files belong in `artifact`, several processes in `shards`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from piqc_pipeline.errors import ForecastError
from piqc_pipeline.forecast import fallback
from piqc_pipeline.forecast.calendar import Calendar
from piqc_pipeline.forecast.ensemble import (
    PROPHET_MEMBERS,
    REFERENCES,
    ProphetNights,
    SeasonFits,
    members_of,
    references_of,
)
from piqc_pipeline.forecast.grid import Floats, Grid, prepare
from piqc_pipeline.forecast.intervals import Calibration, PastMisses, coverage, window_maximum
from piqc_pipeline.forecast.live import Live, Misses
from piqc_pipeline.forecast.model import (
    CONSTANT,
    DAYS_5H,
    DAYS_30M,
    ENSEMBLE,
    ENSEMBLE_WITHOUT_PROPHET,
    LAST_DAY_30M,
    PROPHET,
    CandidateModel,
    DataCard,
    Score,
    WorkloadForecast,
)
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.rolling import Replay, nightly_cutoffs, replay, targets
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.state import kept_nights, to_plain
from piqc_pipeline.forecast.tabulate import residual_quantiles, table_of
from piqc_pipeline.forecast.verdict import accepted, judge, score
from piqc_pipeline.settings import Settings

Progress = Callable[[str], None]

LEAST_SAMPLES = 24
LEAST_HOURS = 6.0
"""Under this much history there is nothing to learn from: the plain fallback is used."""

CENSORED_LIMIT = 0.05
"""Above this share of saturated buckets the forecast is marked a lower bound."""

ADAPTING_DAYS = 1.5
"""The adaptive level starts half a day before the last day, which it is scored on."""

PACKAGES = ("piqc_pipeline", "numpy", "prophet", "cmdstanpy")


@dataclass(frozen=True)
class Trained:
    """One workload's forecast and its pickled Prophet, if one was fitted."""

    forecast: WorkloadForecast
    prophet_model: bytes | None


def train(
    series: Sequence[DemandSeries],
    now: datetime,
    policy: TrainPolicy | None = None,
    progress: Progress | None = None,
    previous: Mapping[str, WorkloadForecast] | None = None,
) -> CandidateModel:
    """Forecasts for every series; one that fails is named and never holds back the others.

    Args:
        series: Demand of the workloads.
        now: The instant taken as now; later buckets are not looked at.
        policy: How; the defaults if None.
        progress: Called with each workload's id when it is done.
        previous: Last artifact's forecasts; Prophet's fits of the nights before are taken from them.
    """
    policy = policy or TrainPolicy()
    forecasts: dict[str, WorkloadForecast] = {}
    failed: dict[str, str] = {}
    pickles: dict[str, bytes] = {}
    for one in series:
        try:
            trained = train_one(one, now, policy, (previous or {}).get(one.workload))
            forecasts[one.workload] = trained.forecast
            if trained.prophet_model is not None:
                pickles[one.workload] = trained.prophet_model
        except (ForecastError, ValueError, ArithmeticError, np.linalg.LinAlgError, IndexError) as error:
            failed[one.workload] = (
                f"{type(error).__name__}: {error}" if not isinstance(error, ForecastError) else str(error)
            )
        if progress is not None:
            progress(one.workload)
    return CandidateModel(now, forecasts, failed, versions(), policy.plain(), pickles)


def policy_from(settings: Settings, **changes: Any) -> TrainPolicy:
    """The training policy that the settings ask for.

    Args:
        settings: The effective settings.
        changes: Fields of `TrainPolicy` that override them.
    """
    policy = TrainPolicy(
        train_days=settings.train_days,
        lead_seconds=round(settings.lead_time_seconds),
        refresh_seconds=round(settings.refresh_seconds),
        calendar=Calendar(settings.workload_timezone),
    )
    return replace(policy, **changes)


def versions() -> dict[str, str]:
    """Versions of the packages whose arithmetic is in the forecast."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def train_one(
    series: DemandSeries, now: datetime, policy: TrainPolicy, previous: WorkloadForecast | None = None
) -> Trained:
    """One workload's forecast.

    Raises:
        ForecastError: It has no sample at all.
    """
    series = series.until(now).last_days(policy.train_days)
    known = np.isfinite(series.demand)
    if not known.any():
        raise ForecastError(f"no demand of {series.workload} was measured in the last {policy.train_days} days")
    newest = int(np.flatnonzero(known)[-1]) + 1
    series = series.until(series.start + timedelta(seconds=series.step_seconds * newest))
    card = data_card(series)
    grid = prepare(series, policy.calendar)
    hours = len(grid.values) * grid.step_seconds / 3600
    if known.sum() < LEAST_SAMPLES or hours < LEAST_HOURS:
        reason = f"only {int(known.sum())} samples over {hours:.1f} h: the last value is all there is to go by"
        return Trained(fallback.plain_forecast(series, grid, now, policy, card, reason), None)
    return _learn(series, grid, now, policy, card, previous)


def data_card(series: DemandSeries) -> DataCard:
    """What a forecast is made from."""
    known = np.isfinite(series.demand)
    censored = None if series.censored is None or not known.any() else float(series.censored[known].mean())
    notes = series.notes
    if censored is not None and censored > CENSORED_LIMIT:
        notes = (*notes, f"demand was cut off by saturation in {censored:.0%} of the buckets: a lower bound")
    levels = [float(level) for level in np.quantile(series.demand[known], [0.95, 0.999])] if known.any() else [None] * 2
    return DataCard(series.start, series.end, int(known.sum()), int((~known).sum()), censored, notes, *levels)


def _learn(
    series: DemandSeries,
    grid: Grid,
    now: datetime,
    policy: TrainPolicy,
    card: DataCard,
    previous: WorkloadForecast | None,
) -> Trained:
    end = len(grid.values)
    cutoffs = nightly_cutoffs(grid, end, policy.replay_nights, least=min(2 * grid.day, max(1, end // 4)))
    nights = ProphetNights(end - policy.prophet_nights * grid.day, policy.calendar.country)
    lead = grid.steps(policy.lead_seconds + policy.refresh_seconds)
    short = max(lead, grid.steps(1800))
    fits = SeasonFits(prophet=nights.fit if policy.with_prophet else None)
    kept = kept_nights(previous.state, grid) if previous else {}
    kept.pop(end, None)  # tonight's fits are made tonight
    played = replay(grid, members_of(fits) + references_of(fits), cutoffs, end, short, kept=kept)
    ensemble = played.combine(played.origins, played.short, without=REFERENCES)
    calibration = lead_calibration(played, ensemble, lead)
    first_scored = max(int(played.origins[0]), end - policy.score_days * grid.day)
    scores = score_days(series, played, ensemble, first_scored)
    live, share = live_at_end(played, ensemble, calibration)
    table = table_of(live, grid.steps(policy.table_hours * 3600), lead, series.workload)
    checks = judge(scores, share if np.isfinite(share) else None, policy)
    is_accepted, reasons = accepted(checks)
    days = end / grid.day
    data_until = series.end
    forecast = WorkloadForecast(
        workload=series.workload,
        accepted=is_accepted,
        reasons=reasons,
        confidence="high" if days >= 7 else "medium" if days >= 2 else "low",
        step_seconds=grid.step_seconds,
        issued_at=now,
        data_until=data_until,
        valid_until=data_until + timedelta(hours=policy.valid_hours),
        lead_seconds=policy.lead_seconds,
        table=table,
        scores=scores,
        checks=checks,
        coverage_q90=share if np.isfinite(share) else None,
        gpus_per_replica=series.gpus_per_replica,
        unit=series.unit,
        data=replace(card, notes=card.notes + played.notes),
        state=to_plain(live),
    )
    return Trained(forecast, nights.pickled)


def live_at_end(played: Replay, ensemble: Floats, calibration: Calibration) -> tuple[Live, float]:
    """The living state at the last origin, and the share of the last day's maxima at or under their q90.

    Args:
        played: The replay.
        ensemble: Combined short paths.
        calibration: Of the lead window.
    """
    grid, count = played.grid, len(played.origins)
    first = max(0, count - 1 - round(ADAPTING_DAYS * grid.day))
    given = calibration.run(0.9, first)
    pending = slice(max(0, count - calibration.steps), count)
    past = PastMisses.of(calibration.residuals[: max(0, count - calibration.steps)], calibration.steps, grid.day)
    peaks, highs = calibration.peaks[pending].tolist(), given.quantile[pending].tolist()
    members = played.chosen(REFERENCES)
    largest = float(calibration.largest[-1])
    point, peak = residual_quantiles(played, calibration.steps, largest)
    live = Live(
        grid,
        played.nights,
        tuple(played.names[i] for i in members),
        played.losses_at_end(members),
        (Misses(calibration.steps, past, tuple(peaks), tuple(highs), float(given.level[-1])),),
        float(played.floor[0]),
        largest,
        point,
        peak,
    )
    return live, coverage(calibration.actual, given.quantile)


def lead_calibration(played: Replay, ensemble: Floats, steps: int) -> Calibration:
    """Past misses of the maximum over the lead window."""
    grid = played.grid
    actual = window_maximum(targets(grid, played.origins, steps), steps)
    largest = np.maximum.accumulate(grid.values)[np.maximum(played.origins - 1, 0)]
    return Calibration(steps, grid.day, played.origins, window_maximum(ensemble, steps), actual, largest)


def score_days(series: DemandSeries, played: Replay, ensemble: Floats, first: int) -> dict[str, dict[str, Score]]:
    """Scores of the ensemble and its references on the days kept from training.

    Args:
        series: For ready replicas.
        played: The replay.
        ensemble: Combined short paths from every origin.
        first: First origin that is scored.
    """
    grid, end = played.grid, len(played.grid.values)
    ready = None
    if series.ready_replicas is not None:
        ready = series.ready_replicas[len(series.demand) - end :]
    steps = grid.steps(1800)
    result: dict[str, dict[str, Score]] = {}
    typical = float(np.median(grid.values[: max(1, first)]))
    hour = grid.steps(3600)
    chosen_long = np.flatnonzero((played.long_origins >= first) & ((played.long_origins - first) % hour == 0))
    long_origins = played.long_origins[chosen_long]
    short_models, long_models = _models(played, ensemble, chosen_long, typical)
    for key, start in ((LAST_DAY_30M, max(first, end - grid.day)), (DAYS_30M, first)):
        rows = np.flatnonzero((played.origins >= start) & (played.origins + steps <= end))
        origins = played.origins[rows]
        actual = targets(grid, origins, steps)
        replicas = _ready_at(ready, origins, steps)
        for name, paths in short_models.items():
            result.setdefault(name, {})[key] = score(paths[rows, :steps], actual, replicas)
    horizon = played.buckets.horizon
    whole = long_origins + horizon <= end
    actual = targets(grid, long_origins[whole], horizon)
    replicas = _ready_at(ready, long_origins[whole], horizon)
    for name, paths in long_models.items():
        result[name][DAYS_5H] = score(paths[whole], actual, replicas)
    return result


def _models(
    played: Replay, ensemble: Floats, chosen_long: np.ndarray[tuple[int], np.dtype[np.int64]], typical: float
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    long_paths, long_origins = played.long[chosen_long], played.long_origins[chosen_long]
    without = (*REFERENCES, *PROPHET_MEMBERS)
    short = {ENSEMBLE: ensemble, CONSTANT: np.full_like(ensemble, typical)}
    long = {
        ENSEMBLE: played.combine(long_origins, long_paths, without=REFERENCES),
        CONSTANT: np.full(long_paths.shape[:2], typical),
    }
    if any(name in played.names for name in PROPHET_MEMBERS):
        short[ENSEMBLE_WITHOUT_PROPHET] = played.combine(played.origins, played.short, without=without)
        long[ENSEMBLE_WITHOUT_PROPHET] = played.combine(long_origins, long_paths, without=without)
    for name in ("last_value", "sma_60", "same_time_yesterday", PROPHET):
        if name in played.names:
            short[name] = played.short[:, :, played.names.index(name)]
            long[name] = long_paths[:, :, played.names.index(name)]
    return short, long


def _ready_at(ready: Floats | None, origins: np.ndarray[tuple[int], np.dtype[np.int64]], steps: int) -> Floats | None:
    if ready is None:
        return None
    at: Floats = ready[np.minimum(origins[:, None] + np.arange(steps)[None, :], len(ready) - 1)]
    return at
