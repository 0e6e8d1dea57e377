"""Which taints a pod with an accelerator must tolerate itself."""

import pytest

from piqc_pipeline.facts.taints import to_tolerate


@pytest.mark.parametrize(
    ("taint", "own"),
    [
        pytest.param("team=vision:NoSchedule", True, id="a team's"),
        pytest.param("dedicated:NoExecute", True, id="without a value"),
        pytest.param("nvidia.com/gpu=present:NoSchedule", False, id="the resource's, tolerated for every pod of it"),
        pytest.param("amd.com/gpu:NoSchedule", False, id="another vendor's"),
        pytest.param("node.kubernetes.io/unschedulable:NoSchedule", False, id="a node's state"),
    ],
)
def test_a_pod_tolerates_what_nobody_tolerates_for_it(taint: str, own: bool) -> None:
    assert to_tolerate((taint,)) == ([taint] if own else [])
