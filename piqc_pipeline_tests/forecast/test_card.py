from datetime import UTC, datetime

import numpy as np

from piqc_pipeline.forecast.card import model_card
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.train import train
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of


def test_card_tells_data_verdict_checks_and_errors_of_every_model():
    series = series_of(daily_wave(days=6))
    candidate = train(
        [series, series_of(np.full(9, np.nan), "c/n/D/empty")], series.end, TrainPolicy(with_prophet=False)
    )
    card = model_card(
        datetime(2025, 1, 12, tzinfo=UTC), candidate.workloads, candidate.failed, {"numpy": "2.2", "prophet": "1.5"}
    )
    assert "1 of 2 workloads are accepted" in card and "numpy 2.2" in card
    assert "`c/n/D/empty` has no forecast: no demand" in card
    assert "864 rows of 600 s, 0 gaps, censored: unknown" in card
    for words in ("ensemble", "last value", "same time yesterday", "SMA-60", "constant"):
        assert f"| {words}" in card
    for check in ("mae_below_10_pp", "rmse_recorded", "beats_reference", "interval_coverage"):
        assert f"check `{check}`: passed" in card


def test_censored_demand_is_marked_a_lower_bound():
    series = series_of(daily_wave(days=3))
    series = type(series)(**{**vars(series), "censored": np.arange(len(series.demand)) % 10 == 0})
    entry = train([series], series.end, TrainPolicy(with_prophet=False, replay_nights=1)).workloads[series.workload]
    # 44 of 432 buckets: every tenth, the first among them.
    assert entry.data.censored_share == 44 / 432
    assert any("lower bound" in note for note in entry.data.notes)
