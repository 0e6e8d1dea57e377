"""Rules for an HPA: one change to a good object each."""

import pytest

from piqc_pipeline_tests.scaling.lint_objects import HPA, changed, rules


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        pytest.param(("spec", "minReplicas"), 9, "min-above-max", id="minimum above maximum"),
        pytest.param(("spec", "minReplicas"), 0, "hpa-min-zero", id="zero"),
        pytest.param(("spec", "metrics"), None, "hpa-no-metric", id="no metric"),
        pytest.param(("metadata", "name"), "keda-hpa-chat", "hpa-of-keda", id="KEDA's own"),
        pytest.param(("spec", "maxReplica"), 9, "schema", id="misspelt"),
        pytest.param(
            ("spec", "metrics", 0, "external", "target", "averageValue"), None, "hpa-target-field", id="no value"
        ),
        pytest.param(
            ("spec", "metrics", 0, "external", "target", "averageValue"), "0", "hpa-target-field", id="zero value"
        ),
        pytest.param(
            ("spec", "metrics", 0, "external", "target", "type"), "Utilization", "metric-type-invalid", id="type"
        ),
        pytest.param(
            ("spec", "metrics", 0),
            {
                "type": "Resource",
                "resource": {"name": "nvidia.com/gpu", "target": {"type": "Utilization", "averageUtilization": 75}},
            },
            "hpa-resource",
            id="a GPU is no resource metric",
        ),
        pytest.param(
            ("spec", "metrics", 0, "external"),
            {"metric": {"name": "predicted_gpu_util"}, "target": {"type": "AverageValue", "averageValue": "75"}},
            "target-unreachable",
            id="utilization against 75",
        ),
        pytest.param(
            ("spec", "metrics", 0, "external"),
            {"metric": {"name": "predicted_gpu_util"}, "target": {"type": "Value", "value": "75"}},
            "forecast-runaway",
            id="a forecast as Value",
        ),
    ],
)
def test_one_change_to_a_good_hpa_is_found(path, value, rule):
    assert rule not in rules(HPA)
    assert rule in rules(changed(HPA, path, value))
