"""How good was each policy? The acceptance rules, each with its figure; definitions beside the code.

Scores are computed from minutes (`replay_engine.Course`); days stay apart so that a bootstrap can draw them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BAND = (0.70, 0.80)
OVER = 0.90
LONGEST_RUN_MINUTES = 10
SLO_WAIT_SECONDS = 15.0
REVERSAL_MINUTES = 15
DESCENT_SHARE = 0.30
LOW_UTILIZATION = 0.30


@dataclass(frozen=True)
class Minutes:
    """One policy's course on the scored days, oldest first; one value a minute, days of 1,440 minutes.

    Attributes:
        utilization: Mean over the minute.
        wanted: Replicas paid for.
        ready: Replicas that served.
        wait_seconds: Longest expected wait.
        lost: Replica-seconds of work that gave up.
        demand: Demand, replicas at 100 %.
        known: Whether demand was measured; other minutes do not count.
    """

    utilization: Floats
    wanted: Floats
    ready: Floats
    wait_seconds: Floats
    lost: Floats
    demand: Floats
    known: Bools

    @property
    def days(self) -> int:
        """Whole days."""
        return len(self.demand) // 1440


@dataclass(frozen=True)
class PolicyScore:
    """The acceptance rules' figures for one policy on one series.

    Attributes:
        gpu_hours: Accelerator-hours asked for.
        usd: Their price; None without one.
        minutes_over_90: Minutes with mean utilization above 90 %.
        minutes_over_90_at_max: Of these, with the count at its maximum.
        runs_over_10: Runs above 90 % longer than 10 minutes, outside of those at the maximum.
        longest_run_minutes: The longest of them.
        slo_minutes: Minutes whose expected wait was above 15 s.
        lost_share: Share of the work that gave up; None, as the shares and means below, where nothing was known.
        in_band: Share of 5-minute means between 70 and 80 %.
        mean_utilization: Weighted by GPU-hours.
        under_30_share: Share of 5-minute means under 30 % with more than the minimum running.
        late_descents: Falls of 30 % and more after which replicas had not fallen within the window and 10 min.
        moves_per_day: Changes of the count.
        reversals_per_day: Changes of direction within 15 minutes.
        mean_replicas: Mean count asked for.
    """

    gpu_hours: float
    usd: float | None
    minutes_over_90: int
    minutes_over_90_at_max: int
    runs_over_10: int
    longest_run_minutes: int
    slo_minutes: int
    lost_share: float | None
    in_band: float | None
    mean_utilization: float | None
    under_30_share: float | None
    late_descents: int
    moves_per_day: float
    reversals_per_day: float
    mean_replicas: float | None


def score(
    minutes: Minutes,
    gpus_per_replica: float,
    usd_per_gpu_hour: float | None,
    least: float,
    most: float,
    window_seconds: float,
) -> PolicyScore:
    """Scores one policy; see `PolicyScore` for each definition."""
    known = minutes.known
    over = (minutes.utilization > OVER) & known
    at_most = minutes.wanted >= most - 1e-6
    runs = run_lengths(over & ~at_most)
    five, five_known = fives(minutes.utilization), fives(known.astype(np.float64)) >= 1.0
    five_wanted = fives(minutes.wanted)
    hours = float(minutes.wanted[known].sum()) / 60 * gpus_per_replica
    changes = np.flatnonzero(np.abs(np.diff(minutes.wanted)) > 1e-6)
    days = max(1, minutes.days)
    work = float(minutes.demand[known].sum()) * 60
    weight = float(minutes.ready[known].sum())
    low = (five < LOW_UTILIZATION) & (five_wanted > least + 1e-6) & five_known
    return PolicyScore(
        gpu_hours=hours,
        usd=None if usd_per_gpu_hour is None else hours * usd_per_gpu_hour,
        minutes_over_90=int(over.sum()),
        minutes_over_90_at_max=int((over & at_most).sum()),
        runs_over_10=int((runs > LONGEST_RUN_MINUTES).sum()),
        longest_run_minutes=int(runs.max(initial=0)),
        slo_minutes=int(((minutes.wait_seconds > SLO_WAIT_SECONDS) & known).sum()),
        lost_share=float(minutes.lost[known].sum()) / work if work else None,
        in_band=share(in_band(five), five_known),
        mean_utilization=float((minutes.utilization * minutes.ready)[known].sum()) / weight if weight else None,
        under_30_share=share(low, five_known),
        late_descents=late_descents(minutes, window_seconds, least),
        moves_per_day=len(changes) / days,
        reversals_per_day=reversals(minutes.wanted) / days,
        mean_replicas=float(minutes.wanted[known].mean()) if known.any() else None,
    )


def in_band(utilization: Floats) -> Bools:
    """Both edges are inside."""
    return (utilization >= BAND[0] - 1e-9) & (utilization <= BAND[1] + 1e-9)


def achievable(demand: Floats, least: float, most: float) -> Bools:
    """Whether some whole count within the limits puts demand in the band."""
    fewest = np.maximum(np.ceil(demand / BAND[1] - 1e-9), max(least, 1))
    return (fewest <= most) & in_band(demand / fewest)


def achievable_share(minutes: Minutes, least: float, most: float) -> float | None:
    """Share of 5-minute means for which a count exists that puts them in the band."""
    known = fives(minutes.known.astype(np.float64)) >= 1.0
    return share(achievable(fives(minutes.demand), least, most), known)


def share(what: Bools, among: Bools) -> float | None:
    """Share of `among` for which `what` holds; None where there is none."""
    return float((what & among).sum() / among.sum()) if among.any() else None


def fives(values: Floats) -> Floats:
    """Means over 5 minutes."""
    means: Floats = values[: len(values) // 5 * 5].reshape(-1, 5).mean(axis=1)
    return means


def run_lengths(flags: Bools) -> NDArray[np.int64]:
    """Lengths of the stretches of True."""
    padded = np.concatenate([[0], flags.astype(np.int8), [0]])
    edges = np.flatnonzero(np.diff(padded))
    lengths: NDArray[np.int64] = edges[1::2] - edges[::2]
    return lengths


def reversals(wanted: Floats) -> int:
    """Changes that undo the direction of another within 15 minutes."""
    change = np.diff(wanted)
    at = np.flatnonzero(np.abs(change) > 1e-6)
    if len(at) < 2:
        return 0
    signs, gaps = np.sign(change[at]), np.diff(at)
    return int(((signs[1:] != signs[:-1]) & (gaps <= REVERSAL_MINUTES)).sum())


def late_descents(minutes: Minutes, window_seconds: float, least: float) -> int:
    """Falls of 30-minute demand by 30 % from a peak after which the count was not lower within window + 10 min.

    Falls that end at the minimum count, or at what demand needs by then, are left out.
    """
    smooth = np.convolve(minutes.demand, np.full(30, 1 / 30), mode="same")
    allowed = int(window_seconds // 60 + 10)
    late, peak, peak_at, position = 0, 0.0, 0, 0
    while position < len(smooth) - allowed:
        if smooth[position] >= peak:
            peak, peak_at = smooth[position], position
        elif smooth[position] <= (1 - DESCENT_SHARE) * peak:
            before = float(np.max(minutes.wanted[peak_at : position + 1]))
            after = float(np.min(minutes.wanted[position : position + allowed + 1]))
            enough = np.ceil(smooth[position] / BAND[0])
            if after >= before and after > max(least, enough) + 1e-6:
                late += 1
            peak, peak_at = smooth[position], position
        position += 1
    return late


def by_day(minutes: Minutes) -> tuple[Floats, Floats, Floats, Floats]:
    """GPU-hours a replica-accelerator, minutes over 90 %, 5-minute means in the band and known, of each day."""
    days = minutes.days
    cut = slice(0, days * 1440)
    known = minutes.known[cut].reshape(days, -1)
    hours = (minutes.wanted[cut].reshape(days, -1) * known).sum(axis=1) / 60
    over = ((minutes.utilization[cut].reshape(days, -1) > OVER) & known).sum(axis=1).astype(np.float64)
    whole = fives(minutes.known[cut].astype(np.float64)).reshape(days, -1) >= 1.0
    band = (in_band(fives(minutes.utilization[cut])).reshape(days, -1) & whole).sum(axis=1).astype(np.float64)
    return hours, over, band, whole.sum(axis=1).astype(np.float64)


def at_equal_hours(hours: Floats, over: Floats, frontier_hours: Floats, frontier_over: Floats) -> tuple[Floats, Floats]:
    """Minutes over 90 % of a policy and of the reactive one that spends as many GPU-hours, for each draw of days.

    Args:
        hours: GPU-hours of the policy, shape (draws,).
        over: Its minutes over 90 %.
        frontier_hours: GPU-hours of the reactive policies, shape (policies, draws).
        frontier_over: Their minutes over 90 %.

    Returns:
        The policy's minutes, and the reactive minutes on the line between its two neighbors; beyond the ends, those of
        the last.
    """
    reactive = np.empty_like(over)
    for draw in range(len(hours)):
        order = np.argsort(frontier_hours[:, draw])
        reactive[draw] = np.interp(hours[draw], frontier_hours[order, draw], frontier_over[order, draw])
    return over, reactive
