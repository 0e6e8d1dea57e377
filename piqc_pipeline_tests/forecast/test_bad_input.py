"""Whatever the history holds: no NaN, nothing negative, no unbounded quantile, and a reason where confidence is low."""

from datetime import timedelta

import numpy as np
import pytest

from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.refresh import refresh
from piqc_pipeline.forecast.series import on_grid
from piqc_pipeline.forecast.train import train
from piqc_pipeline_tests.forecast.examples import START, daily_wave, series_of

POLICY = TrainPolicy(with_prophet=False, replay_nights=3)
DAY = 144


def with_gap(demand, first_day, days):
    demand = demand.copy()
    demand[first_day * DAY : (first_day + days) * DAY] = np.nan
    return demand


def jumped(stamps):
    stamps = stamps.copy()
    stamps[500:520] += 90 * 86_400
    stamps[900:910] -= 3600
    return stamps


def noisy(values):
    values = values.copy()
    values[::50] = -1.0
    values[7::50] = 1e30
    return values


def spiked(values, *before_the_end):
    values = values.copy()
    values[[-back for back in before_the_end]] = 9e14
    return values


WAVE = daily_wave(days=7)
STAMPS = START.timestamp() + 600.0 * np.arange(len(WAVE))

SERIES = {
    "one sample": series_of(np.array([2.0])),
    "constant": series_of(np.full(7 * DAY, 3.0)),
    "all zeros": series_of(np.zeros(7 * DAY)),
    "gaps of days": series_of(with_gap(WAVE, 3, 2)),
    "gap up to now": series_of(with_gap(WAVE, 5, 2)),
    "nothing but the first hour": series_of(np.where(np.arange(len(WAVE)) < 6, WAVE, np.nan)),
    "level shift of ten times": series_of(np.where(np.arange(len(WAVE)) < 6 * DAY, WAVE, 10 * WAVE)),
    "level shift an hour ago": series_of(np.where(np.arange(len(WAVE)) < 7 * DAY - 6, WAVE, 10 * WAVE)),
    "above capacity": series_of(WAVE, replicas=1),
    "no ready replicas": series_of(WAVE, replicas=0),
    "unknown replicas": series_of(WAVE, replicas=None),
    "negative and absurd": on_grid("c/ns/Deployment/web", STAMPS, noisy(WAVE)),
    "absurd values before now": on_grid("c/ns/Deployment/web", STAMPS, spiked(WAVE, 6, 1)),
    "duplicates, unsorted": on_grid("c/ns/Deployment/web", np.tile(STAMPS, 2)[::-1], np.tile(WAVE, 2)[::-1]),
    "clock jumps": on_grid("c/ns/Deployment/web", jumped(STAMPS), WAVE),
    "one-minute steps": series_of(daily_wave(days=3, step_seconds=60), step_seconds=60),
    "half-hour steps": series_of(daily_wave(days=12, step_seconds=1800), step_seconds=1800),
    "hourly steps": series_of(daily_wave(days=12, step_seconds=3600), step_seconds=3600),
    "half a day": series_of(WAVE[: DAY // 2]),
    "a day and a half": series_of(WAVE[: 3 * DAY // 2]),
    "three years": series_of(np.tile(daily_wave(days=73), 15)),
    "tiny": series_of(WAVE * 1e-9),
    "huge": series_of(WAVE * 1e12),
}


@pytest.mark.parametrize("kind", SERIES)
def test_forecast_is_finite_bounded_and_says_why_confidence_is_low(kind):
    series = SERIES[kind]
    candidate = train([series], series.end, POLICY)
    assert candidate.failed == {}
    entry = candidate.workloads[series.workload]
    seen = np.nanmax(series.demand)
    for name in ("q50", "q90", "lower", "peak_q50", "peak_q90"):
        column = np.array(getattr(entry.table, name))
        assert np.isfinite(column).all(), name
        assert (column >= 0).all(), name
        assert (column <= (4 * seen or 1.0) + 1e-9).all(), name
    assert (np.array(entry.table.peak_q50) >= np.array(entry.table.q50) - 0.05 * seen).all()
    if entry.confidence == "low":
        assert any(reason.startswith("low confidence: ") for reason in entry.reasons)
    fresh = [float(seen), None, 0.0]
    if entry.state is not None:
        again = refresh(entry, entry.data_until, fresh, entry.issued_at + timedelta(minutes=10))
        assert np.isfinite(again.table.peak_q90).all() and min(again.table.lower) >= 0


def test_all_missing_is_named_and_nothing_is_forecast():
    series = series_of(np.full(7 * DAY, np.nan))
    candidate = train([series], series.end, POLICY)
    assert "no demand" in candidate.failed[series.workload]


def test_nothing_but_absurd_values_is_named_with_the_cause():
    series = on_grid("c/ns/Deployment/web", STAMPS, np.full(len(WAVE), 1e300))
    candidate = train([series], series.end, POLICY)
    assert candidate.failed[series.workload].endswith("1008 negative or absurd values count as not measured")


def test_one_sample_is_a_plain_fallback_that_is_never_accepted():
    series = SERIES["one sample"]
    entry = train([series], series.end, POLICY).workloads[series.workload]
    assert not entry.accepted and entry.confidence == "low" and "low confidence: only 1 sample over" in entry.reasons[0]
    assert entry.table.q50[0] == 2.0 and entry.table.peak_q90[0] == 3.0


def test_demand_of_zeros_is_a_plain_fallback_up_to_one_busy_replica():
    series = SERIES["all zeros"]
    entry = train([series], series.end, POLICY).workloads[series.workload]
    assert not entry.accepted and entry.confidence == "low" and "all 1008 samples" in entry.reasons[0]
    assert entry.table.q50[0] == 0.0 and entry.table.peak_q90[0] == 1.0


def test_first_buckets_after_a_start_have_no_quantile_and_not_zero():
    series = SERIES["half a day"]
    entry = train([series], series.end, POLICY).workloads[series.workload]
    assert entry.table.peak_q90[0] >= entry.table.q50[0] > 3.0


def test_constant_demand_is_forecast_exactly():
    series = SERIES["constant"]
    entry = train([series], series.end, POLICY).workloads[series.workload]
    assert entry.accepted
    assert entry.table.q50[0] == pytest.approx(3.0) and entry.table.peak_q90[0] == pytest.approx(3.0)
