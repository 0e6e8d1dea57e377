"""How is one series put through many policies and faults at once? Its days become columns that advance together.

Each day starts early enough that replicas and queue have forgotten how it began.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from piqc_pipeline.forecast.series import SECONDS_PER_DAY, DemandSeries
from piqc_pipeline.scaling import replay_scores as scores
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay_engine import (
    TICK_SECONDS,
    TICKS_PER_MINUTE,
    Controller,
    Course,
    Lanes,
    joined,
    simulate,
)
from piqc_pipeline.scaling.replay_forecast import phases_of
from piqc_pipeline.scaling.replay_policies import PolicyTrack
from piqc_pipeline.scaling.replay_trace import (
    Injection,
    Ticks,
    daily_peaks,
    faulty_delays,
    inject,
    shifted_week,
    start_delays,
)

Floats = NDArray[np.float64]

DAY_TICKS = SECONDS_PER_DAY // TICK_SECONDS
WARM_UP_SECONDS = 2 * 3600
"""Each day starts this long (and twice the lead time) early."""


class Stage:
    """One series, ready to be run under any policies: its days become columns that advance together."""

    def __init__(
        self,
        series: DemandSeries,
        ticks: Ticks,
        first: int,
        days: int,
        least: int,
        most: int,
        policy: ScalingPolicy,
        tolerance: float,
        seed: int,
    ) -> None:
        """Cuts the scored days out of the series.

        Args:
            series: In its buckets.
            ticks: The same at ticks of 15 s.
            first: First tick that is scored.
            days: Whole days from there.
            least: Fewest replicas.
            most: Most replicas.
            policy: Lead time and rates.
            tolerance: Of the HPA.
            seed: Of start times.
        """
        self.ticks, self.first, self.days, self.least, self.most = ticks, first, days, least, most
        self.policy, self.seed = policy, seed
        per_bucket = series.step_seconds // TICK_SECONDS
        self.per_phase = per_bucket // phases_of(per_bucket)
        warm = (WARM_UP_SECONDS + 2 * policy.lead_seconds) / TICK_SECONDS
        self.warm = min(
            int(np.ceil(warm / TICKS_PER_MINUTE)) * TICKS_PER_MINUTE, first // TICKS_PER_MINUTE * TICKS_PER_MINUTE
        )
        starts = first - self.warm + DAY_TICKS * np.arange(days)
        self.index = starts[None, :] + np.arange(self.warm + DAY_TICKS)[:, None]
        self.delays = start_delays(len(ticks.demand), policy.lead_seconds, seed)
        self.peaks = daily_peaks(ticks.demand, first, days)
        self.controller = Controller(
            tolerance=tolerance,
            down_window_ticks=max(1, policy.down_window_seconds // TICK_SECONDS),
            period_ticks=max(1, policy.period_seconds // TICK_SECONDS),
            up_pods=policy.up_pods,
            up_share=policy.up_pct / 100,
            down_pods=policy.down_pods,
            down_share=policy.down_pct / 100,
            after_removal=policy.u_after_removal,
            failure_threshold=policy.failure_threshold,
        )

    def run(self, jobs: Mapping[Injection, Sequence[PolicyTrack]]) -> dict[Injection, dict[str, scores.Minutes]]:
        """The course of each policy over the scored days, under each fault; all advance together."""
        pieces, faulty = [], {}
        for fault, chosen in jobs.items():
            plans = [self._at_ticks(track.planned, 0.0) for track in chosen]
            gap = np.zeros(len(self.ticks.demand), dtype=bool)
            demand, plans, gap = inject(fault, self._shifted(self.ticks.demand, fault), plans, gap, self.peaks)
            faulty[fault] = demand
            delays = faulty_delays(fault, self.delays, self.peaks, self.seed)
            pieces.append(self._lanes(chosen, plans, demand, gap, delays))
        course = simulate(joined(pieces), self.controller)
        out: dict[Injection, dict[str, scores.Minutes]] = {}
        position = 0
        for fault, chosen in jobs.items():
            out[fault] = {}
            for track in chosen:
                columns = slice(position * self.days, (position + 1) * self.days)
                known = self._shifted(self.ticks.known, fault)
                out[fault][track.name] = self._minutes(course, columns, track, faulty[fault], known)
                position += 1
        return out

    def _shifted(self, values: NDArray[Any], fault: Injection) -> NDArray[Any]:
        return shifted_week(values, self.first, DAY_TICKS) if fault == "weekly_shift" else values

    def _at_ticks(self, values: Floats | None, otherwise: float) -> Floats:
        """Values of phases at each tick: a phase's value is known when it begins."""
        if values is None:
            return np.full(len(self.ticks.demand), otherwise)
        return np.repeat(np.where(np.isfinite(values), values, otherwise), self.per_phase)

    def _lanes(
        self,
        chosen: Sequence[PolicyTrack],
        plans: Sequence[Floats],
        demand: Floats,
        gap: NDArray[np.bool_],
        delays: NDArray[np.int64],
    ) -> Lanes:
        spread = np.repeat(np.arange(len(chosen)), self.days)
        literal = [
            self._at_ticks(track.literal, 0.0) if track.literal is not None else np.full(len(demand), np.nan)
            for track in chosen
        ]
        follows = [track.planned is not None for track in chosen]
        shape = (self.index.shape[0], len(spread))
        fallback = max(
            1.0, float(np.ceil(np.quantile(self.ticks.demand[: max(1, self.first)], 0.95) / self.policy.u_mid))
        )
        return Lanes(
            demand=demand[self.index],
            column=np.tile(np.arange(self.days), len(chosen)),
            delay_ticks=delays[self.index],
            planned=np.stack([np.clip(plan, None, self.most)[self.index] for plan in plans], axis=1).reshape(shape),
            fallback=np.full(len(spread), fallback),
            unlikely=np.stack([self._at_ticks(track.unlikely, 0.0)[self.index] for track in chosen], axis=1).reshape(
                shape
            ),
            literal=np.stack([values[self.index] for values in literal], axis=1).reshape(shape),
            literal_target=75.0,
            literal_value=np.array([track.literal_value for track in chosen])[spread],
            follows_plan=np.array(follows)[spread],
            observed=np.array([track.observed for track in chosen])[spread],
            threshold=np.array([track.threshold for track in chosen])[spread],
            observed_gap=np.tile(gap[self.index], (1, len(chosen))),
            least=np.full(len(spread), float(self.least)),
            most=np.full(len(spread), float(self.most)),
        )

    def _minutes(
        self, course: Course, columns: slice, track: PolicyTrack, demand: Floats, measured: NDArray[np.bool_]
    ) -> scores.Minutes:
        begin = self.warm // TICKS_PER_MINUTE
        cut = slice(self.first, self.first + self.days * DAY_TICKS)
        true = demand[cut].reshape(-1, TICKS_PER_MINUTE).mean(axis=1)
        known = np.asarray(measured[cut].reshape(-1, TICKS_PER_MINUTE).all(axis=1))
        if not track.closed_loop:
            whole = scores.fives(true)
            count = np.repeat(np.clip(np.ceil(whole / self.policy.u_mid - 1e-9), max(self.least, 1), self.most), 5)
            used = np.minimum(true / count, 1.0)
            return scores.Minutes(used, count, count, np.zeros_like(used), np.zeros_like(used), true, known)
        used, wanted, ready, wait, lost = (
            getattr(course, name)[begin:, columns].T.reshape(-1).astype(np.float64)
            for name in ("utilization", "wanted", "ready", "wait_seconds", "lost")
        )
        return scores.Minutes(used, wanted, ready, wait, lost, true, known)

    def score(
        self, minutes: scores.Minutes, gpus_per_replica: float, usd_per_gpu_hour: float | None
    ) -> scores.PolicyScore:
        """The acceptance rules' figures."""
        return scores.score(
            minutes,
            gpus_per_replica,
            usd_per_gpu_hour,
            self.least,
            self.most,
            self.policy.down_window_seconds,
        )
