"""A scan of the API server double, and what it found."""

from dataclasses import replace
from pathlib import Path

from piqc_pipeline.cluster import read_live
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.facts.snapshot import ClusterSnapshot, Unknown
from piqc_pipeline_tests.cluster.api_server import ApiServerDouble
from piqc_pipeline_tests.cluster.clusters import NOW

CONFIG = {"volumeMounts": [{"name": "c", "mountPath": "/etc/vllm"}]}
VOLUME = {"volumes": [{"name": "c", "configMap": {"name": "conf"}}]}
PAGE = 'vllm:num_requests_running{model_name="m"} 3\nvllm:avg_generation_throughput_toks_per_s{model_name="m"} 50\n'


def live(api: ApiServerDouble, folder: Path, **options: object) -> ClusterSnapshot:
    usual = ScanOptions(
        kubeconfig=api.kubeconfig(folder), timeout_seconds=2, deadline_seconds=20, rate_window_seconds=0
    )
    return read_live(replace(usual, **options), NOW)  # type: ignore[arg-type]


def failures(snapshot: ClusterSnapshot) -> list[Unknown]:
    return [entry for entry in snapshot.unknown if entry.read_failed]


def held(snapshot: ClusterSnapshot) -> float:
    return sum(r.units or 0 for item in snapshot.pods or () if item.holds for r in item.requests)
