from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from piqc_pipeline.forecast.series import on_grid, series_from_history, series_from_trace

T0 = datetime(2025, 1, 6, tzinfo=UTC)


def grid(minutes, values, **options):
    stamps = T0.timestamp() + 60.0 * np.array(minutes, dtype=float)
    return on_grid("w", stamps, np.array(values, dtype=float), **options)


def test_duplicate_and_unsorted_stamps_are_sorted_and_averaged():
    series = grid([10, 0, 5, 10], [3.0, 1.0, 2.0, 5.0])
    assert series.step_seconds == 300 and series.start == T0
    assert series.demand.tolist() == [1.0, 2.0, 4.0]
    assert any("averaged" in note for note in series.notes)


def test_missing_bucket_is_a_gap_and_not_zero():
    series = grid([0, 5, 15, 20], [1.0, 2.0, 4.0, 5.0])
    assert np.isnan(series.demand[2]) and series.demand[3] == 4.0


def test_negative_infinite_and_absurd_values_are_not_measured():
    series = grid([0, 5, 10, 15], [1.0, -2.0, np.inf, 2.0**64])
    assert series.demand[0] == 1.0 and np.isnan(series.demand[1:]).all()
    assert any("negative or absurd" in note for note in series.notes)


@pytest.mark.parametrize("spike", [5e4, 9e14])
def test_a_value_far_above_everything_else_is_not_measured(spike: float):
    # Of 300 values the 99 % quantile is 2; the limit is 10,000 times that.
    series = grid(np.arange(300) * 5, [*([1.0, 2.0] * 149), spike, 2.0])
    assert np.isnan(series.demand[298]) and np.nanmax(series.demand) == 2.0
    assert series.notes == ("1 negative or absurd values count as not measured",)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([*([1.0, 2.0] * 149), 1990.0, 2.0], id="a burst of a thousand times"),
        pytest.param([*([0.001] * 298), 500.0, 500.0], id="next to nothing that began to be used"),
        pytest.param([*([0.001] * 290), *([9.0] * 10)], id="a service that went live"),
        pytest.param([*([0.0] * 290), 1.0, *([0.0] * 8), 5e3], id="too few values above zero to judge by"),
    ],
)
def test_load_that_may_be_meant_is_kept(values: list[float]):
    assert grid(np.arange(300) * 5, values).demand.tolist() == values


def test_samples_without_a_time_are_dropped_and_counted():
    series = grid([0, np.nan, 10, np.nan], [1.0, 2.0, 3.0, 4.0])
    assert series.demand.tolist() == [1.0, 3.0]
    assert series.notes == ("2 samples without a time were dropped",)


def test_values_too_small_for_arithmetic_are_zero():
    assert grid([0, 5], [1e-310, 1e-9]).demand.tolist() == [0.0, 1e-9]


@pytest.mark.parametrize("jump_days", [-20_000, 400, 20_000], ids=["clock at 1970", "a year ahead", "decades ahead"])
def test_clock_jump_does_not_make_an_endless_grid(jump_days):
    minutes = [*range(0, 500, 5), jump_days * 1440]
    series = grid(minutes, [1.0] * len(minutes))
    assert len(series.demand) == 100
    assert any("dropped" in note for note in series.notes)


@pytest.mark.parametrize(("minutes", "step"), [(1, 60), (5, 300), (7, 600), (30, 1800)])
def test_step_is_inferred_and_divides_a_day(minutes, step):
    assert grid(range(0, 100 * minutes, minutes), [1.0] * 100).step_seconds == step


def test_no_sample_is_an_empty_series():
    assert len(grid([], []).demand) == 0


def test_history_rows_become_one_series_a_workload():
    frame = pl.DataFrame(
        {
            "workload": ["c/n/D/b", "c/n/D/a", "c/n/D/a"],
            "ts": [T0, T0 + timedelta(minutes=10), T0],
            "step_seconds": [600, 600, 600],
            "demand_replicas": [5.0, None, 1.0],
            "ready_replicas": [6.0, 2.0, 2.0],
            "gpus_per_replica": [8.0, 1.0, 1.0],
            "censored": [False, None, True],
        },
        schema_overrides={"ts": pl.Datetime("us", "UTC")},
    )
    a, b = series_from_history(frame)
    assert (a.workload, b.workload) == ("c/n/D/a", "c/n/D/b")
    assert a.demand[0] == 1.0 and np.isnan(a.demand[1]) and a.ready_replicas.tolist() == [2.0, 2.0]
    assert a.censored.tolist() == [True, False] and b.gpus_per_replica == 8.0


def test_trace_without_a_value_column_names_it():
    with pytest.raises(KeyError, match="value"):
        series_from_trace(pl.DataFrame({"ts": [T0], "series_id": ["a"]}))
