"""How is a cluster to be scanned? The choices of one scan, as values."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from piqc_pipeline.prometheus.access import PrometheusAccess

Mode = Literal["auto", "remote", "incluster", "dry-run"]


@dataclass(frozen=True)
class ScanOptions:
    """The choices of one scan.

    Attributes:
        kubeconfig: Kubeconfig file; else `KUBECONFIG` (several paths are merged), then `~/.kube/config`.
        context: Context of the kubeconfig; else its current one.
        namespaces: Namespaces whose workloads are reported; empty means all. Placement is read cluster-wide.
        namespaces_expected: A cluster that has none of these namespaces is an error.
        selector: Label selector that pods of reported workloads must match, in kubectl's syntax.
        collect_runtime: Read the metrics of inference engines.
        allow_exec: Run nvidia-smi and the like inside pods.
        timeout_seconds: Time limit of one request or exec.
        deadline_seconds: Time limit of the whole scan; what was read by then is reported.
        workers: Pods asked at the same time.
        cluster_name: Name of the cluster in ids; else the context's cluster.
        mode: `auto` takes the kubeconfig, else the service account; `remote` only the first, `incluster` only the
            second; `dry-run` touches no cluster.
        prometheus: A Prometheus that scrapes DCGM; asked before any pod is.
        rate_window_seconds: Least time between the two reads of a counter.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    namespaces_expected: bool = True
    selector: str | None = None
    collect_runtime: bool = True
    allow_exec: bool = True
    timeout_seconds: float = 30.0
    deadline_seconds: float = 300.0
    workers: int = 10
    cluster_name: str | None = None
    mode: Mode = "auto"
    prometheus: PrometheusAccess | None = None
    rate_window_seconds: float = 2.0
