"""What would the HPA do? Its arithmetic to the letter, in the milli-units it computes in.

Source: kubernetes `pkg/controller/podautoscaler/replica_calculator.go` and `horizontal.go` (v1.36), KEDA
`pkg/fallback/fallback.go` (v2.20.2). External metrics only, which is what KEDA makes. The replay runs the same rules on
arrays (`replay_engine.py`); a test holds the two together.
"""

import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Literal

MetricType = Literal["AverageValue", "Value"]
FallbackBehavior = Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]
SelectPolicy = Literal["Max", "Min", "Disabled"]

DEFAULT_TOLERANCE = 0.1
"""kube-controller-manager --horizontal-pod-autoscaler-tolerance."""
DEAD_ZONE_FROM = 10
"""Replicas from which on the default tolerance swallows a step of one replica: 1 / `DEFAULT_TOLERANCE`."""


def milli(value: float | str) -> int:
    """A metric's value in thousandths, rounded up as `resource.Quantity.MilliValue` does."""
    return int((Decimal(str(value)) * 1000).to_integral_value(ROUND_CEILING))


@dataclass(frozen=True)
class Tolerance:
    """How far a ratio may be from 1 before anything moves, share, by direction."""

    up: float = DEFAULT_TOLERANCE
    down: float = DEFAULT_TOLERANCE

    def holds(self, ratio: float) -> bool:
        """Whether the ratio is near enough to 1; both edges are inside."""
        return 1 - self.down <= ratio <= 1 + self.up


DEFAULT = Tolerance()


@dataclass(frozen=True)
class Metric:
    """One external metric of an HPA.

    Attributes:
        value_milli: Its value in thousandths; None where the read failed.
        target_milli: Its target in thousandths, above 0.
        type: `AverageValue` (per replica) or `Value`.
    """

    value_milli: int | None
    target_milli: int
    type: MetricType = "AverageValue"


@dataclass(frozen=True)
class Policy:
    """One scaling policy: at most `value` pods or percent in `period_seconds`."""

    type: Literal["Pods", "Percent"]
    value: int
    period_seconds: int


@dataclass(frozen=True)
class Rules:
    """One direction of `spec.behavior`."""

    window_seconds: int
    policies: tuple[Policy, ...]
    select: SelectPolicy = "Max"


DEFAULT_UP = Rules(0, (Policy("Percent", 100, 15), Policy("Pods", 4, 15)))
DEFAULT_DOWN = Rules(300, (Policy("Percent", 100, 15),))
"""What the API server fills in where a behavior leaves them out."""


@dataclass(frozen=True)
class HpaSpec:
    """What an HPA is told."""

    min_replicas: int
    max_replicas: int
    up: Rules = DEFAULT_UP
    down: Rules = DEFAULT_DOWN
    tolerance: Tolerance = DEFAULT


@dataclass
class HpaMemory:
    """What the controller remembers of one HPA; lost at its restart.

    Attributes:
        recommendations: `(seconds, count)` before stabilization; the first is the count that it found.
        added: `(seconds, replicas)` of past scale-ups.
        removed: `(seconds, replicas)` of past scale-downs.
    """

    recommendations: list[tuple[float, int]] = field(default_factory=list)
    added: list[tuple[float, int]] = field(default_factory=list)
    removed: list[tuple[float, int]] = field(default_factory=list)


def proposal(metric: Metric, replicas: int, ready: int, tolerance: Tolerance = DEFAULT) -> int | None:
    """Replicas that one metric asks for.

    Args:
        metric: The metric.
        replicas: `status.replicas`, pending and surge pods included.
        ready: Ready pods; used by `Value` only.
        tolerance: Of the HPA, or the cluster's.

    Returns:
        The count before windows, policies and limits; None where the metric is invalid.
    """
    value, target = metric.value_milli, metric.target_milli
    if value is None:
        return None
    if metric.type == "AverageValue":
        ratio = value / (target * replicas) if replicas else math.inf
        return replicas if replicas and tolerance.holds(ratio) else math.ceil(value / target)
    ratio = value / target
    if replicas == 0:
        return math.ceil(ratio)
    return replicas if tolerance.holds(ratio) else math.ceil(ratio * ready)


def recommend(
    metrics: tuple[Metric, ...],
    replicas: int,
    ready: int | None = None,
    tolerance: Tolerance = DEFAULT,
) -> int | None:
    """The largest proposal; None (no change) where all are invalid, or one is and the rest would go down."""
    ready = replicas if ready is None else ready
    proposals = [proposal(metric, replicas, ready, tolerance) for metric in metrics]
    valid = [count for count in proposals if count is not None]
    if not valid or (len(valid) < len(proposals) and max(valid) < replicas):
        return None
    return max(valid)


def step(
    spec: HpaSpec,
    memory: HpaMemory,
    now_seconds: float,
    metrics: tuple[Metric, ...],
    replicas: int,
    ready: int | None = None,
) -> int:
    """One sync: the count that the HPA writes, and `memory` brought up to date.

    A count of 0 with a minimum above 0 means that autoscaling is off. A count outside the limits is moved to them
    before any metric is read.
    """
    if not memory.recommendations:  # so that a controller that starts anew does not take replicas away at once
        memory.recommendations.append((now_seconds, replicas))
    if replicas == 0 and spec.min_replicas != 0:
        return 0
    if replicas > spec.max_replicas:
        desired = spec.max_replicas
    elif replicas < spec.min_replicas:
        desired = spec.min_replicas
    else:
        wanted = recommend(metrics, replicas, ready, spec.tolerance)
        if wanted is None:
            return replicas
        desired = _limited(
            spec, memory, now_seconds, _stabilized(spec, memory, now_seconds, wanted, replicas), replicas
        )
    if desired > replicas:
        memory.added.append((now_seconds, desired - replicas))
    elif desired < replicas:
        memory.removed.append((now_seconds, replicas - desired))
    return desired


def _stabilized(spec: HpaSpec, memory: HpaMemory, now: float, wanted: int, replicas: int) -> int:
    """Up to the smallest recommendation of the up window, down to the largest of the down window."""
    ups = [count for at, count in memory.recommendations if at > now - spec.up.window_seconds]
    downs = [count for at, count in memory.recommendations if at > now - spec.down.window_seconds]
    longest = max(spec.up.window_seconds, spec.down.window_seconds)
    memory.recommendations = [(at, count) for at, count in memory.recommendations if at >= now - longest]
    memory.recommendations.append((now, wanted))
    return min(max(replicas, min([wanted, *ups])), max([wanted, *downs]))


def _limited(spec: HpaSpec, memory: HpaMemory, now: float, desired: int, replicas: int) -> int:
    """Policies of the direction, then the limits."""
    if desired > replicas:
        most = max(replicas, _bound(spec.up, memory, now, replicas, upwards=True))
        return min(desired, most, spec.max_replicas)
    if desired < replicas:
        fewest = min(replicas, _bound(spec.down, memory, now, replicas, upwards=False))
        return max(desired, fewest, spec.min_replicas)
    return desired


def _bound(rules: Rules, memory: HpaMemory, now: float, replicas: int, *, upwards: bool) -> int:
    """The count that the policies of one direction allow. `Max` is the one that moves furthest."""
    if rules.select == "Disabled":
        return replicas
    bounds = []
    for policy in rules.policies:
        added = sum(change for at, change in memory.added if at > now - policy.period_seconds)
        removed = sum(change for at, change in memory.removed if at > now - policy.period_seconds)
        start = replicas - added + removed
        if policy.type == "Pods":
            bounds.append(start + policy.value if upwards else start - policy.value)
        elif upwards:
            bounds.append(math.ceil(start * (1 + policy.value / 100)))
        else:
            bounds.append(int(start * (1 - policy.value / 100)))
    furthest = max if upwards else min
    nearest = min if upwards else max
    return furthest(bounds) if rules.select == "Max" else nearest(bounds)


@dataclass(frozen=True)
class Fallback:
    """`spec.fallback` of a ScaledObject."""

    failure_threshold: int
    replicas: int
    behavior: FallbackBehavior = "static"


def fallback_metric(metric: Metric, fallback: Fallback | None, failures: int, current: int, ready: int) -> Metric:
    """What KEDA hands to the HPA for a trigger that failed `failures` times in a row.

    Until *more than* the threshold the error goes on. Then `target x replicas` for AverageValue; for Value
    `target x replicas / ready`, and an error where none is ready.
    """
    if fallback is None or failures <= fallback.failure_threshold:
        return Metric(None, metric.target_milli, metric.type)
    count = {
        "static": fallback.replicas,
        "currentReplicas": current,
        "currentReplicasIfHigher": max(current, fallback.replicas),
        "currentReplicasIfLower": min(current, fallback.replicas),
    }[fallback.behavior]
    if metric.type == "AverageValue":
        return Metric(metric.target_milli * count, metric.target_milli, metric.type)
    if ready == 0:
        return Metric(None, metric.target_milli, metric.type)
    return Metric(math.ceil(metric.target_milli * count / ready), metric.target_milli, metric.type)


def largest_reachable(metric_type: MetricType, largest_milli: int, target_milli: int) -> int | None:
    """Most replicas that a metric with a highest possible value can ever ask for; None: no bound (Value multiplies).

    With Value the count grows without bound while the ratio stays above 1 + tolerance, and not at all otherwise.
    """
    if metric_type == "AverageValue":
        return math.ceil(largest_milli / target_milli)
    return None if largest_milli / target_milli > 1 + DEFAULT_TOLERANCE else 1
