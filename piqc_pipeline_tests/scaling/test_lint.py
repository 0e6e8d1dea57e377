"""Each rule on the smallest object that breaks it, and a good object that breaks none."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from piqc_pipeline.scaling import lint_output
from piqc_pipeline.scaling.lint import lint_files
from piqc_pipeline.scaling.lint_rules import RULES

# The specification's own ScaledObject.
LITERAL = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: triton, namespace: inference}
spec:
  scaleTargetRef: {name: triton}
  minReplicaCount: 1
  maxReplicaCount: 10
  triggers:
    - type: metrics-api
      metadata: {url: "http://capacity-predictor.default.svc/predict", valueLocation: predicted_util, targetValue: "75"}
"""

GOOD = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat-8b, namespace: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat-8b}
  minReplicaCount: 2
  maxReplicaCount: 12
  fallback: {failureThreshold: 3, replicas: 6, behavior: currentReplicasIfHigher}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp: {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 4, periodSeconds: 60}]}
        scaleDown: {stabilizationWindowSeconds: 300, policies: [{type: Percent, value: 25, periodSeconds: 60}]}
  triggers:
    - type: metrics-api
      name: forecast
      metricType: AverageValue
      metadata:
        url: http://p.planning.svc:8080/v1/desired/a/b
        valueLocation: desired_replicas
        targetValue: "1"
        timeout: "5s"
    - type: prometheus
      name: observed
      metricType: AverageValue
      metadata:
        serverAddress: http://prometheus.monitoring.svc:9090
        query: 'ceil(sum(workload:gpu_demand:replicas{namespace="inference",workload="chat-8b"}) / 0.80)'
        threshold: "1"
        ignoreNullValues: "false"
"""

HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat, namespace: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 1
  maxReplicas: 8
  metrics:
    - type: External
      external:
        metric: {name: piqc_desired_replicas, selector: {matchLabels: {workload: chat}}}
        target: {type: AverageValue, averageValue: "1"}
"""


def found_in(text):
    return lint_files(["-"], text.encode())


def rules(text):
    return {entry.rule for entry in found_in(text)}


def errors(text):
    return {entry.rule for entry in found_in(text) if entry.severity == "error"}


def changed(text, path, value):
    """The object with one field set, or dropped where the value is `None`."""
    body = copy.deepcopy(yaml.safe_load(text))
    *parents, last = path
    here = body
    for part in parents:
        here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
    if value is None:
        here.pop(last)
    else:
        here[last] = value
    return yaml.safe_dump(body)


def test_the_specifications_own_example_never_asks_for_more_than_two():
    (found,) = [entry for entry in found_in(LITERAL) if entry.rule == "target-unreachable"]
    assert found.severity == "error"
    assert "never asks for more than 2 replicas, so maxReplicaCount 10 is out of reach" in found.message
    assert "ceil(100 / 75) = 2" in found.message
    assert (found.object, found.line) == ("inference/ScaledObject/triton", 11)


@pytest.mark.parametrize("text", [GOOD, HPA], ids=["ScaledObject", "HPA"])
def test_a_good_object_has_no_error_and_no_warning(text):
    assert {entry.severity for entry in found_in(text)} <= {"info"}


SPEC = ("spec",)
FORECAST = ("spec", "triggers", 0)
OBSERVED = ("spec", "triggers", 1)
QUERY = (*OBSERVED, "metadata", "query")


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        pytest.param((*SPEC, "minReplicasCount"), 3, "schema", id="a misspelt field"),
        pytest.param((*FORECAST, "metadata", "targetValue"), 1, "schema", id="a number in metadata"),
        pytest.param((*SPEC, "minReplicaCount"), 13, "min-above-max", id="minimum above maximum"),
        pytest.param((*SPEC, "minReplicaCount"), 0, "zero-on-failure", id="minimum zero"),
        pytest.param(
            ("metadata", "annotations"), {"autoscaling.keda.sh/paused-replicas": "4"}, "paused", id="held by hand"
        ),
        pytest.param(
            (*SPEC, "scaleTargetRef"),
            {"apiVersion": "serving.example.com/v1", "kind": "Runtime", "name": "chat"},
            "target-custom",
            id="a custom resource",
        ),
        pytest.param((*FORECAST, "metricType"), "Value", "value-needs-ready", id="Value counts ready pods"),
        pytest.param(
            (*SPEC, "advanced", "scalingModifiers"),
            {"formula": "max(forecast, observed)", "target": "1"},
            "fallback-skips-formula",
            id="a fallback beside a formula",
        ),
        pytest.param((*SPEC, "minReplicaCount"), None, "zero-on-failure", id="no minimum is zero"),
        pytest.param((*SPEC, "idleReplicaCount"), 0, "zero-on-failure", id="idle zero"),
        pytest.param((*SPEC, "idleReplicaCount"), 1, "idle-replicas", id="idle one"),
        pytest.param((*SPEC, "maxReplicaCount"), None, "max-missing", id="no maximum"),
        pytest.param((*SPEC, "fallback"), None, "fallback-missing", id="no fallback"),
        pytest.param((*SPEC, "fallback", "behavior"), "static", "fallback-lowers", id="static fallback"),
        pytest.param((*SPEC, "fallback", "replicas"), 40, "fallback-outside-limits", id="fallback above maximum"),
        pytest.param((*SPEC, "pollingInterval"), 30, "polling-without-effect", id="polling"),
        pytest.param((*SPEC, "cooldownPeriod"), 300, "cooldown-without-effect", id="cooldown"),
        pytest.param((*SPEC, "scaleTargetRef", "kind"), "DaemonSet", "target-not-scalable", id="DaemonSet"),
        pytest.param(("metadata", "name"), "a" * 55, "name-too-long", id="55 characters"),
        pytest.param(("metadata", "name"), "Chat_8b", "name-invalid", id="capitals"),
        pytest.param(("apiVersion",), "keda.sh/v1", "unknown-version", id="version"),
        pytest.param(
            ("metadata", "annotations"), {"autoscaling.keda.sh/paused": "no"}, "annotation-not-boolean", id="paused no"
        ),
        pytest.param((*OBSERVED, "metadata", "ignoreNullValues"), None, "null-reads-as-zero", id="null reads as zero"),
        pytest.param((*OBSERVED, "metadata", "ignoreNullValues"), "true", "null-reads-as-zero", id="said so"),
        pytest.param((*OBSERVED, "metricType"), "Utilization", "metric-type-invalid", id="Utilization"),
        pytest.param((*OBSERVED, "metricType"), "Value", "metric-types-mixed", id="mixed types"),
        pytest.param((*OBSERVED, "metricType"), None, "metric-type-implicit", id="no metricType"),
        pytest.param((*FORECAST, "metadata", "metricType"), "Value", "metric-type-in-metadata", id="in metadata"),
        pytest.param((*OBSERVED, "name"), "forecast", "trigger-name-twice", id="one name twice"),
        pytest.param((*OBSERVED, "metadata", "threshold"), None, "trigger-metadata-missing", id="no threshold"),
        pytest.param((*OBSERVED, "metadata", "treshold"), "1", "trigger-metadata-unknown", id="misspelt key"),
        pytest.param((*OBSERVED, "metadata", "threshold"), "0", "target-not-positive", id="threshold 0"),
        pytest.param((*OBSERVED, "metadata", "threshold"), "ten", "target-not-positive", id="threshold ten"),
        pytest.param((*FORECAST, "metadata", "url"), "p.planning:8080", "trigger-url", id="no scheme"),
        pytest.param((*FORECAST, "metadata", "timeout"), None, "timeout-missing", id="no timeout"),
        pytest.param((*FORECAST, "authenticationRef"), {"name": "t"}, "auth-mode-missing", id="no authMode"),
        pytest.param(
            (*FORECAST, "metadata", "aggregateFromKubeServiceEndpoints"), "true", "endpoint-aggregation", id="endpoints"
        ),
        pytest.param(QUERY, "avg(rate(DCGM_FI_DEV_GPU_UTIL[5m]))", "promql-rate-of-gauge", id="rate of a gauge"),
        pytest.param(QUERY, "predict_linear(DCGM_FI_DEV_GPU_UTIL[5m], 300, # x )", "promql-brackets", id="a comment"),
        pytest.param(QUERY, "sum(predict_linear(a[5m], 300))", "promql-predict-linear", id="predict_linear"),
        pytest.param(
            QUERY, 'sum(DCGM_FI_DEV_GPU_UTIL{namespace="x"})', "promql-exporter-labels", id="exporter's labels"
        ),
        pytest.param(QUERY, "sum(DCGM_FI_DEV_GPU_UTIL)", "gpu-util-signal", id="duty cycle"),
        pytest.param(
            (*SPEC, "advanced", "scalingModifiers"), {"formula": "forecast"}, "modifiers-incomplete", id="half"
        ),
        pytest.param(
            (*SPEC, "advanced", "scalingModifiers"),
            {"formula": "max(forecast, other)", "target": "1"},
            "modifiers-unknown-name",
            id="an unknown trigger",
        ),
        pytest.param(
            (*SPEC, "advanced", "scalingModifiers"),
            {"formula": "max(forecast, observed)", "target": "0.75"},
            "fallback-ignored",
            id="a target that is no whole number",
        ),
        pytest.param(
            (*SPEC, "advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleDown", "stabilizationWindowSeconds"),
            7200,
            "behavior-range",
            id="a window of two hours",
        ),
        pytest.param(
            (*SPEC, "advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleUp", "tolerance"),
            "0",
            "tolerance-version",
            id="tolerance",
        ),
    ],
)
def test_one_change_to_a_good_object_is_found(path, value, rule):
    assert rule not in rules(GOOD)
    assert rule in rules(changed(GOOD, path, value))


def test_a_scaling_modifier_with_a_whole_target_is_fine():
    good = changed(
        GOOD, (*SPEC, "advanced", "scalingModifiers"), {"formula": "max(forecast ?? 0, observed)", "target": "1"}
    )
    assert errors(good) == set()


def one_trigger(**trigger):
    body = yaml.safe_load(GOOD)
    body["spec"]["triggers"] = [{"metricType": "AverageValue", **trigger}]
    return yaml.safe_dump(body)


def prometheus(query, threshold):
    return one_trigger(
        type="prometheus",
        metadata={
            "serverAddress": "http://p:9090",
            "query": query,
            "threshold": threshold,
            "ignoreNullValues": "false",
        },
    )


@pytest.mark.parametrize(
    ("query", "threshold", "most"),
    [
        pytest.param('avg(DCGM_FI_DEV_GPU_UTIL{exported_pod=~"a.*"})', "75", 2, id="duty cycle, 0 to 100"),
        pytest.param(
            "avg by (x) (avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[2m])) * 100", "60", 2, id="share times 100"
        ),
        pytest.param("max(vllm:kv_cache_usage_perc)", "0.3", 4, id="a share against a share"),
        pytest.param("max(vllm:gpu_cache_usage_perc)", "80", 1, id="a share against a percentage"),
        pytest.param("clamp_max(avg(DCGM_FI_DEV_GPU_UTIL), 90)", "30", 3, id="clamped"),
        pytest.param("avg(DCGM_FI_DEV_GPU_UTIL) / 100", "0.5", 2, id="percentage over 100"),
    ],
)
def test_a_bounded_query_has_a_largest_count(query, threshold, most):
    (found,) = [entry for entry in found_in(prometheus(query, threshold)) if entry.rule == "target-unreachable"]
    assert f"never asks for more than {most} replicas" in found.message


@pytest.mark.parametrize(
    ("query", "threshold"),
    [
        pytest.param("sum(DCGM_FI_DEV_GPU_UTIL)", "75", id="a sum grows with replicas"),
        pytest.param("sum(vllm:num_requests_waiting)", "5", id="a queue"),
        pytest.param("sum(rate(http_requests_total[2m]))", "10", id="a rate"),
        pytest.param("avg(DCGM_FI_DEV_GPU_UTIL) * count(x)", "75", id="times a count"),
        pytest.param("avg(DCGM_FI_DEV_GPU_UTIL) + sum(queue)", "75", id="plus a queue"),
        pytest.param("avg(DCGM_FI_DEV_GPU_UTIL)", "5", id="twenty are reachable"),
    ],
)
def test_a_query_without_a_bound_below_the_maximum_is_not_accused(query, threshold):
    assert "target-unreachable" not in rules(prometheus(query, threshold))


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


def test_a_quantile_of_a_histogram_is_one_element():
    buckets = 'sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{namespace="a"}[5m]))'
    assert "promql-many-series" not in rules(prometheus(f"histogram_quantile(0.95, {buckets})", "2"))
    assert "promql-many-series" in rules(
        prometheus(f"histogram_quantile(0.95, {buckets.replace('le', 'le, pod')})", "2")
    )


def test_a_list_of_labels_may_end_in_a_comma_and_arguments_may_not():
    assert "promql-brackets" not in rules(prometheus('sum by (a,) (x{a="b",})', "1"))
    assert "promql-brackets" in rules(prometheus("max_over_time(x[5m],)", "1"))


def test_a_static_fallback_at_the_maximum_lowers_nothing():
    assert "fallback-lowers" in rules(changed(GOOD, (*SPEC, "fallback"), {"failureThreshold": 3, "replicas": 6}))
    assert "fallback-lowers" not in rules(changed(GOOD, (*SPEC, "fallback"), {"failureThreshold": 3, "replicas": 12}))


@pytest.mark.parametrize("gauge", ["vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "DCGM_FI_DEV_FB_USED"])
def test_a_rate_of_any_known_gauge_is_found(gauge):
    assert "promql-rate-of-gauge" in errors(prometheus(f'sum(rate({gauge}{{namespace="a"}}[5m]))', "5"))


def test_cron_and_cpu_cannot_be_cached():
    assert "cached-metrics-unsupported" in rules(
        one_trigger(type="cpu", useCachedMetrics=True, metadata={"value": "50"}).replace("AverageValue", "Utilization")
    )


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        pytest.param(("spec", "minReplicas"), 9, "min-above-max", id="minimum above maximum"),
        pytest.param(("spec", "minReplicas"), 0, "hpa-min-zero", id="zero"),
        pytest.param(("spec", "metrics"), None, "hpa-no-metric", id="no metric"),
        pytest.param(("metadata", "name"), "keda-hpa-chat", "hpa-of-keda", id="KEDA's own"),
        pytest.param(("spec", "maxReplica"), 9, "schema", id="misspelt"),
        pytest.param(
            ("spec", "metrics", 0, "external", "target", "averageValue"), None, "hpa-target-field", id="no value"
        ),
        pytest.param(
            ("spec", "metrics", 0, "external", "target", "averageValue"), "0", "hpa-target-field", id="zero value"
        ),
        pytest.param(
            ("spec", "metrics", 0, "external", "target", "type"), "Utilization", "metric-type-invalid", id="type"
        ),
        pytest.param(
            ("spec", "metrics", 0),
            {
                "type": "Resource",
                "resource": {"name": "nvidia.com/gpu", "target": {"type": "Utilization", "averageUtilization": 75}},
            },
            "hpa-resource",
            id="a GPU is no resource metric",
        ),
        pytest.param(
            ("spec", "metrics", 0, "external"),
            {"metric": {"name": "predicted_gpu_util"}, "target": {"type": "AverageValue", "averageValue": "75"}},
            "target-unreachable",
            id="utilization against 75",
        ),
        pytest.param(
            ("spec", "metrics", 0, "external"),
            {"metric": {"name": "predicted_gpu_util"}, "target": {"type": "Value", "value": "75"}},
            "forecast-runaway",
            id="a forecast as Value",
        ),
    ],
)
def test_one_change_to_a_good_hpa_is_found(path, value, rule):
    assert rule not in rules(HPA)
    assert rule in rules(changed(HPA, path, value))


def test_two_controllers_of_one_workload_are_found():
    second = HPA.replace("name: chat, namespace", "name: other, namespace")
    assert "two-controllers" in rules(f"{HPA}---{second}")
    assert "two-controllers" not in rules(f"{HPA}---{GOOD}")


def test_a_service_that_is_not_there_is_found_only_beside_services():
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: planning}\n"
    assert "service-not-found" in rules(f"{GOOD}---\n{service}")
    assert "service-not-found" not in rules(f"{GOOD}---\n{service.replace('other', 'p')}")
    assert "service-not-found" not in rules(GOOD)


def test_an_annotation_excuses_an_object_from_a_rule():
    text = changed(GOOD, (*SPEC, "minReplicaCount"), 0)
    excused = changed(text, ("metadata", "annotations"), {"piqc.io/lint-ignore": "zero-on-failure, dead-zone"})
    assert "zero-on-failure" in rules(text)
    assert rules(excused) & {"zero-on-failure", "dead-zone"} == set()


def test_a_list_stands_for_its_items():
    body = {"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(LITERAL), yaml.safe_load(GOOD)]}
    assert "target-unreachable" in rules(json.dumps(body))


def test_every_rule_has_a_test_or_is_about_files():
    tests = Path(__file__).parent.glob("test_lint*.py")
    source = "".join(path.read_text() for path in tests)
    files = {"unreadable", "nothing-to-check"}
    assert [name for name in RULES if f'"{name}"' not in source and name not in files] == []


def test_json_and_sarif_are_parseable_and_carry_the_fix():
    found = found_in(LITERAL)
    body = json.loads(lint_output.as_json(found))
    assert body["summary"]["error"] == len([entry for entry in found if entry.severity == "error"])
    assert all(entry["fix"] and entry["explanation"] for entry in body["findings"])
    run = json.loads(lint_output.as_sarif(found, "0.1.0"))["runs"][0]
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "-"


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ('avg by (pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_namespace="a"})', "promql-many-series"),
        ('sum(vllm:num_requests_waiting{namespace="a"}) by (pod)', "promql-many-series"),
        ('sum without (instance) (vllm:num_requests_waiting{namespace="a"})', "promql-many-series"),
        ("sum(vllm:num_requests_waiting)", "promql-no-selector"),
        ('sum(a{x="y"}) / sum(rate(b{x="y"}[2m]))', "promql-nan-at-zero"),
        ('avg(DCGM_FI_DEV_GPU_UTIL{GPU_I_PROFILE="1g.10gb",exported_pod=~"a.*"})', "mig-gpu-util"),
        ("sum(" + "x" * 30_000 + ")", "promql-too-long"),
    ],
)
def test_a_query_that_misleads_is_found(query, rule):
    assert rule in rules(changed(GOOD, QUERY, query))


@pytest.mark.parametrize(
    "query",
    [
        'sum(avg by (pod) (vllm:num_requests_waiting{namespace="a"}))',
        'avg by (namespace, workload) (x{namespace="a",workload="b"})',
        'max(sum(vllm:num_requests_waiting{namespace="a"}) by (pod))',
        'sum(a{x="y"}) / clamp_min(sum(rate(b{x="y"}[2m])), 1)',
        'sum(a{x="y"}) / (sum(rate(b{x="y"}[2m])) > 0)',
        'scalar(sum by (pod) (x{a="b"}))',
        'topk(1, sum by (pod) (x{a="b"}))',
    ],
)
def test_a_query_of_one_element_that_is_always_there_is_not_accused(query):
    accused = {"promql-many-series", "promql-no-selector", "promql-nan-at-zero"}
    assert rules(changed(GOOD, QUERY, query)) & accused == set()


def test_a_forecast_without_anything_live_is_risky():
    body = yaml.safe_load(GOOD)
    del body["spec"]["triggers"][1]
    body["spec"]["triggers"][0]["metadata"]["url"] = "http://p.planning.svc:8080/forecast"
    assert "forecast-alone" in rules(yaml.safe_dump(body))
    assert "forecast-alone" not in rules(GOOD)


@pytest.mark.parametrize(
    ("query", "stays"),
    [
        ('sum(vllm:num_requests_waiting{namespace="a"})', True),
        ('sum(router_requests_without_backend_total{namespace="a"})', False),
        ('sum(vllm:num_requests_waiting{namespace="a"}) or vector(1)', False),
    ],
)
def test_zero_replicas_export_nothing_that_could_bring_one_back(query, stays):
    body = yaml.safe_load(changed(GOOD, QUERY, query))
    del body["spec"]["triggers"][0]
    body["spec"]["minReplicaCount"] = 0
    assert ("zero-never-returns" in rules(yaml.safe_dump(body))) is stays
    body["spec"]["minReplicaCount"] = 1
    assert "zero-never-returns" not in rules(yaml.safe_dump(body))
