"""What the page of `demand_model` says of drift, without a run."""

import dagster as dg
import numpy as np

from piqc_pipeline.defs.forecast import DRIFT, _drift
from piqc_pipeline.defs.shards import drift_of_each, headline_of
from piqc_pipeline.forecast.model import CandidateModel
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.train import train
from piqc_pipeline_tests.forecast.examples import daily_wave, series_of

DAY = 144
POLICY = TrainPolicy(with_prophet=False, replay_nights=2)
QUIET, LOUD = "c/ns/Deployment/quiet", "c/ns/Deployment/loud"


def candidate() -> CandidateModel:
    """One workload goes on as it was, the other's demand doubles on the last day."""
    wave = daily_wave(days=6, noise=0.1)
    doubled = np.append(wave[: 5 * DAY], 2 * wave[5 * DAY :])
    before = [series_of(wave[: 5 * DAY], name) for name in (QUIET, LOUD)]
    first = train(before, before[0].end, POLICY)
    later = [series_of(wave, QUIET), series_of(doubled, LOUD)]
    return train(later, later[0].end, POLICY, previous=first.workloads)


def test_workload_that_left_its_forecast_is_a_warning_with_its_sentence() -> None:
    found = candidate()
    result = _drift(found)
    assert result.check_name in DRIFT
    assert not result.passed
    assert result.severity == dg.AssetCheckSeverity.WARN
    assert result.metadata["measured"].value == 1
    assert LOUD in str(result.description)
    assert QUIET not in str(result.description)
    assert headline_of(found)["workloads_drifted"] == 1
    rows = str(drift_of_each(found).value).splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == [LOUD, QUIET]


def test_first_run_has_nothing_to_compare_and_says_so() -> None:
    series = series_of(daily_wave(days=3))
    first = train([series], series.end, POLICY)
    result = _drift(first)
    assert result.passed
    assert result.metadata["measured"].value == "unknown"
    assert "No forecast of a run before" in str(result.description)
    assert headline_of(first)["workloads_drifted"] is None
