"""A small fleet in a real Prometheus: owners, readiness, gaps, sentinels, units, engines, one case a workload."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.openmetrics import GaugeSeries
from piqc_pipeline.history.prometheus import PrometheusSource
from piqc_pipeline.history.samples import FetchedHistory
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline_tests.history.rows import DAY
from piqc_pipeline_tests.history.server import needs_prometheus, prometheus_with

pytestmark = [pytest.mark.service, needs_prometheus]

HOURS = 2
STEP = 30
SAMPLES = HOURS * 3600 // STEP
SENTINEL = 9223372036854775794.0
TARGET = {
    "pod": "dcgm-exporter-abcde",
    "namespace": "gpu-operator",
    "container": "exporter",
    "service": "dcgm-exporter",
}
GPU_UTIL, GR_ENGINE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
BOTH_NAMES = {"namespace": "llm", "pod": "both-0", "instance": "10.0.0.7:8000"}
PASSED_ON = {"exported_namespace": "llm", "instance": "10.0.0.1:8889", "job": "collector"}
TWO_JOBS = {"namespace": "llm", "pod": "copied-0", "instance": "10.0.0.8:8000"}
SCRAPED_TWICE = (
    {"job": "llm", "service": "llm", "prometheus_replica": "a"},
    {"job": "llm", "service": "llm", "prometheus_replica": "b"},
    {"job": "kubernetes-pods", "app": "llm"},
)
Values = Callable[[int], float | None]


def series(labels: Mapping[str, str], values: Values) -> GaugeSeries:
    kept = [(DAY.timestamp() + STEP * i, value) for i in range(SAMPLES) if (value := values(i)) is not None]
    return GaugeSeries(labels, [moment for moment, _ in kept], [value for _, value in kept])


def gpu(number: str, space: str, pod: str, values: Values, *, exported: bool = False) -> GaugeSeries:
    names = (
        {"exported_namespace": space, "exported_pod": pod, **TARGET} if exported else {"namespace": space, "pod": pod}
    )
    return series({"UUID": f"GPU-{number}", "Hostname": "n1", "gpu": number, **names}, values)


def constant(value: float) -> Values:
    return lambda i: value


def minutes(i: int) -> float:
    return i * STEP / 60


def metrics() -> dict[str, list[GaugeSeries]]:
    ready = {
        "condition": "true",
        "namespace": "llm",
        "container": "kube-state-metrics",
        "service": "kube-state-metrics",
    }
    asks = {"resource": "nvidia_com_gpu", "namespace": "llm", "container": "server"}
    return {
        GPU_UTIL: [
            gpu("0", "llm", "chat-7c9f8d6b54-x2lqk", constant(40), exported=True),
            gpu("1", "llm", "chat-7c9f8d6b54-x2lqk", constant(60), exported=True),
            gpu("2", "llm", "gone-65dbf9c8d7-zzz4q", constant(30)),
            gpu("3", "llm", "spoilt-0", lambda i: SENTINEL if i % 10 == 0 else 50.0),
            gpu("4", "llm", "holes-0", lambda i: None if 30 <= minutes(i) < 60 else 20.0),
            gpu("5", "llm", "holes-0", constant(20)),
            gpu("6", "llm", "dead-0", constant(80)),
            gpu("7", "llm", "serve-0", constant(99)),
            gpu("8", "llm", "half-0", constant(40)),
            gpu("9", "llm", "stranger", constant(40)),
            gpu("10", "llm", "twice-0", constant(70)),
            series({"UUID": "GPU-10", "namespace": "llm", "pod": "twice-0", "job": "second"}, constant(70)),
            series({"UUID": "GPU-99", **TARGET}, constant(5)),
        ],
        GR_ENGINE: [
            gpu("6", "llm", "dead-0", constant(0)),
            series(
                {"UUID": "GPU-20", "GPU_I_ID": "1", "GPU_I_PROFILE": "2g.10gb", "namespace": "llm", "pod": "mig-0"},
                constant(0.7),
            ),
        ],
        "kube_pod_owner": [
            series(
                {
                    "namespace": "llm",
                    "pod": pod,
                    "owner_kind": kind,
                    "owner_name": name,
                    "container": "kube-state-metrics",
                },
                constant(1),
            )
            for pod, kind, name in [
                ("gone-65dbf9c8d7-zzz4q", "ReplicaSet", "gone-65dbf9c8d7"),
                ("half-0", "StatefulSet", "half"),
            ]
        ],
        "kube_replicaset_owner": [
            series(
                {"namespace": "llm", "replicaset": "gone-65dbf9c8d7", "owner_kind": "Deployment", "owner_name": "gone"},
                constant(1),
            )
        ],
        "kube_pod_status_ready": [
            series({"pod": "half-0", **ready}, constant(1)),
            # The second pod is ready, holds a GPU, and its exporter is silent.
            series({"pod": "half-1", **ready}, constant(1)),
            series({"pod": "serve-0", **ready}, lambda i: 1.0 if minutes(i) >= 20 else 0.0),
        ],
        "kube_pod_container_resource_requests": [
            series({"pod": pod, **asks}, constant(1)) for pod in ("half-0", "half-1", "serve-0")
        ],
        "kube_statefulset_replicas": [series({"namespace": "llm", "statefulset": "half"}, constant(3))],
        "vllm:num_requests_running": [
            series({"namespace": "llm", "pod": "serve-0", "container": "server"}, constant(96)),
            series({**BOTH_NAMES, "job": "llm"}, constant(30)),
            *[series({**TWO_JOBS, **more}, constant(40)) for more in SCRAPED_TWICE],
            series(
                {"namespace": "llm", "pod": "passed-0", "instance": "10.0.0.5:8000", "job": "llm"},
                lambda i: 40.0 if minutes(i) < 60 else None,
            ),
            *[
                series(
                    {"namespace": "llm", "pod": "pair-0", "instance": f"10.0.0.9:{port}", "job": "llm"}, constant(20)
                )
                for port in (8000, 8001)
            ],
        ],
        # A collector passes on what is scraped directly, too, under names without colons; one endpoint has both names.
        "vllm_num_requests_running": [
            series({**PASSED_ON, "exported_pod": "passed-0"}, constant(40)),
            series({**PASSED_ON, "exported_pod": "alone-0"}, constant(50)),
            series({**BOTH_NAMES, "job": "llm"}, constant(30)),
        ],
        "vllm:num_requests_waiting": [
            series({"namespace": "llm", "pod": "serve-0", "container": "server"}, constant(24))
        ],
        "sglang:num_running_reqs": [
            # Two groups of two ranks; a group's ranks work on the same requests, one may lag.
            series({"namespace": "llm", "pod": "ranks-0", "dp_rank": group, "tp_rank": rank}, constant(running))
            for group, rank, running in [("0", "0", 30), ("0", "1", 29), ("1", "0", 10), ("1", "1", 10)]
        ]
        + [
            series({**BOTH_NAMES, "job": "llm"}, constant(30)),
            series({"namespace": "llm", "pod": "pair-0", "instance": "10.0.0.9:9000", "job": "llm"}, constant(10)),
        ],
        "vllm:request_success_total": [
            series({"namespace": "llm", "pod": "serve-0", "container": "server"}, lambda i: 2.0 * i * STEP),
            *[series({**TWO_JOBS, **more}, lambda i: 2.0 * i * STEP) for more in SCRAPED_TWICE],
        ],
    }


def one(name: str, kind: str = "StatefulSet", pods: tuple[str, ...] = (), **more: Any) -> WorkloadInventory:
    return WorkloadInventory(f"prod/llm/{kind}/{name}", "llm", kind, name, pods=pods, **more)


INVENTORY = (
    one("chat", "Deployment", gpus_per_replica=2),
    one("gone", "Deployment", gpus_per_replica=1),
    one("spoilt", gpus_per_replica=1),
    one("holes", gpus_per_replica=2),
    one("dead", gpus_per_replica=1),
    one("serve", gpus_per_replica=1, max_num_seqs=128),
    one("half", gpus_per_replica=1, replicas=2),
    one("twice", gpus_per_replica=1),
    one("mig", gpus_per_replica=1),
    one("ranks", gpus_per_replica=4, max_num_seqs=100),
    one("both", gpus_per_replica=1, max_num_seqs=100),
    one("copied", gpus_per_replica=1, max_num_seqs=100),
    one("pair", gpus_per_replica=1, max_num_seqs=100),
    one("passed", gpus_per_replica=1, max_num_seqs=100),
    one("alone", gpus_per_replica=1, max_num_seqs=100),
)


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FetchedHistory]:
    folder = tmp_path_factory.mktemp("fleet")
    with prometheus_with(folder, metrics(), frozenset({"vllm:request_success_total"})) as (url, _):
        source = PrometheusSource(PrometheusAccess(url))
        yield source.fetch(DAY, DAY + timedelta(hours=HOURS), INVENTORY, 300)


def of(fetched: FetchedHistory, name: str) -> pl.DataFrame:
    return fetched.frame.filter(pl.col("workload").str.ends_with(f"/{name}"))


def test_exported_labels_lead_to_the_workload_and_both_devices_count(fetched: FetchedHistory) -> None:
    chat = of(fetched, "chat")
    assert chat.height == HOURS * 12
    assert set(chat["utilization"]) == {0.5}
    assert set(chat["demand_replicas"]) == {0.5}
    assert set(chat["busy_gpus"]) == {1.0}
    assert set(chat["samples_seen"]) == set(chat["samples_expected"]) == {20}
    assert set(chat["signal"]) == {GPU_UTIL}
    assert set(chat["confidence"]) == {"low"}


def test_a_pod_long_gone_is_joined_through_its_owners(fetched: FetchedHistory) -> None:
    assert set(of(fetched, "gone")["utilization"]) == {0.3}


def test_sentinels_are_dropped_sample_by_sample(fetched: FetchedHistory) -> None:
    assert set(of(fetched, "spoilt")["utilization"]) == {0.5}
    assert any("impossible values" in warning for warning in fetched.warnings)


def test_a_device_without_samples_makes_the_sum_unknown_and_not_smaller(fetched: FetchedHistory) -> None:
    holes = of(fetched, "holes").sort("ts")
    missing = pl.col("ts").is_between(DAY + timedelta(minutes=30), DAY + timedelta(minutes=59))
    assert set(holes.filter(missing)["utilization"]) == {None}
    assert set(holes.filter(missing)["devices_seen"]) == {1}
    assert set(holes.filter(missing)["devices_expected"]) == {2}
    assert set(holes.filter(~missing)["utilization"]) == {0.2}
    assert set(holes["ready_replicas"]) == {1.0}


def test_a_signal_that_is_dead_all_day_gives_way_to_one_that_lives(fetched: FetchedHistory) -> None:
    dead = of(fetched, "dead")
    assert set(dead["signal"]) == {GPU_UTIL}
    assert set(dead["utilization"]) == {0.8}


def test_running_requests_against_their_limit_come_before_gpu_util(fetched: FetchedHistory) -> None:
    serve = of(fetched, "serve").sort("ts").tail(12)
    assert set(serve["signal"]) == {"requests_running/max_num_seqs"}
    assert set(serve["utilization"]) == {0.75}
    assert set(serve["waiting_requests"]) == {24.0}
    assert set(serve["offered_rate"]) == {2.0}
    assert set(serve["censored"]) == {True}
    # Demand is 0.75 + backlog / (rate of a replica x 120 s) = 0.75 + 24 / (2 x 120) = 0.85.
    assert serve["demand_replicas"].to_list() == pytest.approx([0.85] * 12)


def test_requests_that_several_ranks_of_an_engine_export_count_once(fetched: FetchedHistory) -> None:
    ranks = of(fetched, "ranks")
    assert set(ranks["signal"]) == {"requests_running/max_num_seqs"}
    assert set(ranks["utilization"]) == {0.4}


@pytest.mark.parametrize(
    ("name", "running_share"),
    [
        pytest.param("both", 0.3, id="one endpoint that exports the names of two engines"),
        pytest.param("copied", 0.4, id="one endpoint scraped by two jobs, one of them by two servers"),
        pytest.param("passed", 0.4, id="an engine scraped directly for an hour and through a collector all the time"),
        pytest.param("alone", 0.5, id="an engine known through a collector only"),
        pytest.param("pair", 0.5, id="three engines in one pod, each at a port of its own"),
    ],
)
def test_requests_of_an_endpoint_count_once_and_those_of_a_pods_endpoints_add_up(
    fetched: FetchedHistory, name: str, running_share: float
) -> None:
    rows = of(fetched, name)
    assert rows.height == HOURS * 12
    assert set(rows["ready_replicas"]) == {1.0}
    assert rows["demand_replicas"].to_list() == pytest.approx([running_share] * rows.height)


def test_a_request_that_two_jobs_tell_is_one(fetched: FetchedHistory) -> None:
    rates = of(fetched, "copied").sort("ts")["offered_rate"].to_list()
    assert rates == pytest.approx([2.0] * len(rates), rel=0.01)


def test_a_pod_counts_from_the_moment_it_is_ready(fetched: FetchedHistory) -> None:
    early = of(fetched, "serve").sort("ts").head(3)
    assert all(devices in (None, 0) for devices in early["devices_seen"])


def test_a_ready_pod_whose_exporter_is_silent_is_missing_and_wanted_replicas_are_told(fetched: FetchedHistory) -> None:
    half = of(fetched, "half")
    assert set(half["ready_replicas"]) == {2.0}
    assert set(half["devices_expected"]) == {2}
    assert set(half["utilization"]) == {None}
    assert set(half["wanted_replicas"]) == {3.0}


def test_two_jobs_that_scrape_one_device_count_it_once(fetched: FetchedHistory) -> None:
    assert set(of(fetched, "twice")["devices_seen"]) == {1}
    assert set(of(fetched, "twice")["busy_gpus"]) == {0.7}


def test_a_mig_instance_is_its_slices_of_a_gpu(fetched: FetchedHistory) -> None:
    mig = of(fetched, "mig")
    assert set(mig["signal"]) == {GR_ENGINE}
    assert set(mig["confidence"]) == {"medium"}
    assert set(mig["utilization"]) == {0.7}
    # 0.7 of an instance of two seventh.
    assert set(mig["busy_gpus"]) == {0.2}


def test_idle_gpus_of_the_exporter_and_strangers_have_no_row(fetched: FetchedHistory) -> None:
    assert set(fetched.frame["workload"]) == {entry.id for entry in INVENTORY}
    assert any("1 pods belong to no known workload" in warning for warning in fetched.warnings)
