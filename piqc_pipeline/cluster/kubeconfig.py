"""Which cluster is meant, and with whose credentials? Kubeconfig as kubectl reads it, or a service account."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.errors import NotConfigured, UsageError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_service_account(configuration: Any) -> str:
    """Fill the client's configuration with this pod's service account; the name that its cluster gets.

    Raises:
        NotConfigured: This process runs in no pod, or its account is not mounted.
    """
    from kubernetes import config

    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException as error:
        raise NotConfigured(
            f"this process has no service account of a cluster ({printable(str(error), 120)}): run it in a pod, "
            "or pass --kubeconfig"
        ) from error
    return "in-cluster"


def kubeconfig_paths(kubeconfig: Path | None) -> str:
    """The kubeconfig that kubectl would read: the option, else all of `KUBECONFIG`, else `~/.kube/config`.

    Raises:
        NotConfigured: No such file exists.
    """
    text = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    present = [part for part in text.split(os.pathsep) if part and Path(part).expanduser().is_file()]
    if present:
        return os.pathsep.join(present)
    named = "--kubeconfig" if kubeconfig else "KUBECONFIG" if os.environ.get("KUBECONFIG") else "the default kubeconfig"
    raise NotConfigured(
        f"no cluster is configured: {named} ({text}) does not exist. Pass --kubeconfig, set KUBECONFIG, "
        "or see everything on a recorded cluster with `piqc demo`"
    )


@dataclass(frozen=True)
class _Kubeconfig:
    """What kubectl would see in all files together: of two entries of one name, the first counts."""

    paths: str
    clusters: dict[str, str]
    """Cluster by context."""
    current: str | None


def _read_kubeconfig(kubeconfig: Path | None) -> _Kubeconfig:
    usable: list[str] = []
    clusters: dict[str, str] = {}
    current: str | None = None
    for path in kubeconfig_paths(kubeconfig).split(os.pathsep):
        try:
            document = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            words = printable(str(error), 160)
            raise UsageError(f"cannot read the kubeconfig {path}: {words}; name another with --kubeconfig") from error
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("contexts") or [], list):
            raise UsageError(f"{path} is no kubeconfig; name another with --kubeconfig")
        usable.append(path)
        current = current or document.get("current-context") or None
        for row in document.get("contexts") or []:
            if isinstance(row, dict) and row.get("name"):
                inner = row.get("context")
                cluster = inner.get("cluster") if isinstance(inner, dict) else None
                clusters.setdefault(str(row["name"]), str(cluster or row["name"]))
    if not usable:
        raise UsageError(f"the kubeconfig {kubeconfig_paths(kubeconfig)} is empty; name another with --kubeconfig")
    return _Kubeconfig(os.pathsep.join(usable), clusters, str(current) if current else None)


def context_names(kubeconfig: Path | None) -> tuple[str, ...]:
    """Names of the contexts of the kubeconfig.

    Raises:
        NotConfigured: There is no kubeconfig.
        UsageError: It cannot be read.
    """
    return tuple(_read_kubeconfig(kubeconfig).clusters)


def load_kubeconfig(options: ScanOptions, configuration: Any) -> tuple[str, str | None]:
    """Fill the client's configuration with the context that the options name; that context's cluster, and its name.

    Raises:
        NotConfigured: There is no kubeconfig.
        UsageError: It has no such context, or one that cannot be used.
    """
    from kubernetes import config

    found = _read_kubeconfig(options.kubeconfig)
    wanted = options.context or found.current
    if wanted is None or wanted not in found.clusters:
        have = ", ".join(found.clusters) or "none"
        lack = f"no context {wanted!r}" if wanted else "no current context"
        raise UsageError(f"the kubeconfig {found.paths} has {lack}; choose one with --context (it has: {have})")
    try:
        config.load_kube_config(
            config_file=found.paths, context=wanted, client_configuration=configuration, persist_config=False
        )
    except (config.ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"context {wanted!r} of {found.paths} cannot be used: {printable(str(error), 160)}") from error
    return found.clusters[wanted], wanted
