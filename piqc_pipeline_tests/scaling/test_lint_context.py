"""What other objects of the input say against an autoscaler or a monitor."""

import copy

import pytest
import yaml

from piqc_pipeline.scaling.lint import lint_files
from piqc_pipeline_tests.scaling.lint_objects import GOOD

POD = {"containers": [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}


def rules(*objects):
    text = "---\n".join(entry if isinstance(entry, str) else yaml.safe_dump(entry) for entry in objects)
    return {entry.rule for entry in lint_files(["-"], text.encode())}


def deployment(name="chat-8b", **pod):
    template = {"metadata": {"labels": {"app": name}}, "spec": {**POD, **pod}}
    metadata = {"name": name, "namespace": "inference"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": template}}


def quota(gpus):
    metadata = {"name": "team", "namespace": "inference"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": {"requests.nvidia.com/gpu": gpus}},
    }


def test_a_target_is_missed_only_beside_workloads_of_its_namespace():
    assert "target-not-found" in rules(GOOD, deployment("other"))
    assert "target-not-found" not in rules(GOOD, deployment())
    assert "target-not-found" not in rules(GOOD)


def test_a_maximum_above_the_quota_is_found():
    # Twelve replicas of two accelerators are 24.
    assert "max-above-quota" in rules(GOOD, deployment(), quota("16"))
    assert "max-above-quota" not in rules(GOOD, deployment(), quota("24"))


@pytest.mark.parametrize(("fields", "short"), [({}, True), ({"terminationGracePeriodSeconds": 300}, False)])
def test_a_grace_period_shorter_than_a_generation_is_told(fields, short):
    assert ("grace-short" in rules(GOOD, deployment(**fields))) is short


def test_one_number_for_two_workloads_is_found():
    body = yaml.safe_load(GOOD)
    other = copy.deepcopy(body)
    other["metadata"]["name"] = other["spec"]["scaleTargetRef"]["name"] = "code"
    assert "trigger-shared" in rules(body, other)
    for trigger in other["spec"]["triggers"]:
        metadata = trigger["metadata"]
        metadata |= {key: text.replace("chat-8b", "code").replace("a/b", "a/code") for key, text in metadata.items()}
    assert "trigger-shared" not in rules(body, other)


def monitor(kind="ServiceMonitor", **spec):
    group = "monitoring.coreos.com/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "m", "namespace": "gpu"}, "spec": spec}


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "e", "namespace": "gpu", "labels": {"app.kubernetes.io/name": "dcgm-exporter"}},
    "spec": {"ports": [{"name": "metrics", "port": 9400}]},
}


def test_a_monitor_that_selects_nothing_is_found_beside_services():
    wrong = monitor(selector={"matchLabels": {"app": "dcgm-exporter"}}, endpoints=[{"port": "metrics"}])
    right = monitor(selector={"matchLabels": SERVICE["metadata"]["labels"]}, endpoints=[{"port": "metrics"}])
    assert rules(wrong, SERVICE) == {"monitor-selects-nothing"}
    assert rules(right, SERVICE) == set()
    assert rules(wrong) == {"monitor-exporter-labels"}
    elsewhere = {**SERVICE, "metadata": {**SERVICE["metadata"], "namespace": "other"}}
    assert rules(right, elsewhere) == set()
    right["spec"]["namespaceSelector"] = {"any": True}
    assert rules(right, elsewhere) == set()


def test_a_port_that_no_service_names_is_found():
    selector = {"matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "In", "values": ["dcgm-exporter"]}]}
    assert rules(monitor(selector=selector, endpoints=[{"port": "http"}]), SERVICE) == {"monitor-port"}


def test_a_pod_monitor_looks_at_pod_templates():
    selector = {"matchLabels": {"app": "chat-8b"}}
    here = monitor("PodMonitor", selector=selector, namespaceSelector={"matchNames": ["inference"]})
    assert rules(here, deployment()) == set()
    assert rules(here, deployment("other")) == {"monitor-selects-nothing"}


def test_queries_of_recording_rules_are_read_too():
    expression = "avg(rate(DCGM_FI_DEV_GPU_UTIL[5m]))"
    groups = [{"name": "g", "rules": [{"record": "x", "expr": expression}, None, {"alert": "y"}]}]
    found = rules({**monitor("PrometheusRule"), "spec": {"groups": groups}})
    assert found == {"promql-rate-of-gauge", "gpu-util-signal"}


@pytest.mark.parametrize(
    "spec",
    [
        {"selector": "x", "endpoints": "y", "namespaceSelector": 3},
        {
            "selector": {"matchLabels": [1], "matchExpressions": [None, {"operator": 7}]},
            "endpoints": [None, {"port": 9}],
        },
        {"namespaceSelector": {"matchNames": [None, {}]}},
    ],
)
def test_monitors_of_any_shape_are_judged(spec):
    rules(monitor(**spec), monitor("PodMonitor", **spec), SERVICE, deployment())
