"""Which lists does a scan read, and what is unknown where one cannot be read?

How they are read belongs to `reader.py`.
"""

from dataclasses import dataclass
from typing import Any

from piqc_pipeline.cluster.objects import NodeObject, PodObject
from piqc_pipeline.cluster.surroundings import (
    AutoscalerObject,
    ClaimObject,
    ControllerObject,
    MonitorObject,
    QuotaObject,
    ServiceObject,
    SliceObject,
    UsageObject,
)
from piqc_pipeline.facts.snapshot import Subject

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""ReplicaSets carry the whole pod template, one for each old revision; only their owners matter here."""


@dataclass(frozen=True)
class Listing:
    """One list of a scan.

    Attributes:
        plural: Resource name, as RBAC writes it with `group`.
        effect: What is unknown where it cannot be read.
        subject: The same for programs.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    item: type[Any]
    effect: str
    accept: str = "application/json"
    subject: Subject = "other objects"

    def path(self, version: str) -> str:
        """URL path of the list over all namespaces."""
        return f"/api/{version}/{self.plural}" if not self.group else f"/apis/{self.group}/{version}/{self.plural}"

    @property
    def resource(self) -> str:
        """`deployments.apps`, as RBAC and kubectl name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES = Listing(
    "Node", "", ("v1",), "nodes", NodeObject, "capacity, unallocated accelerators and prices", subject="nodes"
)
PODS = Listing("Pod", "", ("v1",), "pods", PodObject, "workloads, and which accelerators are free", subject="pods")
CONTROLLERS = (
    Listing("Deployment", "apps", ("v1",), "deployments", ControllerObject, "wanted replicas and age of Deployments"),
    Listing("ReplicaSet", "apps", ("v1",), "replicasets", ControllerObject, "owners of pods", accept=METADATA_ONLY),
    Listing("StatefulSet", "apps", ("v1",), "statefulsets", ControllerObject, "replicas and age of StatefulSets"),
    Listing("DaemonSet", "apps", ("v1",), "daemonsets", ControllerObject, "replicas and age of DaemonSets"),
    Listing("Job", "batch", ("v1",), "jobs", ControllerObject, "owners and age of Jobs"),
    Listing("CronJob", "batch", ("v1",), "cronjobs", ControllerObject, "age of CronJobs"),
    Listing(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        ("v1", "v1alpha1"),
        "leaderworkersets",
        ControllerObject,
        "replicas and age of LeaderWorkerSets",
    ),
    Listing("RayCluster", "ray.io", ("v1", "v1alpha1"), "rayclusters", ControllerObject, "owners of Ray clusters"),
    Listing("RayService", "ray.io", ("v1", "v1alpha1"), "rayservices", ControllerObject, "age of RayServices"),
    Listing(
        "InferenceService",
        "serving.kserve.io",
        ("v1beta1",),
        "inferenceservices",
        ControllerObject,
        "age of InferenceServices",
    ),
    Listing(
        "LLMInferenceService",
        "serving.kserve.io",
        ("v1alpha1", "v1alpha2"),
        "llminferenceservices",
        ControllerObject,
        "age of LLMInferenceServices",
    ),
)
SERVICES = Listing("Service", "", ("v1",), "services", ServiceObject, "which workloads are scraped")
AUTOSCALERS = (
    Listing(
        "HorizontalPodAutoscaler",
        "autoscaling",
        ("v2",),
        "horizontalpodautoscalers",
        AutoscalerObject,
        "autoscaling",
        subject="autoscalers",
    ),
    Listing(
        "ScaledObject",
        "keda.sh",
        ("v1alpha1",),
        "scaledobjects",
        AutoscalerObject,
        "autoscaling by KEDA",
        subject="autoscalers",
    ),
)
MONITORS = (
    Listing(
        "ServiceMonitor",
        "monitoring.coreos.com",
        ("v1",),
        "servicemonitors",
        MonitorObject,
        "which workloads are scraped",
    ),
    Listing(
        "PodMonitor", "monitoring.coreos.com", ("v1",), "podmonitors", MonitorObject, "which workloads are scraped"
    ),
)
CLAIMS = Listing(
    "ResourceClaim",
    "resource.k8s.io",
    ("v1", "v1beta2", "v1beta1"),
    "resourceclaims",
    ClaimObject,
    "devices held by claims",
)
SLICES = Listing(
    "ResourceSlice",
    "resource.k8s.io",
    ("v1", "v1beta2", "v1beta1"),
    "resourceslices",
    SliceObject,
    "devices offered by DRA",
)
QUOTAS = Listing("ResourceQuota", "", ("v1",), "resourcequotas", QuotaObject, "how much a namespace may still take")
USAGE = Listing("PodMetrics", "metrics.k8s.io", ("v1beta1",), "pods", UsageObject, "CPU use of pods")
ALL_LISTINGS = (NODES, PODS, *CONTROLLERS, SERVICES, *AUTOSCALERS, *MONITORS, CLAIMS, SLICES, QUOTAS, USAGE)
BY_KIND = {listing.kind: listing for listing in ALL_LISTINGS}
