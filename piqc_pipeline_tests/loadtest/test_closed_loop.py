"""The closed loop's clock and objects, without a cluster."""

from pathlib import Path

import pytest

from loadtest.closed_loop import Loop, _services, demand_at
from loadtest.fast_predictor import faster
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline_tests.k8s.rendering import restricted_faults, validate

LOOP = Loop(
    Path("none"), 25.0, (6.5, 14.5), 600.0, 40.0, 0.125, 8, "localhost/inference:dev", "localhost/prometheus:v3"
)


def test_a_faster_day_divides_every_duration() -> None:
    policy = faster(ScalingPolicy(lead_seconds=600, down_window_seconds=300, period_seconds=60), 25)
    # 600 / 25, 300 / 25, 60 / 25 = 2.4.
    assert (policy.lead_seconds, policy.down_window_seconds, policy.period_seconds) == (24.0, 12, 2)
    assert LOOP.real(86_400) == 3456.0


@pytest.mark.parametrize(("hour", "replicas"), [(6.5, 0.25), (10, 2.5), (15, 5.0)])
def test_demand_is_the_rate_times_what_a_request_takes(hour: float, replicas: float) -> None:
    # 200 at the original peak are 40 here: 10, 100 and 200 become 2, 20 and 40 requests/s of an eighth of a second.
    assert demand_at(LOOP, hour) == pytest.approx(replicas)


def test_its_objects_are_valid_and_restricted() -> None:
    for body in _services(LOOP):
        validate(body)
        if body["kind"] == "Deployment":
            assert restricted_faults(body["spec"]["template"]["spec"]) == []
