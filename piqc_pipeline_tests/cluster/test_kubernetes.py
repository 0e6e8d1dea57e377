import json
import os
from pathlib import Path

import pytest

from piqc_pipeline.cluster import list_contexts
from piqc_pipeline.cluster.kubeconfig import kubeconfig_paths
from piqc_pipeline.cluster.kubernetes import connect
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.errors import NotConfigured, UsageError


def kubeconfig(folder: Path, name: str, current: str | None, *contexts: str) -> Path:
    path = folder / f"{name}.yaml"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": f"cluster-{c}", "cluster": {"server": f"http://127.0.0.1:1/{name}-{c}"}} for c in contexts
        ],
        "contexts": [{"name": c, "context": {"cluster": f"cluster-{c}", "user": "u"}} for c in contexts],
        "users": [{"name": "u", "user": {"token": "t"}}],
        **({"current-context": current} if current else {}),
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_several_files_are_merged_as_kubectl_merges_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kubeconfig(tmp_path, "one", "a", "a", "shared")
    second = kubeconfig(tmp_path, "two", "b", "b", "shared")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(first), str(tmp_path / "gone.yaml"), str(second), ""]))
    assert list_contexts() == ("a", "shared", "b")
    server = connect(ScanOptions())
    assert (server.context, server.cluster_name, server.host) == ("a", "cluster-a", "http://127.0.0.1:1/one-a")
    assert connect(ScanOptions(context="shared")).host == "http://127.0.0.1:1/one-shared"
    assert connect(ScanOptions(context="b", cluster_name="prod")).cluster_name == "prod"


def test_the_option_beats_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "one", "a", "a")))
    assert connect(ScanOptions(kubeconfig=kubeconfig(tmp_path, "two", "b", "b"))).context == "b"


def test_the_default_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    kubeconfig(tmp_path, "one", "a", "a").rename(tmp_path / "home" / ".kube" / "config")
    assert connect(ScanOptions()).context == "a"


def test_no_kubeconfig_names_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotConfigured, match="piqc demo"):
        connect(ScanOptions())
    monkeypatch.setenv("KUBECONFIG", "nowhere.yaml")
    with pytest.raises(NotConfigured, match=r"KUBECONFIG \(nowhere.yaml\) does not exist"):
        kubeconfig_paths(None)


def test_a_context_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "one", None, "a", "b")
    with pytest.raises(UsageError, match=r"no context 'x'.*it has: a, b"):
        connect(ScanOptions(kubeconfig=path, context="x"))
    with pytest.raises(UsageError, match="no current context"):
        connect(ScanOptions(kubeconfig=path))


@pytest.mark.parametrize("text", ["- a\n", "a: [", "\x00", "contexts: 3\ncurrent-context: a\n", "contexts: [1]\n"])
def test_a_file_that_is_no_kubeconfig_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="kubeconfig"):
        connect(ScanOptions(kubeconfig=path))


def test_an_empty_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text("")
    with pytest.raises(UsageError, match=r"the kubeconfig .*k\.yaml is empty"):
        connect(ScanOptions(kubeconfig=path))


def test_a_context_of_a_cluster_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "one", "a", "a")
    path.write_text(path.read_text().replace('"name": "cluster-a", "cluster"', '"name": "other", "cluster"'))
    with pytest.raises(UsageError, match="context 'a'"):
        connect(ScanOptions(kubeconfig=path))


def test_outside_of_a_cluster_there_is_no_service_account() -> None:
    with pytest.raises(NotConfigured, match="run it in a pod"):
        connect(ScanOptions(mode="incluster"))
