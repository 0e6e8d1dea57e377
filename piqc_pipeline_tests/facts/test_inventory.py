"""Every fact that may be known of a workload is there, or has its reason beside it."""

from dataclasses import replace

import pytest

from piqc_pipeline.facts.build import build_bundle
from piqc_pipeline.facts.bundle import FactObject
from piqc_pipeline.facts.inventory import INVENTORY
from piqc_pipeline.facts.snapshot import (
    AcceleratorReading,
    Autoscaler,
    EngineIdentity,
    EngineRuntime,
    Latency,
    ModelIdentity,
    Pod,
    Unknown,
    Workload,
)
from piqc_pipeline.waste import assess, load_prices, priced_facts
from piqc_pipeline_tests.waste.clusters import cluster, node, pod, workload

_WORDS = """
runtime.engineType runtime.engineVersion runtime.dtype vllm.dtype runtime.tensorParallel vllm.tensorParallelSize
vllm.pipelineParallelSize model.maxModelLen vllm.maxModelLen vllm.maxNumSeqs vllm.enableChunkedPrefill vllm.kvRole
vllm.kvConnector lmcache.enabled vllm.gpuMemoryUtilization deployment.parallelismStrategy model.name model.quantization
model.architecture model.parameters model.parameterCount hardware.gpuType hardware.gpuCount hardware.gpuMemoryGB
hardware.supportsFastBf16 hardware.interconnect obs.gpu.utilAvgPct obs.gpu.memUtilAvgPct obs.gpu.memBandwidthUtilPct
obs.gpu.temperatureC obs.gpu.powerDrawW obs.gpu.tensorActivePct obs.gpu.dramActivePct obs.gpu.smActivePct
obs.cpu.utilAvgPct obs.cpu.iowaitAvgPct obs.vllm.tokensPerSec obs.tps.avg obs.vllm.promptTokensPerSec
obs.vllm.requestsRunning obs.vllm.requestsWaiting obs.vllm.kvCacheUsagePct obs.vllm.prefixCacheHitRate obs.tpot.p95Ms
obs.requestLatency.p95Ms obs.requestLatency.p99Ms obs.promptTokens.p50 obs.promptTokens.p95 obs.generationTokens.p50
obs.generationTokens.p95 obs.effectiveBatch.p95 obs.rps.avg k8s.replicas k8s.cpuRequest k8s.memoryRequest k8s.ageHours
endpoint.httpPort autoscaling.enabled autoscaling.metricType placement.nodeCount node.gpuCount
"""
KEYS = _WORDS.split()
"""The keys that readers of `piqc-scan.v0.1` know."""

RUNTIME = EngineRuntime(
    healthy=True,
    source="proxy",
    requests_running=2.0,
    requests_waiting=0.0,
    generation_tokens_per_second=100.0,
    prompt_tokens_per_second=50.0,
    kv_cache_usage_pct=40.0,
    prefix_cache_hit_pct=30.0,
    time_per_output_token=Latency(1.0, 2.0, 3.0),
    end_to_end=Latency(1.0, 2.0, 3.0),
    prompt_tokens_p50=1.0,
    prompt_tokens_p95=2.0,
    generation_tokens_p50=1.0,
    generation_tokens_p95=2.0,
    requests_per_second=0.5,
    batch_p95=4.0,
)
READING = AcceleratorReading(
    "dcgm",
    utilization_pct=40.0,
    memory_used_mib=1000.0,
    memory_total_mib=2000.0,
    power_watts=300.0,
    temperature_celsius=50.0,
    tensor_active_pct=1.0,
    dram_active_pct=2.0,
    sm_active_pct=3.0,
    memory_bandwidth_pct=4.0,
)
MODEL = ModelIdentity(
    "meta-llama/Llama-3.1-8B",
    parameters_total=8.03e9,
    parameters_active=8.03e9,
    dtype="bfloat16",
    quantization="fp8",
    max_model_len=8192,
    tensor_parallel=2,
    pipeline_parallel=1,
    max_num_seqs=64,
    gpu_memory_utilization=0.9,
    chunked_prefill=True,
    kv_role="kv_both",
    kv_connector="LMCacheConnectorV1",
    lmcache_enabled=True,
)
KNOWN = workload(
    model_name="x",
    engine=EngineIdentity("vllm", 0.9, "high", version="v0.8.5"),
    runtime=RUNTIME,
    cpu_request="8",
    memory_request="64Gi",
    http_port=8000,
    autoscaler=Autoscaler("ScaledObject", "inference", "s", "Deployment", "w", 1, 8, ("prometheus",)),
    gpus_per_replica=2.0,
)


def found(given: Workload, *pods: Pod) -> FactObject:
    snapshot = cluster([node("n")], list(pods), [given])
    bundle = build_bundle(snapshot, priced_facts(assess(snapshot, load_prices()), snapshot))
    return next(one for one in bundle.objects if one.workload_id == given.id)


def test_the_inventory_is_that_of_the_format() -> None:
    assert [key for key, _, _ in INVENTORY if key not in KEYS] == []
    assert [key for key in KEYS if key not in {row[0] for row in INVENTORY}] == []


def test_all_is_told_where_everything_tells_and_what_nobody_can_know_has_its_reason() -> None:
    told = pod("p", "n", 2, readings=(READING, READING), cpu_used_cores=2.0, cpu_allowed_cores=8.0)
    one = found(replace(KNOWN, model=MODEL), told)
    assert [(row.why, row.keys) for row in one.missing] == [
        ("the kernel counts it by machine, and not by container", ("obs.cpu.iowaitAvgPct",))
    ]
    assert (one.facts["obs.cpu.utilAvgPct"].value, one.facts["obs.cpu.utilAvgPct"].units) == (25, "%")
    assert one.facts["obs.effectiveBatch.p95"].value == 4


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(workload(), id="nothing said"),
        pytest.param(workload(engine=EngineIdentity("sglang", 0.9, "high")), id="another engine"),
        pytest.param(workload(is_inference=False, engine=EngineIdentity("unknown", 0.0, "low")), id="no engine"),
        pytest.param(replace(KNOWN, runtime=EngineRuntime(None, "none")), id="no metrics"),
    ],
)
def test_every_key_is_a_fact_or_has_one_reason(given: Workload) -> None:
    one = found(given, pod("p", "n", 1))
    missing = [key for row in one.missing for key in row.keys]
    assert sorted([*missing, *(key for key in KEYS if key in one.facts)]) == sorted(KEYS)
    assert all(row.why for row in one.missing)


def test_reasons_are_those_of_the_workload_itself() -> None:
    def reasons(given: Workload) -> dict[str, str]:
        return {key: row.why for row in found(given, pod("p", "n", 1)).missing for key in row.keys}

    assert reasons(workload(engine=EngineIdentity("tgi", 0.9, "high")))["vllm.dtype"] == "its engine is tgi, not vLLM"
    nothing = workload(is_inference=False, engine=EngineIdentity("unknown", 0.0, "low"))
    assert reasons(nothing)["obs.tps.avg"] == "no inference engine was recognized"
    assert reasons(workload())["obs.vllm.requestsRunning"] == "its engine's metrics were not read"


def test_a_reason_is_found_by_what_it_is_about_and_not_by_its_words() -> None:
    named = Unknown("utilization of model of age of w", "its tool hangs", about="utilization")
    words = Unknown("engine metrics of pod p", "a sentence that nobody asked about")
    given = workload(runtime=RUNTIME, unknown=(words, named))
    reasons = {key: row.why for row in found(given, pod("p", "n", 1)).missing for key in row.keys}
    assert reasons["obs.gpu.temperatureC"] == "its tool hangs"
    assert "its tool hangs" not in (reasons["model.name"], reasons.get("k8s.ageHours"))
    assert words.why not in reasons.values()
