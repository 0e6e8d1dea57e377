"""What dcgm-exporters of the world would tell the history once Prometheus has them.

Labels and values transcribed from run-ai/fake-gpu-operator design/samples (A100 with MIG, fractions; MIT), NVIDIA/aicr
docs/conformance (8 x H100; Apache-2.0), cncf/k8s-ai-conformance v1.35 (T4, L40S; Apache-2.0) and
NVIDIA/gpu-monitoring-tools#138 (V100, exporter of 2020).
"""

import pytest

from piqc_pipeline.cluster.exposition import parse
from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline_tests.history.test_prom_answers import GR_ENGINE, OWNER, WORKER, Gauge, fetched

A100 = {
    "gpu": "0",
    "UUID": "GPU-473571f2",
    "modelName": "NVIDIA A100-SXM4-40GB",
    "Hostname": "nvidia-dcgm-exporter-tl46n",
}
NOBODY = {"container": "", "namespace": "", "pod": ""}
JOB = WorkloadInventory("prod/ml/Deployment/small", "ml", "Deployment", "small", 1, 1, ("small-0",))


def instance(number: str, profile: str, value: str, **pod: str) -> Gauge:
    labels = {**A100, "__name__": GR_ENGINE, "GPU_I_ID": number, "GPU_I_PROFILE": profile, **(pod or NOBODY)}
    return labels, value


def test_under_mig_the_engine_tells_the_load_and_slices_make_gpus() -> None:
    held = {"namespace": "ml", "pod": "small-0"}
    series = [
        instance("7", "1g.5gb", "0.000000"),
        instance("8", "1g.5gb", "0.408493", **held),
        instance("5", "2g.10gb", "0.000000"),
    ]
    [row, *rest] = fetched(series, inventory=(JOB,)).frame.rows(named=True)
    assert len(rest) == 11
    assert (row["signal"], row["confidence"], row["utilization"]) == (GR_ENGINE, "medium", 0.4085)
    # 0.408493 of one seventh.
    assert row["busy_gpus"] == pytest.approx(0.408493 / 7, abs=1e-3)
    # As published, all four instances have empty pod labels: nobody's.
    published = [instance("8", "1g.5gb", "0.408493"), instance("9", "1g.5gb", "0.000000")]
    assert fetched(published, inventory=(JOB,)).frame.is_empty()


def test_mig_switched_on_without_an_instance_is_nobodys_load() -> None:
    assert fetched([({**A100, "__name__": GR_ENGINE, **NOBODY}, "0.000033")], inventory=(JOB,)).frame.is_empty()


def test_of_eight_gpus_only_the_first_names_a_pod() -> None:
    labels = {"modelName": "NVIDIA H100 80GB HBM3", "Hostname": "gpu-node-1"}
    first = {**labels, "gpu": "0", "UUID": "GPU-0", "namespace": "dynamo-workload", "pod": WORKER, "pod_uid": ""}
    others: list[Gauge] = [({**labels, "gpu": str(i), "UUID": f"GPU-{i}"}, "0") for i in range(1, 8)]
    frame = fetched([(first, "0"), *others]).frame
    assert set(frame["workload"]) == {OWNER.id}
    assert set(frame["devices_seen"]) == {1}
    assert set(frame["utilization"]) == {0.0}


def test_a_fractional_schedulers_placeholder_is_told_and_nobodys() -> None:
    reserved = {
        "gpu": "0",
        "UUID": "GPU-7a2e92f2",
        "namespace": "runai-reservation",
        "pod": "runai-reservation-gpu-gpu-node-t4-kvltw",
    }
    got = fetched([(reserved, "30"), ({"gpu": "1", "UUID": "GPU-5f587dd4", **NOBODY}, "0")])
    assert got.frame.is_empty()
    assert any("fractional scheduler" in warning for warning in got.warnings)


def test_the_engines_share_goes_before_a_duty_cycle_six_times_as_high() -> None:
    t4 = {"gpu": "0", "UUID": "GPU-6d5c0ac5", "modelName": "Tesla T4", "namespace": "ml", "pod": "small-0"}
    row = fetched([(t4, "91"), ({**t4, "__name__": GR_ENGINE}, "0.156205")], inventory=(JOB,)).frame.row(0, named=True)
    assert (row["signal"], row["utilization"], row["devices_seen"]) == (GR_ENGINE, 0.1562, 1)


def test_an_exporter_of_2020_names_its_pods_in_other_labels() -> None:
    v100 = {"gpu": "0", "UUID": "GPU-6bf47ca9", "device": "nvidia0"}
    assert fetched([({**v100, **NOBODY}, "44")], inventory=(JOB,)).frame.is_empty()
    named = {**v100, "pod_name": "small-0", "pod_namespace": "ml", "container_name": "main"}
    assert fetched([(named, "44")], inventory=(JOB,)).frame["utilization"].to_list() == [0.44] * 12


def test_a_page_with_elided_labels_is_malformed_and_not_guessed() -> None:
    whole = 'DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName="NVIDIA L40S"} 210\nDCGM_FI_DEV_SM_CLOCK{gpu="1"} 210\n'
    elided = "".join(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{i % 2}",...,modelName="NVIDIA L40S",...}} 0\n' for i in range(18))
    page = parse(whole + elided)
    assert (len(list(page)), page.malformed) == (2, 18)


def test_a_gauge_is_averaged_and_never_differentiated() -> None:
    # The specification's avg(rate(...)) gave 0.19 where the utilization was 18.635 %.
    asked: list[str] = []
    held = {"gpu": "0", "UUID": "GPU-0", "namespace": "ml", "pod": "small-0"}
    frame = fetched([(held, "18.635")], inventory=(JOB,), asked=asked).frame
    assert set(frame["utilization"]) == {0.1864}
    assert "avg_over_time(DCGM_FI_DEV_GPU_UTIL[300s])" in asked
    assert not [query for query in asked if "rate(" in query or "delta(" in query]
