"""Which devices are held through Dynamic Resource Allocation? ResourceSlices offer them, ResourceClaims hold them.

API: resource.k8s.io/v1 (and v1beta1, v1beta2, whose fields lie one level deeper or higher).
"""

from collections import defaultdict
from dataclasses import dataclass

from piqc_pipeline.cluster.accelerators.products import product_name
from piqc_pipeline.cluster.objects import NodeObject, PodObject
from piqc_pipeline.cluster.quantities import gib
from piqc_pipeline.cluster.surroundings import ClaimObject, Device, DeviceResult, SliceObject
from piqc_pipeline.facts.snapshot import UNREAD_CLAIM, AcceleratorPool, PodRequest, Unknown

DRIVER_VENDORS = {
    "gpu.nvidia.com": "nvidia",
    "gpu.amd.com": "amd",
    "gpu.intel.com": "intel",
    "gaudi.intel.com": "intel",
    "tpu.google.com": "google",
    "neuron.aws.com": "aws",
    "gpu.example.com": "example",
}
"""Drivers whose devices are accelerators. Others (`compute-domain.nvidia.com`, network cards) hold none."""

_CLASS_WORDS = ("gpu", "gaudi", "tpu", "neuron", "accelerator", "mig")


def vendor_of(driver: str) -> str | None:
    """The vendor behind a DRA driver; None where its devices are no accelerators."""
    if driver in DRIVER_VENDORS:
        return DRIVER_VENDORS[driver]
    return driver.split(".")[-2] if driver.startswith(("gpu.", "accelerator.")) and "." in driver else None


@dataclass(frozen=True)
class ClaimedDevices:
    """What a pod holds by its claims."""

    requests: tuple[PodRequest, ...] = ()
    unknown: tuple[Unknown, ...] = ()


@dataclass
class Claims:
    """All ResourceClaims and ResourceSlices of a cluster.

    Attributes:
        claims: None where they could not be read.
        slices: None where they could not be read.
    """

    claims: dict[tuple[str, str], ClaimObject] | None = None
    slices: list[SliceObject] | None = None

    @classmethod
    def of(cls, claims: list[ClaimObject] | None, slices: list[SliceObject] | None) -> "Claims":
        """Index claims by namespace and name."""
        indexed = None if claims is None else {(c.metadata.namespace, c.metadata.name): c for c in claims}
        return cls(indexed, slices)

    def pools(self, node: NodeObject) -> list[AcceleratorPool]:
        """One pool a driver and product that slices offer on the node."""
        groups: dict[tuple[str, str | None, str | None], list[float | None]] = defaultdict(list)
        for part in self.slices or []:
            if part.spec.node_name != node.metadata.name or vendor_of(part.spec.driver) is None:
                continue
            for device in part.spec.devices or []:
                product, profile, memory = _described(device)
                if profile is None:
                    groups[(part.spec.driver, product, None)].append(memory)
        label, source = product_name(node)
        return [
            AcceleratorPool(
                resource=driver,
                vendor=vendor_of(driver) or "",
                product=product or label,
                memory_gib=next((memory for memory in memories if memory is not None), None),
                capacity_units=len(memories),
                allocatable_units=len(memories),
                product_source="label" if product else source,
            )
            for (driver, product, _), memories in sorted(groups.items(), key=lambda item: str(item[0]))
        ]

    def drivers_in_use(self, node: str) -> set[str]:
        """Drivers of accelerators whose devices on this node are held by a claim."""
        return {
            result.driver
            for claim in (self.claims or {}).values()
            for result in _results(claim)
            if result.pool == node and vendor_of(result.driver)
        }

    def held(self, pod: PodObject) -> ClaimedDevices:
        """What the pod's claims hold; an unread or unknown claim is an unknown amount, never none."""
        amounts: dict[str, float] = defaultdict(float)
        lost: dict[str, str] = {}
        names = {row.name: row.resource_claim_name for row in pod.status.resource_claim_statuses or []}
        for wanted in pod.spec.resource_claims or []:
            made = names.get(wanted.name) or wanted.resource_claim_name
            claim = self._find(pod, wanted.name, made)
            if claim is None:
                if wanted.name in names and not names[wanted.name]:
                    continue
                reason = (
                    "ResourceClaims could not be read" if self.claims is None else "its ResourceClaim was not found"
                )
                lost[made or wanted.name] = reason
                continue
            sharers = max(1, len(claim.status.reserved_for or []))
            results = [result for result in _results(claim) if vendor_of(result.driver) and not result.admin_access]
            for result in results:
                amounts[result.driver] += 1 / sharers
            if claim.status.allocation is None:
                for driver, count in _wanted(claim).items():
                    amounts[driver] += count
        requests = [
            PodRequest(driver, amount, "none" if amount == int(amount) else "fraction")
            for driver, amount in sorted(amounts.items())
        ]
        where = f"{pod.metadata.namespace}/{pod.metadata.name}"
        unknown = []
        for claim_name, reason in sorted(lost.items()):
            requests.append(PodRequest(UNREAD_CLAIM, None))
            unknown.append(
                Unknown(
                    f"accelerators of claim {claim_name} held by pod {where}",
                    reason,
                    read_failed=self.claims is None,
                    about="devices held",
                )
            )
        return ClaimedDevices(tuple(requests), tuple(unknown))

    def _find(self, pod: PodObject, wanted: str, made: str | None) -> ClaimObject | None:
        """By the name in the pod's status or spec, else by who it is reserved for or generated from."""
        claims = self.claims or {}
        if made:
            return claims.get((pod.metadata.namespace, made))
        prefix = f"{pod.metadata.name}-{wanted}"
        for (namespace, name), claim in claims.items():
            if namespace != pod.metadata.namespace:
                continue
            users = claim.status.reserved_for or []
            owner = claim.metadata.owner()
            mine = any(user.name == pod.metadata.name for user in users) or (
                owner is not None and owner.kind == "Pod" and owner.name == pod.metadata.name
            )
            if name == prefix or (mine and (name.startswith(prefix) or len(pod.spec.resource_claims or []) == 1)):
                return claim
        return None


def _results(claim: ClaimObject) -> list[DeviceResult]:
    allocation = claim.status.allocation
    return (allocation.devices.results or []) if allocation and allocation.devices else []


def _wanted(claim: ClaimObject) -> dict[str, int]:
    """Devices of accelerator classes that a claim without allocation asks for, by class."""
    wanted: dict[str, int] = {}
    for row in (claim.spec.devices.requests or []) if claim.spec.devices else []:
        exact = row.exactly or row
        if exact.allocation_mode == "All" or not any(word in exact.device_class_name for word in _CLASS_WORDS):
            continue
        wanted[exact.device_class_name] = wanted.get(exact.device_class_name, 0) + (exact.count or 1)
    return wanted


def _described(device: Device) -> tuple[str | None, str | None, float | None]:
    """Product, MIG profile and memory in GiB of a device."""
    body = device.basic or device
    attributes = body.attributes or {}

    def text(name: str) -> str | None:
        found = attributes.get(name) or next((v for key, v in attributes.items() if key.endswith(f"/{name}")), None)
        return found.string if found is not None else None

    capacity = body.capacity or {}
    memory = capacity.get("memory") or next((v for key, v in capacity.items() if key.endswith("/memory")), None)
    size = memory.get("value") if isinstance(memory, dict) else memory
    return text("productName") or text("model"), text("profile"), gib(size)
