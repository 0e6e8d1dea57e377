"""Which of a node's taints must a pod tolerate by its own spec, and does it? Taints as `key=value:effect`."""

from collections.abc import Sequence
from dataclasses import dataclass

STATE_TAINT_PREFIX = "node.kubernetes.io/"
"""Taints that Kubernetes sets for a node's state; `Node.ready` and `Node.cordoned` say the same."""

RESOURCE_TAINT_KEYS = frozenset(
    {
        "nvidia.com/gpu",
        "amd.com/gpu",
        "habana.ai/gaudi",
        "gpu.intel.com/i915",
        "google.com/tpu",
        "aws.amazon.com/neuron",
    }
)
"""Taints that the ExtendedResourceToleration admission plugin tolerates for every pod that requests the resource."""


@dataclass(frozen=True)
class Toleration:
    """A taint that a pod puts up with; empty fields stand for any.

    Attributes:
        exists: Whether the key alone decides (`operator: Exists`), else the value must be the same.
    """

    key: str = ""
    value: str = ""
    effect: str = ""
    exists: bool = False

    def covers(self, taint: str) -> bool:
        """Whether it tolerates a taint (rule: k8s.io/api/core/v1/toleration.go)."""
        pair, _, effect = taint.rpartition(":")
        key, _, value = pair.partition("=")
        if self.effect not in ("", effect) or self.key not in ("", key):
            return False
        return self.exists or (self.key == key and self.value == value)


def to_tolerate(taints: Sequence[str]) -> list[str]:
    """Those that a pod with an accelerator must tolerate by its own spec."""
    return [
        taint
        for taint in taints
        if (key := key_of(taint)) not in RESOURCE_TAINT_KEYS and not key.startswith(STATE_TAINT_PREFIX)
    ]


def key_of(taint: str) -> str:
    """Its key."""
    return taint.split("=", 1)[0].split(":", 1)[0]
