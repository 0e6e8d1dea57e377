from collections.abc import Iterator

import pytest

from piqc_pipeline_tests.cluster.api_server import ApiServerDouble, serve
from piqc_pipeline_tests.cluster.clusters import VLLM, container, controller, node, pod


@pytest.fixture
def api() -> Iterator[ApiServerDouble]:
    """Two nodes of eight GPUs; one Deployment of two replicas holds eight of them."""
    pods = [
        pod(f"llm-abc-{at}", [container(gpus=4, args=VLLM)], "n0", ("ReplicaSet", "llm-abc"), labels={"app": "llm"})
        for at in range(2)
    ]
    items = [
        node("n0"),
        node("n1"),
        controller("Deployment", "llm", replicas=2),
        controller("ReplicaSet", "llm-abc", ("Deployment", "llm")),
        {"kind": "Namespace", "metadata": {"name": "inference"}},
        *pods,
    ]
    with serve(ApiServerDouble(items)) as double:
        yield double
