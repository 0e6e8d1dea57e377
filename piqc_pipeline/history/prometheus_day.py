"""Which queries tell a window's load, and whose is what they answer? One window of at most a day.

Transport is in the package `prometheus`, labels in `attribution`, the arithmetic of rows in `rows`; which windows are
asked in this package's `prometheus`. Gauges are averaged (`avg_over_time`), never `rate`d: the specification's
`avg(rate(DCGM_FI_DEV_GPU_UTIL[5m]))` gave 2.57 for GPUs at 50 %.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from piqc_pipeline.history.attribution import Owners, PodName, device, gpus_of_device, holder, is_placeholder
from piqc_pipeline.history.rows import DaySamples
from piqc_pipeline.history.signals import (
    DEVICE_SIGNALS,
    FINISHED,
    GENERATED_TOKENS,
    OVERSHOOT,
    PROMPT_TOKENS,
    RUNNING,
    WAITING,
    DeviceSignal,
)
from piqc_pipeline.prometheus.answers import Matrix
from piqc_pipeline.prometheus.client import PrometheusClient

READY, REQUESTS = "kube_pod_status_ready", "kube_pod_container_resource_requests"
GPU_RESOURCES = "nvidia_com_.*|amd_com_gpu"
"""Accelerator resources as kube-state-metrics writes them."""
MAX_REREAD_SERIES = 50
SPARSE_SECONDS = 7200
SEEN_SCHEMA = {"series": pl.Int32(), "ts": pl.Datetime("us", "UTC"), "seen": pl.Int32()}


@dataclass(frozen=True)
class _Joined:
    """A matrix as a long frame with one integer a series, and what each series belongs to."""

    points: pl.DataFrame
    pods: list[PodName | None]
    labels: list[dict[str, str]]


class PrometheusDay:
    """Everything that is asked about one window of at most a day; what is doubtful is kept in `warnings`."""

    def __init__(
        self, client: PrometheusClient, start: datetime, end: datetime, bucket_seconds: int, names: set[str]
    ) -> None:
        """Nothing is asked yet.

        Args:
            client: The server.
            start: First bucket of the window.
            end: Where the window ends.
            bucket_seconds: Width of a bucket.
            names: Metrics that have samples in the window.
        """
        self._client = client
        self._start, self._end = start, end
        self._bucket = bucket_seconds
        self._names = names
        self.warnings: list[str] = []

    def samples(self, owners: Owners) -> DaySamples:
        """Device samples of every signal there is, and what engines and kube-state-metrics say beside."""
        signals = [signal for signal in DEVICE_SIGNALS if signal.name in self._names]
        devices = [self._device_samples(signal, owners) for signal in signals]
        return DaySamples(
            devices=pl.concat(devices) if devices else None,
            missing=self._missing_pods(owners, [signal.name for signal in signals]),
            unready=self._by_pod(self._unready_query(), owners, "ready"),
            wanted=self._wanted(owners),
            waiting=self._engine(WAITING, "sum by ({by}) (avg_over_time({name}[{width}s]))", owners),
            running=self._engine(RUNNING, "sum by ({by}) (avg_over_time({name}[{width}s]))", owners),
            finished=self._engine(FINISHED, "sum by ({by}) (rate({name}[{width}s]))", owners),
            prompt=self._engine(PROMPT_TOKENS, "sum by ({by}) (rate({name}[{width}s]))", owners),
            generated=self._engine(GENERATED_TOKENS, "sum by ({by}) (rate({name}[{width}s]))", owners),
        )

    def owners(self) -> tuple[dict[PodName, tuple[str, str]], dict[tuple[str, str, str], tuple[str, str]]]:
        """Owners of pods, ReplicaSets and Jobs during the window, where kube-state-metrics is scraped."""
        pods: dict[PodName, tuple[str, str]] = {}
        for labels in self._group(
            "kube_pod_owner", "pod, exported_pod, namespace, exported_namespace, owner_kind, owner_name"
        ):
            if labels.get("owner_kind") not in (None, "", "<none>"):
                pods[_space(labels), labels.get("exported_pod") or labels.get("pod", "")] = (
                    labels["owner_kind"],
                    labels["owner_name"],
                )
        controllers: dict[tuple[str, str, str], tuple[str, str]] = {}
        for metric, label, kind in (
            ("kube_replicaset_owner", "replicaset", "ReplicaSet"),
            ("kube_job_owner", "job_name", "Job"),
        ):
            by = f"{label}, namespace, exported_namespace, owner_kind, owner_name"
            for labels in self._group(metric, by):
                if labels.get("owner_kind") not in (None, "", "<none>"):
                    controllers[_space(labels), kind, labels.get(label, "")] = (
                        labels["owner_kind"],
                        labels["owner_name"],
                    )
        return pods, controllers

    def _group(self, metric: str, by: str) -> list[dict[str, str]]:
        if metric not in self._names:
            return []
        seconds = int((self._end - self._start).total_seconds())
        return self._ask_once(f"group by ({by}) (last_over_time({metric}[{seconds}s]))").labels

    def _device_samples(self, signal: DeviceSignal, owners: Owners) -> pl.DataFrame:
        """Mean of every device and bucket as a share, with the number of samples seen and expected."""
        matrix = self._ask(f"avg_over_time({signal.name}[{self._bucket}s])")
        joined = self._joined(matrix, owners)
        points = joined.points
        scale = signal.full_scale
        if scale == 1.0 and _is_percent(points["value"]):
            scale = 100.0
            self.warnings.append(
                f"{signal.name} comes in percent here although its exporter writes ratios: divided by 100"
            )
        points = self._without_sentinels(points.with_columns(pl.col("value") / scale), signal, scale, joined)
        counts, expected = self._counts(signal.name, joined)
        pods = [f"{pod[0]}/{pod[1]}" if pod else None for pod in joined.pods]
        series = pl.DataFrame(
            {
                "series": pl.Series(range(len(joined.labels)), dtype=pl.Int32),
                "device": pl.Series([device(labels) for labels in joined.labels], dtype=pl.Categorical),
                "gpus": pl.Series([gpus_of_device(labels) for labels in joined.labels], dtype=pl.Float64),
                "pod": pl.Series(pods, dtype=pl.Categorical),
                "workload": pl.Series(
                    [owners.workload(pod) if pod else None for pod in joined.pods], dtype=pl.Categorical
                ),
                "expected": pl.Series(expected, dtype=pl.Int32),
            }
        )
        self._tell_unattributed(series, joined)
        return (
            points.join(series.drop_nulls("workload"), on="series")
            .join(counts, on=["series", "ts"], how="left")
            .select(
                "series",
                "workload",
                "pod",
                "device",
                "gpus",
                "ts",
                "value",
                pl.coalesce("seen", "expected").alias("seen"),
                "expected",
                pl.lit(signal.name, pl.Categorical).alias("signal"),
                pl.lit(signal.confidence, pl.Categorical).alias("confidence"),
            )
        )

    def _counts(self, name: str, joined: _Joined) -> tuple[pl.DataFrame, list[int]]:
        """Samples of the buckets that have fewer than usual, and the usual number of each series.

        Only the deviations are asked for: a healthy day answers nothing where all counts would double the traffic.
        """
        usual = self._usual_count(name)
        short = self._ask(f"count_over_time({name}[{self._bucket}s]) < {usual}")
        if not short.labels:
            return pl.DataFrame(schema=SEEN_SCHEMA), [usual] * len(joined.labels)
        index = {frozenset(_bare(labels).items()): position for position, labels in enumerate(joined.labels)}
        positions = [index.get(frozenset(_bare(labels).items())) for labels in short.labels]
        points = _long(short, self._bucket).with_columns(
            pl.Series("series", np.repeat([-1 if p is None else p for p in positions], short.lengths), dtype=pl.Int32)
        )
        counts = points.filter(pl.col("series") >= 0).select(
            "series", "ts", pl.col("value").cast(pl.Int32).alias("seen")
        )
        expected = [usual] * len(joined.labels)
        totals = dict(joined.points.group_by("series").len().iter_rows())
        # A series that is short in every bucket is scraped less often: its own best bucket is what to expect.
        for series, buckets, most in counts.group_by("series").agg(pl.len(), pl.col("seen").max()).iter_rows():
            if buckets >= totals.get(series, 0):
                expected[series] = most
        return counts, expected

    def _usual_count(self, name: str) -> int:
        """The most common number of samples in a bucket: of one every two hours, or of all where those are empty."""
        query = f"count_over_time({name}[{self._bucket}s])"
        first, last = self._start.timestamp() + self._bucket - 0.001, self._end.timestamp() - 0.001
        counts = self._client.query_range(query, first, last, max(SPARSE_SECONDS, self._bucket)).values
        if not len(counts):
            counts = self._ask(query).values
        if not len(counts):
            return 1
        values, frequencies = np.unique(counts.astype(np.int64), return_counts=True)
        return int(values[np.argmax(frequencies)])

    def _without_sentinels(
        self, points: pl.DataFrame, signal: DeviceSignal, scale: float, joined: _Joined
    ) -> pl.DataFrame:
        """Drop impossible values; a bucket that a sentinel spoilt is averaged again from its raw samples."""
        possible = pl.col("value").is_finite() & (pl.col("value") >= 0) & (pl.col("value") <= OVERSHOOT)
        spoilt = points.filter(~possible)
        points = points.filter(possible)
        if spoilt.is_empty():
            return points
        series = spoilt["series"].unique().sort().to_list()
        self.warnings.append(
            f"{signal.name}: {spoilt.height} buckets of {len(series)} devices hold impossible values, dropped"
        )
        parts = [points]
        for position in series[:MAX_REREAD_SERIES]:
            labels = _bare(joined.labels[position])
            matchers = ", ".join(f"{name}={_quoted(value)}" for name, value in sorted(labels.items()))
            seconds = int((self._end - self._start).total_seconds())
            raw = self._ask_once(f"{signal.name}{{{matchers}}}[{seconds}s]")
            samples = pl.DataFrame({"ts": _instants(raw.times), "value": raw.values / scale}).filter(possible)
            means = samples.group_by(pl.col("ts").dt.truncate(f"{self._bucket}s")).agg(pl.col("value").mean())
            again = means.join(spoilt.filter(pl.col("series") == position).select("ts"), on="ts", how="semi")
            parts.append(again.select(pl.lit(position, pl.Int32).alias("series"), "ts", "value"))
        return pl.concat(parts)

    def _missing_pods(self, owners: Owners, signals: list[str]) -> pl.DataFrame:
        """Readiness of pods that hold accelerators but have no device sample in a bucket."""
        if READY not in self._names or REQUESTS not in self._names:
            return _no_pods("ready")
        seen = " or ".join(_as_pod("group", f"count_over_time({name}[{self._bucket}s])") for name in signals)
        unless = f" unless on (namespace, pod) ({seen})" if seen else ""
        return self._by_pod(f"({self._readiness()} > 0){self._with_accelerators()}{unless}", owners, "ready")

    def _unready_query(self) -> str | None:
        """Pods that were ready in a part of a bucket only; all others are not worth their traffic."""
        if READY not in self._names:
            return None
        return f"({self._readiness()} < 1){self._with_accelerators()}"

    def _readiness(self) -> str:
        return _as_pod("max", f'avg_over_time({READY}{{condition="true"}}[{self._bucket}s])')

    def _with_accelerators(self) -> str:
        """Leaves the pods that request accelerators: a cluster has thousands of finished Jobs that are not ready."""
        if REQUESTS not in self._names:
            return ""
        asks = f'last_over_time({REQUESTS}{{resource=~"{GPU_RESOURCES}"}}[{self._bucket}s])'
        return f" and on (namespace, pod) {_as_pod('group', asks)}"

    def _wanted(self, owners: Owners) -> pl.DataFrame:
        parts = []
        for metric, label, kind in (
            ("kube_deployment_spec_replicas", "deployment", "Deployment"),
            ("kube_statefulset_replicas", "statefulset", "StatefulSet"),
        ):
            if metric not in self._names:
                continue
            matrix = self._ask(
                f"avg by ({label}, namespace, exported_namespace) (avg_over_time({metric}[{self._bucket}s]))"
            )
            ids = [owners.named(_space(labels), kind, labels.get(label, "")) for labels in matrix.labels]
            series = pl.Series("workload", ids, dtype=pl.Categorical)
            points = _long(matrix, self._bucket)
            parts.append(points.with_columns(series.gather(points["series"])).drop_nulls("workload"))
        if not parts:
            return pl.DataFrame(
                schema={"workload": pl.Categorical, "ts": pl.Datetime("us", "UTC"), "wanted": pl.Float64}
            )
        return pl.concat(parts).group_by("workload", "ts").agg(pl.col("value").max().alias("wanted"))

    def _engine(self, metrics: tuple[str, ...], form: str, owners: Owners) -> pl.DataFrame:
        by = "namespace, pod, exported_namespace, exported_pod"
        parts = [
            self._by_pod(form.format(by=by, name=name, width=self._bucket), owners, "value")
            for name in metrics
            if name in self._names
        ]
        return pl.concat(parts) if parts else _no_pods("value")

    def _by_pod(self, query: str | None, owners: Owners, column: str) -> pl.DataFrame:
        """Values of a query with pod labels: workload, pod, ts, and the value under the given name."""
        if query is None:
            return _no_pods(column)
        joined = self._joined(self._ask(query), owners)
        names = pl.Series("pod", [f"{pod[0]}/{pod[1]}" if pod else None for pod in joined.pods], dtype=pl.Categorical)
        ids = pl.Series(
            "workload", [owners.workload(pod) if pod else None for pod in joined.pods], dtype=pl.Categorical
        )
        position = joined.points["series"]
        return (
            joined.points.with_columns(ids.gather(position), names.gather(position))
            .filter(pl.col("workload").is_not_null() & pl.col("value").is_finite())
            .select("workload", "pod", "ts", pl.col("value").alias(column))
        )

    def _joined(self, matrix: Matrix, owners: Owners) -> _Joined:
        return _Joined(_long(matrix, self._bucket), [holder(labels) for labels in matrix.labels], matrix.labels)

    def _tell_unattributed(self, series: pl.DataFrame, joined: _Joined) -> None:
        placeholders = sum(is_placeholder(labels) for labels in joined.labels)
        if placeholders:
            self.warnings.append(
                f"{placeholders} accelerators belong to a fractional scheduler's reservation: not attributable"
            )
        lost = series.filter(pl.col("pod").is_not_null() & pl.col("workload").is_null())
        if lost.height:
            names = sorted(set(lost["pod"].cast(pl.String)))
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            self.warnings.append(f"{len(names)} pods belong to no known workload and are left out: {shown}")

    def _ask(self, promql: str) -> Matrix:
        """A range of the window's buckets: each is evaluated 1 ms before its end over its whole width.

        So a sample at a bucket's start counts for it alone, in Prometheus 2 (range closed at both ends) as in 3 (open
        at the left).
        """
        first = self._start.timestamp() + self._bucket - 0.001
        last = self._end.timestamp() - 0.001
        return self._kept(self._client.query_range(promql, first, last, self._bucket))

    def _ask_once(self, promql: str) -> Matrix:
        return self._kept(self._client.query(promql, self._end - timedelta(milliseconds=1)))

    def _kept(self, matrix: Matrix) -> Matrix:
        self.warnings += [f"Prometheus warns: {text}" for text in matrix.warnings]
        return matrix


def _long(matrix: Matrix, bucket_seconds: int) -> pl.DataFrame:
    """Points as `series`, `ts` (start of the bucket), `value`."""
    starts = np.round((matrix.times + 0.001) / bucket_seconds).astype(np.int64) * bucket_seconds - bucket_seconds
    return pl.DataFrame(
        {
            "series": pl.Series(
                np.repeat(np.arange(len(matrix.labels), dtype=np.int32), matrix.lengths), dtype=pl.Int32
            ),
            "ts": _instants(starts),
            "value": pl.Series(matrix.values, dtype=pl.Float64),
        }
    )


def _instants(seconds: NDArray[np.float64] | NDArray[np.int64]) -> pl.Series:
    micros = pl.Series((np.asarray(seconds) * 1_000_000).astype(np.int64), dtype=pl.Int64)
    return micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def _is_percent(values: pl.Series) -> bool:
    """True where many values are above a ratio's scale and none far above 100: not a few sentinels."""
    above = values.filter((values > OVERSHOOT) & (values <= 100 * OVERSHOOT))
    return len(above) > 0.01 * len(values)


def _bare(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != "__name__"}


def _space(labels: dict[str, str]) -> str:
    return labels.get("exported_namespace") or labels.get("namespace", "")


def _as_pod(aggregate: str, expression: str) -> str:
    """The expression with the workload's names in `pod` and `namespace`, whichever form it came in."""
    inner = f'label_replace({expression}, "pod", "$1", "exported_pod", "(.+)")'
    return f'{aggregate} by (namespace, pod) (label_replace({inner}, "namespace", "$1", "exported_namespace", "(.+)"))'


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _no_pods(column: str) -> pl.DataFrame:
    return pl.DataFrame(
        schema={"workload": pl.Categorical, "pod": pl.Categorical, "ts": pl.Datetime("us", "UTC"), column: pl.Float64}
    )
