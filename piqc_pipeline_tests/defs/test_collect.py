"""What does the page of the snapshot say of a cluster?"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from piqc_pipeline.defs.collect import devices_installed, read_cluster
from piqc_pipeline.defs.resources import Pipeline
from piqc_pipeline.errors import NamespacesMissing
from piqc_pipeline.facts.snapshot import AcceleratorPool, ClusterSnapshot, Node
from piqc_pipeline.settings import load_settings
from piqc_pipeline_tests.cli.dump import write_dump


def pool(units: int | None, units_per_device: float | None = 1.0) -> AcceleratorPool:
    return AcceleratorPool("nvidia.com/gpu", "nvidia", "NVIDIA-L4", 24.0, units, units, units_per_device)


def snapshot(*pools: AcceleratorPool) -> ClusterSnapshot:
    nodes = tuple(Node(f"n{i}", {}, True, False, (), (one,)) for i, one in enumerate(pools))
    return ClusterSnapshot("c", None, datetime(2025, 1, 20, tzinfo=UTC), nodes, (), ())


@pytest.mark.parametrize(
    ("pools", "devices"),
    [
        pytest.param((), 0, id="no-accelerator"),
        pytest.param((pool(8), pool(4)), 12, id="whole-devices"),
        pytest.param((pool(8), pool(14, 7.0)), 10, id="slices-are-counted-by-their-device"),
        pytest.param((pool(8), pool(None)), None, id="an-unread-count-is-not-zero"),
        pytest.param((pool(8), pool(4, None)), None, id="shares-of-an-unknown-size"),
    ],
)
def test_devices_are_counted_or_unknown(pools: tuple[AcceleratorPool, ...], devices: float | None) -> None:
    assert devices_installed(snapshot(*pools)) == devices


def test_a_dump_is_kept_to_the_namespaces_of_the_settings(tmp_path: Path) -> None:
    def workloads(**given: str) -> list[str]:
        settings = load_settings(cluster=str(write_dump(tmp_path)), data_dir=tmp_path, **given)
        return [one.name for one in read_cluster(Pipeline(settings)).workloads]

    assert workloads() == workloads(namespaces="inference") == ["llm"]
    with pytest.raises(NamespacesMissing, match="no namespace other"):
        workloads(namespaces="other")


def test_unread_nodes_are_not_zero_devices() -> None:
    assert devices_installed(ClusterSnapshot("c", None, datetime(2025, 1, 20, tzinfo=UTC), None, (), ())) is None
