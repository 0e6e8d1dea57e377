"""Do the shipped recording rules give a workload's demand in replicas? Asked of Prometheus' own rule tester."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from piqc_pipeline_tests.k8s.rendering import ROOT, render

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)"
)
SERIES = "DCGM_FI_DEV_GPU_UTIL"
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def series(metric: str, pod: str, gpu: int, value: str) -> dict[str, str]:
    labels = f'exported_namespace="inference",exported_pod="{pod}",gpu="{gpu}",pod="dcgm-x",namespace="monitoring"'
    return {"series": f"{metric}{{{labels}}}", "values": f"{value}x20"}


def check(folder: Path, inputs: list[dict[str, str]], expected: dict[str, dict[str, float]]) -> None:
    """Run `promtool test rules`; expected: recorded name to workload to value."""
    groups = [
        d["spec"]["groups"] for d in render(ROOT / "k8s/monitoring") if d["metadata"]["name"] == "piqc-gpu-demand"
    ]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups[0]}))
    asked = [
        {
            "expr": name,
            "eval_time": "8m",
            "exp_samples": [
                {"labels": f'{name}{{namespace="inference",workload="{workload}"}}', "value": value}
                for workload, value in rows.items()
            ],
        }
        for name, rows in expected.items()
    ]
    body = {"interval": "30s", "input_series": inputs, "promql_expr_test": asked}
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": [body]}
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    done = subprocess.run(["promtool", "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_demand_is_the_sum_over_pods_of_the_mean_over_their_devices(tmp_path: Path) -> None:
    inputs = [
        # A Deployment of two pods with two GPUs each: (0.8 + 0.6) / 2 + (0.4 + 0.2) / 2 = 1.0 replicas.
        series(ENGINE, "chat-8b-7d9f8b6c5d-abcde", 0, "0.8"),
        series(ENGINE, "chat-8b-7d9f8b6c5d-abcde", 1, "0.6"),
        series(ENGINE, "chat-8b-7d9f8b6c5d-fghij", 0, "0.4"),
        series(ENGINE, "chat-8b-7d9f8b6c5d-fghij", 1, "0.2"),
        # The duty cycle of the same pods is not counted again.
        series(SERIES, "chat-8b-7d9f8b6c5d-abcde", 0, "100"),
        # A StatefulSet known by its duty cycle alone: 50 % of one.
        series(SERIES, "embed-0", 0, "50"),
    ]
    check(
        tmp_path,
        inputs,
        {
            "workload:gpu_demand:replicas": {"chat-8b": 1.0, "embed": 0.5},
            "workload:gpu_pods:count": {"chat-8b": 2, "embed": 1},
            "workload:gpu_utilization:ratio": {"chat-8b": 0.5, "embed": 0.5},
        },
    )


@needs_promtool
def test_sentinel_of_an_unsupported_counter_is_no_demand(tmp_path: Path) -> None:
    inputs = [
        series(ENGINE, "chat-8b-7d9f8b6c5d-abcde", 0, "9.223372036854776e+18"),
        series(ENGINE, "embed-0", 0, "0.25"),
    ]
    check(tmp_path, inputs, {"workload:gpu_demand:replicas": {"embed": 0.25}})
