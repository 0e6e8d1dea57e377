"""What is running, on which accelerators? Live clusters, recorded ones, and the shipped demo, read into one snapshot.

What a snapshot costs belongs to `piqc_pipeline.waste`. Nothing heavy is imported until a cluster is read.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from piqc_pipeline.cluster.access import PermissionCheck
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.facts.snapshot import ClusterSnapshot

__all__ = ["PermissionCheck", "ScanOptions", "check_access", "list_contexts", "read_demo", "read_dump", "read_live"]

Progress = Callable[[str, int, int], None]
"""Called with what is read, how much of it is done, and how much there is (0: not known yet)."""


def read_live(options: ScanOptions, now: datetime, progress: Progress | None = None) -> ClusterSnapshot:
    """Scan the cluster that the options name, as kubectl would find it.

    A read that fails or is refused becomes an `Unknown` with `read_failed=True`; what could be read is returned. On
    Ctrl-C, and at the deadline, what was read so far is returned the same way.

    Args:
        options: Which cluster, which namespaces, how long, whether pods may be asked.
        now: The instant taken as now, aware UTC.
        progress: Told about each step, for a progress bar.

    Raises:
        ClusterUnreachable: Nobody answers at the API server's address, or something else does.
        CredentialsRefused: The API server answered 401.
        NotConfigured: There is neither a kubeconfig nor a service account.
        UsageError: The options cannot be meant (an unknown context, a selector that does not parse).
        NamespacesMissing: None of the namespaces in the options exists.
    """
    from piqc_pipeline.cluster.live import read

    return read(options, now, progress)


def read_dump(
    path: Path, now: datetime, cluster_name: str | None = None, options: ScanOptions | None = None
) -> ClusterSnapshot:
    """Read a recorded cluster: the output of `kubectl get nodes,pods,... -A -o json`.

    A file `NAME-answers.json` beside `NAME.json` may hold what pods answered (see `recorded.py`).

    Args:
        path: The recorded `List`.
        now: The instant taken as now, aware UTC.
        cluster_name: Name of the cluster in ids; the file's stem if None.
        options: Namespaces and selector to keep to; all if None.

    Raises:
        DumpUnreadable: The file is missing, empty, cut off or something else.
        NamespacesMissing: It holds nothing of the namespaces in the options.
    """
    from piqc_pipeline.cluster.recorded import read

    return read(path, now, cluster_name, options)


def read_demo(now: datetime) -> ClusterSnapshot:
    """The cluster that ships with the program: five deployments, twelve GPUs that nobody uses."""
    from piqc_pipeline.cluster.recorded import DEMO_CLUSTER, demo_path

    return read_dump(demo_path(), now, DEMO_CLUSTER)


def list_contexts(kubeconfig: Path | None = None) -> tuple[str, ...]:
    """Names of the contexts in the kubeconfig, in its order.

    Raises:
        NotConfigured: There is no kubeconfig.
    """
    from piqc_pipeline.cluster.kubeconfig import context_names

    return context_names(kubeconfig)


def check_access(options: ScanOptions) -> tuple[PermissionCheck, ...]:
    """Ask the API server, permission by permission, what a scan with these options may read.

    Raises:
        ClusterUnreachable: Nobody answers at the API server's address, or something else does.
        CredentialsRefused: The API server answered 401.
        NamespacesMissing: One of the namespaces in the options does not exist.
    """
    from piqc_pipeline.cluster.access import check

    return check(options)
