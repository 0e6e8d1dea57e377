"""How is the same plan followed without KEDA, and which series do all variants read?

Recording rules, HPAs on the Prometheus adapter with its Helm values, and the specification's literal ScaledObject,
which is only ever written beside its warning.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from piqc_pipeline.scaling.keda import DEMAND_SERIES, MANAGED_BY, behavior, object_name
from piqc_pipeline.scaling.options import ManifestOptions
from piqc_pipeline.scaling.plan import ReplicaPlan
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.yaml_text import document

DESIRED_SERIES = "piqc_desired_replicas"
"""What the predictor's /metrics exports per namespace and workload; absent while it is stale."""
OBSERVED_METRIC = "workload_gpu_replicas_observed"
HPA_NAME_LIMIT = 63
LITERAL_TARGET_PCT = 75
"""The specification's target: utilization percent, read by KEDA as AverageValue."""
_WINDOW = "2m"
"""Mean over four scrapes of 30 s: batch noise out, minutes kept."""
_GENERATED_NAME_LIMIT = 46
"""Deployment names above it are cut inside their pods' names (58 characters before the random suffix)."""


def recording_rules(plans: Sequence[ReplicaPlan], options: ManifestOptions) -> str:
    """The PrometheusRule behind the observed trigger: demand of each workload in replicas at 100 %."""
    rules = [
        {
            "record": DEMAND_SERIES,
            "labels": {"namespace": plan.limits.namespace, "workload": plan.limits.name},
            "expr": demand_expression(plan, options),
        }
        for plan in plans
    ]
    body = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "piqc-workload-demand",
            "namespace": options.predictor_namespace,
            "labels": dict(MANAGED_BY),
        },
        "spec": {"groups": [{"name": "piqc-workload-demand", "interval": "30s", "rules": rules}]},
    }
    labels = "namespace, pod (honorLabels: true)" if options.honor_labels else "exported_namespace, exported_pod"
    header = [
        "Demand in replicas at 100 %: activity of the devices of a workload's pods, over the devices of one replica.",
        "It does not fall when replicas are added, as utilization does. Gauges: avg_over_time, never rate.",
        f"Device metrics are taken to carry {labels}; a silent series is absent, not 0.",
        "Your Prometheus must read rules from this namespace. It stands for the same series of k8s/monitoring: use one",
        "of the two.",
    ]
    return document(body, header)


def demand_expression(plan: ReplicaPlan, options: ManifestOptions) -> str:
    """PromQL of one workload's demand: the profiling counter, or the duty cycle where it is missing."""
    namespace, pod = ("namespace", "pod") if options.honor_labels else ("exported_namespace", "exported_pod")
    limits = plan.limits
    selector = f'{{{namespace}="{limits.namespace}",{pod}=~"{pod_pattern(limits.kind, limits.name)}"}}'
    active = f"avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{selector}[{_WINDOW}]) <= 1.05"
    duty = f"avg_over_time(DCGM_FI_DEV_GPU_UTIL{selector}[{_WINDOW}]) <= 100"
    if limits.gpus_per_replica:
        size = f"{limits.gpus_per_replica:g}"
        return f"(sum({active}) / {size}) or (sum({duty}) / 100 / {size})"
    pods = str(limits.pods_per_replica)
    return f"(sum(avg by ({pod}) ({active})) / {pods}) or (sum(avg by ({pod}) ({duty})) / 100 / {pods})"


def pod_pattern(kind: str, name: str) -> str:
    """Anchored RE2 pattern of the names of a workload's pods."""
    if kind == "Deployment" and len(name) > _GENERATED_NAME_LIMIT:
        return name[:_GENERATED_NAME_LIMIT].replace(".", "[.]") + "[a-z0-9.-]*"
    suffix = {
        "Deployment": "-[a-z0-9]{6,10}-[a-z0-9]{5}",
        "ReplicaSet": "-[a-z0-9]{5}",
        "StatefulSet": "-[0-9]+",
        "LeaderWorkerSet": "-[0-9]+(-[0-9]+)?",
    }.get(kind, "-.+")
    return name.replace(".", "[.]") + suffix


def render_hpa(
    plans: Sequence[ReplicaPlan], policy: ScalingPolicy, options: ManifestOptions, names: Mapping[str, str]
) -> dict[str, str]:
    """HPAs on external metrics of the Prometheus adapter, in `hpa/`, and the adapter's Helm values."""
    files: dict[str, str] = {}
    for plan in plans:
        limits = plan.limits
        name = object_name(names[plan.workload], HPA_NAME_LIMIT)
        metrics = [_external(DESIRED_SERIES, limits.name)] if plan.accepted else []
        metrics.append(_external(OBSERVED_METRIC, limits.name))
        body = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": limits.namespace, "labels": dict(MANAGED_BY)},
            "spec": {
                "scaleTargetRef": {"apiVersion": limits.api_version, "kind": limits.kind, "name": limits.name},
                "minReplicas": max(1, limits.min_replicas),
                "maxReplicas": limits.max_replicas,
                "behavior": _hpa_behavior(policy, options),
                "metrics": metrics,
            },
        }
        header = [
            "The plan without KEDA: apply this or the ScaledObject, never both. Needs adapter-values.yaml in the",
            "Prometheus adapter. There is no fallback: while one metric cannot be read, HPA adds replicas by the other",
            "and removes none.",
        ]
        if not plan.accepted:
            header.append(f"Stays reactive (observed metric alone): {'; '.join(plan.reasons)}")
        if policy.mode in ("observe", "shadow"):
            header.append(f"Mode {policy.mode}: both directions are disabled by selectPolicy.")
        comments = {"minReplicas": [limits.min_reason], "maxReplicas": [limits.max_reason]}
        files[f"hpa/{limits.namespace}/{name}.hpa.yaml"] = document(body, header, comments)
    if files:
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [path.removeprefix("hpa/") for path in sorted(files)],
        }
        files["hpa/adapter-values.yaml"] = adapter_values(policy)
        files["hpa/kustomization.yaml"] = document(kustomization, ["The alternative to the overlay one folder up."])
    return files


def _external(metric: str, workload: str) -> dict[str, Any]:
    return {
        "type": "External",
        "external": {
            "metric": {"name": metric, "selector": {"matchLabels": {"workload": workload}}},
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }


def _hpa_behavior(policy: ScalingPolicy, options: ManifestOptions) -> dict[str, Any]:
    rules = behavior(policy, options)
    if policy.mode in ("observe", "shadow"):
        rules["scaleUp"]["selectPolicy"] = "Disabled"
    if policy.mode != "enforce":
        rules["scaleDown"]["selectPolicy"] = "Disabled"
    return rules


def adapter_values(policy: ScalingPolicy) -> str:
    """Values of the chart `prometheus-community/prometheus-adapter` for these HPAs and for `predicted_gpu_util`."""
    largest = "max by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})"
    observed = f"ceil(sum by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}}) / {policy.u_observed:.2f})"
    body = {
        "rules": {
            "default": False,
            "external": [
                _adapter_rule(DESIRED_SERIES, DESIRED_SERIES, largest),
                _adapter_rule(DEMAND_SERIES, OBSERVED_METRIC, observed),
                _adapter_rule("predicted_gpu_util", "predicted_gpu_util", largest),
            ],
        }
    }
    header = [
        "Helm values of prometheus-community/prometheus-adapter. predicted_gpu_util is for people and",
        "dashboards: scaling on it runs away with Value and stops at 2 replicas with AverageValue.",
    ]
    return document(body, header)


def _adapter_rule(series: str, name: str, query: str) -> dict[str, Any]:
    return {
        "seriesQuery": f'{series}{{namespace!="",workload!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "name": {"as": name},
        "metricsQuery": query,
    }


def literal(
    plans: Sequence[ReplicaPlan], policy: ScalingPolicy, options: ManifestOptions, names: Mapping[str, str]
) -> dict[str, str]:
    """The specification's literal form: predicted utilization, 0 to 100, against 75."""
    files = {}
    for plan in plans:
        limits = plan.limits
        name = names[plan.workload]
        target = f"{limits.namespace}/{limits.name}"
        reachable = -(-100 // LITERAL_TARGET_PCT)
        body = {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": name, "namespace": limits.namespace, "labels": dict(MANAGED_BY)},
            "spec": {
                "scaleTargetRef": {"apiVersion": limits.api_version, "kind": limits.kind, "name": limits.name},
                "minReplicaCount": max(1, limits.min_replicas),
                "maxReplicaCount": limits.max_replicas,
                "triggers": [
                    {
                        "type": "metrics-api",
                        "metadata": {
                            "url": f"{options.predictor_url}/predict?workload={target}&horizon=30m",
                            "valueLocation": "predicted_util",
                            "targetValue": str(LITERAL_TARGET_PCT),
                        },
                    }
                ],
            },
        }
        header = [
            f"WARNING: never asks for more than {reachable} replicas, whatever the load: "
            f"ceil(100 / {LITERAL_TARGET_PCT}) = {reachable},",
            f"while maxReplicaCount is {limits.max_replicas} (`piqc lint` finds target-unreachable). Written because",
            "the literal form was asked for; the overlay one folder up does the job.",
        ]
        files[f"{limits.namespace}/{name}.scaledobject.yaml"] = document(body, header)
    return files
