"""Do the table of golden cases, `scaling.hpa` and a live HPA behind KEDA say the same number?"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from piqc_pipeline.scaling.hpa import Metric, MetricType, Tolerance, milli, recommend
from piqc_pipeline_tests.e2e.conftest import Images
from piqc_pipeline_tests.e2e.kube import Kube, deployment, restricted, until
from piqc_pipeline_tests.e2e.teller import Teller

pytestmark = pytest.mark.e2e

Reading = float | str


@dataclass(frozen=True)
class Case:
    """One row: what the HPA reads, what stands, what it must ask for."""

    name: str
    kind: MetricType
    readings: tuple[Reading, ...]
    target: float
    stands: int
    asks: int
    tolerance: str | None = None

    @property
    def by_our_rule(self) -> int:
        metrics = tuple(
            Metric(None if value == "error" else milli(value), milli(self.target), self.kind) for value in self.readings
        )
        tolerance = Tolerance(0.0, 0.0) if self.tolerance else Tolerance()
        count = recommend(metrics, self.stands, tolerance=tolerance)
        return self.stands if count is None or ("error" in self.readings and count < self.stands) else count


CASES = [
    Case("literal-ceiling", "AverageValue", (100,), 75, 1, 2),
    Case("literal-again", "AverageValue", (100,), 75, 2, 2),
    Case("inside-tolerance", "AverageValue", (82.5,), 75, 1, 1),
    Case("just-outside", "AverageValue", (82.6,), 75, 1, 2),
    Case("ratio-half", "AverageValue", (75,), 75, 2, 1),
    Case("dead-zone-up", "AverageValue", (11,), 1, 10, 10),
    Case("two-more", "AverageValue", (12,), 1, 10, 12),
    Case("dead-zone-down", "AverageValue", (9,), 1, 10, 10),
    Case("ratio-1-11", "AverageValue", (10,), 1, 9, 10),
    Case("raw-demand-stands", "AverageValue", (3.5,), 0.8, 4, 4),
    Case("raw-demand-moves", "AverageValue", (3.6,), 0.8, 4, 5),
    Case("milli-units", "AverageValue", (2.4,), 0.8, 4, 3),
    Case("value-runs", "Value", (100,), 75, 4, 6),
    Case("value-decays", "Value", (60,), 75, 10, 8),
    Case("value-sticks", "Value", (60,), 75, 4, 4),
    Case("error-blocks-down", "AverageValue", (3, "error"), 1, 5, 5),
    Case("error-lets-up", "AverageValue", (7, "error"), 1, 5, 7),
    Case("tolerance-0-up", "AverageValue", (11,), 1, 10, 11, tolerance="0"),
    Case("tolerance-0-fraction", "AverageValue", (10.9,), 1, 10, 11, tolerance="0"),
    Case("tolerance-0-stays", "AverageValue", (10,), 1, 10, 10, tolerance="0"),
]
"""17 cases of the HPA's arithmetic, and the per-HPA tolerance of Kubernetes 1.35."""


def scaled_object(case: Case, url: str) -> dict[str, Any]:
    tolerance = {"tolerance": case.tolerance} if case.tolerance else {}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": case.name},
        "spec": {
            "scaleTargetRef": {"name": case.name},
            "minReplicaCount": 1,
            "maxReplicaCount": 40,
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {
                        "scaleDown": {"stabilizationWindowSeconds": 0, **tolerance},
                        "scaleUp": {"stabilizationWindowSeconds": 0, **tolerance},
                    }
                }
            },
            "triggers": [
                {
                    "type": "metrics-api",
                    "metricType": case.kind,
                    "name": f"m{index}",
                    "metadata": {
                        "url": f"{url}/value/{case.name}-{index}",
                        "valueLocation": "value",
                        "targetValue": f"{case.target:g}",
                    },
                }
                for index in range(len(case.readings))
            ],
        },
    }


@pytest.fixture(scope="module")
def asked(kube: Kube, namespace: str, images: Images) -> Iterator[dict[str, list[int]]]:
    """Counts that each Deployment was given, in order, after every HPA has had time for four syncs."""
    teller = Teller(kube, namespace, images.predictor)
    teller.tell(values={f"{case.name}-{i}": value for case in CASES for i, value in enumerate(case.readings)})
    # AverageValue counts pods, ready or not: those may stay pending. Value needs ready ones.
    nowhere = restricted(images.pause, [], nodeSelector={"piqc.e2e/nowhere": "true"})
    pods = {"AverageValue": nowhere, "Value": restricted(images.pause, [])}
    kube.apply(*(deployment(case.name, case.stands, pods[case.kind]) for case in CASES), namespace=namespace)
    until(lambda: _standing(kube, namespace), lambda bad: not bad, 180, "pods of the golden cases")
    kube.apply(*(scaled_object(case, teller.url) for case in CASES), namespace=namespace)
    counts: dict[str, list[int]] = {case.name: [case.stands] for case in CASES}
    first_read: dict[str, float] = {}
    end = time.monotonic() + 180
    while time.monotonic() < end:
        for item in kube.get("-n", namespace, "deployments,hpa")["items"]:
            name = item["metadata"]["name"]
            if item["kind"] == "HorizontalPodAutoscaler":
                if any(
                    metric.get("external", {}).get("current") for metric in item["status"].get("currentMetrics") or []
                ):
                    first_read.setdefault(name.removeprefix("keda-hpa-"), time.monotonic())
            elif name in counts and item["spec"]["replicas"] != counts[name][-1]:
                counts[name].append(item["spec"]["replicas"])
        if len(first_read) == len(CASES) and time.monotonic() - max(first_read.values()) > 25:
            break
        time.sleep(0.3)
    assert set(first_read) >= {case.name for case in CASES}, "an HPA never read its metric"
    yield counts


def _standing(kube: Kube, namespace: str) -> list[str]:
    bad = []
    for item in kube.get("-n", namespace, "deployments")["items"]:
        case = next((case for case in CASES if case.name == item["metadata"]["name"]), None)
        field = "readyReplicas" if case and case.kind == "Value" else "replicas"
        if case and item["status"].get(field, 0) != case.stands:
            bad.append(case.name)
    return bad


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_live_hpa_asks_for_the_number_of_the_table(case: Case, asked: dict[str, list[int]]) -> None:
    assert case.by_our_rule == case.asks
    first = asked[case.name][1] if len(asked[case.name]) > 1 else case.stands
    assert first == case.asks, f"the Deployment went {asked[case.name]}"


def test_average_value_stays_where_it_went(asked: dict[str, list[int]]) -> None:
    for case in CASES:
        if case.kind == "AverageValue":
            assert len(asked[case.name]) <= 2, f"{case.name} went {asked[case.name]}"


def test_literal_manifest_of_the_specification_never_passes_two(asked: dict[str, list[int]]) -> None:
    # Six replicas are needed, utilization reads 100, the target is 75: evidence behind lint rule target-unreachable.
    assert max(asked["literal-ceiling"]) == max(asked["literal-again"]) == 2


def test_value_on_a_forecast_runs_on_or_sticks(asked: dict[str, list[int]]) -> None:
    assert asked["value-runs"] == sorted(asked["value-runs"]) and asked["value-runs"][-1] > 6
    assert asked["value-decays"] == sorted(asked["value-decays"], reverse=True)
