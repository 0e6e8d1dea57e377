"""What did we publish and see in the last minutes? The memory that the hold on scale-in needs.

The rule itself is `scaling.plan`; it is pure, so what it may not forget is kept here. A restart forgets: the first
answer then stands on what Prometheus remembers, and HPA's own window still delays the removal.
"""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from piqc_pipeline.scaling.plan import LiveState, PlanStep
from piqc_pipeline.scaling.policy import ScalingPolicy


@dataclass
class WorkloadMemory:
    """Recent counts of one workload, oldest first."""

    published: deque[tuple[datetime, int]] = field(default_factory=deque)
    wanted: deque[tuple[datetime, int]] = field(default_factory=deque)
    demand: deque[tuple[datetime, float]] = field(default_factory=deque)

    def live_state(
        self,
        now: datetime,
        policy: ScalingPolicy,
        *,
        replicas_wanted: int | None,
        replicas_ready: int | None,
        waiting_requests: float | None,
        demand_window_max: float | None,
    ) -> LiveState:
        """What the rule may know besides demand now.

        `replicas` is the most that was published within one period of scale-in, so that ticks shorter than the
        period cannot remove its allowance twice; before anything was published, what runs.

        Args:
            now: Aware UTC.
            policy: Its windows are used.
            replicas_wanted: From the workload's spec, where somebody exports it.
            replicas_ready: Ready replicas, where known.
            waiting_requests: Requests that wait, where known.
            demand_window_max: Highest demand of the window, as Prometheus remembers it.
        """
        window = timedelta(seconds=policy.down_window_seconds)
        for entries in (self.wanted, self.demand):
            _drop_before(entries, now - window)
        _drop_before(self.published, now - timedelta(seconds=policy.period_seconds))
        standing = max((count for _, count in self.published), default=replicas_wanted)
        pending = None
        if replicas_wanted is not None and replicas_ready is not None:
            pending = max(0, replicas_wanted - replicas_ready)
        demands = [value for _, value in self.demand]
        if demand_window_max is not None:
            demands.append(demand_window_max)
        return LiveState(
            replicas=standing,
            pending_replicas=pending,
            waiting_requests=waiting_requests,
            demand_window_max=max(demands, default=None),
            wanted_window_max=max((count for _, count in self.wanted), default=None),
        )

    def remember(self, now: datetime, step: PlanStep, wanted: int, demand: float | None) -> None:
        """Keep what was just decided: the count published, the count wanted before the hold, and demand."""
        self.published.append((now, step.replicas))
        self.wanted.append((now, wanted))
        if demand is not None:
            self.demand.append((now, demand))


def _drop_before(entries: "deque[tuple[datetime, int]] | deque[tuple[datetime, float]]", moment: datetime) -> None:
    # One entry at or before the edge is kept for `published`: a silence must not count as "nothing stands".
    while len(entries) > 1 and entries[0][0] < moment:
        entries.popleft()
