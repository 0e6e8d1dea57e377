from pathlib import Path

import pytest

from piqc_pipeline.cluster import check_access
from piqc_pipeline.cluster.access import needed
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.errors import CredentialsRefused
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Fault


def test_each_permission_is_reviewed_by_the_server(api: ApiServerDouble, tmp_path: Path) -> None:
    api.reviews = {"pods/exec": False}
    rows = {f"{row.verb} {row.resource}": row for row in check_access(ScanOptions(kubeconfig=api.kubeconfig(tmp_path)))}
    assert rows["list nodes"].allowed is True and rows["create pods/exec"].allowed is False
    assert rows["list nodes"].need == "required" and rows["create pods/exec"].need == "optional"


def test_a_server_without_reviews_is_tried(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/nodes", 403)]
    rows = {f"{row.verb} {row.resource}": row for row in check_access(ScanOptions(kubeconfig=api.kubeconfig(tmp_path)))}
    assert rows["list nodes"].allowed is False and rows["list pods"].allowed is True
    assert rows["create pods/exec"].allowed is None, "it is not tried on somebody's pod"


def test_refused_credentials_are_told(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault("selfsubjectaccessreviews", 401)]
    with pytest.raises(CredentialsRefused):
        check_access(ScanOptions(kubeconfig=api.kubeconfig(tmp_path)))


def test_services_are_asked_for_only_where_pods_may_not_be(api: ApiServerDouble, tmp_path: Path) -> None:
    def asked(**reviews: bool) -> set[str]:
        api.reviews = {name.replace("_", "/"): allowed for name, allowed in reviews.items()}
        return {row.resource for row in check_access(ScanOptions(kubeconfig=api.kubeconfig(tmp_path)))}

    assert "services/proxy" not in asked(services_proxy=False)
    assert "services/proxy" in asked(services_proxy=False, pods_proxy=False)


def test_kinds_that_the_cluster_has_not_need_no_permission(api: ApiServerDouble, tmp_path: Path) -> None:
    api.reviews = {}
    options = ScanOptions(kubeconfig=api.kubeconfig(tmp_path))
    assert "leaderworkersets.leaderworkerset.x-k8s.io" not in {row.resource for row in check_access(options)}
    api.groups = (*api.groups, "leaderworkerset.x-k8s.io")
    assert "leaderworkersets.leaderworkerset.x-k8s.io" in {row.resource for row in check_access(options)}


def test_only_what_the_options_use_is_needed() -> None:
    names = {row.resource for row in needed(ScanOptions(allow_exec=False, collect_runtime=False))}
    assert not names & {"pods/exec", "pods/proxy", "services/proxy"}
    spread = [row.namespace for row in needed(ScanOptions(namespaces=("a", "b"))) if row.resource == "pods/exec"]
    assert spread == ["a", "b"]
