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
from piqc_pipeline.forecast.days import Day, coverage_of, days_of, scores_of
from piqc_pipeline.forecast.drift import drift_of
from piqc_pipeline.forecast.ensemble import KEPT, REFERENCES, ProphetNights, SeasonFits, members_of, references_of
from piqc_pipeline.forecast.grid import Grid, prepare
from piqc_pipeline.forecast.intervals import Calibrated, Calibration
from piqc_pipeline.forecast.journal import KEY, Journal, TakenOver, checksums, taken_over
from piqc_pipeline.forecast.journal import to_plain as journal_to_plain
from piqc_pipeline.forecast.live import Live
from piqc_pipeline.forecast.members import Member
from piqc_pipeline.forecast.model import CandidateModel, DataCard, WorkloadForecast
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.rolling import Replay, nightly_cutoffs, replay
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.spread import Distances, Pending, spread_quantiles
from piqc_pipeline.forecast.state import first_kept, kept_nights, to_plain
from piqc_pipeline.forecast.tabulate import table_of
from piqc_pipeline.forecast.verdict import accepted, judge
from piqc_pipeline.forecast.windows import lead_windows, misses_at_end
from piqc_pipeline.settings import Settings

Progress = Callable[[str], None]

LEAST_SAMPLES = 24
LEAST_HOURS = 6.0
"""Under this much history there is nothing to learn from: the plain fallback is used."""

CENSORED_LIMIT = 0.05
"""Above this share of saturated buckets the forecast is marked a lower bound."""

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
        previous: Last artifact's forecasts; they are compared with what came, and the days that they replayed are not
            replayed again.
    """
    policy = policy or TrainPolicy()
    forecasts: dict[str, WorkloadForecast] = {}
    failed: dict[str, str] = {}
    pickles: dict[str, bytes] = {}
    for one in series:
        try:
            before = (previous or {}).get(one.workload)
            trained = train_one(one, now, policy, before)
            drift = drift_of(before, one.until(now)) if before else None
            forecasts[one.workload] = replace(trained.forecast, drift=drift)
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
        why = f"no demand of {series.workload} was measured in the last {policy.train_days} days"
        raise ForecastError("; ".join((why, *series.notes)))
    newest = int(np.flatnonzero(known)[-1]) + 1
    series = series.until(series.start + timedelta(seconds=series.step_seconds * newest))
    card = data_card(series)
    grid = prepare(series, policy.calendar)
    hours = len(grid.values) * grid.step_seconds / 3600
    if known.sum() < LEAST_SAMPLES or hours < LEAST_HOURS:
        samples = "1 sample" if known.sum() == 1 else f"{int(known.sum())} samples"
        reason = f"only {samples} over {hours:.1f} h: the last value is all there is to go by"
        return Trained(fallback.plain_forecast(series, grid, now, policy, card, reason), None)
    if not grid.values.any():
        reason = (
            f"all {int(known.sum())} samples over {hours / 24:.1f} days are zero: nothing shows how load would look"
        )
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
    lead = grid.steps(policy.lead_seconds + policy.refresh_seconds)
    state = previous.state if previous else None
    before = taken_over(state, grid, _names(policy), lead)
    nights = ProphetNights(
        end - policy.prophet_nights * grid.day if before is None else before.resumed.first + 1, policy.calendar.country
    )
    fits = SeasonFits(prophet=nights.fit if policy.with_prophet else None)
    played = _replayed(grid, members_of(fits) + references_of(fits), policy, lead, state, before)
    ensemble = played.combine(played.origins, played.short, without=REFERENCES)
    windows = lead_windows(played, ensemble, lead, before.misses if before else None)
    ready = series.ready_replicas
    days, pending = days_of(
        played,
        ensemble,
        windows,
        None if ready is None else ready[len(series.demand) - end :],
        before.pending if before else Pending.none(grid.step_seconds),
    )
    days = [*(before.days if before else ()), *days]
    live = live_at_end(played, windows, days)
    table = table_of(live, grid.steps(policy.table_hours * 3600), lead, series.workload)
    scores, share = scores_of(days, policy.score_days), coverage_of(days, policy.score_days)
    checks = judge(scores, share, policy)
    is_accepted, reasons = accepted(checks)
    history_days = end / grid.day
    confidence = "high" if history_days >= 7 else "medium" if history_days >= 2 else "low"
    if confidence == "low":
        reasons = (*reasons, f"low confidence: only {history_days:.1f} days of history")
    data_until = series.end
    journal = Journal(tuple(days), pending, checksums(grid, end))
    forecast = WorkloadForecast(
        workload=series.workload,
        accepted=is_accepted,
        reasons=reasons,
        confidence=confidence,
        step_seconds=grid.step_seconds,
        issued_at=now,
        data_until=data_until,
        valid_until=data_until + timedelta(hours=policy.valid_hours),
        lead_seconds=policy.lead_seconds,
        table=table,
        scores=scores,
        checks=checks,
        coverage_q90=share,
        gpus_per_replica=series.gpus_per_replica,
        unit=series.unit,
        data=replace(card, notes=card.notes + played.notes),
        state={**to_plain(live), KEY: journal_to_plain(journal, first_kept(live))},
    )
    return Trained(forecast, nights.pickled)


def _names(policy: TrainPolicy) -> tuple[str, ...]:
    """Members of the policy's ensemble."""
    fits = KEPT if policy.with_prophet else replace(KEPT, prophet=None)
    return tuple(member.name for member in members_of(fits))


def _replayed(
    grid: Grid,
    members: Sequence[Member],
    policy: TrainPolicy,
    lead: int,
    state: Mapping[str, Any] | None,
    before: TakenOver | None,
) -> Replay:
    """The days since the last run, or all of them."""
    end = len(grid.values)
    short, far = max(lead, grid.steps(1800)), Distances.of(grid.step_seconds).columns(lead)
    if before is not None:
        return replay(
            grid, members, before.cutoffs, end, short, kept=before.nights, far_steps=far, resumed=before.resumed
        )
    cutoffs = nightly_cutoffs(grid, end, policy.replay_nights, least=min(2 * grid.day, max(1, end // 4)))
    kept = kept_nights(state, grid)
    kept.pop(end, None)  # tonight's fits are made tonight
    return replay(grid, members, cutoffs, end, short, kept=kept, far_steps=far)


def live_at_end(played: Replay, windows: tuple[Calibration, Calibrated], days: Sequence[Day]) -> Live:
    """The living state at the last origin.

    Args:
        played: The replay.
        windows: The lead window's misses and the quantiles that were given.
        days: Records of the days, oldest first.
    """
    grid, members = played.grid, played.chosen(REFERENCES)
    point, peak = spread_quantiles([day.spread for day in days], len(Distances.of(grid.step_seconds).ends))
    return Live(
        grid,
        played.nights,
        tuple(played.names[i] for i in members),
        played.losses_at_end(members),
        (misses_at_end(*windows),),
        played.floor,
        float(windows[0].largest[-1]),
        point,
        peak,
    )
