"""ModelSpec files: one a workload, named without collision, with nothing unknown written as 0."""

from dataclasses import replace

from piqc_pipeline.report.benchmarks import benchmark_record
from piqc_pipeline.report.modelspec import model_specs
from piqc_pipeline.report.scan_result import scan_result
from piqc_pipeline.waste import load_prices
from piqc_pipeline_tests.waste.clusters import cluster, node, pod, sample_cluster, workload

PRICES = load_prices()


def test_every_inference_workload_has_a_file_with_the_reference_keys() -> None:
    specs = dict(model_specs([scan_result(sample_cluster(), PRICES)]))
    assert sorted(specs) == [
        "inference_bge", "inference_codellama-34b", "inference_llama-70b", "inference_mistral-7b",
    ]  # fmt: skip
    spec = specs["inference_llama-70b"]
    assert (spec["apiVersion"], spec["kind"]) == ("modelspec.paralleliq.ai/v1", "ModelSpec")
    assert {
        "metadata",
        "model",
        "engine",
        "inference",
        "resources",
        "endpoints",
        "kubernetes",
        "runtimeState",
        "collection",
    } <= set(spec)
    assert spec["resources"]["replicas"] == 2
    assert len(spec["resources"]["gpus"]) == 16
    assert spec["inference"]["tensorParallelSize"] == 8


def test_two_kinds_of_one_name_get_two_files() -> None:
    pods = [
        pod("a", "n", 1, workload="c/inference/Deployment/llm"),
        pod("b", "n", 1, workload="c/inference/StatefulSet/llm"),
    ]
    snapshot = cluster([node("n")], pods, [workload("llm"), workload("llm", kind="StatefulSet")])
    assert [stem for stem, _ in model_specs([scan_result(snapshot, PRICES)])] == [
        "inference_deployment_llm",
        "inference_statefulset_llm",
    ]


def test_a_name_cannot_lead_out_of_the_folder() -> None:
    evil = replace(workload(), name="../../etc/passwd", namespace="..")
    ((stem, _),) = model_specs([scan_result(cluster([node("n")], [], [evil]), PRICES)])
    assert "/" not in stem
    assert not stem.startswith(".")


def test_what_is_unknown_is_left_out() -> None:
    ((_, spec),) = model_specs([scan_result(cluster([node("n")], [pod("a", "n", 1)], [workload()]), PRICES)])
    assert "parameters" not in spec.get("model", {})
    assert "gpuUtilizationPct" not in spec.get("runtimeState", {})


def test_a_benchmark_record_names_nothing_of_the_cluster() -> None:
    record = repr(benchmark_record([scan_result(sample_cluster(), PRICES)]))
    for name in ("llama-70b", "inference", "codellama", "h100-0", "dark", "meta-llama", "Inst", "2025"):
        assert name not in record
    assert "'parametersTotal': 71000000000.0" in record
