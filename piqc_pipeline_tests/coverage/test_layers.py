"""Coverage: three layers, three states, and nodes without an accelerator do not count."""

from dataclasses import replace

from piqc_pipeline.coverage import assess_coverage
from piqc_pipeline.facts.snapshot import AcceleratorPool, ClusterSnapshot, ObservabilitySigns
from piqc_pipeline_tests.waste.clusters import cluster, node, pod, pool, sample_cluster, workload


def states(snapshot: ClusterSnapshot) -> dict[str, str | None]:
    return {check.name: check.state for layer in assess_coverage(snapshot).layers for check in layer.checks}


def test_the_sample_cluster_has_three_layers_with_their_states() -> None:
    report = assess_coverage(sample_cluster())
    assert [layer.name for layer in report.layers] == ["GPU hardware", "Serving framework", "Observability"]
    assert states(sample_cluster()) == {
        "DCGM exporter": "detected",
        "NVIDIA device plugin": "absent",
        "GPU feature discovery": "absent",
        "Node feature discovery": "absent",
        "vLLM": "detected",
        "Unclassified": "partial",
        "Prometheus Operator": "detected",
        "vLLM scraped": "partial",
        "OTel Collector": "detected",
    }


def test_a_node_without_an_accelerator_needs_no_exporter() -> None:
    signs = ObservabilitySigns(components={"dcgm-exporter": ("gpu",)})
    snapshot = cluster([node("gpu"), *(node(f"cpu-{place}", pools=()) for place in range(9))], [], signs=signs)
    assert states(snapshot)["DCGM exporter"] == "detected"


def test_an_exporter_on_some_nodes_is_partial() -> None:
    signs = ObservabilitySigns(components={"dcgm-exporter": ("a",)})
    (layer, *_) = assess_coverage(cluster([node("a"), node("b")], [], signs=signs)).layers
    assert (layer.checks[0].state, layer.checks[0].found, layer.checks[0].of) == ("partial", 1, 2)


def test_amd_nodes_need_the_amd_exporter_and_no_nvidia_plugin() -> None:
    amd: AcceleratorPool = pool(8, "AMD_Instinct_MI300X", resource="amd.com/gpu", vendor="amd")
    (layer, *_) = assess_coverage(cluster([node("a", pools=(amd,))], [])).layers
    found = {check.name: (check.state, check.of) for check in layer.checks}
    assert found["AMD device metrics exporter"] == ("absent", 1)
    assert found["DCGM exporter"] == ("absent", 0)


def test_what_could_not_be_read_is_no_state() -> None:
    blind = replace(sample_cluster(), nodes=None, pods=None, signs=ObservabilitySigns())
    found = states(blind)
    assert {found[name] for name in ("DCGM exporter", "vLLM", "Prometheus Operator", "vLLM scraped")} == {None}


def test_gaps_are_what_is_not_detected() -> None:
    assert "NVIDIA device plugin" in assess_coverage(sample_cluster()).gaps
    assert "DCGM exporter" not in assess_coverage(sample_cluster()).gaps


def test_every_vllm_workload_scraped_is_detected() -> None:
    base = cluster([node("n")], [pod("a", "n", 1)], [workload()])
    signs = ObservabilitySigns(scraped_workload_ids=("c/inference/Deployment/w",))
    assert states(replace(base, signs=signs))["vLLM scraped"] == "detected"
