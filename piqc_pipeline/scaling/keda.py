"""Which objects make KEDA follow the plan, and what if the plan or a metric is gone?

Two triggers in replica units at target 1, the forecast and what is observed; HPA takes the larger (KEDA 2.20).
The plain HPA variant is in `adapter.py`, the folder of all in `overlay.py`. Nothing is ever applied from here.
"""

import hashlib
from typing import Any
from urllib.parse import quote

from piqc_pipeline.scaling.hpa import DEAD_ZONE_FROM
from piqc_pipeline.scaling.options import CronFloor, ManifestOptions
from piqc_pipeline.scaling.plan import ReplicaPlan
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.yaml_text import document

NAME_LIMIT = 54
"""KEDA names the HPA `keda-hpa-<name>`, and that name is a label value of at most 63 characters."""
DEMAND_SERIES = "workload:gpu_demand:replicas"
MANAGED_BY = {"app.kubernetes.io/managed-by": "piqc"}
TRIGGER_AUTHENTICATION = "capacity-predictor"


def object_name(name: str, limit: int = NAME_LIMIT) -> str:
    """A name within the limit: the workload's own, or its beginning with eight digits of its hash."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: limit - 9].rstrip('-.')}-{digest}"


def scaled_object(
    plan: ReplicaPlan, policy: ScalingPolicy, options: ManifestOptions, name: str, cron: CronFloor | None = None
) -> tuple[dict[str, Any], list[str], dict[str, list[str]]]:
    """The ScaledObject of one plan, its header and its comments by key."""
    limits = plan.limits
    metadata: dict[str, Any] = {"name": name, "namespace": limits.namespace, "labels": dict(MANAGED_BY)}
    annotations = mode_annotations(policy)
    if annotations:
        metadata["annotations"] = annotations
    triggers = []
    if plan.accepted:
        triggers.append(_forecast_trigger(plan, options))
    triggers.append(_observed_trigger("observed", observed_query(limits.workload, policy), options))
    if limits.pair is not None:
        query = f"ceil({limits.pair.per_mate:.4g} * {observed_query(limits.pair.mate, policy)})"
        triggers.append(_observed_trigger("pair", query, options))
    if cron is not None:
        triggers.append(_cron_trigger(cron))
    body = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata,
        "spec": {
            "scaleTargetRef": {"apiVersion": limits.api_version, "kind": limits.kind, "name": limits.name},
            "minReplicaCount": limits.min_replicas,
            "maxReplicaCount": limits.max_replicas,
            "fallback": {
                "failureThreshold": policy.failure_threshold,
                "replicas": plan.fallback_replicas,
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior(policy, options)}},
            "triggers": triggers,
        },
    }
    return body, _header(plan, policy), _comments(plan, policy, options)


def mode_annotations(policy: ScalingPolicy) -> dict[str, str]:
    """What keeps KEDA from acting in a mode; move up only after a clean week in shadow."""
    if policy.mode in ("observe", "shadow"):
        return {"autoscaling.keda.sh/paused": "true"}
    if policy.mode == "scale-out-only":
        return {"autoscaling.keda.sh/paused-scale-in": "true"}
    return {}


def behavior(policy: ScalingPolicy, options: ManifestOptions) -> dict[str, Any]:
    """HPA behavior: up at once, down after the window and by a quarter a period."""
    period = policy.period_seconds
    up: dict[str, Any] = {"stabilizationWindowSeconds": 0}
    down: dict[str, Any] = {"stabilizationWindowSeconds": policy.down_window_seconds}
    if options.tolerance_allowed:
        up["tolerance"] = "0"
        down["tolerance"] = "0"
    up["policies"] = [
        {"type": "Pods", "value": policy.up_pods, "periodSeconds": period},
        {"type": "Percent", "value": policy.up_pct, "periodSeconds": period},
    ]
    down["policies"] = [
        {"type": "Pods", "value": policy.down_pods, "periodSeconds": period},
        {"type": "Percent", "value": policy.down_pct, "periodSeconds": period},
    ]
    return {"scaleUp": up, "scaleDown": down}


def observed_query(workload: str, policy: ScalingPolicy) -> str:
    """Replicas that live demand needs. `ceil` in the query, since a ratio within 10 % would stand otherwise."""
    namespace, _, name = workload.rsplit("/", 3)[1:]
    selector = f'namespace="{_label(namespace)}",workload="{_label(name)}"'
    return f"ceil(sum({DEMAND_SERIES}{{{selector}}}) / {policy.u_observed:.2f})"


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _forecast_trigger(plan: ReplicaPlan, options: ManifestOptions) -> dict[str, Any]:
    limits = plan.limits
    path = f"/v1/desired/{quote(limits.namespace, safe='')}/{quote(limits.name, safe='')}"
    metadata = {
        "url": options.predictor_url.rstrip("/") + path,
        "valueLocation": "desired_replicas",
        "targetValue": "1",
        "timeout": f"{options.timeout_seconds}s",
    }
    trigger: dict[str, Any] = {"type": "metrics-api", "name": "forecast", "metricType": "AverageValue"}
    trigger["metadata"] = metadata
    if options.token_secret:
        metadata["authMode"] = "bearer"
        trigger["authenticationRef"] = {"name": TRIGGER_AUTHENTICATION}
    return trigger


def _observed_trigger(name: str, query: str, options: ManifestOptions) -> dict[str, Any]:
    return {
        "type": "prometheus",
        "name": name,
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": options.prometheus_url,
            "query": query,
            "threshold": "1",
            "ignoreNullValues": "false",
        },
    }


def _cron_trigger(cron: CronFloor) -> dict[str, Any]:
    return {
        "type": "cron",
        "name": "floor",
        "metricType": "AverageValue",
        "metadata": {
            "timezone": cron.timezone,
            "start": cron.start,
            "end": cron.end,
            "desiredReplicas": str(cron.replicas),
        },
    }


def _header(plan: ReplicaPlan, policy: ScalingPolicy) -> list[str]:
    lines = []
    if not plan.accepted:
        lines.append(f"Stays reactive (observed trigger alone): {'; '.join(plan.reasons)}")
    lines += [
        "Each trigger's value is a count of replicas and its target is 1. With AverageValue, HPA divides the value",
        "by the running replicas only to compare it with the target; it asks for ceil(value / 1): the count itself.",
        "HPA takes the largest trigger. Needs KEDA 2.18 or newer.",
    ]
    if policy.mode in ("observe", "shadow"):
        lines.append(f"Mode {policy.mode}: paused, moves nothing; remove the annotation after a clean week in shadow.")
    if policy.mode == "scale-out-only":
        lines.append("Mode scale-out-only: adds replicas, never removes any.")
    if plan.limits.pair is not None:
        mate = plan.limits.pair.mate.rsplit("/", 1)[-1]
        lines.append(
            f"A role of a pair: at least {plan.limits.pair.per_mate:.2g} replicas for each of {mate} "
            f"({plan.limits.pair.why}); the trigger `pair` keeps that for live demand, the predictor for the forecast."
        )
    if plan.limits.min_replicas == 0:
        lines.append(
            "minReplicaCount 0: KEDA 2.20 can go to zero on a failed read alone, and only a metric that counts"
        )
        lines.append("requests without a backend brings the workload back.")
    lines += [f"Capacity shortfall: {short.explain}" for short in plan.shortfalls[:5]]
    lines += [f"Note: {warning}" for warning in plan.limits.warnings]
    lines.append(
        "Pods behind a Service need a preStop sleep of about 3 s and a terminationGracePeriodSeconds longer than"
    )
    lines.append("the longest generation: scale-in deletes pods, and a PodDisruptionBudget does not hold it up.")
    return lines


def _comments(plan: ReplicaPlan, policy: ScalingPolicy, options: ManifestOptions) -> dict[str, list[str]]:
    limits = plan.limits
    comments = {
        "minReplicaCount": [limits.min_reason],
        "maxReplicaCount": [limits.max_reason],
        "fallback": [
            f"After {policy.failure_threshold} failed reads of a trigger it counts as {plan.fallback_replicas}, or as "
            f"what runs if that is more ({plan.fallback_reason}): it can rise, not fall."
        ],
    }
    if options.tolerance_allowed:
        comments["scaleUp"] = [f"tolerance 0: Kubernetes {options.server_version} has it (1.35 or newer)."]
    elif limits.max_replicas >= DEAD_ZONE_FROM:
        known = f"Kubernetes {options.server_version}" if options.server_version else "its version is unknown"
        comments["scaleUp"] = [
            f"No tolerance per HPA here ({known}; 1.35 has it): from {DEAD_ZONE_FROM} replicas on, steps within 10 % "
            "are ignored."
        ]
    return comments


def trigger_authentication(namespace: str, options: ManifestOptions) -> str:
    """How KEDA finds the token of the predictor in a namespace."""
    body = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {"name": TRIGGER_AUTHENTICATION, "namespace": namespace, "labels": dict(MANAGED_BY)},
        "spec": {"secretTargetRef": [{"parameter": "token", "name": options.token_secret, "key": "token"}]},
    }
    return document(body, [f"Needs Secret {options.token_secret} with key `token` in namespace {namespace}."])
