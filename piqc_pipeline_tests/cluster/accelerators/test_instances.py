"""Machine types of AWS, Google and Azure, by their own documentation: which accelerator, and how many."""

from pathlib import Path

import pytest

from piqc_pipeline_tests.cluster.clusters import node, only_node, scan

H100, H200, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("machine", "product", "count"),
    [
        ("p4d.24xlarge", "NVIDIA-A100-SXM4-40GB", 8),
        ("p4de.24xlarge", A100, 8),
        ("p5.4xlarge", H100, 1),
        ("p5.48xlarge", H100, 8),
        ("p5e.48xlarge", H200, 8),
        ("p5en.48xlarge", H200, 8),
        ("p6-b200.48xlarge", "NVIDIA-B200", 8),
        ("p6e-gb200.36xlarge", "NVIDIA-GB200", 4),
        ("g4dn.12xlarge", "Tesla-T4", 4),
        ("g5.16xlarge", "NVIDIA-A10G", 1),
        ("g5.48xlarge", "NVIDIA-A10G", 8),
        ("g6.12xlarge", "NVIDIA-L4", 4),
        ("g6e.16xlarge", "NVIDIA-L40S", 1),
        ("g6e.24xlarge", "NVIDIA-L40S", 4),
        ("g7e.12xlarge", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 2),
        ("inf2.24xlarge", "AWS-Inferentia2", 6),
        ("inf2.48xlarge", "AWS-Inferentia2", 12),
        ("trn1.32xlarge", "AWS-Trainium", 16),
        ("trn2.48xlarge", "AWS-Trainium2", 16),
        ("dl1.24xlarge", "Intel-Gaudi", 8),
        ("a2-highgpu-4g", "NVIDIA-A100-SXM4-40GB", 4),
        ("a2-megagpu-16g", "NVIDIA-A100-SXM4-40GB", 16),
        ("a2-ultragpu-2g", A100, 2),
        ("a3-highgpu-2g", H100, 2),
        ("a3-megagpu-8g", H100, 8),
        ("a3-ultragpu-8g", H200, 8),
        ("a4-highgpu-8g", "NVIDIA-B200", 8),
        ("a4x-highgpu-4g", "NVIDIA-GB200", 4),
        ("g2-standard-32", "NVIDIA-L4", 1),
        ("g2-standard-24", "NVIDIA-L4", 2),
        ("g2-standard-96", "NVIDIA-L4", 8),
        ("Standard_ND96isr_H100_v5", H100, 8),
        ("Standard_ND96isr_H200_v5", H200, 8),
        ("Standard_NC40ads_H100_v5", "NVIDIA-H100-NVL", 1),
        ("Standard_NC80adis_H100_v5", "NVIDIA-H100-NVL", 2),
        ("Standard_NC96ads_A100_v4", "NVIDIA-A100-80GB-PCIe", 4),
        ("Standard_ND96amsr_A100_v4", A100, 8),
        ("Standard_ND96asr_v4", "NVIDIA-A100-SXM4-40GB", 8),
        ("Standard_ND96isr_MI300X_v5", "AMD-Instinct-MI300X", 8),
        ("Standard_NC64as_T4_v3", "Tesla-T4", 4),
    ],
)
def test_a_machine_whose_plugin_is_not_there_yet_is_known_by_its_type(
    tmp_path: Path, machine: str, product: str, count: int
) -> None:
    bare = node("n0", None, None, labels={"node.kubernetes.io/instance-type": machine})
    (pool,) = only_node(scan(tmp_path, bare)).pools
    assert (pool.product, pool.capacity_units, pool.product_source) == (product, count, "instance-type")
    assert pool.allocatable_units == 0


@pytest.mark.parametrize("machine", ["g6f.4xlarge", "Standard_NV6ads_A10_v5", "p9.future", "m5.large", ""])
def test_a_part_of_a_card_and_a_type_that_no_table_has_are_not_guessed(tmp_path: Path, machine: str) -> None:
    bare = node("n0", None, None, labels={"node.kubernetes.io/instance-type": machine})
    assert only_node(scan(tmp_path, bare)).pools == ()
