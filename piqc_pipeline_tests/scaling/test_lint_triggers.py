"""Rules for single triggers and for what they do together."""

import pytest
import yaml

from piqc_pipeline_tests.scaling.lint_objects import GOOD, LITERAL, SPEC, changed, errors, one_trigger, rules


def test_beside_a_trigger_that_reaches_the_maximum_it_is_a_warning():
    body = yaml.safe_load(GOOD)
    body["spec"]["triggers"][0]["metadata"].update(valueLocation="predicted_util", targetValue="75")
    found = rules(yaml.safe_dump(body))
    assert "target-partly-unreachable" in found
    assert "target-unreachable" not in found


def test_a_forecast_read_as_value_runs_away():
    body = yaml.safe_load(LITERAL)
    body["spec"]["triggers"][0]["metricType"] = "Value"
    assert "forecast-runaway" in rules(yaml.safe_dump(body))


@pytest.mark.parametrize(
    ("metadata", "rule"),
    [
        (
            {"timezone": "Europe/Berlin", "start": "0 8 * * *", "end": "0 8 * * *", "desiredReplicas": "4"},
            "cron-window",
        ),
        ({"timezone": "Mars/Base", "start": "0 8 * * *", "end": "0 18 * * *", "desiredReplicas": "4"}, "cron-window"),
        (
            {"timezone": "Europe/Berlin", "start": "0 8 * * *", "end": "0 18 * * *", "desiredReplicas": "40"},
            "cron-above-max",
        ),
    ],
)
def test_a_cron_window_that_cannot_be_meant_is_found(metadata, rule):
    assert rule in rules(one_trigger(type="cron", metadata=metadata))


@pytest.mark.parametrize(
    ("field", "given", "rule"),
    [
        ("start", "61 8 * * *", "cron-window"),
        ("start", "0 8 * * 7", "cron-window"),
        ("end", "0 18 * *", "cron-window"),
        ("end", "@daily", "cron-window"),
        ("end", "0 18-8 * * *", "cron-window"),
        ("desiredReplicas", "twelve", "target-not-positive"),
    ],
)
def test_a_cron_that_keda_refuses_is_found(field, given, rule):
    window = {"timezone": "Europe/Berlin", "start": "0 8 * * MON-FRI", "end": "*/30 18,19 1-5/2 jan ?"}
    window |= {"desiredReplicas": "12"}
    assert errors(one_trigger(type="cron", metadata=window)) == set()
    assert rule in errors(one_trigger(type="cron", metadata={**window, field: given}))


def test_cron_and_cpu_cannot_be_cached():
    assert "cached-metrics-unsupported" in rules(
        one_trigger(type="cpu", useCachedMetrics=True, metadata={"value": "50"}).replace("AverageValue", "Utilization")
    )


def test_a_forecast_without_anything_live_is_risky():
    body = yaml.safe_load(GOOD)
    del body["spec"]["triggers"][1]
    body["spec"]["triggers"][0]["metadata"]["url"] = "http://p.planning.svc:8080/forecast"
    assert "forecast-alone" in rules(yaml.safe_dump(body))
    assert "forecast-alone" not in rules(GOOD)


def test_a_static_fallback_at_the_maximum_lowers_nothing():
    assert "fallback-lowers" in rules(changed(GOOD, (*SPEC, "fallback"), {"failureThreshold": 3, "replicas": 6}))
    assert "fallback-lowers" not in rules(changed(GOOD, (*SPEC, "fallback"), {"failureThreshold": 3, "replicas": 12}))
