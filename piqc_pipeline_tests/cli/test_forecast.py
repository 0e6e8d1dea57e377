import json
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from piqc_pipeline.cli.forecast import backtest_command, model_command, predict_command, train_command
from piqc_pipeline.errors import EXIT_UNKNOWN_PARTS, ArtifactMissing, HistoryError, TraceUnreadable, UsageError
from piqc_pipeline_tests.forecast.examples import START, daily_wave

NOW = START + timedelta(days=6)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    history = tmp_path / "load.parquet"
    demand = daily_wave(days=6)
    pl.DataFrame(
        {
            "ts": [START + timedelta(seconds=600 * i) for i in range(len(demand))],
            "workload": "inference/chat",
            "demand_replicas": demand,
            "ready_replicas": 5.0,
            "gpus_per_replica": 1.0,
        }
    ).write_parquet(history)
    monkeypatch.setenv("PIQC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PIQC_HISTORY_FILE", str(history))
    monkeypatch.setenv("PIQC_NOW", NOW.isoformat())
    return tmp_path


def run(command, *arguments):
    result = CliRunner().invoke(command, list(arguments), standalone_mode=False)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_train_promotes_and_predict_answers_for_the_next_interval(environment):
    trained = json.loads(run(train_command, "--no-prophet", "--workers", "1", "-o", "json").stdout)
    assert [row["accepted"] for row in trained["workloads"]] == [True]
    answer = json.loads(run(predict_command, "chat", "--horizon", "30m", "-o", "json").stdout)[0]
    assert answer["until"] == "2025-01-12T00:30:00Z"
    # Demand at midnight is 3 replicas and rises by a tenth in half an hour.
    assert answer["predicted"]["q50"] == pytest.approx(3.1, abs=0.15)
    assert answer["predicted"]["peak_q90"] >= answer["predicted"]["q50"]
    versions = json.loads(run(model_command, "list", "-o", "json").stdout)
    assert [one["current"] for one in versions] == [True]
    assert "inference/chat" in run(predict_command).stdout


def test_predict_without_an_artifact_says_what_to_do(environment):
    with pytest.raises(ArtifactMissing, match="piqc train"):
        run(predict_command)


def test_predict_names_the_workloads_it_knows(environment):
    run(train_command, "--no-prophet", "--workers", "1")
    with pytest.raises(UsageError, match="there are forecasts of: .*chat"):
        run(predict_command, "nothing-like-it")


def test_stale_forecast_is_not_shown_as_a_prediction(environment, monkeypatch):
    run(train_command, "--no-prophet", "--workers", "1")
    monkeypatch.setenv("PIQC_NOW", (NOW + timedelta(days=3)).isoformat())
    result = run(predict_command, "-o", "json")
    assert json.loads(result.stdout)[0]["predicted"] is None
    assert "stale" in json.loads(result.stdout)[0]["notes"][-1]
    assert result.return_value == 3


def trace(path, days=9, columns=("ts", "series_id", "value", "unit")):
    demand = daily_wave(days=days)
    frame = pl.DataFrame(
        {
            "ts": [START + timedelta(seconds=600 * i) for i in range(len(demand))],
            "series_id": "a/b",
            "value": demand,
            "unit": "requests/s",
        }
    )
    frame.select(columns).write_parquet(path)
    return path


def test_backtest_prints_one_object_a_series_and_a_pooled_one(tmp_path):
    file = trace(tmp_path / "trace.parquet")
    result = run(backtest_command, str(file), "--days", "1", "--no-prophet", "--json")
    series, pooled = (json.loads(line) for line in result.stdout.splitlines())
    assert series["series_id"] == "a/b" and series["mae"]["ours"]["5h"] < series["mae"]["last"]["5h"]
    assert pooled["pooled"]["series"] == 1
    assert "ours" in run(backtest_command, str(file), "--days", "1", "--no-prophet", "--horizon", "1h").stdout


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "cannot read"),
        (lambda path: path.write_bytes(b""), "cannot read"),
        (lambda path: path.write_bytes(b"PAR1 cut off"), "cannot read"),
        (lambda path: trace(path, 1, ("ts", "series_id")), "has the columns"),
        (lambda path: rewritten(path, pl.col("ts").dt.epoch("s")), "column ts holds Int64; store timestamps"),
        (lambda path: rewritten(path, pl.col("ts").dt.to_string("%F")), "column ts holds String"),
        (
            lambda path: rewritten(
                path, unit=pl.when(pl.col("value") > 3).then(pl.lit("gpus")).otherwise(pl.lit("pods"))
            ),
            "mixes the units gpus and pods",
        ),
        (lambda path: pl.read_parquet(trace(path, 1)).clear().write_parquet(path), "holds no value"),
    ],
    ids=["missing", "empty", "cut off", "foreign", "seconds", "text", "two units", "no rows"],
)
def test_unreadable_trace_is_one_sentence(tmp_path, write, message):
    path = tmp_path / "trace.parquet"
    write(path)
    with pytest.raises(TraceUnreadable, match=message):
        run(backtest_command, str(path), "--json")


def test_series_that_name_nothing_are_a_fault_of_the_command(tmp_path):
    trace(tmp_path / "trace.parquet", 1)
    with pytest.raises(UsageError, match="check --series"):
        run(backtest_command, str(tmp_path / "trace.parquet"), "--series", "nobody")


def test_figures_that_nobody_knows_are_shown_as_unknown(tmp_path):
    path = tmp_path / "trace.parquet"
    # Every third bucket is missing: no window of 30 minutes (three buckets) was measured throughout.
    pl.read_parquet(trace(path)).gather_every(3, 1).write_parquet(path)
    every = pl.read_parquet(path)
    pl.concat([every, every.with_columns(pl.col("ts") + timedelta(minutes=10))]).write_parquet(path)
    shown = run(backtest_command, str(path), "--days", "1", "--no-prophet").stdout
    assert "q90 of the 30m maximum: median coverage unknown" in shown


def rewritten(path, *columns, **named):
    pl.read_parquet(trace(path, 1)).with_columns(*columns, **named).write_parquet(path)


def test_series_under_eight_days_is_skipped_and_the_pooled_line_still_comes(tmp_path):
    result = run(backtest_command, str(trace(tmp_path / "t.parquet", days=2)), "--json")
    assert result.return_value == EXIT_UNKNOWN_PARTS
    assert "none of the 1 series" in result.stderr and "2.0 days are under 8" in result.stderr
    lines = result.stdout.splitlines()
    assert set(json.loads(lines[0])) == {"series_id", "n", "step_minutes", "skipped"}
    assert json.loads(lines[1]) == {"pooled": {"series": 0, "skipped": 1}}


def test_no_history_says_where_it_comes_from(environment):
    empty = environment / "load.parquet"
    pl.read_parquet(empty).with_columns(ts=pl.col("ts") - timedelta(days=300)).write_parquet(empty)
    with pytest.raises(HistoryError, match="no history to train on"):
        run(train_command)


def test_demand_is_never_nan_in_json(environment):
    result = run(train_command, "--no-prophet", "--workers", "1", "-o", "json")
    assert "NaN" not in result.stdout and np.isfinite(json.loads(result.stdout)["workloads"][0]["coverage_q90"])
