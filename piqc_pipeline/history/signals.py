"""Which metric tells load, how well, and in which unit? Names are those of the exporters and engines.

Work first, then how full the engines are, then hardware: vendors' and llm-d's guides agree that batch size and queue
tell load where duty cycle does not. `DCGM_FI_DEV_GPU_UTIL` says (NVML) that some kernel ran, so it comes last: one
request and sixty look alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from piqc_pipeline.facts.snapshot import Confidence


@dataclass(frozen=True)
class DeviceSignal:
    """A gauge of one accelerator.

    Attributes:
        name: Metric.
        full_scale: Value that means 100 %: 1 for ratios, 100 for percentages.
        confidence: How well it tells load.
    """

    name: str
    full_scale: float
    confidence: Confidence


DEVICE_SIGNALS = (
    DeviceSignal("DCGM_FI_PROF_SM_ACTIVE", 1.0, "medium"),
    DeviceSignal("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.0, "medium"),
    DeviceSignal("DCGM_FI_DEV_GPU_UTIL", 100.0, "low"),
    DeviceSignal("gpu_gfx_activity", 100.0, "low"),
    DeviceSignal("nvidia_smi_utilization_gpu_ratio", 1.0, "low"),
)
"""Best first."""

OVERSHOOT = 1.05
"""Gauges pass their full scale by rounding only; above it stands a sentinel (dcgm-exporter: about 9.22e18)."""

ENGINE_FAMILIES = {
    "vllm:": "vllm",
    "vllm_": "vllm",
    "ray_vllm:": "vllm",
    "ray_vllm_": "vllm",
    "sglang:": "sglang",
    "sglang_": "sglang",
    "tgi_": "tgi",
}
"""Engines by the prefix of their metrics, the commonest first. Collectors that allow no colon pass on an underscore;
Ray Serve puts its own name before vLLM's."""
ENGINE_GAUGES = {
    "waiting": {"vllm": "num_requests_waiting", "sglang": "num_queue_reqs", "tgi": "queue_size"},
    "running": {"vllm": "num_requests_running", "sglang": "num_running_reqs", "tgi": "batch_current_size"},
}
"""Requests in the queue and in the batch, of vLLM, SGLang and TGI: averaged over a bucket."""
ENGINE_COUNTERS = {
    "finished": {"vllm": "request_success_total", "sglang": "num_requests_total", "tgi": "request_success"},
    "prompt": {"vllm": "prompt_tokens_total", "sglang": "prompt_tokens_total"},
    "generated": {"vllm": "generation_tokens_total", "sglang": "generation_tokens_total"},
}
"""Requests finished, tokens read and tokens written: `rate` is right for counters, and for them only."""


def engine_metrics(names: Mapping[str, str]) -> dict[str, str]:
    """The metrics of a figure by the prefix of their family.

    Args:
        names: What each engine calls it, without prefix.
    """
    return {prefix: prefix + names[engine] for prefix, engine in ENGINE_FAMILIES.items() if engine in names}


RATE_SIGNAL = "offered_rate/capacity"
TOKENS_SIGNAL = "tokens/capacity"
RUNNING_SIGNAL = "requests_running/max_num_seqs"
"""What a row names as its signal where work or the engine's batch tells the load, best first; else a device signal."""
