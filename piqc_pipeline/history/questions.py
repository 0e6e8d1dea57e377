"""Which queries tell a window's load? All PromQL of the history stands here, and is asked at the same time.

What the answers mean is read in `prometheus_day`; transport is in the package `prometheus`. Gauges are averaged
(`avg_over_time`), never `rate`d: the specification's `avg(rate(DCGM_FI_DEV_GPU_UTIL[5m]))` gave 2.57 for GPUs at 50 %.
"""

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from datetime import timedelta

from piqc_pipeline.history.points import Window
from piqc_pipeline.history.signals import DEVICE_SIGNALS, ENGINE_COUNTERS, ENGINE_GAUGES, engine_metrics
from piqc_pipeline.prometheus.answers import Matrix
from piqc_pipeline.prometheus.client import PrometheusClient
from piqc_pipeline.prometheus.labels import SAME_REQUESTS

READY, REQUESTS = "kube_pod_status_ready", "kube_pod_container_resource_requests"
GPU_RESOURCES = "nvidia_com_.*|amd_com_gpu"
"""Accelerator resources as kube-state-metrics writes them."""
OWNED = {"kube_pod_owner": "pod, exported_pod", "kube_replicaset_owner": "replicaset", "kube_job_owner": "job_name"}
"""Metrics of kube-state-metrics that tell an owner, and the labels that name what is owned."""
SPECS = {"kube_deployment_spec_replicas": "deployment", "kube_statefulset_replicas": "statefulset"}
"""Metrics that tell the replicas wanted, and the label that names their workload."""
ENDPOINT = "namespace, pod, exported_namespace, exported_pod, instance, exported_instance"
SCRAPED_BY = ("job", "service", "endpoint", "prometheus", "prometheus_replica", "replica")
"""Labels of who scraped an endpoint: two monitors that select it, or two servers of a pair that a query joins."""
SPARSE_SECONDS = 7200
"""Twelve buckets a day tell how many samples a bucket usually has."""

Answer = Future[Matrix]


def names_pattern() -> str:
    """A regular expression of every metric that is asked for."""
    figures = (*ENGINE_GAUGES.values(), *ENGINE_COUNTERS.values())
    engines = [metric for names in figures for metric in engine_metrics(names).values()]
    return "|".join([*(signal.name for signal in DEVICE_SIGNALS), *engines, *OWNED, *SPECS, READY, REQUESTS])


class DayQuestions:
    """What is asked about one window of at most a day; answers may still be on their way.

    Attributes:
        signals: Load signals that have samples, best first; where none has, one that answers nothing.
        sparse_counts: Samples in a bucket every two hours, of each signal by its name.
        loads: Mean of every device and bucket, of each signal by its name.
        owners: Owners of pods, ReplicaSets and Jobs during the window.
        missing: Readiness of pods that hold accelerators but have no device sample in a bucket.
        unready: Readiness of pods that were ready in a part of a bucket; the others are not worth their traffic.
        wanted: Replicas of specs.
        engines: Figures of engines' endpoints, by what they tell and by the prefix of the names that tell it.
    """

    def __init__(self, client: PrometheusClient, pool: Executor, window: Window, names: set[str]) -> None:
        """Ask all that needs no other answer.

        Args:
            client: The server.
            pool: Asks at the same time.
            window: At most a day.
            names: Metrics that have samples in the window.
        """
        self._client, self._pool, self._window, self._names = client, pool, window, names
        self._width = f"[{window.bucket_seconds}s]"
        self.signals = [each for each in DEVICE_SIGNALS if each.name in names] or [*DEVICE_SIGNALS[:1]]
        sparse = max(SPARSE_SECONDS, window.bucket_seconds)
        self.sparse_counts = {each.name: self._range(self._count(each.name), sparse) for each in self.signals}
        self.owners = [self._group(metric, by) for metric, by in OWNED.items() if metric in names]
        self.loads = {each.name: self._range(self._mean(each.name)) for each in self.signals}
        self.missing = self._missing()
        self.unready = [self._range(f"({self._readiness()} < 1){self._with_accelerators()}")] if READY in names else []
        self.wanted = [
            self._range(f"avg by ({label}, namespace, exported_namespace) ({self._mean(metric)})")
            for metric, label in SPECS.items()
            if metric in names
        ]
        gauges = {figure: self._engines(names, "avg_over_time") for figure, names in ENGINE_GAUGES.items()}
        rates = {figure: self._engines(names, "rate") for figure, names in ENGINE_COUNTERS.items()}
        self.engines = {**gauges, **rates}

    def counts(self, name: str) -> Answer:
        """Samples of every series and bucket."""
        return self._range(self._count(name))

    def short_counts(self, name: str, usual: int) -> Answer:
        """The same where a bucket has fewer than usual: a healthy day answers nothing, and all would be much."""
        return self._range(f"{self._count(name)} < {usual}")

    def samples(self, name: str, labels: Mapping[str, str]) -> Answer:
        """Samples of one series as they were scraped."""
        matchers = ", ".join(f"{label}={_quoted(value)}" for label, value in sorted(labels.items()))
        return self._instant(f"{name}{{{matchers}}}[{self._window.seconds}s]")

    def _mean(self, name: str) -> str:
        return f"avg_over_time({name}{self._width})"

    def _count(self, name: str) -> str:
        return f"count_over_time({name}{self._width})"

    def _group(self, metric: str, by: str) -> Answer:
        labels = f"{by}, namespace, exported_namespace, owner_kind, owner_name"
        return self._instant(f"group by ({labels}) (last_over_time({metric}[{self._window.seconds}s]))")

    def _engines(self, names: Mapping[str, str], function: str) -> dict[str, Answer]:
        return {
            prefix: self._range(_of_endpoints(metric, f"{function}({metric}{self._width})"))
            for prefix, metric in engine_metrics(names).items()
            if metric in self._names
        }

    def _missing(self) -> list[Answer]:
        if READY not in self._names or REQUESTS not in self._names:
            return []
        seen = " or ".join(_as_pod("group", self._count(signal.name)) for signal in self.signals)
        ready = f"({self._readiness()} > 0){self._with_accelerators()}"
        return [self._range(f"{ready} unless on (namespace, pod) ({seen})")]

    def _readiness(self) -> str:
        return _as_pod("max", self._mean(f'{READY}{{condition="true"}}'))

    def _with_accelerators(self) -> str:
        """Leaves the pods that request accelerators: a cluster has thousands of finished Jobs that are not ready."""
        if REQUESTS not in self._names:
            return ""
        asks = f'last_over_time({REQUESTS}{{resource=~"{GPU_RESOURCES}"}}{self._width})'
        return f" and on (namespace, pod) {_as_pod('group', asks)}"

    def _range(self, promql: str, step_seconds: int | None = None) -> Answer:
        """Each bucket is evaluated 1 ms before its end over its whole width.

        So a sample at a bucket's start counts for it alone, in Prometheus 2 (range closed at both ends) as in 3 (open
        at the left).
        """
        first = self._window.start.timestamp() + self._window.bucket_seconds - 0.001
        last = self._window.end.timestamp() - 0.001
        return self._pool.submit(
            self._client.query_range, promql, first, last, step_seconds or self._window.bucket_seconds
        )

    def _instant(self, promql: str) -> Answer:
        return self._pool.submit(self._client.query, promql, self._window.end - timedelta(milliseconds=1))


def _of_endpoints(name: str, figure: str) -> str:
    """The figure of every engine's endpoint, whoever scrapes it: jobs tell the same, so the largest counts.

    SGLang's ranks that work on the same requests may each export them; of these too the largest counts.
    """
    if name.startswith("sglang"):
        figure = f"max without ({', '.join(SAME_REQUESTS)}) ({figure})"
    return f"max by ({ENDPOINT}) (sum by ({ENDPOINT}, {', '.join(SCRAPED_BY)}) ({figure}))"


def _as_pod(aggregate: str, expression: str) -> str:
    """The expression with the workload's names in `pod` and `namespace`, whichever form it came in."""
    inner = f'label_replace({expression}, "pod", "$1", "exported_pod", "(.+)")'
    return f'{aggregate} by (namespace, pod) (label_replace({inner}, "namespace", "$1", "exported_namespace", "(.+)"))'


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
