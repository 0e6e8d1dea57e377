"""Where and how are decisions published? Addresses, secrets and versions that manifests are written for.

The control rule's numbers belong to `policy.py`.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from piqc_pipeline.errors import UsageError
from piqc_pipeline.settings import Settings

DEFAULT_NAMESPACE = "piqc"
"""Where `k8s/` puts the predictor and its rules."""
DEFAULT_PREDICTOR_URL = "http://capacity-predictor.piqc.svc.cluster.local:8080"
DEFAULT_PROMETHEUS_URL = "http://prometheus-operated.monitoring.svc.cluster.local:9090"
TOLERANCE_SINCE = (1, 35)
"""First Kubernetes with per-HPA tolerance on by default (KEP-4951; pkg/features/kube_features.go)."""


@dataclass(frozen=True)
class CronFloor:
    """A floor that needs no model: at least `replicas` in a daily window.

    Attributes:
        timezone: IANA zone of the window.
        start: Five-field cron expression.
        end: Five-field cron expression.
        replicas: Fewest replicas inside.
    """

    timezone: str
    start: str
    end: str
    replicas: int


@dataclass(frozen=True)
class ManifestOptions:
    """What manifests need besides the plan.

    Attributes:
        predictor_url: Base URL at which KEDA reaches the predictor.
        prometheus_url: Base URL at which KEDA reaches Prometheus.
        token_secret: Secret, in each workload's namespace, whose key `token` holds the predictor's bearer token; None:
            the predictor asks for none.
        server_version: Kubernetes' version as the snapshot has it, for instance `v1.36.3`; None where unknown.
        honor_labels: Device metrics carry the workload's own `namespace` and `pod` (scrape with honorLabels: true);
            otherwise they are `exported_namespace` and `exported_pod`.
        recording_rules: Write the rules behind `workload:gpu_demand:replicas`.
        literal: Also write the specification's literal ScaledObjects, each with its warning.
        timeout_seconds: Time limit of one read of the predictor.
    """

    predictor_url: str = DEFAULT_PREDICTOR_URL
    prometheus_url: str = DEFAULT_PROMETHEUS_URL
    token_secret: str | None = None
    server_version: str | None = None
    honor_labels: bool = False
    recording_rules: bool = True
    literal: bool = False
    timeout_seconds: int = 5

    def __post_init__(self) -> None:
        """Refuse addresses that KEDA could not call.

        Raises:
            UsageError: An address is no http(s) URL.
        """
        for name in ("predictor_url", "prometheus_url"):
            value = getattr(self, name)
            if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", value):
                raise UsageError(f"{name} must be an http:// or https:// base URL without a query, got {value!r}")

    @property
    def predictor_namespace(self) -> str:
        """Namespace of the predictor's Service; that of `k8s/` where its address is none inside the cluster."""
        labels = (urlsplit(self.predictor_url).hostname or "").split(".")
        return labels[1] if len(labels) > 1 and labels[2:3] in ([], ["svc"]) else DEFAULT_NAMESPACE

    @property
    def tolerance_allowed(self) -> bool:
        """Whether the cluster's HPA knows `tolerance`; False where its version is unknown."""
        version = parse_version(self.server_version)
        return version is not None and version >= TOLERANCE_SINCE


def parse_version(text: str | None) -> tuple[int, int] | None:
    """Major and minor of `v1.36.3`, `1.35+` or `v1.34.1-gke.200`; None where it is none of these."""
    match = re.match(r"v?(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else None


def options_from_settings(
    settings: Settings, server_version: str | None = None, *, token_secret: str | None = None
) -> ManifestOptions:
    """The options that `PIQC_*` settings describe.

    Raises:
        UsageError: An address is no http(s) URL.
    """
    return ManifestOptions(
        predictor_url=settings.predictor_url.rstrip("/"),
        prometheus_url=(settings.keda_prometheus_url or settings.prometheus_url or DEFAULT_PROMETHEUS_URL).rstrip("/"),
        token_secret=token_secret,
        server_version=server_version,
    )
