"""How is a cluster read? One paginated pass over each list; what a failed one makes unknown is told.

Which lists there are belongs to `listings.py`.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from piqc_pipeline.cluster.claims import Claims
from piqc_pipeline.cluster.kubernetes import ApiServer, ReadFailed, Stopped, decode_page
from piqc_pipeline.cluster.listings import (
    AUTOSCALERS,
    CLAIMS,
    CONTROLLERS,
    MONITORS,
    NODES,
    PODS,
    QUOTAS,
    SERVICES,
    SLICES,
    USAGE,
    Listing,
)
from piqc_pipeline.cluster.namespaces import Names, read_names
from piqc_pipeline.cluster.objects import NodeObject, PodObject
from piqc_pipeline.cluster.surroundings import (
    AutoscalerObject,
    BareObject,
    ClaimObject,
    ConfigMapObject,
    ControllerObject,
    MonitorObject,
    QuotaObject,
    ServiceObject,
    SliceObject,
    UsageObject,
)
from piqc_pipeline.cluster.workers import aside, run_all
from piqc_pipeline.errors import CredentialsRefused
from piqc_pipeline.facts.snapshot import Subject, Unknown


class _Group(msgspec.Struct):
    name: str = ""


class _GroupList(msgspec.Struct):
    groups: list[_Group] | None = None


def served_groups(server: ApiServer) -> frozenset[str] | None:
    """API groups that the server has; None where it does not say.

    A group that it has not is no lost read: RBAC answers 403 before the server looks whether a kind exists.
    """
    try:
        document = msgspec.json.decode(server.read("/apis"), type=_GroupList)
    except (ReadFailed, msgspec.DecodeError):
        return None
    return frozenset(group.name for group in document.groups or [])


KeepPod = Callable[[PodObject], bool]


@dataclass
class ClusterObjects:
    """Everything that was read of a cluster, from wherever. A list that could not be read is None.

    Attributes:
        namespaces: Their names, where some were asked for.
        pods: Only those that matter (see `relevance.py`); the rest is dropped page by page.
        unread_namespaces: Namespaces whose pods could not be read; `*` where not even their names could.
    """

    cluster: str
    context: str | None = None
    server_version: str | None = None
    nodes: list[NodeObject] | None = None
    pods: list[PodObject] | None = None
    namespaces: Names = Names(None)
    controllers: list[ControllerObject] = field(default_factory=list)
    services: list[ServiceObject] | None = None
    autoscalers: list[tuple[str, AutoscalerObject]] = field(default_factory=list)
    autoscalers_read: bool = True
    monitors: dict[str, list[MonitorObject] | None] = field(default_factory=dict)
    prometheus_operator: bool | None = None
    claims: Claims = field(default_factory=Claims)
    quotas: list[QuotaObject] | None = None
    usage: list[UsageObject] = field(default_factory=list)
    config_maps: dict[tuple[str, str], ConfigMapObject] = field(default_factory=dict)
    unread_namespaces: tuple[str, ...] = ()
    unknown: list[Unknown] = field(default_factory=list)

    def seen_namespaces(self) -> frozenset[str]:
        """Namespaces of the pods, their owners and the Services that were read."""
        return frozenset(
            item.metadata.namespace for items in (self.pods, self.controllers, self.services) for item in items or ()
        )


class Reader:
    """Reads the lists of one cluster, some at a time, and keeps what was read when it is stopped."""

    def __init__(
        self, server: ApiServer, namespaces: tuple[str, ...], keep: KeepPod, workers: int, *, with_usage: bool
    ) -> None:
        """Prepare; nothing is asked yet. `with_usage`: read what the metrics server says too."""
        self.server = server
        self.namespaces = namespaces
        self.keep = keep
        self.workers = workers
        self.with_usage = with_usage
        self.found = ClusterObjects(server.cluster_name, server.context)
        self._lock = threading.Lock()
        self._served: frozenset[str] | None = None
        self._unread_pods = False
        self._done: set[Listing] = set()
        """Lists that ended, with an answer or without; the others were still running when the scan was stopped."""

    def read(self, step: Callable[[int, int], None]) -> ClusterObjects:
        """All lists.

        Raises:
            CredentialsRefused: The server answered 401.
            KeyboardInterrupt: Neither nodes nor pods were read before the user stopped the scan.
        """
        with contextlib.suppress(Stopped):
            self._served = aside(lambda: served_groups(self.server), self.server.deadline)
        tasks: list[Callable[[], None]] = [self._nodes, self._pods]
        tasks += [self._task(listing, self._keep_controllers()) for listing in CONTROLLERS]
        tasks += [self._task(listing, self._keep_autoscalers(listing)) for listing in AUTOSCALERS]
        tasks += [self._task(listing, self._keep_monitors(listing)) for listing in MONITORS]
        tasks.append(self._task(SERVICES, self._keep_services))
        tasks += [self._task(CLAIMS, self._keep_claims), self._task(SLICES, self._keep_slices)]
        tasks.append(self._task(QUOTAS, self._keep_quotas))
        if self.namespaces:
            tasks.append(self._namespaces)
        if self.with_usage:
            tasks.append(self._task(USAGE, self.found.usage.extend))
        failures = run_all(tasks, self.workers, self.server.deadline, step)
        for failure in failures:
            if isinstance(failure, CredentialsRefused):
                raise failure
            self._say("one of the lists", f"it could not be read ({type(failure).__name__})")
        if self._unread_pods and not self.found.unread_namespaces:
            self.found.unread_namespaces = ("*",)
        self._read_replicas()
        self._tell_stopped()
        self.found.unknown.sort(key=lambda entry: (entry.what, entry.why))
        return self.found

    def _tell_stopped(self) -> None:
        why = self.server.deadline.why_over()
        if why is None:
            return
        told = {entry.about for entry in self.found.unknown}
        unread = [listing for listing in (NODES, PODS, *AUTOSCALERS) if listing not in self._done]
        for listing in unread:
            if listing.subject not in told:
                self._say(f"{listing.plural}: {listing.effect}", why, listing.subject)

    def _read_replicas(self) -> None:
        """Wanted replicas of ReplicaSets without a Deployment that own pods which matter; lists of metadata lack them.

        By name in a list, because that is all that `list replicasets` grants.
        """
        references = ((pod.metadata.namespace, pod.metadata.owner()) for pod in self.found.pods or ())
        owning = {(space, owner.name) for space, owner in references if owner and owner.kind == "ReplicaSet"}
        bare = [
            item
            for item in self.found.controllers
            if item.kind == "ReplicaSet"
            and (item.metadata.namespace, item.metadata.name) in owning
            and ((owner := item.metadata.owner()) is None or owner.kind != "Deployment")
        ]
        run_all([lambda one=item: self._read_spec(one) for item in bare], self.workers, self.server.deadline)  # type: ignore[misc]

    def _read_spec(self, item: ControllerObject) -> None:
        meta = item.metadata
        path = f"/apis/{item.api_version}/namespaces/{quote(meta.namespace)}/replicasets"
        try:
            body = self.server.read(path, {"fieldSelector": f"metadata.name={meta.name}"})
            found = [one for one in decode_page(body, ControllerObject).items if one.metadata.name == meta.name]
        except ReadFailed as failure:
            self._say(f"wanted replicas of ReplicaSet {meta.namespace}/{meta.name}", failure.why, "other objects")
            return
        for one in found:
            item.spec = one.spec

    def _nodes(self) -> None:
        try:
            nodes = self.server.every(NODES.path("v1"), NodeObject)
            self._tell_broken(NODES, NODES.path("v1"))
            self._done.add(NODES)
            self.found.nodes = nodes if nodes or not self.server.broken[NODES.path("v1")] else None
        except ReadFailed as failure:
            self._lost(NODES, failure)

    def _namespaces(self) -> None:
        self.found.namespaces = read_names(self.server)

    def _pods(self) -> None:
        try:
            self.found.pods = self._kept_pods(PODS.path("v1"))
            self._done.add(PODS)
            return
        except ReadFailed as failure:
            if failure.status != 403:
                self._lost(PODS, failure)
                return
            refused = failure
        self._pods_by_namespace(refused)

    def _kept_pods(self, path: str) -> list[PodObject]:
        kept: list[PodObject] = []
        for page in self.server.pages(path, PodObject):
            if page is None:
                kept.clear()
            kept += [pod for pod in page or () if self.keep(pod)]
        self._tell_broken(PODS, path)
        return kept

    def _tell_broken(self, listing: Listing, path: str) -> None:
        """Objects of odd types are left out of what was read, and that is said; a pod among them may hold anything."""
        broken = self.server.broken.get(path, 0)
        if not broken:
            return
        self._say(
            f"{broken} of the {listing.plural}: {listing.effect}",
            "they are not as Kubernetes objects are",
            listing.subject,
        )
        if listing is PODS:
            self._unread_pods = True

    def _pods_by_namespace(self, refused: ReadFailed) -> None:
        """Pods may be listed in some namespaces only; the rest is told to be unknown."""
        unread: list[str] = []
        try:
            names = sorted(item.metadata.name for item in self.server.every("/api/v1/namespaces", BareObject))
        except ReadFailed:
            names = sorted(set(self.namespaces))
            unread.append("*")
        kept: list[PodObject] = []
        for name in names:
            try:
                kept += self._kept_pods(f"/api/v1/namespaces/{name}/pods")
            except ReadFailed as failure:
                unread.append(name)
                if name in self.namespaces or not self.namespaces:
                    self._say(f"pods in namespace {name}", f"{failure.why}; grant `list pods` there", "pods")
        if len(unread) >= len(names) and (not names or "*" not in unread):
            self._lost(PODS, refused)
            return
        self.found.pods = kept
        self._done.add(PODS)
        self.found.unread_namespaces = tuple(unread)
        if unread:
            self._say(
                "which accelerators are free",
                f"pods of {'other namespaces' if unread == ['*'] else f'{len(unread)} namespaces'} cannot be listed "
                f"({refused.why}); grant `list pods` cluster-wide",
                "pods",
            )

    def _task(self, listing: Listing, keep: Callable[[list[Any]], None]) -> Callable[[], None]:
        def run() -> None:
            for version in listing.versions:
                try:
                    items = self.server.every(listing.path(version), listing.item, listing.accept)
                    if listing in CONTROLLERS:
                        self._name(items, listing, version)
                    keep(items)
                    self._tell_broken(listing, listing.path(version))
                    self._done.add(listing)
                    return
                except ReadFailed as failure:
                    absent = self._served is not None and listing.group and listing.group not in self._served
                    if failure.status != 404 and not absent:
                        self._lost(listing, failure)
                        return
            self._absent(listing)

        return run

    def _absent(self, listing: Listing) -> None:
        self._done.add(listing)
        with self._lock:
            if listing in MONITORS:
                self.found.monitors.setdefault(listing.kind, [])
            elif listing is CLAIMS:
                self.found.claims.claims = {}
            elif listing is SLICES:
                self.found.claims.slices = []
            elif listing is QUOTAS:
                self.found.quotas = []

    def _keep_controllers(self) -> Callable[[list[ControllerObject]], None]:
        def keep(items: list[ControllerObject]) -> None:
            with self._lock:
                self.found.controllers += items

        return keep

    @staticmethod
    def _name(items: list[ControllerObject], listing: Listing, version: str) -> None:
        """Items of a list do not say their kind; those of metadata-only lists say another one."""
        for item in items:
            item.kind, item.api_version = listing.kind, f"{listing.group}/{version}"

    def _keep_autoscalers(self, listing: Listing) -> Callable[[list[AutoscalerObject]], None]:
        def keep(items: list[AutoscalerObject]) -> None:
            with self._lock:
                self.found.autoscalers += [(listing.kind, item) for item in items]

        return keep

    def _keep_monitors(self, listing: Listing) -> Callable[[list[MonitorObject]], None]:
        def keep(items: list[MonitorObject]) -> None:
            with self._lock:
                self.found.monitors[listing.kind] = items
                self.found.prometheus_operator = True

        return keep

    def _keep_services(self, items: list[ServiceObject]) -> None:
        self.found.services = items

    def _keep_claims(self, items: list[ClaimObject]) -> None:
        self.found.claims.claims = {(item.metadata.namespace, item.metadata.name): item for item in items}

    def _keep_slices(self, items: list[SliceObject]) -> None:
        self.found.claims.slices = items

    def _keep_quotas(self, items: list[QuotaObject]) -> None:
        self.found.quotas = items

    def _lost(self, listing: Listing, failure: ReadFailed) -> None:
        self._done.add(listing)
        if listing in MONITORS:
            with self._lock:
                self.found.monitors[listing.kind] = None
        advice = f"; grant `list {listing.resource}`" if failure.status == 403 else ""
        named = listing.resource if listing is USAGE else listing.plural
        self._say(
            f"{named}: {listing.effect}", f"cannot list {listing.resource}: {failure.why}{advice}", listing.subject
        )

    def _say(self, what: str, why: str, about: Subject | None = None) -> None:
        with self._lock:
            self.found.unknown.append(Unknown(what, why, read_failed=True, about=about))
