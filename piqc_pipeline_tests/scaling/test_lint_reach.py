"""The largest count that bounded metrics and formulas can ask for; expected values by hand: ceil(end / target)."""

import copy

import pytest
import yaml

from piqc_pipeline.scaling.lint import lint_files
from piqc_pipeline_tests.scaling.lint_objects import HPA, changed, found_in

BODY = yaml.safe_load("""
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat, namespace: inference}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 1
  maxReplicaCount: 12
  fallback: {failureThreshold: 3, replicas: 6, behavior: scalingModifiers}
""")


def prometheus(name, query, threshold="75"):
    metadata = {"serverAddress": "http://p:9090", "query": query, "threshold": threshold, "ignoreNullValues": "false"}
    return {"type": "prometheus", "name": name, "metricType": "AverageValue", "metadata": metadata}


def metrics_api(name, location, target="75"):
    metadata = {"url": "http://p.q.svc/v", "valueLocation": location, "targetValue": target, "timeout": "5s"}
    return {"type": "metrics-api", "name": name, "metricType": "AverageValue", "metadata": metadata}


UTIL = 'avg(DCGM_FI_DEV_GPU_UTIL{exported_pod=~"a.*"})'
FORECAST, LIVE = metrics_api("a", "predicted_util"), prometheus("b", UTIL)


def unreachable(triggers, **spec):
    body = copy.deepcopy(BODY)
    body["spec"] |= {"triggers": triggers, **spec}
    found = lint_files(["-"], yaml.safe_dump(body).encode())
    return [entry.message for entry in found if entry.rule == "target-unreachable"]


def composed(formula, target, **modifiers):
    return {"advanced": {"scalingModifiers": {"formula": formula, "target": target, **modifiers}}}


@pytest.mark.parametrize(
    ("formula", "target", "most"),
    [
        pytest.param("a", "75", 2, id="one trigger"),
        pytest.param("max(a, b)", "75", 2, id="the larger of two"),
        pytest.param("a ?? b", "75", 2, id="the other where one fails"),
        pytest.param("(a + b) / 2", "50", 2, id="a mean"),
        pytest.param("sum([a, b])", "50", 4, id="a sum of a list"),
        pytest.param("a * 5 / 100", "1", 5, id="scaled to five replicas"),
        pytest.param("a > 80 ? 6 : 3", "1", 6, id="a choice"),
        pytest.param("min(c, 8)", "1", 8, id="a queue, cut at eight"),
    ],
)
def test_a_formula_has_a_largest_count(formula, target, most):
    (message,) = unreachable([FORECAST, LIVE, prometheus("c", "sum(queue)", "1")], **composed(formula, target))
    assert f"never asks for more than {most} replicas, so maxReplicaCount 12" in message


@pytest.mark.parametrize(
    ("formula", "target"),
    [
        pytest.param("max(a, c)", "75", id="a queue beside it"),
        pytest.param("a * 16 / 100", "1", id="scaled to sixteen replicas"),
        pytest.param("c", "1", id="a queue"),
        pytest.param("a +", "75", id="not an expression"),
        pytest.param("(" * 9000, "75", id="brackets without end"),
        pytest.param("[" * 9000, "75", id="lists without end"),
        pytest.param("-" * 9000 + "a", "75", id="signs without end"),
    ],
)
def test_a_formula_without_a_known_end_is_not_accused(formula, target):
    assert unreachable([FORECAST, LIVE, prometheus("c", "sum(queue)", "1")], **composed(formula, target)) == []


SELECTED = 'DCGM_FI_DEV_GPU_UTIL{exported_pod=~"a.*"}'


@pytest.mark.parametrize(
    ("query", "threshold", "most"),
    [
        pytest.param(f"clamp_max({UTIL}, 50) * 2", "50", 2, id="clamped, then doubled"),
        pytest.param(f"clamp_max(sum({SELECTED}), 300)", "75", 4, id="a sum that is clamped"),
        pytest.param(f"clamp(sum({SELECTED}), 0, 300)", "75", 4, id="a sum between two limits"),
        pytest.param(f"avg({SELECTED} * on (pod) group_left (app) kube_pod_labels)", "75", 2, id="joined to labels"),
        pytest.param(f"100 - {UTIL}", "75", 2, id="the idle part"),
        pytest.param(f"max_over_time(max({SELECTED})[5m:1m])", "75", 2, id="a subquery"),
        pytest.param(f"avg({SELECTED} offset 5m) or vector(0)", "75", 2, id="zero where there is none"),
        pytest.param(f"ceil({UTIL} / 80)", "1", 2, id="rounded up to replicas"),
    ],
)
def test_a_querys_own_arithmetic_says_where_it_ends(query, threshold, most):
    (message,) = unreachable([prometheus("q", query, threshold)])
    assert f"never asks for more than {most} replicas" in message


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(f"{UTIL} * {UTIL}", id="multiplied by itself"),
        pytest.param(f"{UTIL} / {UTIL}", id="divided by itself"),
        pytest.param(f"{UTIL} or vector(5000)", id="a large number where there is none"),
        pytest.param('avg(queue_wait_ratio{app="a"})', id="a ratio that knows no end"),
        pytest.param('avg(container_cpu_usage_percent{app="a"})', id="cpu of several cores"),
    ],
)
def test_a_query_without_a_known_end_is_not_accused(query):
    assert unreachable([prometheus("q", query, "50")]) == []


def test_of_several_triggers_the_largest_count_is_named():
    two, five = unreachable([FORECAST, prometheus("b", UTIL, "20")])
    assert "more than 2 replicas" in two
    assert "the largest count of all its metrics is 5" in two
    assert "more than 5 replicas" in five


def test_a_minimum_above_the_largest_count_is_where_it_stays():
    (message,) = unreachable([FORECAST], minReplicaCount=4)
    assert "more than 2 replicas" in message
    assert "the count stays at the minimum, 4" in message


def test_a_formula_read_as_value_runs_away():
    body = copy.deepcopy(BODY)
    body["spec"] |= {"triggers": [FORECAST, LIVE], **composed("max(a, b)", "75", metricType="Value")}
    found = {entry.rule for entry in lint_files(["-"], yaml.safe_dump(body).encode())}
    assert "forecast-runaway" in found
    assert "target-unreachable" not in found


def test_an_object_metric_of_an_hpa_ends_where_an_external_one_does():
    value = {
        "type": "Object",
        "object": {
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "chat"},
            "metric": {"name": "predicted_gpu_util"},
            "target": {"type": "AverageValue", "averageValue": "60"},
        },
    }
    (found,) = [
        entry for entry in found_in(changed(HPA, ("spec", "metrics", 0), value)) if entry.rule == "target-unreachable"
    ]
    assert "never asks for more than 2 replicas, so maxReplicas 8" in found.message
