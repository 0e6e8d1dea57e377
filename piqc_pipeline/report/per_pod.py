"""How does a snapshot look when every pod is a row of its own (`--no-aggregate`)?"""

from dataclasses import replace

from piqc_pipeline.facts.snapshot import ClusterSnapshot, Pod, Workload


def per_pod(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same snapshot with each pod of each workload as a workload `cluster/namespace/Pod/name`."""
    owners = {workload.id: workload for workload in snapshot.workloads}
    rows: list[Workload] = []
    pods: list[Pod] = []
    for pod in snapshot.pods or ():
        owner = owners.get(pod.workload_id)
        if owner is None:
            pods.append(pod)
            continue
        one = f"{owner.cluster}/{pod.namespace}/Pod/{pod.name}"
        units = [request.units for request in pod.requests if request.units is not None]
        rows.append(
            replace(
                owner,
                id=one,
                kind="Pod",
                name=pod.name,
                api_version="v1",
                replicas_wanted=None,
                replicas_ready=int(pod.ready),
                gpus_per_replica=sum(units) if units else None,
                created_at=pod.created_at,
                topology=None,
                runtime=pod.runtime,
                unknown=(),
            )
        )
        pods.append(replace(pod, workload_id=one, group=None))
    return replace(snapshot, workloads=tuple(rows), pods=None if snapshot.pods is None else tuple(pods))
