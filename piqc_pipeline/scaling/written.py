"""Is what stands in the manifests' folder valid, able to act, and what the plan meant? Read back from the disk.

Objects of others, and traps in triggers, belong to `lint.py`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from piqc_pipeline.errors import ManifestInvalid
from piqc_pipeline.scaling import schema
from piqc_pipeline.scaling.hpa import largest_reachable
from piqc_pipeline.scaling.plan import ReplicaPlan

MILLI = 1000
TARGET_FIELDS = {"metrics-api": "targetValue", "prometheus": "threshold"}
"""Where a trigger writes its target; a cron trigger has none."""


def written_objects(folder: Path) -> dict[str, dict[str, Any]]:
    """Every object with a schema below the folder, by relative path.

    Raises:
        ManifestInvalid: The folder is missing, or a file is no YAML object.
    """
    if not folder.is_dir():
        raise ManifestInvalid(f"there are no manifests in {folder}: materialize keda_manifests first")
    objects = {}
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder).as_posix()
        try:
            body = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
            raise ManifestInvalid(f"cannot read the manifest {path}: {' '.join(str(error).split())}") from error
        if isinstance(body, dict) and schema.has_schema(str(body.get("apiVersion")), str(body.get("kind"))):
            objects[name] = body
    return objects


def refused_because(body: Mapping[str, Any]) -> list[str]:
    """Why the API server would refuse or prune an object, one sentence each."""
    return [f"{path}: {why}" for path, why in schema.problems(body)]


def unreachable(body: Mapping[str, Any]) -> Iterator[str]:
    """Triggers of a ScaledObject of ours that can never ask for its maximum.

    Our triggers count replicas, so the largest value of each is the maximum itself; with AverageValue and target 1 it
    asks for exactly that. A utilization of 0..100 against a target of 75, for instance, can never ask for more than 2.
    """
    most = int(body["spec"]["maxReplicaCount"])
    for trigger in body["spec"]["triggers"]:
        field = TARGET_FIELDS.get(trigger["type"])
        if field is None:
            continue
        target = float(trigger["metadata"][field])
        kind = trigger.get("metricType", "AverageValue")
        reach = largest_reachable(kind, most * MILLI, round(target * MILLI)) if target > 0 else None
        if reach is not None and reach < most:
            yield f"trigger {trigger.get('name')} asks for {reach} replicas at most and {most} are allowed"


def outside_limits(body: Mapping[str, Any], plans: Mapping[str, ReplicaPlan]) -> Iterator[str]:
    """Where a written ScaledObject and the plan's limits differ.

    Args:
        body: A ScaledObject.
        plans: By `namespace/name` of the workload.
    """
    target = f"{body['metadata']['namespace']}/{body['spec']['scaleTargetRef']['name']}"
    plan = plans.get(target)
    if plan is None:
        yield f"{target} is scaled and has no plan"
        return
    least, most = body["spec"]["minReplicaCount"], body["spec"]["maxReplicaCount"]
    if (least, most) != (plan.limits.min_replicas, plan.limits.max_replicas):
        yield (
            f"{target} may have {least} to {most} replicas, "
            f"its plan {plan.limits.min_replicas} to {plan.limits.max_replicas}"
        )
    beyond = [step.replicas for step in plan.steps if not least <= step.replicas <= most]
    if beyond:
        yield f"{target} is planned to have {beyond[0]} replicas, outside {least} to {most}"
