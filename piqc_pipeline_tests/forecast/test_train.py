from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from piqc_pipeline.forecast.model import ENSEMBLE, LAST_DAY_30M
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.train import data_card, train
from piqc_pipeline_tests.forecast.examples import START, daily_wave, series_of

QUICK = TrainPolicy(with_prophet=False, replay_nights=5)


def now_of(series):
    return series.end


def test_daily_wave_is_forecast_better_than_the_last_value():
    series = series_of(daily_wave())
    entry = train([series], now_of(series), QUICK).workloads[series.workload]
    assert entry.accepted, entry.reasons
    scores = entry.scores
    assert scores[ENSEMBLE][LAST_DAY_30M].mae_demand < scores["last_value"][LAST_DAY_30M].mae_demand
    # 24 h of 10-minute buckets, three steps a path, the last two origins have no finished path.
    assert scores[ENSEMBLE][LAST_DAY_30M].points == (144 - 2) * 3


def test_error_in_points_is_demand_error_over_ready_replicas():
    series = series_of(daily_wave(), replicas=4)
    score = train([series], now_of(series), QUICK).workloads[series.workload].scores["last_value"][LAST_DAY_30M]
    assert score.mae_pp == pytest.approx(100 * score.mae_demand / 4)


def test_prophet_alone_is_scored_beside_the_ensemble_and_its_pickle_is_kept():
    series = series_of(daily_wave(days=6))
    candidate = train([series], now_of(series), TrainPolicy(replay_nights=2, prophet_nights=1))
    entry = candidate.workloads[series.workload]
    assert {"ensemble", "ensemble_without_prophet", "prophet", "last_value", "same_time_yesterday", "sma60"} <= set(
        entry.scores
    )
    assert entry.scores["prophet"][LAST_DAY_30M].mae_demand is not None
    assert set(candidate.prophet_models) == {series.workload}


def test_table_covers_two_days_and_orders_its_quantiles():
    series = series_of(daily_wave())
    entry = train([series], now_of(series), QUICK).workloads[series.workload]
    table = entry.table
    assert table.start == series.end
    assert len(table.q50) == 288
    lower, q50, q90, peak50, peak90 = map(np.array, (table.lower, table.q50, table.q90, table.peak_q50, table.peak_q90))
    assert (lower <= q50).all() and (q50 <= q90).all() and (peak50 <= peak90).all() and (lower >= 0).all()


def test_no_maximum_is_below_the_bucket_that_it_begins_with():
    series = series_of(daily_wave(days=12, step_seconds=1800, noise=0.3), step_seconds=1800)
    table = train([series], now_of(series), QUICK).workloads[series.workload].table
    assert (np.array(table.peak_q90) >= np.array(table.q90)).all()


def test_one_bad_workload_never_holds_back_the_others():
    good = series_of(daily_wave(), "c/ns/Deployment/good")
    empty = series_of(np.full(2000, np.nan), "c/ns/Deployment/empty")
    candidate = train([empty, good], now_of(good), QUICK)
    assert candidate.accepted == ("c/ns/Deployment/good",)
    assert "no demand" in candidate.failed["c/ns/Deployment/empty"]


def test_values_after_now_are_not_looked_at():
    demand = daily_wave()
    changed = demand.copy()
    changed[1200:] = 99.0
    now = START + timedelta(seconds=600 * 1200)
    tables = [
        train([series_of(values)], now, QUICK).workloads["c/ns/Deployment/web"].table for values in (demand, changed)
    ]
    assert tables[0] == tables[1]


def test_the_card_tells_how_high_demand_went():
    demand = np.append(np.ones(950), np.full(50, 3.0))
    card = data_card(DemandSeries("d/n/Deployment/w", datetime(2025, 1, 6, tzinfo=UTC), 600, demand))
    # 5 % of the buckets are at 3: quantile 0.95 lies on the step (position 949.05 of 0..999), 0.999 well above it.
    assert (card.demand_q95, card.demand_q999) == (pytest.approx(1.1), 3.0)
