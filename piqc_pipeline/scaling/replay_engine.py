"""What would each policy have done, tick by tick? A fluid queue under the HPA's arithmetic, many lanes at once.

A lane is one policy on one stretch of one series. All lanes advance together, one tick of 15 s at a time, so that a
month of twelve policies costs seconds. Which lanes there are belongs to `replay_policies.py`, what they scored to
`replay_scores.py`; `hpa.py` is the same arithmetic for one object, and a test holds the two together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TICK_SECONDS = 15
"""HPA sync period; also the step of the queue."""
TICKS_PER_MINUTE = 60 // TICK_SECONDS
OBSERVED_TICKS = 8
"""Live demand is a mean over 2 min: a delay of 1 min by itself (scrape and query window)."""
GIVE_UP_SECONDS = 120.0
"""Requests wait this long at most, then they are gone."""
RATIO, COUNT, VALUE, NONE = "ratio", "count", "value", "none"
"""How live demand is read: AverageValue against a share; the same rounded up in the query, target 1; Value; not."""


@dataclass(frozen=True)
class Controller:
    """The numbers that every lane's HPA shares.

    Attributes:
        tolerance: Share around the target that moves nothing.
        down_window_ticks: Stabilization window of scale-in.
        period_ticks: Period of the rate limits.
        up_pods: Most replicas added a period, unless `up_share` allows more.
        up_share: Most replicas added a period, share of the count.
        down_pods: Most replicas removed a period, unless `down_share` allows more.
        down_share: Most replicas removed a period, share of the count.
        after_removal: The predictor keeps a replica whose removal would lift utilization above this share.
        failure_threshold: After more failed reads than this, one a sync, KEDA's fallback takes over
            (`currentReplicasIfHigher`; `hpa.fallback_metric` for one object).
    """

    tolerance: float = 0.1
    down_window_ticks: int = 20
    period_ticks: int = 4
    up_pods: int = 4
    up_share: float = 1.0
    down_pods: int = 1
    down_share: float = 0.25
    after_removal: float = 0.85
    failure_threshold: int = 3


@dataclass(frozen=True)
class Lanes:
    """Every lane of one run; arrays of one entry a lane, or one row a tick.

    Attributes:
        demand: Demand in replicas at 100 %, shape (ticks, columns).
        column: Which column a lane stands on.
        delay_ticks: Ticks until a replica added at a tick is ready, shape (ticks, columns).
        planned: Replicas that the predictor (or a schedule) asks for, shape (ticks, lanes); NaN: the read fails.
        fallback: Replicas asked for once reads have failed long enough.
        unlikely: Quantile of demand behind `planned`, for the hold on scale-in, shape (ticks, lanes); 0 without.
        literal: Predicted demand that the specification's form divides by the count, shape (ticks, lanes); else NaN.
        literal_target: Its target, percent.
        literal_value: Whether its metric is read as Value.
        follows_plan: Whether `planned` is a trigger of the lane.
        observed: How live demand is read, one of `RATIO`, `COUNT`, `VALUE`, `NONE`, a lane.
        threshold: Share that live demand is held to.
        observed_gap: Where the read of live demand fails, shape (ticks, lanes).
        least: Fewest replicas.
        most: Most replicas.
    """

    demand: Floats
    column: Ints
    delay_ticks: Ints
    planned: Floats
    fallback: Floats
    unlikely: Floats
    literal: Floats
    literal_target: float
    literal_value: NDArray[np.bool_]
    follows_plan: NDArray[np.bool_]
    observed: NDArray[np.str_]
    threshold: Floats
    observed_gap: NDArray[np.bool_]
    least: Floats
    most: Floats


def joined(pieces: Sequence[Lanes]) -> Lanes:
    """Lanes side by side, each piece with its own demand and start times."""
    first = pieces[0]
    widths = np.cumsum([0, *(piece.demand.shape[1] for piece in pieces)])
    columns = [piece.column + offset for piece, offset in zip(pieces, widths, strict=False)]
    tables = ("demand", "delay_ticks", "planned", "unlikely", "literal", "observed_gap")
    rows = ("fallback", "literal_value", "follows_plan", "observed", "threshold", "least", "most")
    merged: dict[str, Any] = {"column": np.concatenate(columns)}
    merged |= {name: np.concatenate([getattr(piece, name) for piece in pieces], axis=1) for name in tables}
    merged |= {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in rows}
    return replace(first, **merged)


@dataclass(frozen=True)
class Course:
    """What happened, as means over each minute, shape (minutes, lanes).

    Attributes:
        utilization: Served work over ready capacity.
        wanted: Replicas asked for, pending ones included: what is paid.
        ready: Replicas that serve.
        wait_seconds: Longest expected wait of the minute.
        lost: Work that gave up, replica-seconds.
    """

    utilization: NDArray[np.float32]
    wanted: NDArray[np.float32]
    ready: NDArray[np.float32]
    wait_seconds: NDArray[np.float32]
    lost: NDArray[np.float32]


def simulate(lanes: Lanes, controller: Controller) -> Course:
    """Runs every lane from its first tick to its last.

    Each lane starts with the replicas that its first demand needs at 80 %, all ready.
    """
    ticks, count = lanes.demand.shape[0], len(lanes.column)
    minutes = ticks // TICKS_PER_MINUTE
    state = _State(lanes, controller)
    shape = (minutes, count)
    course = Course(*(np.zeros(shape, np.float32) for _ in range(5)))
    for tick in range(minutes * TICKS_PER_MINUTE):
        minute = tick // TICKS_PER_MINUTE
        state.serve(tick)
        course.utilization[minute] += state.utilization
        course.wanted[minute] += state.wanted
        course.ready[minute] += state.ready
        np.maximum(course.wait_seconds[minute], state.wait, out=course.wait_seconds[minute], casting="same_kind")
        course.lost[minute] += state.gone
        state.scale(tick)
    for sums in (course.utilization, course.wanted, course.ready):
        sums /= TICKS_PER_MINUTE
    return course


class _State:
    """Replicas, queue and memory of every lane."""

    def __init__(self, lanes: Lanes, controller: Controller) -> None:
        self.lanes, self.rules = lanes, controller
        count = len(lanes.column)
        first = lanes.demand[0, lanes.column]
        self.wanted = np.clip(np.ceil(first / 0.80 - 1e-9), lanes.least, lanes.most)
        self.ready = self.wanted.copy()
        self.queue = np.zeros(count)
        self.slots = int(lanes.delay_ticks.max(initial=1)) + 2
        self.coming = np.zeros((self.slots, count))
        self.served = np.repeat(first[None, :], OBSERVED_TICKS, axis=0)
        self.served_sum = self.served.sum(axis=0)
        self.past = np.repeat(self.wanted[None, :], controller.period_ticks, axis=0)
        self.recommended = np.zeros((controller.down_window_ticks, count))
        self.failed = np.zeros(count)
        self.failed_observed = np.zeros(count)
        kinds = lanes.observed
        self.by_ratio, self.by_count = np.flatnonzero(kinds == RATIO), np.flatnonzero(kinds == COUNT)
        self.by_value = np.flatnonzero(kinds == VALUE)
        self.by_plan = np.flatnonzero(lanes.follows_plan)
        self.by_literal = np.flatnonzero(np.isfinite(lanes.literal[0]))
        self.plan_may_fail = bool(np.isnan(lanes.planned[:, self.by_plan]).any())
        self.observed_may_fail = bool(lanes.observed_gap.any())
        self.utilization = self.wait = self.gone = np.zeros(count)

    def serve(self, tick: int) -> None:
        """Replicas become ready, work arrives, is served, waits or is gone."""
        slot = tick % self.slots
        self.ready += self.coming[slot]
        self.coming[slot] = 0.0
        work = self.lanes.demand[tick, self.lanes.column] * TICK_SECONDS + self.queue
        capacity = self.ready * TICK_SECONDS
        served = np.minimum(work, capacity)
        left = work - served
        self.queue = np.minimum(left, self.ready * GIVE_UP_SECONDS)
        self.gone = left - self.queue
        safe = np.maximum(self.ready, 1e-9)
        self.utilization = np.where(self.ready > 0, served / (safe * TICK_SECONDS), (work > 0).astype(np.float64))
        self.wait = np.where(self.ready > 0, self.queue / safe, np.where(work > 0, GIVE_UP_SECONDS, 0.0))
        place = tick % OBSERVED_TICKS
        self.served_sum += served / TICK_SECONDS - self.served[place]
        self.served[place] = served / TICK_SECONDS

    def scale(self, tick: int) -> None:
        """One HPA sync: proposals of the metrics, windows, rates, limits; then replicas are added or removed."""
        lanes, rules, standing = self.lanes, self.rules, self.wanted
        proposal, blocked = self._proposals(tick)
        moves = proposal >= 0
        moves &= ~(blocked & (proposal < standing))
        self.recommended[tick % rules.down_window_ticks] = np.where(moves, proposal, 0.0)
        highest = self.recommended.max(axis=0)
        target = np.minimum(np.maximum(standing, proposal), highest)
        start = self.past[tick % rules.period_ticks]
        up = np.maximum(standing, np.maximum(start + rules.up_pods, np.ceil(start * (1 + rules.up_share))))
        down = np.minimum(standing, np.minimum(start - rules.down_pods, np.floor(start * (1 - rules.down_share))))
        target = np.clip(np.minimum(np.maximum(target, down), up), lanes.least, lanes.most)
        target = np.where(moves, target, standing)
        self._move(tick, target - standing)
        self.past[tick % rules.period_ticks] = target
        self.wanted = target

    def _proposals(self, tick: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Largest proposal of each lane (-1: none valid), and whether one of its metrics is invalid."""
        lanes, tolerance, standing = self.lanes, self.rules.tolerance, self.wanted
        best = np.full(len(standing), -1.0)
        blocked = np.zeros(len(standing), dtype=bool)
        live = np.ceil(self.served_sum * (1000 / OBSERVED_TICKS) - 1e-6) / 1000  # thousandths, rounded up
        if len(self.by_plan):
            best[self.by_plan] = self._planned(tick, live, blocked)
        seen = np.full(len(standing), -1.0)
        if len(self.by_ratio):
            here = self.by_ratio
            seen[here] = _average(live[here], lanes.threshold[here], standing[here], tolerance)
        if len(self.by_count):
            here = self.by_count
            asked = np.ceil(live[here] / lanes.threshold[here] - 1e-9)
            seen[here] = _average(asked, 1.0, standing[here], tolerance)
        if len(self.by_value):
            here = self.by_value
            ratio = live[here] / np.maximum(self.ready[here], 1e-9) / lanes.threshold[here]
            ratio = np.minimum(ratio, 1.0 / lanes.threshold[here])
            steady = (ratio >= 1 - tolerance) & (ratio <= 1 + tolerance)
            seen[here] = np.where(steady, standing[here], np.ceil(ratio * self.ready[here] - 1e-9))
        if self.observed_may_fail:
            seen = self._observed_failures(tick, seen, blocked)
        if len(self.by_literal):
            here = self.by_literal
            best[here] = self._literal(tick, here)
        return np.maximum(best, seen), blocked

    def _planned(self, tick: int, live: Floats, blocked: NDArray[np.bool_]) -> Floats:
        """The plan's trigger at target 1, with the hold on scale-in and KEDA's fallback."""
        lanes, here = self.lanes, self.by_plan
        standing = self.wanted[here]
        asked = lanes.planned[tick, here]
        failing = np.isnan(asked) if self.plan_may_fail else None
        unlikely = lanes.unlikely[tick, here]
        needed = np.ceil(np.maximum(unlikely, live[here]) / self.rules.after_removal - 1e-9)
        needed = np.where(self.ready[here] < standing, standing, needed)
        held = np.maximum(asked, np.minimum(standing, needed))
        asked = np.where((unlikely > 0) & (asked < standing), held, asked)
        if failing is not None:
            self.failed[here] = np.where(failing, self.failed[here] + 1, 0)
            fallback = np.maximum(standing, lanes.fallback[here])
            dead = failing & (self.failed[here] <= self.rules.failure_threshold)
            blocked[here] |= dead
            asked = np.where(failing, fallback, asked)
            return np.where(dead, -1.0, _average(asked, 1.0, standing, self.rules.tolerance))
        return _average(asked, 1.0, standing, self.rules.tolerance)

    def _observed_failures(self, tick: int, seen: Floats, blocked: NDArray[np.bool_]) -> Floats:
        gap = self.lanes.observed_gap[tick] & (self.lanes.observed != NONE)
        self.failed_observed = np.where(gap, self.failed_observed + 1, 0)
        dead = gap & (self.failed_observed <= self.rules.failure_threshold)
        blocked |= dead
        fallback = np.maximum(self.wanted, self.lanes.fallback)
        return np.where(dead, -1.0, np.where(gap, fallback, seen))

    def _literal(self, tick: int, here: Ints) -> Floats:
        """Predicted utilization, 0 to 100, against a percentage."""
        lanes, standing = self.lanes, self.wanted[here]
        predicted = np.minimum(100.0, 100.0 * lanes.literal[tick, here] / np.maximum(standing, 1.0))
        average = _average(predicted, lanes.literal_target, standing, self.rules.tolerance)
        ratio = predicted / lanes.literal_target
        steady = (ratio >= 1 - self.rules.tolerance) & (ratio <= 1 + self.rules.tolerance)
        value = np.where(steady, standing, np.ceil(ratio * self.ready[here] - 1e-9))
        return np.where(lanes.literal_value[here], value, average)

    def _move(self, tick: int, change: Floats) -> None:
        """Added replicas become ready after their delay; removal drops pending ones first, the youngest before."""
        added = np.flatnonzero(change > 0)
        if len(added):
            due = (tick + self.lanes.delay_ticks[tick, self.lanes.column[added]]) % self.slots
            self.coming[due, added] += change[added]
        removed = np.flatnonzero(change < 0)
        if not len(removed):
            return
        amount = -change[removed]
        pending = self.wanted[removed] - self.ready[removed]
        dropped = np.minimum(amount, np.maximum(pending, 0.0))
        self.ready[removed] -= amount - dropped
        for lane, count in zip(removed[dropped > 0], dropped[dropped > 0], strict=True):
            left = count
            waiting = np.flatnonzero(self.coming[:, lane])
            for slot in waiting[np.argsort((tick - waiting) % self.slots)]:  # the last to come first
                taken = min(left, self.coming[slot, lane])
                self.coming[slot, lane] -= taken
                left -= taken
                if left <= 0:
                    break


def _average(value: Floats, target: Floats | float, standing: Floats, tolerance: float) -> Floats:
    """AverageValue: the count stands where the ratio is within the tolerance, else ceil(value / target)."""
    ratio = value / (target * np.maximum(standing, 1.0))
    steady = (ratio >= 1 - tolerance - 1e-12) & (ratio <= 1 + tolerance + 1e-12)
    return np.where(steady & (standing > 0), standing, np.ceil(value / target - 1e-9))
