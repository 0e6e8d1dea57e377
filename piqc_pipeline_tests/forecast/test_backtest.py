import json
from dataclasses import replace

import numpy as np
import pytest

from piqc_pipeline.forecast.backtest import BacktestOptions, DailyErrors, SeriesResult, backtest, label_of
from piqc_pipeline.forecast.pooled import geometric_mean, pooled
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

OPTIONS = BacktestOptions(days=2, with_prophet=False)


@pytest.fixture(scope="module")
def result() -> SeriesResult:
    return backtest(replace(series_of(daily_wave(days=9)), workload="trace/a"), OPTIONS)


def test_wire_object_has_the_figures_of_every_model_and_horizon(result):
    wire = json.loads(json.dumps(result.wire()))
    assert wire["series_id"] == "trace/a" and wire["n"] == 9 * 144 and wire["step_minutes"] == 10
    for figure in ("mae", "rmse"):
        assert {"ours", "last", "yesterday", "sma60"} <= set(wire[figure])
        assert set(wire[figure]["ours"]) == {"30m", "5h"}
    assert set(wire["coverage_q90"]) == set(wire["pinball_q90"]) == {"10m", "30m"}
    assert 0 <= wire["coverage_q90"]["10m"] <= 1


def test_daily_wave_is_forecast_better_than_by_every_reference(result):
    errors = result.wire()["mae"]
    assert errors["ours"]["5h"] < min(errors["last"]["5h"], errors["sma60"]["5h"])
    assert errors["ours"]["30m"] < errors["last"]["30m"]


def test_error_of_the_last_value_is_that_of_the_definition(result):
    demand = daily_wave(days=9)
    first, scale = 7 * 144, 100 / demand.max()
    # Hourly origins whose 30-minute path of three buckets is finished.
    errors = [abs(demand[o : o + 3] - demand[o - 1]) for o in range(first, len(demand) - 2, 6)]
    assert result.errors["last"]["30m"].mae == pytest.approx(scale * np.mean(errors))


def test_percent_series_are_scored_in_percentage_points():
    demand = np.full(9 * 144, 40.0)
    demand[-6:] = 50.0
    series = replace(series_of(demand), unit="percent")
    # The last hourly origin sits on the jump: three buckets are missed by 10 points, 47 origins by none.
    assert backtest(series, OPTIONS).errors["last"]["30m"].mae == pytest.approx(10 / 48)


def test_series_under_eight_days_is_skipped_with_the_reason():
    wire = backtest(series_of(daily_wave(days=7)), OPTIONS).wire()
    assert set(wire) == {"series_id", "n", "step_minutes", "skipped"}


def test_ratio_is_a_geometric_mean_with_a_floor():
    # (0.95 + 0.05) / (1.95 + 0.05) = 1/2 and (1.95 + 0.05) / (0.95 + 0.05) = 2.
    assert geometric_mean(np.array([0.95, 1.95]), np.array([1.95, 0.95])) == pytest.approx(1.0)
    assert geometric_mean(np.array([0.0]), np.array([100.0])) == pytest.approx(0.05)


def scored(name: str, ours: float, last: float) -> SeriesResult:
    def daily(mae):
        return {"30m": DailyErrors((mae * 10, mae * 10), (0.0, 0.0), (10, 10))}

    errors = {"ours": daily(ours), "last": daily(last), "yesterday": daily(2 * last)}
    figures = {"ours": {"10m": 1.0}, "last": {"10m": 2.0}}
    return SeriesResult(name, 100, 10, errors=errors, coverage_q90={"10m": 0.9}, pinball_q90=figures)


def test_pooled_line_counts_better_same_and_worse_and_brackets_its_ratio():
    results = [scored("a", 1.0, 2.0), scored("b", 2.0, 2.0), scored("c", 3.0, 2.0), SeriesResult("d", 3, 10, "short")]
    line = pooled(results)
    assert line["series"] == 3 and line["skipped"] == 1
    last = line["ratio"]["30m"]["last"]
    assert (last["better"], last["same"], last["worse"]) == (1, 1, 1)
    assert last["low"] <= last["ratio"] <= last["high"]
    assert line["coverage_q90"]["10m"]["within_88_92"] == 3


def test_durations_are_labeled_as_people_say_them():
    assert [label_of(seconds) for seconds in (600, 1800, 3600, 18_000)] == ["10m", "30m", "1h", "5h"]


def test_nothing_measured_in_the_scored_days_is_skipped_with_the_reason():
    demand = daily_wave(days=9)
    demand[-2 * 144 :] = np.nan
    assert backtest(series_of(demand), OPTIONS).skipped == "no demand was measured in the last 2 days"


def test_day_without_demand_leaves_the_interval_of_the_others():
    demand = daily_wave(days=9)
    demand[-144:] = np.nan
    line = pooled([backtest(series_of(demand), OPTIONS)])
    last = line["ratio"]["30m"]["last"]
    # Of two days one was measured: whatever is drawn gives its figures.
    assert last["low"] == last["high"] == last["ratio"]


def test_figures_that_nobody_knows_are_null():
    one = scored("a", float("nan"), float("nan"))
    line = pooled([replace(one, coverage_q90={"10m": float("nan")})])
    assert line["median_mae"]["ours"]["30m"] is None and line["ratio"]["30m"]["last"]["ratio"] is None
    assert line["coverage_q90"]["10m"]["lowest"] is None
