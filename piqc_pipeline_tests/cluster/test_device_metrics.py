"""Pages of dcgm-exporter and AMD's exporter, shortened to the labels that matter (sources beside each)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.device_metrics import DeviceUse, engine_devices, read_devices, workload_of
from piqc_pipeline.cluster.exposition import parse


def read(text: str) -> tuple[DeviceUse, ...]:
    return read_devices([parse(text)], "dcgm")


def test_a_gpu_belongs_to_the_pod_of_its_labels_and_the_others_to_nobody() -> None:
    # NVIDIA/aicr: 8 x H100 on EKS, one vLLM pod on GPU 0.
    named = 'container="main",namespace="dynamo-workload",pod="vllm-agg-0-vllmdecodeworker-s65j5",pod_uid=""'
    lines = [f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-c4",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",{named}}} 0']
    lines += [f'DCGM_FI_DEV_GPU_UTIL{{gpu="{n}",UUID="GPU-b{n}",Hostname="n1"}} 0' for n in range(1, 8)]
    found = read("\n".join(lines))
    assert len(found) == 8
    assert [use.pod for use in found if use.pod] == [("dynamo-workload", "vllm-agg-0-vllmdecodeworker-s65j5")]
    assert all(use.reading.utilization_pct == 0 for use in found)


def test_behind_prometheus_the_workload_is_the_exported_pod() -> None:
    labels = {
        "pod": "nvidia-dcgm-exporter-x",
        "namespace": "gpu-operator",
        "exported_pod": "w",
        "exported_namespace": "ns",
    }
    assert workload_of(labels) == ("ns", "w")


def test_the_exporters_own_pod_holds_no_gpu() -> None:
    # NVIDIA/aicr: 15 of 16 series carry the labels of the scrape target only.
    labels = {"pod": "nvidia-dcgm-exporter-wqqqn", "namespace": "gpu-operator", "container": "nvidia-dcgm-exporter"}
    assert workload_of(labels) is None
    assert workload_of({"pod": "", "namespace": "", "container": ""}) is None
    assert workload_of({}) is None


def test_under_mig_the_engine_activity_takes_the_place_of_utilization() -> None:
    # run-ai/fake-gpu-operator: an A100 40GB in four instances; there is no GPU_UTIL line.
    lines = []
    for instance, profile, active, used in (
        ("7", "1g.5gb", 0.0, 6),
        ("8", "1g.5gb", 0.408493, 4384),
        ("9", "1g.5gb", 0.0, 6),
        ("5", "2g.10gb", 0.0, 13),
    ):
        labels = f'gpu="0",UUID="GPU-47",GPU_I_PROFILE="{profile}",GPU_I_ID="{instance}",pod=""'
        lines += [f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {active}", f"DCGM_FI_DEV_FB_USED{{{labels}}} {used}"]
    found = {use.reading.instance: use.reading for use in read("\n".join(lines))}
    assert found["8"].utilization_pct == pytest.approx(40.8493) and found["8"].memory_used_mib == 4384
    assert found["5"].utilization_pct == 0 and found["5"].profile == "2g.10gb"
    assert len(found) == 4 and found["8"].signal == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def test_utilization_and_engine_activity_are_not_the_same_and_the_first_counts_on_a_whole_card() -> None:
    # cncf/k8s-ai-conformance (ericsson-ccd): GPU_UTIL 91 % while the engine was active for 15.6 % of the time.
    labels = '{gpu="0",UUID="GPU-6d",modelName="Tesla T4"}'
    (use,) = read(
        f"DCGM_FI_DEV_GPU_UTIL{labels} 91\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{labels} 0.156205\n"
        f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{labels} 0.005822\nDCGM_FI_DEV_FB_USED{labels} 5120\n"
        f"DCGM_FI_DEV_FB_FREE{labels} 9791\nDCGM_FI_DEV_FB_RESERVED{labels} 447\nDCGM_FI_DEV_GPU_TEMP{labels} 0\n"
    )
    assert use.reading.utilization_pct == 91.0 and use.reading.signal == "DCGM_FI_DEV_GPU_UTIL"
    assert use.reading.tensor_active_pct == pytest.approx(0.5822)
    assert use.reading.memory_total_mib == 15358
    assert use.reading.temperature_celsius is None, "no card is at 0 degrees"


def test_a_page_of_2020_has_no_model_name_and_still_counts() -> None:
    # NVIDIA/gpu-monitoring-tools#138
    (use,) = read('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-6b",device="nvidia0",container="",namespace="",pod=""} 44')
    assert (use.reading.utilization_pct, use.reading.product, use.pod) == (44.0, None, None)


def test_profiling_values_without_a_device_are_nobodys() -> None:
    assert read("DCGM_FI_PROF_SM_ACTIVE 0.12\n") == ()


@pytest.mark.parametrize("value", ["137", "-1", "NaN", "+Inf", "9223372036854775794"])
def test_a_utilization_that_cannot_be_is_unknown(value: str) -> None:
    # DCGM writes blank values as huge integers (DCGM_INT64_BLANK).
    found = read(
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1"}} {value}\nDCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-1"}} 70\n'
    )
    assert found[0].reading.utilization_pct is None and found[0].reading.power_watts == 70


def test_an_amd_page_is_read_by_its_own_names() -> None:
    # ROCm/device-metrics-exporter#171: card_model is empty, the edge temperature of a virtual function is 0.
    labels = (
        '{card_model="",card_series="Aqua Vanjaram [Instinct MI300X VF]",gpu_id="0",gpu_partition_id="0",'
        'gpu_uuid="17ff74b5",hostname="n1",namespace="ns",pod="p",container="c"}'
    )
    (use,) = read(f"gpu_edge_temperature{labels} 0\ngpu_gfx_activity{labels} 63\ngpu_used_vram{labels} 1024\n")
    assert use.pod == ("ns", "p") and use.reading.product == "Aqua Vanjaram [Instinct MI300X VF]"
    assert (use.reading.utilization_pct, use.reading.temperature_celsius) == (63.0, None)


def test_an_amd_page_may_have_a_prefix_before_every_name() -> None:
    # device-metrics-exporter, CommonConfig.MetricsFieldPrefix.
    labels = '{card_series="AMD Instinct MI300X",gpu_id="0",hostname="n1",namespace="ns",pod="p",container="c"}'
    (use,) = read(f"amd_gpu_gfx_activity{labels} 63\namd_gpu_used_vram{labels} 1024\n")
    assert use.pod == ("ns", "p")
    assert (use.reading.utilization_pct, use.reading.memory_used_mib) == (63.0, 1024.0)


@pytest.mark.parametrize("blank", ["2147483632", "9223372036854775792", "140737488355328.000000"])
def test_blank_values_of_dcgm_are_unknown(blank: str) -> None:
    # dcgm_structs.h: DCGM_INT32_BLANK, DCGM_INT64_BLANK, DCGM_FP64_BLANK.
    names = ("DEV_GPU_UTIL", "PROF_GR_ENGINE_ACTIVE", "DEV_FB_USED", "DEV_FB_FREE", "DEV_POWER_USAGE", "DEV_GPU_TEMP")
    (use,) = read("".join(f'DCGM_FI_{name}{{gpu="0",UUID="GPU-1"}} {blank}\n' for name in names))
    reading = use.reading
    assert (reading.utilization_pct, reading.memory_used_mib, reading.memory_total_mib) == (None, None, None)
    assert (reading.power_watts, reading.temperature_celsius) == (None, None)


def test_an_engine_may_report_its_gpus_itself() -> None:
    # DataDog/integrations-core, Triton: a ratio 0..1, bytes, watts.
    labels = '{gpu_uuid="GPU-951e"}'
    (reading,) = engine_devices(
        parse(
            f"nv_gpu_utilization{labels} 0.25\nnv_gpu_memory_used_bytes{labels} 266338304\n"
            f"nv_gpu_memory_total_bytes{labels} 16106127360\nnv_gpu_power_usage{labels} 32.09\n"
        )
    )
    assert (reading.utilization_pct, reading.memory_used_mib, reading.memory_total_mib) == (25.0, 254.0, 15360.0)
    assert (reading.power_watts, reading.source) == (32.09, "engine")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu_gfx_activity"]),
            st.floats(),
            st.booleans(),
        )
    )
)
def test_no_values_leave_their_range(rows: list[tuple[str, float, bool]]) -> None:
    page = "".join(
        f'{name}{{gpu="{at}"{",GPU_I_ID=" + chr(34) + "1" + chr(34) if mig else ""}}} {value}\n'
        for at, (name, value, mig) in enumerate(rows)
    )
    for use in read(page):
        assert use.reading.utilization_pct is None or 0 <= use.reading.utilization_pct <= 100


def test_a_shared_card_is_told_once_for_each_of_its_users() -> None:
    # dcgm-exporter with KUBERNETES_VIRTUAL_GPUS: one series for each pod that shares the card.
    labels = 'gpu="0",UUID="GPU-1",namespace="ns"'
    page = "".join(f'DCGM_FI_DEV_GPU_UTIL{{{labels},pod="p{n}",vgpu="{n}"}} 50\n' for n in range(3))
    assert [use.pod for use in read(page)] == [("ns", "p0"), ("ns", "p1"), ("ns", "p2")]
