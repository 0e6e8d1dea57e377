"""Whose is this accelerator? From a sample's labels to a pod, and from a pod to its workload.

The traps, each seen in public samples: with the chart's default `honorLabels: false` the workload stands in
`exported_pod` and `pod` is the exporter's own; with `honorLabels: true` an idle GPU has no pod of its own, so that
Prometheus fills in the exporter's; fractional schedulers name a placeholder pod.
"""

import re
from collections.abc import Mapping, Sequence

from piqc_pipeline.history.inventory import WorkloadInventory

_EXPORTER = re.compile(
    r"(^|[-_./])((nvidia-)?dcgm-exporter|(nvidia-)?gpu-exporter|nvidia-smi-exporter|[a-z-]*metrics-exporter"
    r"|device-metrics-exporter|kube-state-metrics|prometheus-node-exporter)"
)
_PLACEHOLDER = re.compile(r"^(runai-reservation|gpu-reservation|hami-)")
_REPLICASET_POD = re.compile(r"^(?P<owner>.+)-[bcdfghjklmnpqrstvwxz0-9]{5,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""Deployment: name, ReplicaSet's hash, five letters; both of Kubernetes' safe alphabet without vowels
(apimachinery `rand.SafeEncodeString`), so that `my-trainer-x2x4z` is no ReplicaSet of `my`."""
_GENERATED_POD = re.compile(r"^(?P<owner>.+)-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_ORDINAL_POD = re.compile(r"^(?P<owner>.+?)(-\d+)+$")

PodName = tuple[str, str]
"""Namespace and name."""


def holder(labels: Mapping[str, str]) -> PodName | None:
    """The pod that holds the accelerator of a sample; None where no label names one that is a user's.

    Args:
        labels: As Prometheus stored them, of either `honorLabels` form and of exporters 1.x to 4.x.
    """
    exported = labels.get("exported_pod") or labels.get("exported_pod_name")
    if exported:
        space = labels.get("exported_namespace") or labels.get("exported_pod_namespace") or labels.get("namespace", "")
        return None if _PLACEHOLDER.match(exported) else (space, exported)
    if "exported_container" in labels or "exported_namespace" in labels:
        return None
    pod = labels.get("pod") or labels.get("pod_name")
    if not pod or _PLACEHOLDER.match(pod) or _is_exporter(pod, labels):
        return None
    return (labels.get("namespace") or labels.get("pod_namespace") or "", pod)


def is_placeholder(labels: Mapping[str, str]) -> bool:
    """True where a fractional scheduler's reservation hides the workload."""
    return bool(_PLACEHOLDER.match(labels.get("exported_pod") or labels.get("pod") or ""))


def _is_exporter(pod: str, labels: Mapping[str, str]) -> bool:
    own = [labels.get("service"), labels.get("job"), labels.get("kubernetes_name")]
    return bool(
        _EXPORTER.search(pod)
        or _EXPORTER.search(labels.get("container") or labels.get("container_name") or "")
        or any(name and pod.startswith(f"{name}-") for name in own)
        or pod == (labels.get("Hostname") or labels.get("hostname"))
    )


def device(labels: Mapping[str, str]) -> str:
    """A key of the physical device or MIG instance; exporters of every age name it somehow."""
    uuid = labels.get("UUID") or labels.get("uuid") or labels.get("gpu_uuid")
    if not uuid:
        node = labels.get("Hostname") or labels.get("hostname") or labels.get("node") or labels.get("instance") or ""
        uuid = f"{node}/{labels.get('gpu') or labels.get('gpu_id') or labels.get('device') or ''}"
    instance = labels.get("GPU_I_ID")
    return f"{uuid}/{instance}" if instance else uuid


def gpus_of_device(labels: Mapping[str, str]) -> float:
    """How much of a GPU a device is: 1, or slices / 7 of a MIG instance (`2g.10gb` is 2/7)."""
    slices = re.match(r"(\d+)g\.", labels.get("GPU_I_PROFILE", ""))
    return int(slices[1]) / 7 if slices else 1.0


class Owners:
    """Finds the workload of a pod, by what the cluster said of it or by the form of its generated name."""

    def __init__(
        self,
        inventory: Sequence[WorkloadInventory],
        pod_owners: Mapping[PodName, tuple[str, str]] | None = None,
        controllers: Mapping[tuple[str, str, str], tuple[str, str]] | None = None,
    ) -> None:
        """Index the inventory.

        Args:
            inventory: Workloads of the snapshot.
            pod_owners: Pod to kind and name of its owner, from kube-state-metrics.
            controllers: Namespace, kind and name of a ReplicaSet or Job to kind and name of its owner.
        """
        self._cluster = inventory[0].cluster if inventory else "prometheus"
        self._pods = {(entry.namespace, pod): entry.id for entry in inventory for pod in entry.pods}
        self._names = {(entry.namespace, entry.kind, entry.name): entry.id for entry in inventory}
        self._pod_owners = pod_owners or {}
        self._controllers = controllers or {}
        self._prefixes: dict[tuple[str, str], str | None] = {}
        for entry in inventory:
            for prefix in {entry.name, *(stem for pod in entry.pods for stem in _stems(pod)[:1])}:
                key = (entry.namespace, prefix)
                # Two workloads that generate the same prefix leave it unattributed rather than guessed.
                self._prefixes[key] = entry.id if self._prefixes.get(key, entry.id) == entry.id else None

    def named(self, namespace: str, kind: str, name: str) -> str | None:
        """Id of the workload with this kind and name, or of the one above it with the same generated prefix."""
        return self._names.get((namespace, kind, name)) or self._prefixes.get((namespace, name))

    def workload(self, pod: PodName) -> str | None:
        """Id of the pod's workload; None where nothing tells it."""
        if pod in self._pods:
            return self._pods[pod]
        namespace, name = pod
        owner = self._pod_owners.get(pod)
        seen = set()
        while owner and owner not in seen:
            seen.add(owner)
            known = self._names.get((namespace, *owner))
            if known:
                return known
            above = self._controllers.get((namespace, *owner))
            if above is None:
                break
            owner = above
        for stem in _stems(name):
            known = self._prefixes.get((namespace, stem))
            if known:
                return known
        if owner:
            return f"{self._cluster}/{namespace}/{owner[0]}/{owner[1]}"
        return None


def _stems(pod: str) -> list[str]:
    """Names that the owner of a pod with this generated name may have, likeliest first."""
    stems = []
    for pattern in (_REPLICASET_POD, _GENERATED_POD, _ORDINAL_POD):
        found = pattern.match(pod)
        if found:
            stems.append(found["owner"])
    return list(dict.fromkeys(stems))
