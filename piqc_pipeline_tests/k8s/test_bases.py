"""Would a cluster take the shipped bases, and do they grant no more than they say?"""

from pathlib import Path
from typing import Any

import pytest

from piqc_pipeline_tests.k8s.rendering import ROOT, pod_templates, render, restricted_faults, validate

K8S = ROOT / "k8s"
BASES = sorted(str(path.parent.relative_to(K8S)) for path in K8S.rglob("kustomization.yaml"))
_rendered: dict[str, list[dict[str, Any]]] = {}


def rendered(base: str) -> list[dict[str, Any]]:
    if base not in _rendered:
        _rendered[base] = render(K8S / base)
    return _rendered[base]


def one(base: str, kind: str, name: str) -> dict[str, Any]:
    return next(d for d in rendered(base) if d["kind"] == kind and d["metadata"]["name"] == name)


def test_every_folder_of_k8s_is_a_base() -> None:
    assert {"rbac", "rbac/exec", "rbac/pods-proxy", "scan", "predictor", "monitoring"} <= set(BASES)


@pytest.mark.parametrize("base", [base for base in BASES if not base.startswith("scaler")])
def test_base_renders_to_valid_objects(base: str) -> None:
    documents = rendered(base)
    assert documents
    for document in documents:
        validate(document)


@pytest.mark.parametrize("base", [base for base in BASES if base.startswith("scaler")])
def test_overlay_of_the_demo_renders_to_valid_objects_with_two_triggers(base: str) -> None:
    from piqc_pipeline.scaling.schema import problems

    documents = rendered(base)
    assert documents
    for document in documents:
        if document["kind"] == "ConfigMap":
            validate(document)
            continue
        assert problems(document) == []
        if document["kind"] == "ScaledObject":
            assert document["spec"]["triggers"][-1]["name"] == "observed"


@pytest.mark.parametrize("base", BASES)
def test_every_pod_passes_the_restricted_level_with_requests_and_a_memory_limit(base: str) -> None:
    for document in rendered(base):
        for pod in pod_templates(document):
            assert restricted_faults(pod) == []
            for container in pod["containers"]:
                assert set(container["resources"]["requests"]) == {"cpu", "memory"}
                assert "memory" in container["resources"]["limits"]
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
                assert not container["image"].endswith(":latest")


def test_scan_role_reads_only_and_reads_no_secret() -> None:
    rules = one("rbac", "ClusterRole", "piqc-read")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list"}
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert not resources & {"secrets", "configmaps", "pods/exec", "pods/log", "pods/proxy", "services/proxy", "*"}
    assert {"nodes", "pods", "deployments", "statefulsets", "leaderworkersets", "resourceclaims"} <= resources


OPTIONAL_ROLES = ("rbac/exec", "rbac/pods-proxy", "rbac/services-proxy")


def test_roles_grant_what_a_scan_reads_and_nothing_else() -> None:
    from piqc_pipeline.cluster.access import needed
    from piqc_pipeline.cluster.listings import ALL_LISTINGS
    from piqc_pipeline.cluster.options import ScanOptions

    def granted(base: str) -> set[tuple[str, str]]:
        rules = [rule for role in rendered(base) if role["kind"] == "ClusterRole" for rule in role["rules"]]
        return {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}

    read = granted("rbac")
    assert read == {(listing.group, listing.plural) for listing in ALL_LISTINGS} | {("", "namespaces")}
    everything = {f"{name}.{group}" if group else name for group, name in read}
    everything |= {name for base in OPTIONAL_ROLES for _, name in granted(base)}
    assert {row.resource for row in needed(ScanOptions())} <= everything


@pytest.mark.parametrize(
    ("base", "resource", "verbs"),
    [
        ("rbac/exec", "pods/exec", ["create", "get"]),
        ("rbac/pods-proxy", "pods/proxy", ["get"]),
        ("rbac/services-proxy", "services/proxy", ["get"]),
    ],
)
def test_optional_role_grants_exactly_one_thing(base: str, resource: str, verbs: list[str]) -> None:
    (role,) = [document for document in rendered(base) if document["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": [resource], "verbs": verbs}]


def test_scan_pods_name_the_service_account_of_the_role() -> None:
    bound = one("rbac", "ClusterRoleBinding", "piqc-read")["subjects"][0]
    for document in rendered("scan"):
        (pod,) = pod_templates(document)
        assert pod["serviceAccountName"] == bound["name"]
        assert document["metadata"]["namespace"] == bound["namespace"]


def test_predictor_service_is_where_the_settings_say_keda_finds_it() -> None:
    from piqc_pipeline.settings import Settings

    service = one("predictor", "Service", "capacity-predictor")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local"
    assert Settings.model_fields["predictor_url"].default == f"http://{host}:{service['spec']['ports'][0]['port']}"


def test_predictor_leaves_its_service_before_it_stops_and_keeps_one_pod_ready() -> None:
    deployment = one("predictor", "Deployment", "capacity-predictor")
    (pod,) = pod_templates(deployment)
    (container,) = pod["containers"]
    assert container["lifecycle"]["preStop"] == {"sleep": {"seconds": 3}}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert pod["automountServiceAccountToken"] is False
    assert one("predictor", "PodDisruptionBudget", "capacity-predictor")["spec"]["minAvailable"] == 1
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert one("predictor", "Service", "capacity-predictor")["spec"]["selector"].items() <= labels.items()
    assert (
        one("monitoring", "PodMonitor", "capacity-predictor")["spec"]["selector"]["matchLabels"].items()
        <= labels.items()
    )


def test_claim_variant_reads_the_current_model_of_the_pipelines_volume() -> None:
    (pod,) = pod_templates(one("predictor-claim", "Deployment", "capacity-predictor"))
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "piqc-data", "readOnly": True}
    assert pod["containers"][0]["args"][-1] == "/model/piqc/model/current"


def test_rules_never_apply_rate_to_a_gauge() -> None:
    for document in rendered("monitoring"):
        if document["kind"] == "PrometheusRule":
            for group in document["spec"]["groups"]:
                for rule in group["rules"]:
                    assert "rate(DCGM" not in rule["expr"]


def test_no_manifest_names_a_folder_of_the_machine() -> None:
    for path in K8S.rglob("*"):
        if path.is_file():
            assert "/root" not in path.read_text() and not Path("/work").is_relative_to(path)
