"""How much work was asked for, in replicas? Demand from utilization, and its correction where load was censored.

Demand does not depend on the replicas we had, until they were saturated: then the load
signal stops at 100 % and demand is censored. Censored samples are corrected and marked, never dropped.
"""

import polars as pl

SATURATED_UTILIZATION = 0.95
"""Share from which a load signal counts as saturated."""

BACKLOG_DRAIN_SECONDS = 120.0
"""Time in which a backlog should be worked off: a backlog of B adds B / (service rate of a replica x this)."""

MIN_DEVICE_COVERAGE = 0.8
"""Share of the expected devices from which the seen ones stand for all; below it the sum is unknown."""


def corrected_demand(
    measured: pl.Expr, offered_rate: pl.Expr, capacity: pl.Expr, waiting: pl.Expr, served_rate: pl.Expr, ready: pl.Expr
) -> pl.Expr:
    """Demand in replicas of a censored sample.

    `D* = max(D, offered rate / capacity)` where the capacity of a replica is known; else
    `D* = D + B / (c T)` with the backlog B, the service rate c of a replica and T = 120 s; else D.

    Args:
        measured: Demand as measured, replicas.
        offered_rate: Work that arrived, per second.
        capacity: Work per second that keeps one replica 100 % busy; null where unknown.
        waiting: Requests in the queues.
        served_rate: Requests per second that were finished by all replicas.
        ready: Ready replicas.
    """
    by_rate = pl.max_horizontal(measured, offered_rate / pl.when(capacity > 0).then(capacity))
    service = served_rate / pl.when(ready > 0).then(ready)
    backlog = waiting / (pl.when(service > 0).then(service) * BACKLOG_DRAIN_SECONDS)
    return (
        pl.when(capacity.is_not_null() & offered_rate.is_not_null())
        .then(by_rate)
        .otherwise(measured + backlog.fill_null(0))
    )


def censored(utilization: pl.Expr, waiting: pl.Expr) -> pl.Expr:
    """True where the replicas may have been asked for more than they show: saturated, or requests waited."""
    return (utilization.fill_null(0) >= SATURATED_UTILIZATION) | (waiting.fill_null(0) > 0)
