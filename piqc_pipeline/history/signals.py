"""Which metric tells load, how well, and in which unit? Names are those of the exporters and engines.

Work first, then how full the engines are, then hardware: vendors' and llm-d's guides agree that batch size and queue
tell load where duty cycle does not. `DCGM_FI_DEV_GPU_UTIL` says (NVML) that some kernel ran, so it comes last: one
request and sixty look alike.
"""

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

RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "tgi_batch_current_size")
WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "tgi_queue_size")
FINISHED = ("vllm:request_success_total", "sglang:num_requests_total", "tgi_request_success")
PROMPT_TOKENS = ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total")
GENERATED_TOKENS = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")
"""Counters: `rate` is right for them."""

RUNNING_SIGNAL = "requests_running/max_num_seqs"
TOKENS_SIGNAL = "tokens/capacity"
RATE_SIGNAL = "offered_rate/capacity"


def names_pattern() -> str:
    """A regular expression of every metric that is asked for."""
    devices = [signal.name for signal in DEVICE_SIGNALS]
    owners = ["kube_pod_owner", "kube_replicaset_owner", "kube_job_owner", "kube_pod_status_ready"]
    wanted = ["kube_deployment_spec_replicas", "kube_statefulset_replicas", "kube_pod_container_resource_requests"]
    return "|".join([*devices, *RUNNING, *WAITING, *FINISHED, *PROMPT_TOKENS, *GENERATED_TOKENS, *owners, *wanted])
