"""What is this NVIDIA device called? The labels of GFD, GKE, EKS, AKS, Karpenter and Alibaba, in one name.

A name that no table maps is passed on as the label prints it; nothing is guessed from a part of a name.
"""

import re
from typing import Literal

from piqc_pipeline.cluster.accelerators.pools import instance_accelerators
from piqc_pipeline.cluster.objects import NodeObject

GFD_PRODUCT = "nvidia.com/gpu.product"
GKE_PRODUCT = "cloud.google.com/gke-accelerator"
KARPENTER_NAME = "karpenter.k8s.aws/instance-gpu-name"
KARPENTER_MEMORY = "karpenter.k8s.aws/instance-gpu-memory"
OTHER_PRODUCTS = (
    "k8s.amazonaws.com/accelerator",
    "cloud.google.com/gke-gpu-name",
    "aliyun.accelerator/nvidia_name",
    "alibabacloud.com/gpu-card-model",
    "gpu.nvidia.com/model",
    "accelerator",
)
NO_PRODUCT = {"nvidia", "amd", "true", "gpu", "none", "habana", "neuron", "tpu"}
"""Values of generic labels (AKS: `accelerator=nvidia`) that name no product."""

_GKE = {
    "nvidia-tesla-k80": "Tesla-K80",
    "nvidia-tesla-p4": "Tesla-P4",
    "nvidia-tesla-p100": "Tesla-P100-PCIE-16GB",
    "nvidia-tesla-v100": "Tesla-V100-SXM2-16GB",
    "nvidia-tesla-t4": "Tesla-T4",
    "nvidia-l4": "NVIDIA-L4",
    "nvidia-tesla-a100": "NVIDIA-A100-SXM4-40GB",
    "nvidia-a100-80gb": "NVIDIA-A100-SXM4-80GB",
    "nvidia-h100-80gb": "NVIDIA-H100-80GB-HBM3",
    "nvidia-h100-mega-80gb": "NVIDIA-H100-80GB-HBM3",
    "nvidia-h200-141gb": "NVIDIA-H200",
    "nvidia-b200": "NVIDIA-B200",
    "nvidia-gb200": "NVIDIA-GB200",
    "nvidia-rtx-pro-6000": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
}
"""cloud.google.com/compute/docs/gpus: which card each accelerator type is."""

_KARPENTER = {
    ("k80", None): "Tesla-K80",
    ("v100", 16): "Tesla-V100-SXM2-16GB",
    ("v100", 32): "Tesla-V100-SXM2-32GB",
    ("t4", None): "Tesla-T4",
    ("t4g", None): "NVIDIA-T4G",
    ("a10g", None): "NVIDIA-A10G",
    ("l4", None): "NVIDIA-L4",
    ("l40s", None): "NVIDIA-L40S",
    ("a100", 40): "NVIDIA-A100-SXM4-40GB",
    ("a100", 80): "NVIDIA-A100-SXM4-80GB",
    ("h100", None): "NVIDIA-H100-80GB-HBM3",
    ("h200", None): "NVIDIA-H200",
    ("b200", None): "NVIDIA-B200",
}
"""EC2 has one product by each of these names; A100 and V100 come in two sizes, told apart by memory in GiB."""

_SUFFIX = re.compile(r"-SHARED$|-MIG-[\w.+]+$")
_MIG_SUFFIX = re.compile(r"-MIG-([\w.+]+?)(?:-SHARED)?$")
_GIGABYTES = re.compile(r"(?<![A-Za-z0-9.])([0-9]{1,3})GB(?![A-Za-z0-9])", re.IGNORECASE)
_CARD_GB = {"H200": 141, "B200": 180, "GB200": 186, "A30": 24, "H20": 96, "H100-NVL": 94, "B300": 288}
"""Memory of cards that can be cut by MIG and whose label does not state it (vendor's datasheets)."""

Source = Literal["label", "instance-type"]


def product_name(node: NodeObject) -> tuple[str | None, Source | None]:
    """The device's name without `-SHARED` and `-MIG-…`, and what gave it."""
    label = node.metadata.label
    if gfd := label(GFD_PRODUCT):
        return bare_product(gfd), "label"
    if gke := label(GKE_PRODUCT):
        return _GKE.get(gke.lower(), gke), "label"
    if machine := instance_accelerators(node, "nvidia"):
        return machine.product, "instance-type"
    if karpenter := label(KARPENTER_NAME):
        return karpenter_product(karpenter, label(KARPENTER_MEMORY)), "label"
    for key in OTHER_PRODUCTS:
        if (value := label(key)) and value.lower() not in NO_PRODUCT:
            return _GKE.get(value.lower(), value), "label"
    return None, None


def karpenter_product(name: str, memory_mib: str | None) -> str:
    """The product that Karpenter's short name and memory stand for; the short name where they leave it open."""
    size = round(int(memory_mib) / 1024) if memory_mib and memory_mib.isascii() and memory_mib.isdigit() else None
    return _KARPENTER.get((name.lower(), None)) or _KARPENTER.get((name.lower(), size)) or name


def bare_product(name: str) -> str:
    """The physical device behind a label such as `Tesla-T4-SHARED` or `NVIDIA-A100-…-MIG-1g.10gb-SHARED`."""
    while (shorter := _SUFFIX.sub("", name)) != name:
        name = shorter
    return name


def mig_suffix(name: str) -> str | None:
    """`1g.10gb` of a label `NVIDIA-A100-SXM4-80GB-MIG-1g.10gb`."""
    match = _MIG_SUFFIX.search(name)
    return match.group(1) if match else None


def card_gigabytes(product: str | None, memory_gib: float | None = None) -> float | None:
    """Memory of the whole card in GB, by its name, else by its label."""
    if product is not None:
        if match := _GIGABYTES.search(product):
            return float(match.group(1))
        bare = product.removeprefix("NVIDIA-")
        if bare in _CARD_GB:
            return float(_CARD_GB[bare])
    return memory_gib
