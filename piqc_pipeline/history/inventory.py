"""Which workloads may samples belong to? Taken from a cluster's snapshot; no samples and no frames here."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from piqc_pipeline.facts.snapshot import ClusterSnapshot


@dataclass(frozen=True)
class WorkloadInventory:
    """A workload as far as joining samples to it needs.

    Attributes:
        id: `cluster/namespace/Kind/name`.
        gpus_per_replica: Accelerators that one replica requests; None where unknown.
        replicas: Replicas the owner's spec asked for when the snapshot was taken; None where it has no such field.
        pods: Names of its pods in the snapshot; pods long gone are joined by the prefix of their generated names.
        max_num_seqs: Requests that one replica runs at once, from the engine's arguments; None where not given.
        capacity_rate_per_replica: Requests/s that keep one replica 100 % busy, where somebody measured it.
    """

    id: str
    namespace: str
    kind: str
    name: str
    gpus_per_replica: float | None = None
    replicas: int | None = None
    pods: tuple[str, ...] = ()
    max_num_seqs: int | None = None
    capacity_rate_per_replica: float | None = None

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self.id.split("/", 1)[0]


def inventory_from_snapshot(
    snapshot: ClusterSnapshot, capacity_rates: Mapping[str, float] | None = None
) -> tuple[WorkloadInventory, ...]:
    """Every workload of the snapshot, sorted by id.

    Args:
        snapshot: The cluster.
        capacity_rates: Requests/s that keep one replica 100 % busy, by workload id or `namespace/name`; `*` for all
            others.
    """
    rates = capacity_rates or {}
    pods: dict[str, list[str]] = defaultdict(list)
    for pod in snapshot.pods or ():
        pods[pod.workload_id].append(pod.name)
    return tuple(
        WorkloadInventory(
            id=workload.id,
            namespace=workload.namespace,
            kind=workload.kind,
            name=workload.name,
            gpus_per_replica=workload.gpus_per_replica,
            replicas=workload.replicas_wanted,
            pods=tuple(sorted(pods[workload.id])),
            max_num_seqs=workload.model.max_num_seqs,
            capacity_rate_per_replica=rates.get(
                workload.id, rates.get(f"{workload.namespace}/{workload.name}", rates.get("*"))
            ),
        )
        for workload in sorted(snapshot.workloads, key=lambda workload: workload.id)
    )
