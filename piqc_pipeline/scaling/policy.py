"""Which rule turns demand into replicas, and with which numbers?

What a cluster allows belongs to `limits.py`; the arithmetic of the rule to `plan.py`.
Demand is in replica-equivalents at 100 % utilization throughout (`forecast` and `history` use the same unit).
"""

from dataclasses import dataclass
from typing import Literal

from piqc_pipeline.errors import UsageError
from piqc_pipeline.settings import Settings

Mode = Literal["observe", "shadow", "scale-out-only", "enforce"]
MODES: tuple[Mode, ...] = ("observe", "shadow", "scale-out-only", "enforce")


@dataclass(frozen=True)
class ScalingPolicy:
    """The control rule's numbers. These defaults are plain; `policy_from_settings` has those tuned by replay.

    Attributes:
        u_mid: Utilization that the median of demand over the lead time may reach, share.
        u_cap: Utilization that the `quantile` of demand over the lead time may reach, share.
        quantile: Which demand counts as unlikely, probability.
        u_observed: Utilization that demand seen right now may reach, share: the reactive floor.
        u_after_removal: A replica is removed only if utilization stays at or under this share afterwards.
        lead_seconds: From the decision to a ready replica, p95: schedule, node, pull, load, warm-up.
        min_replicas: Fewest replicas. 0 only where it is meant: KEDA 2.20 can go to zero on a failed read, and a
            request that finds no backend is counted by no engine.
        max_replicas: Most replicas, or None: what the cluster can schedule.
        down_window_seconds: How long fewer replicas must have been enough before one is removed.
        up_pods: Most replicas added in `period_seconds`, unless `up_pct` allows more.
        up_pct: Most replicas added in `period_seconds`, percent of the current count.
        down_pods: Most replicas removed in `period_seconds`, unless `down_pct` allows more.
        down_pct: Most replicas removed in `period_seconds`, percent of the current count.
        period_seconds: The period of the four limits above.
        live_seconds: How fast the difference between live demand and the forecast fades along the forecast (time
            constant); 0 leaves the forecast as it is between its refreshes.
        max_headroom: The upper limit is this multiple of the highest demand foreseen, at `u_mid`.
        failure_threshold: Failed reads after which KEDA's fallback takes over.
        pair_ratio: Fewest and most prefill replicas a decode replica, of workloads split into these roles; None:
            around what runs now.
        mode: What the manifests may do: `observe` and `shadow` move nothing, `scale-out-only` only adds.
    """

    u_mid: float = 0.80
    u_cap: float = 0.90
    quantile: float = 0.90
    u_observed: float = 0.80
    u_after_removal: float = 0.85
    lead_seconds: float = 600.0
    min_replicas: int = 1
    max_replicas: int | None = None
    down_window_seconds: int = 300
    up_pods: int = 4
    up_pct: int = 100
    down_pods: int = 1
    down_pct: int = 25
    period_seconds: int = 60
    live_seconds: float = 3600.0
    max_headroom: float = 1.2
    failure_threshold: int = 3
    pair_ratio: tuple[float, float] | None = None
    mode: Mode = "enforce"

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be meant.

        Raises:
            UsageError: A number is out of its range; the message names it.
        """
        for name in ("u_mid", "u_cap", "u_observed", "u_after_removal"):
            value = getattr(self, name)
            if not 0.1 < value <= 1:
                raise UsageError(f"{name} must be above 0.1 and at most 1, got {value}")
        if not 0.5 <= self.quantile < 1:
            raise UsageError(f"quantile must be from 0.5 to below 1, got {self.quantile}")
        if not 0 <= self.lead_seconds <= 86_400:
            raise UsageError(f"lead_seconds must be from 0 to 86400, got {self.lead_seconds}")
        if self.live_seconds < 0:
            raise UsageError(f"live_seconds must not be negative, got {self.live_seconds}")
        if self.min_replicas < 0:
            raise UsageError(f"min_replicas must not be negative, got {self.min_replicas}")
        if self.max_replicas is not None and self.max_replicas < max(self.min_replicas, 1):
            raise UsageError(
                f"max_replicas ({self.max_replicas}) is below min_replicas ({max(self.min_replicas, 1)}); "
                "raise the one or lower the other"
            )
        # Limits of autoscaling/v2: windows up to an hour, periods up to half an hour.
        if not 0 <= self.down_window_seconds <= 3600:
            raise UsageError(f"down_window_seconds must be from 0 to 3600, got {self.down_window_seconds}")
        if not 1 <= self.period_seconds <= 1800:
            raise UsageError(f"period_seconds must be from 1 to 1800, got {self.period_seconds}")
        if self.pair_ratio is not None and not 0 < self.pair_ratio[0] <= self.pair_ratio[1] <= 1000:
            least, most = self.pair_ratio
            raise UsageError(f"pair_ratio must be LEAST:MOST with 0 < LEAST <= MOST, got {least:g}:{most:g}")
        if self.mode not in MODES:
            raise UsageError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")


def policy_from_settings(settings: Settings) -> ScalingPolicy:
    """The policy that `PIQC_*` settings describe.

    Tuned by replay on 13 public series at lead times of 5 and 10 minutes, the same for all: quantile 0.95 in place of
    0.90, and no reserve beyond the rule itself when a replica is removed (it cost 1 % of GPU-hours and saved nothing).

    Raises:
        UsageError: A setting is out of its range.
    """
    return ScalingPolicy(
        u_mid=settings.target_utilization_mid,
        u_cap=settings.target_utilization_cap,
        quantile=settings.quantile,
        u_observed=settings.target_utilization_mid,
        u_after_removal=settings.target_utilization_cap,
        lead_seconds=settings.lead_time_seconds,
        min_replicas=settings.min_replicas,
        max_replicas=settings.max_replicas,
        pair_ratio=_ratio(settings.pair_ratio),
        mode=settings.scaling_mode,  # type: ignore[arg-type]
    )


def _ratio(text: str | None) -> tuple[float, float] | None:
    """`0.25:1`, or one number for both ends."""
    if text is None:
        return None
    least, _, most = text.partition(":")
    return float(least), float(most or least)
