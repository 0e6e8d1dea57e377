"""Which engine does a container run, how sure is that, and on what evidence?

Each kind of evidence adds its weight; the engine with the highest sum is named, and nothing below THRESHOLD is.
Weights: an official image or the engine's own program is nearly proof; flags and variables that others share are
hints.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from piqc_pipeline.cluster.engines.commands import Invocation
from piqc_pipeline.cluster.engines.signatures import BY_NAME, NOT_AN_ENGINE, OTHER_ENGINES, SIGNATURES, Signature
from piqc_pipeline.cluster.objects import Container
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.facts.snapshot import Confidence, EngineIdentity

THRESHOLD = 0.3
HIGH, MEDIUM = 0.8, 0.5
IMAGE_WEIGHT = 0.6
PROGRAM_WEIGHT = 0.5
FLAGS_WEIGHT = 0.2
"""For two flags or more; twice that for five or more, which hardly another program has."""
STRONG_ENV_WEIGHT = 0.2
WEAK_ENV_WEIGHT = 0.1
LABEL_WEIGHT = 0.15
PORT_WEIGHT = 0.05
METRICS_WEIGHT = 0.5

_LABEL_KEYS = (
    "app",
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
    "framework",
    "inference-engine",
    "engine",
    "model-server",
    "nvidia.com/dynamo-component",
)
_ROLE_LABELS = (
    "llm-d.ai/role",
    "nvidia.com/dynamo-sub-component-type",
    "nvidia.com/dynamo-component-type",
    "ray.io/node-type",
    "leaderworkerset.sigs.k8s.io/role",
    "role",
)
_ROLES = {
    "prefill": "prefill",
    "decode": "decode",
    "both": "both",
    "prefill-decode": "both",
    "head": "head",
    "worker": "worker",
    "leader": "leader",
}
_TAG = re.compile(r":([\w.+-]{1,128})$")


@dataclass(frozen=True)
class ContainerView:
    """What is known of one container before its metrics are read.

    Attributes:
        invocations: Every simple command it runs.
        environment: Variables with known values.
    """

    container: Container
    invocations: tuple[Invocation, ...]
    environment: Mapping[str, str]


def identify(view: ContainerView, labels: Mapping[str, str]) -> EngineIdentity:
    """The engine of a container; `unknown` where no evidence reaches THRESHOLD."""
    image = image_name(view.container.image)
    marks = _Marks.of(view, labels)
    ranked = [(_score(signature, marks, image), signature) for signature in SIGNATURES]
    (score, evidence), best = max(ranked, key=lambda row: row[0][0])
    if NOT_AN_ENGINE.search(image) and not any(text.startswith("program") for text in evidence):
        return EngineIdentity("unknown", 0.0, "low", (f"image {printable(image, 80)} stands beside engines",))
    if score < THRESHOLD:
        other = next((name for name, pattern in OTHER_ENGINES if pattern.search(image)), None)
        if other:
            return EngineIdentity(other, IMAGE_WEIGHT, confidence(IMAGE_WEIGHT), (f"image {printable(image, 80)}",))
        return EngineIdentity("unknown", round(score, 2), "low", evidence)
    return EngineIdentity(
        name=best.name,
        score=round(min(score, 1.0), 2),
        confidence=confidence(score),
        evidence=evidence,
        version=version_of(view.container.image),
        backend=_backend(best.name, view),
        role=role_of(view, labels),
    )


def confirm(identity: EngineIdentity, metric_prefixes: Sequence[str]) -> EngineIdentity:
    """The identity once the engine's own metrics were seen: they add weight, or name what nothing else named."""
    for signature in SIGNATURES:
        seen = next((prefix for prefix in signature.metrics if prefix in metric_prefixes), None)
        if seen is None or (identity.name != "unknown" and identity.name != signature.name):
            continue
        if signature.name == "ray-serve" or (
            identity.name == "unknown" and signature.name in ("llm-d", "kserve", "nim")
        ):
            continue
        score = min(1.0, identity.score + METRICS_WEIGHT)
        return replace(
            identity,
            name=signature.name,
            score=round(score, 2),
            confidence=confidence(score),
            evidence=(*identity.evidence, f"metrics {seen}"),
        )
    return identity


def confidence(score: float) -> Confidence:
    """The word for a score: 0.8 is high, 0.5 medium."""
    return "high" if score >= HIGH else "medium" if score >= MEDIUM else "low"


def image_name(image: str) -> str:
    """The image without digest and tag."""
    name = image.partition("@")[0]
    head, colon, tail = name.rpartition(":")
    return head if colon and "/" not in tail else name


def version_of(image: str) -> str | None:
    """The image's tag, None where it has none or one that says nothing."""
    match = _TAG.search(image.partition("@")[0])
    return match.group(1) if match and match.group(1) not in ("latest", "main", "nightly", "dev") else None


def role_of(view: ContainerView, labels: Mapping[str, str]) -> str | None:
    """Prefill or decode, leader or worker: by label, else by the command."""
    for key in _ROLE_LABELS:
        if (role := _ROLES.get(labels.get(key, "").lower())) is not None:
            return role
    for invocation in view.invocations:
        if (mode := invocation.flag("disaggregation-mode")) in ("prefill", "decode"):
            return mode
        if invocation.has("is-prefill-worker", "is-decode-worker"):
            return "prefill" if invocation.has("is-prefill-worker") else "decode"
    if (index := labels.get("leaderworkerset.sigs.k8s.io/worker-index")) is not None:
        return "leader" if index == "0" else "worker"
    return None


@dataclass(frozen=True)
class _Marks:
    """What every signature is compared with, gathered once."""

    programs: tuple[str, ...]
    flags: frozenset[str]
    environment: frozenset[str]
    labels: tuple[tuple[str, str], ...]
    ports: frozenset[int | str]

    @classmethod
    def of(cls, view: ContainerView, labels: Mapping[str, str]) -> "_Marks":
        words = {text for item in view.invocations for text in (item.program, " ".join(item.words[:2])) if text}
        return cls(
            tuple(sorted(words)),
            frozenset(name for item in view.invocations for name in item.flags),
            frozenset(view.environment),
            tuple((key, labels[key]) for key in _LABEL_KEYS if key in labels),
            frozenset(port.container_port for port in view.container.ports or []),
        )


@lru_cache(maxsize=4096)
def _engines_of_image(image: str) -> frozenset[str]:
    return frozenset(signature.name for signature in SIGNATURES if signature.image.search(image))


@lru_cache(maxsize=4096)
def _engines_of_program(text: str) -> frozenset[str]:
    return frozenset(signature.name for signature in SIGNATURES if signature.programs.search(text))


def _score(signature: Signature, marks: _Marks, image: str) -> tuple[float, tuple[str, ...]]:
    score = 0.0
    evidence: list[str] = []
    names, known_flags = {signature.name}, signature.flags
    if signature.name in _engines_of_image(image):
        score += IMAGE_WEIGHT
        evidence.append(f"image {printable(image, 80)}")
        if signature.wraps:
            names, known_flags = names | {signature.wraps}, known_flags | BY_NAME[signature.wraps].flags
    if found := [text for text in marks.programs if names & _engines_of_program(text)]:
        score += PROGRAM_WEIGHT
        evidence.append(f"program {printable(found[0], 80)}")
    flags = sorted(marks.flags & known_flags)
    if flags:
        score += FLAGS_WEIGHT * (2 if len(flags) >= 5 else min(1.0, len(flags) / 2))
        evidence.append(f"flags {' '.join('--' + name for name in flags[:6])}")
    strong = [name for name in signature.strong_env if name in marks.environment]
    weak = [name for name in signature.weak_env if name in marks.environment]
    if strong or len(weak) >= 2:
        score += STRONG_ENV_WEIGHT * min(1.0, len(strong) / 2 + 0.5) if strong else WEAK_ENV_WEIGHT
        evidence.append(f"variables {' '.join((strong + weak)[:6])}")
    for key, value in marks.labels:
        if value.lower() in signature.labels:
            score += LABEL_WEIGHT
            evidence.append(f"label {key}={printable(value, 60)}")
            break
    if score and signature.port in marks.ports:
        score += PORT_WEIGHT
        evidence.append(f"port {signature.port}")
    return score, tuple(evidence)


def _backend(engine: str, view: ContainerView) -> str | None:
    if engine == "vllm":
        return None
    vllm = BY_NAME["vllm"]
    for invocation in view.invocations:
        if (backend := invocation.flag("backend")) in ("vllm", "pytorch", "tensorrt", "trt", "huggingface"):
            return backend
        if vllm.programs.search(invocation.program) or len(invocation.flags.keys() & vllm.flags) >= 3:
            return "vllm" if engine in ("llm-d", "kserve", "ray-serve", "nim") else None
    return None
