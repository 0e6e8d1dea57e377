"""What KEDA is told, checked against its own schema and kustomize."""

import sys
from dataclasses import replace
from pathlib import Path
from subprocess import run

import pytest
import yaml

from piqc_pipeline.errors import ManifestInvalid, UsageError
from piqc_pipeline.facts.snapshot import Autoscaler
from piqc_pipeline.scaling.keda import object_name
from piqc_pipeline.scaling.limits import PairBound
from piqc_pipeline.scaling.options import CronFloor, ManifestOptions, parse_version
from piqc_pipeline.scaling.overlay import render, write_overlay
from piqc_pipeline.scaling.schema import has_schema, problems
from piqc_pipeline_tests.scaling.plans import CHAT, POLICY, plan

PATH = "inference/chat-8b.scaledobject.yaml"


def body(files, path=PATH):
    return yaml.safe_load(files[path])


def test_two_triggers_in_replica_units_at_target_one():
    spec = body(render([plan()], POLICY))["spec"]
    forecast, observed = spec["triggers"]
    assert forecast == {
        "type": "metrics-api",
        "name": "forecast",
        "metricType": "AverageValue",
        "metadata": {
            "url": "http://capacity-predictor.piqc.svc.cluster.local:8080/v1/desired/inference/chat-8b",
            "valueLocation": "desired_replicas",
            "targetValue": "1",
            "timeout": "5s",
        },
    }
    assert observed["metadata"]["query"] == (
        'ceil(sum(workload:gpu_demand:replicas{namespace="inference",workload="chat-8b"}) / 0.80)'
    )
    assert (observed["metricType"], observed["metadata"]["threshold"]) == ("AverageValue", "1")
    assert observed["metadata"]["ignoreNullValues"] == "false"
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 12)
    assert spec["fallback"] == {"failureThreshold": 3, "replicas": 6, "behavior": "currentReplicasIfHigher"}


def test_a_workload_without_an_accepted_model_stays_reactive_and_says_why():
    text = render([plan(accepted=False)], POLICY)[PATH]
    assert [trigger["name"] for trigger in yaml.safe_load(text)["spec"]["triggers"]] == ["observed"]
    assert "# Stays reactive (observed trigger alone): MAE 14 pp" in text


def test_limits_carry_their_reasons_as_comments():
    text = render([plan(max_reason="the quota leaves 12 accelerators, 1 a replica")], POLICY)[PATH]
    assert "  # the quota leaves 12 accelerators, 1 a replica\n  maxReplicaCount: 12\n" in text


def test_a_reason_from_a_cluster_cannot_leave_its_comment():
    text = render([plan(max_reason="full\nspec: {}\x1b[31m")], POLICY)[PATH]
    assert "# full spec: {} [31m" in text
    assert yaml.safe_load(text)["kind"] == "ScaledObject"


def test_the_same_plans_give_the_same_bytes_in_any_order():
    plans = [plan(), plan("demo/inference/StatefulSet/embed")]
    assert render(plans, POLICY) == render(plans[::-1], POLICY)


@pytest.mark.parametrize(
    ("mode", "annotations"),
    [
        ("observe", {"autoscaling.keda.sh/paused": "true"}),
        ("shadow", {"autoscaling.keda.sh/paused": "true"}),
        ("scale-out-only", {"autoscaling.keda.sh/paused-scale-in": "true"}),
        ("enforce", None),
    ],
)
def test_a_mode_is_an_annotation(mode, annotations):
    assert body(render([plan()], replace(POLICY, mode=mode)))["metadata"].get("annotations") == annotations


@pytest.mark.parametrize(
    ("version", "tolerance"),
    [("v1.36.3", "0"), ("1.35+", "0"), ("v1.34.1-gke.200", None), (None, None), ("unknown", None)],
)
def test_tolerance_is_written_only_where_the_cluster_has_it(version, tolerance):
    files = render([plan()], POLICY, ManifestOptions(server_version=version))
    rules = body(files)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert (rules["scaleUp"].get("tolerance"), rules["scaleDown"].get("tolerance")) == (tolerance, tolerance)


def test_a_token_comes_from_a_secret_by_trigger_authentication():
    files = render([plan()], POLICY, ManifestOptions(token_secret="capacity-predictor-token"))
    trigger = body(files)["spec"]["triggers"][0]
    assert (trigger["authenticationRef"], trigger["metadata"]["authMode"]) == ({"name": "capacity-predictor"}, "bearer")
    auth = body(files, "inference/predictor.triggerauthentication.yaml")
    assert auth["spec"]["secretTargetRef"] == [
        {"parameter": "token", "name": "capacity-predictor-token", "key": "token"}
    ]


def test_a_cron_floor_is_a_third_trigger():
    floor = CronFloor("Europe/Berlin", "50 7 * * *", "0 19 * * *", 4)
    trigger = body(render([plan()], POLICY, cron={CHAT: floor}))["spec"]["triggers"][2]
    assert trigger["metadata"] == {
        "timezone": "Europe/Berlin",
        "start": "50 7 * * *",
        "end": "0 19 * * *",
        "desiredReplicas": "4",
    }


def test_names_over_the_limit_are_cut_and_stay_distinct():
    one, two = "a" * 60 + "-one", "a" * 60 + "-two"
    assert object_name("chat-8b") == "chat-8b"
    assert len(object_name(one)) == 54
    assert object_name(one) != object_name(two)


def test_two_kinds_of_one_name_get_two_objects():
    files = render([plan(), plan("demo/inference/StatefulSet/chat-8b")], POLICY)
    assert {"inference/chat-8b.scaledobject.yaml", "inference/chat-8b-statefulset.scaledobject.yaml"} <= set(files)


def test_one_workload_planned_twice_is_refused():
    with pytest.raises(ManifestInvalid, match="plan each workload once"):
        render([plan(), plan()], POLICY)


@pytest.mark.parametrize(
    ("kind", "name", "written"),
    [
        pytest.param("HorizontalPodAutoscaler", "chat-8b-hpa", False, id="an HPA of the user"),
        pytest.param("HorizontalPodAutoscaler", "keda-hpa-chat-8b", True, id="KEDA's own HPA of our object"),
        pytest.param("ScaledObject", "chat-8b", True, id="our object, to be updated"),
        pytest.param("ScaledObject", "other", False, id="another ScaledObject"),
    ],
)
def test_a_workload_with_another_controller_is_left_out_with_the_reason(kind, name, written):
    controller = Autoscaler(kind, "inference", name, "Deployment", "chat-8b", 1, 4)
    files = render([plan(controller=controller)], POLICY)
    assert (PATH in files) is written
    assert (
        f"Left out: {CHAT} is scaled by {kind} inference/{name} already" in files["kustomization.yaml"]
    ) is not written


def test_the_literal_form_is_written_only_on_request_and_under_its_warning():
    assert not [path for path in render([plan()], POLICY) if path.startswith("literal/")]
    text = render([plan()], POLICY, ManifestOptions(literal=True))["literal/" + PATH]
    assert "# WARNING: never asks for more than 2 replicas" in text
    assert yaml.safe_load(text)["spec"]["triggers"][0]["metadata"]["targetValue"] == "75"


@pytest.mark.parametrize("url", ["capacity-predictor:8080", "ftp://x", "http://x/?a=b", "http://a b"])
def test_an_address_that_keda_cannot_call_is_refused(url):
    with pytest.raises(UsageError, match="predictor_url"):
        ManifestOptions(predictor_url=url)


def test_versions_of_clouds_are_read():
    assert parse_version("v1.31.2-eks-7f9249a") == (1, 31)


def test_everything_written_is_valid_and_kustomize_renders_it(tmp_path: Path):
    plans = [
        plan(),
        plan("arn:aws:eks:eu-1:1:cluster/x/ns-2/StatefulSet/embed.v2", accepted=False, gpus_per_replica=None),
        plan("demo/inference/LeaderWorkerSet/" + "llama-405b-" * 6 + "x", api_version="leaderworkerset.x-k8s.io/v1"),
    ]
    options = ManifestOptions(server_version="v1.36.3", token_secret="t", literal=True)
    files = render(plans, POLICY, options)
    for path, text in files.items():
        found = yaml.safe_load(text)
        if "kustomization" not in path and path not in ("hpa/adapter-values.yaml", "limits.json"):
            assert has_schema(found["apiVersion"], found["kind"])
            assert problems(found) == []
            assert len(found["metadata"]["name"]) <= 63
    write_overlay(files, tmp_path / "manifests")
    kubectl = str(Path(sys.executable).with_name("kubectl"))
    for folder in (tmp_path / "manifests", tmp_path / "manifests" / "hpa"):
        done = run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        kinds = sorted(entry["kind"] for entry in yaml.safe_load_all(done.stdout))
        assert kinds.count("ScaledObject") + kinds.count("HorizontalPodAutoscaler") == 3


def test_a_role_of_a_pair_follows_the_other_one_by_live_demand_too():
    bound = PairBound("demo/inference/Deployment/decode", 0.25, "1 prefill and 2 decode replicas run now")
    body = yaml.safe_load(render([plan(pair=bound)], POLICY)["inference/chat-8b.scaledobject.yaml"])
    pair = body["spec"]["triggers"][-1]
    assert (pair["name"], pair["metadata"]["threshold"], pair["metadata"]["ignoreNullValues"]) == ("pair", "1", "false")
    assert pair["metadata"]["query"] == (
        'ceil(0.25 * ceil(sum(workload:gpu_demand:replicas{namespace="inference",workload="decode"}) / 0.80))'
    )


@pytest.mark.parametrize(
    ("url", "namespace"),
    [
        ("http://capacity-predictor.planning.svc.cluster.local:8080", "planning"),
        ("http://capacity-predictor.planning:8080", "planning"),
        ("https://predictor.example.com", "piqc"),
        ("http://10.0.0.7:8080", "piqc"),
    ],
)
def test_limits_and_rules_stand_where_the_predictor_does(url: str, namespace: str):
    files = render([plan()], POLICY, ManifestOptions(predictor_url=url))
    (generated,) = yaml.safe_load(files["kustomization.yaml"])["configMapGenerator"]
    rules = yaml.safe_load(files["recording-rules.yaml"])
    assert (generated["namespace"], rules["metadata"]["namespace"]) == (namespace, namespace)
