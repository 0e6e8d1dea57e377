"""Each rule on the smallest object that breaks it, and a good object that breaks none."""

import json
from pathlib import Path

import pytest
import yaml

from piqc_pipeline.scaling import lint_output
from piqc_pipeline.scaling.lint import lint_files
from piqc_pipeline.scaling.lint_load import applied_together
from piqc_pipeline.scaling.lint_rules import RULES
from piqc_pipeline_tests.scaling.lint_objects import (
    FORECAST,
    GOOD,
    HPA,
    LITERAL,
    OBSERVED,
    QUERY,
    SPEC,
    changed,
    errors,
    found_in,
    rules,
)


def test_the_specifications_own_example_never_asks_for_more_than_two():
    (found,) = [entry for entry in found_in(LITERAL) if entry.rule == "target-unreachable"]
    assert found.severity == "error"
    assert "never asks for more than 2 replicas, so maxReplicaCount 10 is out of reach" in found.message
    assert "ceil(100 / 75) = 2" in found.message
    assert (found.object, found.line) == ("inference/ScaledObject/triton", 11)


@pytest.mark.parametrize("text", [GOOD, HPA], ids=["ScaledObject", "HPA"])
def test_a_good_object_has_no_error_and_no_warning(text):
    assert {entry.severity for entry in found_in(text)} <= {"info"}


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


def test_two_controllers_of_one_workload_are_found():
    second = HPA.replace("name: chat, namespace", "name: other, namespace")
    assert "two-controllers" in rules(f"{HPA}---{second}")
    assert "two-controllers" not in rules(f"{HPA}---{GOOD}")


def test_what_two_kustomizations_hold_is_applied_together_only_if_one_lists_the_other(tmp_path):
    second = HPA.replace("name: chat, namespace", "name: other, namespace")
    for place, content, listed in (("", HPA, ["a.yaml"]), ("alternative", second, ["a.yaml"])):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "a.yaml").write_text(content)
        (tmp_path / place / "kustomization.yaml").write_text(yaml.safe_dump({"resources": listed}))

    def found():
        return {entry.rule for entry in lint_files([str(tmp_path)])}

    assert "two-controllers" not in found()
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["a.yaml", "alternative"]}))
    assert "two-controllers" in found()
    (tmp_path / "kustomization.yaml").unlink()
    assert "two-controllers" in found()


@pytest.mark.parametrize(
    ("listed", "together"),
    [
        pytest.param({".": ["one", "two"]}, True, id="both by the one above"),
        pytest.param({".": ["one"]}, False, id="one of them by the one above"),
        pytest.param({"one": ["../base"], "base": ["../two"]}, True, id="through another"),
        pytest.param({"one": [".", "../missing", "zero\0byte", "https://example.com/base"]}, False, id="no folders"),
    ],
)
def test_what_kustomizations_list_is_followed(tmp_path, listed, together):
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "kustomization.yaml").write_text("resources: [a.yaml]")
    for place, names in listed.items():
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "kustomization.yaml").write_text(yaml.safe_dump({"resources": names}))
    assert applied_together(str(tmp_path / "one" / "a.yaml"), str(tmp_path / "two" / "a.yaml")) is together


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
