"""Whose is a pod? Its owner, followed to the top: Deployment, LeaderWorkerSet, RayService, InferenceService, Job..."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from piqc_pipeline.cluster.objects import Meta, OwnerRef, instant
from piqc_pipeline.cluster.surroundings import ControllerObject, PodTemplate

MAX_DEPTH = 12

API_VERSIONS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "RayCluster": "ray.io/v1",
    "RayService": "ray.io/v1",
    "RayJob": "ray.io/v1",
    "InferenceService": "serving.kserve.io/v1beta1",
    "LLMInferenceService": "serving.kserve.io/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Pod": "v1",
}

LWS = "leaderworkerset.sigs.k8s.io/"
RAY = "ray.io/"
KSERVE = "serving.kserve.io/inferenceservice"
_NOT_AN_OWNER = frozenset({"Node", "Namespace"})


@dataclass(frozen=True)
class Owner:
    """The topmost owner of a pod.

    Attributes:
        created_at: When the topmost owner that is known was made; None where none is.
        replicas: Wanted replicas (pods, or groups), from the highest owner that has such a field.
        template: The pods it makes, where one owner says so.
        group: Key of the multi-node group that the pod is part of; None for a pod that is a replica of its own.
    """

    kind: str
    name: str
    api_version: str
    created_at: datetime | None = None
    replicas: int | None = None
    template: PodTemplate | None = None
    group: str | None = None


@dataclass
class Owners:
    """All controllers of a cluster, by kind, namespace and name."""

    objects: dict[tuple[str, str, str], ControllerObject] = field(default_factory=dict)
    _tops: dict[tuple[str, str, str], Owner] = field(default_factory=dict)

    @classmethod
    def of(cls, controllers: Iterable[ControllerObject]) -> "Owners":
        """Index the controllers."""
        return cls({(item.kind, item.metadata.namespace, item.metadata.name): item for item in controllers})

    def top(self, meta: Meta) -> Owner:
        """The topmost owner of a pod with this metadata."""
        named = self._by_labels(meta)
        reference = meta.owner()
        if named is not None:
            found = self._follow(named, meta)
        elif reference is None or reference.kind in _NOT_AN_OWNER:
            return Owner("Pod", meta.name, "v1", instant(meta.creation_timestamp))
        else:
            found = self._follow(reference, meta)
        group = group_of(meta)
        return found if group is None else _with_group(found, group)

    def _follow(self, reference: OwnerRef, meta: Meta) -> Owner:
        key = (reference.kind, meta.namespace, reference.name)
        if key not in self._tops:
            self._tops[key] = self._climb(reference, meta)
        return self._tops[key]

    def _climb(self, reference: OwnerRef, meta: Meta) -> Owner:
        kind, name, api_version = reference.kind, reference.name, reference.api_version
        created: datetime | None = None
        replicas: int | None = None
        template: PodTemplate | None = None
        for _ in range(MAX_DEPTH):
            item = self.objects.get((kind, meta.namespace, name))
            if item is None:
                inferred = self._deployment_of(kind, name, meta)
                if inferred is None:
                    break
                kind, name, api_version = "Deployment", inferred, "apps/v1"
                if ("Deployment", meta.namespace, name) in self.objects:
                    continue
                break
            api_version = item.api_version or api_version
            created = instant(item.metadata.creation_timestamp) or created
            wanted = replicas_of(item)
            replicas = wanted if wanted is not None else replicas
            template = item.spec.template or template
            above = item.metadata.owner()
            if above is None or above.kind in _NOT_AN_OWNER:
                break
            kind, name, api_version = above.kind, above.name, above.api_version
            if (kind, meta.namespace, name) not in self.objects:
                break
        return Owner(kind, name, api_version or API_VERSIONS.get(kind, ""), created, replicas, template)

    def _deployment_of(self, kind: str, name: str, meta: Meta) -> str | None:
        """The Deployment of a ReplicaSet that was not read: by its pods' hash label, or by its name and selector."""
        if kind != "ReplicaSet":
            return None
        suffix = meta.label("pod-template-hash")
        if suffix and name.endswith(f"-{suffix}"):
            return name.removesuffix(f"-{suffix}")
        stem, _, tail = name.rpartition("-")
        owner = self.objects.get(("Deployment", meta.namespace, stem)) if tail else None
        if owner is None or owner.spec.selector is None or not owner.spec.selector.match_labels:
            return None
        return stem if owner.spec.selector.matches(meta.labels or {}) else None

    def _by_labels(self, meta: Meta) -> OwnerRef | None:
        """Owners that write their name on each pod, whatever made the pod in between."""
        if not meta.labels:
            return None
        label = meta.labels.get
        if name := label(f"{LWS}name"):
            return _reference("LeaderWorkerSet", name)
        kind, name = label(f"{RAY}originated-from-crd"), label(f"{RAY}originated-from-cr-name")
        if kind in ("RayService", "RayCluster", "RayJob") and name:
            return _reference(kind, name)
        if name := label(f"{RAY}cluster"):
            return _reference("RayCluster", name)
        if name := label(KSERVE):
            return _reference("InferenceService", name)
        if name := label("jobset.sigs.k8s.io/jobset-name"):
            return _reference("JobSet", name)
        return None


def _reference(kind: str, name: str) -> OwnerRef:
    return OwnerRef(API_VERSIONS[kind], kind, name)


def _with_group(owner: Owner, group: str) -> Owner:
    return Owner(owner.kind, owner.name, owner.api_version, owner.created_at, owner.replicas, owner.template, group)


def group_of(meta: Meta) -> str | None:
    """Key of the group whose pods serve one model together: an LWS group, or a Ray cluster."""
    if (index := meta.label(f"{LWS}group-index")) is not None:
        return index
    return meta.label(f"{RAY}cluster")


def replicas_of(item: ControllerObject) -> int | None:
    """Replicas that a controller wants; None where its kind has no such number."""
    if item.spec.replicas is not None:
        return item.spec.replicas
    if item.kind == "Job":
        return item.spec.parallelism if item.spec.parallelism is not None else 1
    if item.kind == "DaemonSet":
        return item.status.desired_number_scheduled
    return None
