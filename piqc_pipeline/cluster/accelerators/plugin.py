"""What must a plugin for one vendor's accelerators answer, and which plugins are installed?"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from piqc_pipeline.cluster.objects import NodeObject, PodObject
from piqc_pipeline.facts.snapshot import AcceleratorPool, AcceleratorReading, PodRequest, Unknown

GROUP = "piqc.accelerators"
_PACKAGE = "piqc_pipeline.cluster.accelerators"
BUILT_IN = {
    "nvidia": f"{_PACKAGE}.nvidia:Nvidia",
    "amd": f"{_PACKAGE}.amd:Amd",
    "intel": f"{_PACKAGE}.others:Gaudi",
    "google": f"{_PACKAGE}.others:Tpu",
    "aws": f"{_PACKAGE}.others:Neuron",
    "other": f"{_PACKAGE}.others:FurtherVendors",
}
"""The plugins that ship with the program. They are registered as entry points too; were they only found there, a stale
installation would see no accelerator at all, and say nothing."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inventory:
    """The accelerators of one node.

    Attributes:
        pools: One entry a resource key; alternative views of the same devices are left out.
        unknown: What of them cannot be told, and why.
    """

    pools: tuple[AcceleratorPool, ...] = ()
    unknown: tuple[Unknown, ...] = ()


@dataclass(frozen=True)
class Listing:
    """What a vendor's tool printed inside a pod.

    Attributes:
        readings: One entry an accelerator that the tool named.
        problems: What could not be read, one clause each, fit to be shown.
    """

    readings: tuple[AcceleratorReading, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tool:
    """A command that lists a vendor's accelerators inside a pod.

    Attributes:
        commands: Tried in this order until one prints something.
        refusal: Words by which an older release refuses what it is asked for.
        older: What such a release is asked for instead, once, in place of the command that it refused.
    """

    name: str
    commands: tuple[tuple[str, ...], ...] = field(default=())
    refusal: str = ""
    older: tuple[tuple[str, ...], ...] = ()


class AcceleratorPlugin(Protocol):
    """One vendor's accelerators."""

    vendor: str
    tool: Tool | None

    def owns(self, resource: str) -> bool:
        """Whether a resource key stands for this vendor's accelerators (or for shares of them)."""
        ...

    def inventory(self, node: NodeObject) -> Inventory:
        """The node's accelerators of this vendor."""
        ...

    def request(self, resource: str, units: int, pools: Sequence[AcceleratorPool]) -> PodRequest:
        """What a pod that asks for `units` of `resource` holds of the pools of its node (none known: of any)."""
        ...

    def annotated(self, pod: PodObject) -> tuple[PodRequest, ...]:
        """What a pod holds by annotation, beside its resource requests."""
        ...

    def read_tool(self, output: str) -> Listing:
        """The accelerators that the tool printed. Never raises, never guesses."""
        ...


@cache
def installed_plugins() -> tuple[AcceleratorPlugin, ...]:
    """Every plugin, in order of its name; one that cannot be loaded is left out and logged.

    An installed entry point replaces the built-in plugin of its name.
    """
    entries = {name: EntryPoint(name, value, GROUP) for name, value in BUILT_IN.items()}
    entries |= {entry.name: entry for entry in entry_points(group=GROUP)}
    found = []
    for _, entry in sorted(entries.items()):
        try:
            found.append(entry.load()())
        except Exception as error:  # noqa: BLE001 - a foreign plugin may fail in any way and must not end the scan
            _log.warning("accelerator plugin %s cannot be loaded: %s", entry.name, error)
    return tuple(found)


class Registry:
    """All plugins together: whose is a resource, what does a node have, what does a pod hold."""

    def __init__(self, plugins: Sequence[AcceleratorPlugin] | None = None) -> None:
        """Take the plugins given, or those installed."""
        self.plugins = tuple(plugins if plugins is not None else installed_plugins())
        self._owners: dict[str, AcceleratorPlugin | None] = {}

    def plugin_of(self, resource: str) -> AcceleratorPlugin | None:
        """The plugin that owns a resource key; None where it stands for no accelerator."""
        if resource not in self._owners:
            named = resource if "/" in resource else ""
            self._owners[resource] = next((plugin for plugin in self.plugins if named and plugin.owns(named)), None)
        return self._owners[resource]

    def inventory(self, node: NodeObject) -> Inventory:
        """The node's accelerators of every vendor."""
        parts = [plugin.inventory(node) for plugin in self.plugins]
        return Inventory(
            tuple(sorted((pool for part in parts for pool in part.pools), key=lambda pool: pool.resource)),
            tuple(entry for part in parts for entry in part.unknown),
        )

    def annotated(self, pod: PodObject) -> tuple[PodRequest, ...]:
        """What the pod holds by annotation."""
        if not pod.metadata.annotations:
            return ()
        return tuple(request for plugin in self.plugins for request in plugin.annotated(pod))

    def tool_of(self, resource: str, vendor: str | None = None) -> tuple[AcceleratorPlugin, Tool] | None:
        """The tool that lists the accelerators behind a resource key, or of a DRA driver's vendor, inside a pod."""
        plugin = self.plugin_of(resource) or next((p for p in self.plugins if p.vendor == vendor), None)
        return (plugin, plugin.tool) if plugin is not None and plugin.tool is not None else None
