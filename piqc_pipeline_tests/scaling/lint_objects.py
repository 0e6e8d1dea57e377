"""Small objects that lint judges: good ones, the specification's own, and ways to change them."""

import copy

import yaml

from piqc_pipeline.scaling.lint import lint_files

# The specification's own ScaledObject.
LITERAL = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: triton, namespace: inference}
spec:
  scaleTargetRef: {name: triton}
  minReplicaCount: 1
  maxReplicaCount: 10
  triggers:
    - type: metrics-api
      metadata: {url: "http://capacity-predictor.default.svc/predict", valueLocation: predicted_util, targetValue: "75"}
"""

GOOD = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat-8b, namespace: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat-8b}
  minReplicaCount: 2
  maxReplicaCount: 12
  fallback: {failureThreshold: 3, replicas: 6, behavior: currentReplicasIfHigher}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp: {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 4, periodSeconds: 60}]}
        scaleDown: {stabilizationWindowSeconds: 300, policies: [{type: Percent, value: 25, periodSeconds: 60}]}
  triggers:
    - type: metrics-api
      name: forecast
      metricType: AverageValue
      metadata:
        url: http://p.planning.svc:8080/v1/desired/a/b
        valueLocation: desired_replicas
        targetValue: "1"
        timeout: "5s"
    - type: prometheus
      name: observed
      metricType: AverageValue
      metadata:
        serverAddress: http://prometheus.monitoring.svc:9090
        query: 'ceil(sum(workload:gpu_demand:replicas{namespace="inference",workload="chat-8b"}) / 0.80)'
        threshold: "1"
        ignoreNullValues: "false"
"""

HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat, namespace: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 1
  maxReplicas: 8
  metrics:
    - type: External
      external:
        metric: {name: piqc_desired_replicas, selector: {matchLabels: {workload: chat}}}
        target: {type: AverageValue, averageValue: "1"}
"""


def found_in(text):
    return lint_files(["-"], text.encode())


def rules(text):
    return {entry.rule for entry in found_in(text)}


def errors(text):
    return {entry.rule for entry in found_in(text) if entry.severity == "error"}


def changed(text, path, value):
    """The object with one field set, or dropped where the value is `None`."""
    body = copy.deepcopy(yaml.safe_load(text))
    *parents, last = path
    here = body
    for part in parents:
        here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
    if value is None:
        here.pop(last)
    else:
        here[last] = value
    return yaml.safe_dump(body)


SPEC = ("spec",)
FORECAST = ("spec", "triggers", 0)
OBSERVED = ("spec", "triggers", 1)
QUERY = (*OBSERVED, "metadata", "query")


def one_trigger(**trigger):
    body = yaml.safe_load(GOOD)
    body["spec"]["triggers"] = [{"metricType": "AverageValue", **trigger}]
    return yaml.safe_dump(body)


def prometheus(query, threshold):
    return one_trigger(
        type="prometheus",
        metadata={
            "serverAddress": "http://p:9090",
            "query": query,
            "threshold": threshold,
            "ignoreNullValues": "false",
        },
    )
