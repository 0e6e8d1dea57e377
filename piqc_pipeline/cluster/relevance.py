"""Which pods matter to a scan? Those that hold or see accelerators, serve an engine, or watch either."""

import re
from functools import lru_cache

from piqc_pipeline.cluster.accelerators.plugin import Registry
from piqc_pipeline.cluster.engines.identify import image_name
from piqc_pipeline.cluster.engines.signatures import NOT_AN_ENGINE, OTHER_ENGINES, SIGNATURES
from piqc_pipeline.cluster.objects import Container, PodObject
from piqc_pipeline.cluster.requests import container_amounts

COMPONENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("dcgm-exporter", re.compile(r"dcgm-exporter")),
    (
        "nvidia-device-plugin",
        re.compile(r"(nvidia-|k8s-)device-plugin|(^|/)nvidia/k8s-device-plugin|nvidia-gpu-device-plugin"),
    ),
    ("gpu-feature-discovery", re.compile(r"gpu-feature-discovery")),
    ("node-feature-discovery", re.compile(r"node-feature-discovery|(^|/)nfd-(worker|master)")),
    ("otel-collector", re.compile(r"opentelemetry-collector|otel-?col|otel-collector")),
    ("amd-metrics-exporter", re.compile(r"device-metrics-exporter|amd-metrics-exporter|amd_smi_exporter")),
    ("amd-device-plugin", re.compile(r"rocm/k8s-device-plugin|amdgpu-device-plugin|amd-gpu-device-plugin")),
    ("nvidia-gpu-exporter", re.compile(r"nvidia_gpu_exporter|nvidia-gpu-exporter")),
    ("prometheus", re.compile(r"(^|/)prometheus/prometheus|(^|/)victoria-?metrics|(^|/)thanos")),
)
"""Parts of observability, by image, name or label."""

_ENGINE_WORDS = (
    "vllm",
    "sglang",
    "tritonserver",
    "trtllm",
    "text-generation-launcher",
    "text-embeddings-router",
    "ollama",
)
_SEEING = frozenset({"NVIDIA_VISIBLE_DEVICES"})


class Relevance:
    """Decides pod by pod; remembers images."""

    def __init__(self, registry: Registry) -> None:
        """Take the plugins that know accelerators."""
        self.registry = registry
        self._engines: dict[str, bool] = {}

    def matters(self, pod: PodObject) -> bool:
        """Whether a scan needs this pod. One that has ended holds nothing any more."""
        if pod.status.phase in ("Succeeded", "Failed"):
            return False
        spec = pod.spec
        containers = [*spec.containers, *(spec.init_containers or [])]
        return (
            any(container_amounts(container, self.registry) for container in containers)
            or bool(spec.resource_claims)
            or bool(self.registry.annotated(pod))
            or component_of(pod) is not None
            or visible_devices(pod) is not None
            or any(self.may_serve(container) for container in spec.containers)
        )

    def may_serve(self, container: Container) -> bool:
        """Whether the container may be an inference engine, by image or command."""
        image = container.image
        if image not in self._engines:
            name = image_name(image)
            patterns = [signature.image for signature in SIGNATURES] + [pattern for _, pattern in OTHER_ENGINES]
            self._engines[image] = not NOT_AN_ENGINE.search(name) and any(p.search(name) for p in patterns)
        if self._engines[image]:
            return True
        words = (*(container.command or []), *(container.args or []))
        return any(hint in word for word in words for hint in _ENGINE_WORDS) and not NOT_AN_ENGINE.search(image)


def component_of(pod: PodObject) -> str | None:
    """The part of observability that a pod is; None if it is none."""
    texts = [image_name(container.image) for container in pod.spec.containers]
    texts += [pod.metadata.label(key) or "" for key in ("app", "app.kubernetes.io/name", "k8s-app")]
    if owner := pod.metadata.owner():
        texts.append(owner.name)
    return _component(tuple(texts))


def component_named(name: str) -> str | None:
    """The part of observability that goes by this name; None if it is none."""
    return _component((name,))


@lru_cache(maxsize=16_384)
def _component(texts: tuple[str, ...]) -> str | None:
    return next((name for name, pattern in COMPONENTS if any(pattern.search(text) for text in texts)), None)


def visible_devices(pod: PodObject) -> str | None:
    """`NVIDIA_VISIBLE_DEVICES` where a container names devices by it (not `void`) and is no part of the platform."""
    for container in pod.spec.containers:
        for variable in container.env or []:
            value = variable.value
            if variable.name in _SEEING and value and value.lower() not in ("void", "none"):
                platform = component_of(pod) is not None or NOT_AN_ENGINE.search(image_name(container.image))
                return None if platform else value
    return None
