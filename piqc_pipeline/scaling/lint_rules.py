"""Which faults are looked for, how bad is each, why, and what is the fix?

Sources are issues of kedacore/keda, kubernetes/kubernetes and neighbors (number as written there), KEDA's and
Kubernetes' source at v2.20.2 and 1.36, and our own runs on a live cluster.
"""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Rule:
    """One fault.

    Attributes:
        severity: `error`: it will not work, or can take replicas away; `warning`: it surprises; `info`: to know.
        why: What happens, one or two sentences.
        fix: What to write.
        source: Where that is known from.
    """

    severity: Severity
    why: str
    fix: str
    source: str = ""


RULES: dict[str, Rule] = {
    "unreadable": Rule("error", "The file cannot be read as Kubernetes objects.", "Correct the file."),
    "nothing-to-check": Rule("info", "The file holds no ScaledObject and no HPA.", "Name the files that hold them."),
    "schema": Rule(
        "error",
        "The API server drops a field it does not know, or refuses the object.",
        "Correct the field.",
        "CRD v2.20.2",
    ),
    "unknown-version": Rule("error", "No served version of this kind has this apiVersion.", "Use the version named."),
    "min-above-max": Rule(
        "error", "The admission rule refuses a minimum above the maximum.", "Raise the maximum.", "CRD"
    ),
    "name-invalid": Rule("error", "An object needs a name of lower-case letters, digits, - and dots.", "Rename it."),
    "name-too-long": Rule(
        "error",
        "KEDA names its HPA keda-hpa-NAME and puts that into a label of at most 63 characters.",
        "Use at most 54 characters, or set advanced.horizontalPodAutoscalerConfig.name.",
        "keda scaledobject_types.go",
    ),
    "target-not-scalable": Rule("error", "This kind has no /scale subresource.", "Name a Deployment or StatefulSet."),
    "two-controllers": Rule(
        "error",
        "Two autoscalers of one workload fight; KEDA's webhook refuses the second.",
        "Keep one of them.",
        "keda webhook",
    ),
    "target-unreachable": Rule(
        "error",
        "With AverageValue the HPA asks for ceil(value / target): a metric that ends somewhere has a highest count.",
        "Publish a count of replicas (or demand) and use target 1, as `piqc plan` writes it.",
        "keda #1940, LLMKube #482",
    ),
    "target-partly-unreachable": Rule(
        "warning",
        "This trigger alone never asks for the maximum; another one may.",
        "Publish a count of replicas and use target 1.",
        "keda #1940",
    ),
    "target-not-positive": Rule("error", "A target must be a number above 0.", "Write a positive number in quotes."),
    "forecast-runaway": Rule(
        "error",
        "With Value each sync multiplies the ready replicas by value / target. A forecast does not fall when replicas "
        "are added, so the count runs to the maximum or decays.",
        "Use AverageValue with a count of replicas and target 1.",
        "kubernetes replica_calculator.go",
    ),
    "zero-on-failure": Rule(
        "error",
        "With a minimum (or idle count) of 0, KEDA 2.20 can go to zero on a failed read alone: 8 of 8 objects without "
        "fallback, 2 of 8 with it, none with minimum 1.",
        "Set minReplicaCount to 1 or more.",
        "keda #1850, #2244, PR 7737",
    ),
    "null-reads-as-zero": Rule(
        "error",
        "ignoreNullValues is true by default: a series that vanishes reads as 0 and scales down within seconds, "
        "with no failure counted and no fallback.",
        'Add ignoreNullValues: "false" to the trigger\'s metadata.',
        "keda #3065, llm-d PR 2492",
    ),
    "fallback-missing": Rule(
        "warning",
        "Without fallback a trigger that cannot be read leaves the count where it is, also while load rises.",
        "Add fallback with behavior currentReplicasIfHigher.",
        "keda #1850, #2244",
    ),
    "fallback-lowers": Rule(
        "warning",
        "Behavior static moves a busy workload down to the fallback count when a read fails.",
        "Use behavior: currentReplicasIfHigher.",
        "keda #4249, #5409",
    ),
    "fallback-outside-limits": Rule(
        "warning", "A fallback count outside the limits is cut to them.", "Move it inside."
    ),
    "fallback-ignored": Rule(
        "error",
        "With scaling modifiers, fallback works only where target is a whole number above 0; otherwise it is off "
        "without a word.",
        'Use demand in replicas and target "1".',
        "keda fallback.go, #5371",
    ),
    "modifiers-incomplete": Rule("error", "Scaling modifiers need both formula and target.", "Add the missing one."),
    "modifiers-unknown-name": Rule(
        "error",
        "The formula names a trigger that does not exist; each trigger in it needs a name.",
        "Name the trigger.",
    ),
    "metric-type-in-metadata": Rule(
        "error",
        "metricType under metadata is ignored.",
        "Move it beside type, out of metadata.",
        "keda #3669",
    ),
    "metric-type-invalid": Rule(
        "error",
        "Utilization works for the cpu and memory triggers only; others take AverageValue or Value.",
        "Use AverageValue.",
        "keda #6786",
    ),
    "metric-type-implicit": Rule(
        "info",
        "Without metricType it is AverageValue: the value is divided by the replicas.",
        "Write it.",
        "keda #1881, #5781",
    ),
    "metric-types-mixed": Rule(
        "warning",
        "Value and AverageValue side by side oscillate in fallback.",
        "Use AverageValue for all.",
        "keda #5514",
    ),
    "trigger-name-twice": Rule("error", "Names of triggers must differ.", "Rename one."),
    "trigger-metadata-missing": Rule("error", "The scaler refuses to start without this key.", "Add it."),
    "trigger-metadata-unknown": Rule(
        "warning", "The scaler does not know this key and ignores it.", "Correct or drop it."
    ),
    "trigger-url": Rule("error", "The address is no http(s) URL.", "Write http://service.namespace.svc:port."),
    "auth-mode-missing": Rule(
        "error",
        "With authenticationRef the metrics-api trigger needs authMode, or it fails misleadingly.",
        "Add authMode.",
        "keda #7883",
    ),
    "endpoint-aggregation": Rule(
        "warning",
        "Aggregation over endpoints leaves failed ones out and has open bugs.",
        "Ask one Service.",
        "keda #7641, #7742",
    ),
    "timeout-missing": Rule(
        "info", "Without timeout the operator-wide HTTP limit of 3 s counts.", "Write it.", "keda #5503"
    ),
    "polling-without-effect": Rule(
        "warning",
        "pollingInterval drives only 0 to 1 and cached metrics; with a minimum of 1 the HPA's 15 s counts.",
        "Drop it.",
        "keda webhook",
    ),
    "cooldown-without-effect": Rule(
        "warning",
        "cooldownPeriod slows only the step to 0 (or the idle count), not N to N-1.",
        "Use behavior.scaleDown.stabilizationWindowSeconds.",
        "keda-docs 2.20",
    ),
    "cached-metrics-unsupported": Rule("error", "cpu, memory and cron cannot be cached.", "Drop useCachedMetrics."),
    "idle-replicas": Rule(
        "error", "idleReplicaCount must be below the minimum, and only 0 works.", "Use 0, or drop it.", "keda #2314"
    ),
    "max-missing": Rule("warning", "Without maxReplicaCount it is 100.", "Write what quota and accelerators allow."),
    "behavior-range": Rule(
        "error",
        "The HPA refuses windows over 3600 s, periods over 1800 s and values under 1.",
        "Correct it.",
        "autoscaling/v2",
    ),
    "tolerance-version": Rule(
        "info",
        "tolerance is on by default from Kubernetes 1.35; older servers drop it.",
        "Check the server.",
        "KEP-4951",
    ),
    "dead-zone": Rule(
        "info",
        "With the default tolerance of 10 % a step of one replica is ignored from 10 replicas on.",
        'From Kubernetes 1.35 on, set tolerance: "0" in both directions.',
        "crane #836, keda #7900",
    ),
    "annotation-not-boolean": Rule(
        "warning", "KEDA takes a value that is no boolean as true.", 'Write "true" or "false".', "keda source"
    ),
    "promql-brackets": Rule("error", "The query does not parse: brackets or quotes do not match.", "Correct it."),
    "promql-rate-of-gauge": Rule(
        "error",
        "rate() reads each fall of a gauge as a counter reset and adds it.",
        "Use avg_over_time(METRIC[2m]).",
        "pint promql/rate",
    ),
    "promql-predict-linear": Rule(
        "warning",
        "predict_linear over minutes of a noisy gauge is unbounded, under 0 and over 100.",
        "Forecast demand; at most clamp it.",
    ),
    "promql-exporter-labels": Rule(
        "warning",
        "Under honorLabels: false (the chart's default) namespace and pod are the exporter's, not the workload's.",
        "Use exported_namespace and exported_pod, or a recording rule by workload.",
        "dcgm-exporter #85",
    ),
    "gpu-util-signal": Rule(
        "info",
        "GPU_UTIL says whether any kernel ran; an LLM engine holds it near 100 % long before it is full.",
        "Prefer waiting requests, tokens per second or GR_ENGINE_ACTIVE.",
        "dcgm-exporter #301",
    ),
    "cron-window": Rule("error", "start and end must differ and be five-field cron in a known zone.", "Correct it."),
    "cron-above-max": Rule("warning", "The window asks for more than the maximum.", "Raise the maximum."),
    "service-not-found": Rule("warning", "No Service of this name is among the objects read.", "Check the address."),
    "hpa-target-field": Rule(
        "error", "A metric's target needs the field its type names, as a number above 0.", "Add it.", "autoscaling/v2"
    ),
    "hpa-resource": Rule(
        "error",
        "Resource metrics exist for cpu and memory only; GPUs have none.",
        "Use an external metric.",
        "metrics.k8s.io",
    ),
    "hpa-min-zero": Rule(
        "error", "minReplicas 0 needs the alpha gate HPAScaleToZero and an external metric.", "Use 1 or more."
    ),
    "hpa-of-keda": Rule("info", "This HPA is written by KEDA; changes are reverted.", "Change the ScaledObject."),
    "hpa-no-metric": Rule("info", "Without metrics the HPA holds 80 % of cpu.", "Name the metric."),
    "forecast-alone": Rule(
        "warning",
        "A forecast knows nothing of a burst, and is wrong on the first day that is different.",
        "Add a trigger on live demand; the HPA takes the larger.",
        "keda #7494",
    ),
    "zero-never-returns": Rule(
        "error",
        "At zero replicas the engine's and the device's own metrics are gone, so no request can bring a replica back.",
        "Use a metric of the router that counts requests without a backend, or a minimum of 1.",
        "production-stack PR 679",
    ),
    "value-needs-ready": Rule(
        "info",
        "With Value the HPA multiplies the ready pods; while none is ready the count cannot move.",
        "Use AverageValue with a count of replicas and target 1.",
        "kubernetes #130130",
    ),
    "fallback-skips-formula": Rule(
        "warning",
        "Once a trigger is in fallback, every behavior but scalingModifiers skips the formula.",
        "Use behavior: scalingModifiers (KEDA 2.20) and a formula such as max(forecast ?? 0, observed).",
        "keda #5371, #5666",
    ),
    "paused": Rule(
        "info",
        "The object moves nothing while it is paused.",
        "Drop the annotation when it should act.",
        "dynamo #4420",
    ),
    "promql-many-series": Rule(
        "warning",
        "A trigger's query must return one element; KEDA fails on several.",
        "Aggregate once more, without labels.",
        "keda prometheus_scaler.go",
    ),
    "promql-no-selector": Rule(
        "warning",
        "Idle devices and other tenants dilute the value, and one workload's load scales another.",
        "Select the workload's namespace and pods, or read a recording rule by workload.",
        "keda #6141",
    ),
    "promql-nan-at-zero": Rule(
        "warning",
        "Without traffic the quotient is NaN: an error that blocks scale-in, or 0 where null values are ignored.",
        "Divide by clamp_min(..., 1), or scale on demand itself.",
        "dynamo #6985",
    ),
    "promql-too-long": Rule("warning", "A query of this length is not checked.", "Put parts into recording rules."),
    "mig-gpu-util": Rule(
        "error",
        "GPU_UTIL is not measured on MIG instances: it is absent or 0.",
        "Use DCGM_FI_PROF_GR_ENGINE_ACTIVE.",
        "DCGM #80, dcgm-exporter #577",
    ),
    "target-not-found": Rule("warning", "No workload of this name is among the objects read.", "Check scaleTargetRef."),
    "target-custom": Rule(
        "info",
        "AverageValue divides by status.replicas of /scale; many custom resources leave it empty.",
        "Check kubectl get --subresource=scale.",
        "production-stack PR 903",
    ),
    "max-above-quota": Rule(
        "warning",
        "Replicas beyond the quota are refused and never start, while the autoscaler goes on asking.",
        "Lower the maximum or raise the quota.",
        "aibrix #160",
    ),
    "grace-short": Rule(
        "info",
        "Scale-in deletes pods; a generation that takes longer than the grace period is cut off.",
        "Set terminationGracePeriodSeconds longer than the longest generation, and a preStop sleep of 3 s.",
        "kthena #1589",
    ),
    "trigger-shared": Rule(
        "warning",
        "One number scales two workloads: the load of one moves the other.",
        "Select each workload in its own query or address.",
        "aibrix #436",
    ),
    "monitor-selects-nothing": Rule(
        "error", "The monitor selects nothing, so nothing is scraped.", "Copy the labels of the object."
    ),
    "monitor-exporter-labels": Rule(
        "warning",
        "dcgm-exporter's chart labels its Service app.kubernetes.io/name: dcgm-exporter, the GPU operator app: "
        "nvidia-dcgm-exporter.",
        "Take the label that the Service has.",
        "dcgm-exporter chart",
    ),
    "monitor-port": Rule(
        "error", "An endpoint whose port no Service names is not scraped.", "Name the Service's port."
    ),
}
