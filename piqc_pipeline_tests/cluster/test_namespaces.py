"""A namespace that does not exist is an error; one that nobody may look up is unknown."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from piqc_pipeline.cli.main import cli
from piqc_pipeline.cluster import check_access
from piqc_pipeline.cluster.namespaces import Names, check
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.errors import NamespacesMissing
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, Fault
from piqc_pipeline_tests.cluster.scanning import failures, live

QUIET: dict[str, Any] = {"allow_exec": False, "collect_runtime": False}


def space(name: str) -> dict[str, Any]:
    return {"kind": "Namespace", "metadata": {"name": name}}


def test_a_typo_is_told_with_the_name_that_was_meant(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items += [space("inference"), space("default")]
    with pytest.raises(NamespacesMissing, match="the cluster c has no namespace infernce; did you mean inference\\?"):
        live(api, tmp_path, namespaces=("infernce",), **QUIET)


def test_an_empty_namespace_is_no_error(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items += [space("inference"), space("default")]
    snapshot = live(api, tmp_path, namespaces=("default",), **QUIET)
    assert (snapshot.workloads, failures(snapshot)) == ((), [])


def test_one_that_is_missing_beside_others_is_told(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items += [space("inference"), space("default")]
    snapshot = live(api, tmp_path, namespaces=("inference", "zz"), **QUIET)
    (told,) = failures(snapshot)
    assert told.what == "workloads of namespace zz" and len(snapshot.workloads) == 1
    assert told.why == "the cluster c has no such namespace; there are default, inference"


def test_unknown_is_not_absent(api: ApiServerDouble, tmp_path: Path) -> None:
    api.faults = [Fault(r"^/api/v1/namespaces\?", 403)]
    snapshot = live(api, tmp_path, namespaces=("inference", "zz"), **QUIET)
    (told,) = failures(snapshot)
    assert told.what == "whether there is a namespace zz"
    assert "cannot list namespaces: " in told.why and told.why.endswith("; grant `list namespaces`")


def test_nobody_asks_for_names_where_all_are_meant(api: ApiServerDouble, tmp_path: Path) -> None:
    live(api, tmp_path, **QUIET)
    assert api.count(r"^/api/v1/namespaces\?") == 0


def test_the_permissions_of_a_missing_namespace_are_not_granted(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items += [space("inference")]
    options = ScanOptions(kubeconfig=api.kubeconfig(tmp_path), namespaces=("inference", "zz"))
    with pytest.raises(NamespacesMissing, match="no namespace zz"):
        check_access(options)
    api.faults = [Fault(r"^/api/v1/namespaces\?", 403)]
    assert {row.namespace for row in check_access(options)} == {None, "inference", "zz"}


def contexts(api: ApiServerDouble, folder: Path, *ports: int) -> Path:
    path = api.kubeconfig(folder)
    config = json.loads(path.read_text())
    for port in ports:
        name = f"c{port}"
        config["clusters"].append({"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}})
        config["contexts"].append({"name": name, "context": {"cluster": name, "user": "u"}})
    path.write_text(json.dumps(config))
    return path


def test_a_namespace_may_be_in_some_of_all_contexts_only(api: ApiServerDouble, tmp_path: Path) -> None:
    api.items += [space("inference"), space("default")]
    arguments = ["scan", "--all-contexts", "--no-exec", "--no-collect-runtime", "--format", "json"]
    alone = ["--kubeconfig", str(contexts(api, tmp_path)), "-n", "zz"]
    assert isinstance(CliRunner().invoke(cli, [*arguments, *alone], standalone_mode=False).exception, NamespacesMissing)
    beside = ["--kubeconfig", str(contexts(api, tmp_path, 1)), "-n", "zz"]
    result = CliRunner().invoke(cli, [*arguments, *beside], standalone_mode=False)
    assert (result.return_value, json.loads(result.stdout)["workloads"]) == (3, []), "the other did not answer"


def test_an_empty_list_of_names_tells_nothing() -> None:
    (told,) = check(["a", "a"], Names(frozenset()), frozenset({"b"}), "it has")
    assert (told.what, told.why) == ("whether there is a namespace a", "the list is empty")


def test_of_many_names_some_are_shown() -> None:
    many = Names(frozenset(f"team-{n:02}" for n in range(12)))
    with pytest.raises(NamespacesMissing, match="there are team-00, .*team-09, and 2 more$"):
        check(["q"], many, frozenset(), "it has")
