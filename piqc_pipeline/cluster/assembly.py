"""How do objects and answers become one snapshot? Nodes with pools, pods with what they hold, workloads by owner."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from piqc_pipeline.cluster import signs
from piqc_pipeline.cluster.accelerators.plugin import Registry
from piqc_pipeline.cluster.accelerators.pools import instance_type
from piqc_pipeline.cluster.answers import Answers, Target
from piqc_pipeline.cluster.attribution import attribute
from piqc_pipeline.cluster.device_metrics import PodKey
from piqc_pipeline.cluster.exporters import Exporters, find_exporters
from piqc_pipeline.cluster.kubernetes import Deadline
from piqc_pipeline.cluster.objects import LabelSelector, Meta, NodeObject, PodObject, instant
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.cluster.owners import Owner, Owners
from piqc_pipeline.cluster.probing import Prober, Question, Step, Told
from piqc_pipeline.cluster.processors import allowed_cores, used_cores
from piqc_pipeline.cluster.prometheus import Prometheus
from piqc_pipeline.cluster.quotas import quotas
from piqc_pipeline.cluster.reader import ClusterObjects
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.cluster.relevance import visible_devices
from piqc_pipeline.cluster.requests import container_amounts, held, tolerations
from piqc_pipeline.cluster.reservations import sharers, without_reservations
from piqc_pipeline.cluster.surroundings import ControllerObject
from piqc_pipeline.cluster.workloads import Described, build_workload, describe
from piqc_pipeline.facts.snapshot import (
    AcceleratorPool,
    Autoscaler,
    ClusterSnapshot,
    Node,
    Pod,
    Subject,
    Unknown,
    Workload,
)

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass
class Family:
    """The pods of one workload."""

    id: str
    namespace: str
    owner: Owner
    pods: list[PodObject] = field(default_factory=list)


class Assembly:
    """Builds the snapshot of one cluster, step by step."""

    def __init__(self, objects: ClusterObjects, options: ScanOptions, registry: Registry, now: datetime) -> None:
        """Take what was read."""
        self.objects = objects
        self.options = options
        self.registry = registry
        self.now = now
        self.unknown: list[Unknown] = list(objects.unknown)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.families: dict[str, Family] = {}
        self.described: dict[str, Described] = {}
        self.owners = Owners.of(objects.controllers)
        self._cores = used_cores(objects.usage)

    def place(self) -> None:
        """Nodes, and pods with what they hold; nothing is asked."""
        for item in self.objects.nodes or []:
            node = self._node(item)
            self.nodes[node.name] = node
        for pod in sorted(self.objects.pods or [], key=lambda pod: (pod.metadata.namespace, pod.metadata.name)):
            self._place(pod)
        self.pods = without_reservations(self.pods, self.objects.pods or [])

    def describe(self, selector: LabelSelector | None, answers: Answers) -> None:
        """Engine and model of each workload that is asked for."""
        for family in self.families.values():
            if self.options.namespaces and family.namespace not in self.options.namespaces:
                continue
            if selector is not None and not any(selector.matches(pod.metadata.labels or {}) for pod in family.pods):
                continue
            found = describe(family.namespace, family.owner, family.pods, self.registry, answers)
            if found.engine.name != "unknown" or any(self._holds_or_wants(pod) for pod in family.pods):
                self.described[family.id] = found

    def ask(
        self, answers: Answers, deadline: Deadline, step: Step | None, prometheus: Prometheus | None = None
    ) -> Prober:
        """What pods say of their accelerators and engines."""
        prober = Prober(answers, self.registry, deadline, self.options.workers, step)
        questions = [question for family in self.families.values() for question in self._questions(family)]
        if prometheus is not None:
            prober.ask_prometheus(prometheus)
        if self.options.collect_runtime:
            silent = prober.unread({question.key for question in questions if question.resource is not None})
            prober.ask_exporters(self._exporters(silent), self._node_of, self._alone())
            prober.share_readings(sharers(self.pods, self.objects.pods or []))
            prober.ask_engines(questions)
            if prometheus is not None:
                prober.ask_prometheus_for_engines(prometheus, questions, self.now.timestamp())
        prober.ask_tools(questions)
        prober.finish()
        self.unknown += prober.unknown
        return prober

    def finish(self, told: Mapping[tuple[str, str], Told], note: Callable[[Pod], Unknown | None]) -> ClusterSnapshot:
        """The snapshot.

        Args:
            told: What pods told.
            note: Why a pod that holds accelerators has no utilization, where nothing else says so.
        """
        for key, pod in list(self.pods.items()):
            answer = told.get(key) or Told()
            self.pods[key] = attribute(pod, answer, self.nodes.get(pod.node or ""), note)
        workloads = [self._workload(family, told) for family in self.families.values() if family.id in self.described]
        workloads += self._without_pods()
        autoscalers = signs.autoscalers(self.objects.autoscalers)
        workloads = [_with_autoscaler(workload, autoscalers) for workload in workloads]
        workloads.sort(key=lambda workload: workload.id)
        shown_pods = [pod for pod in self.pods.values() if self._shown(pod)]
        return ClusterSnapshot(
            cluster=self.objects.cluster,
            context=self.objects.context,
            taken_at=self.now,
            nodes=None if self.objects.nodes is None else tuple(self.nodes[name] for name in sorted(self.nodes)),
            pods=None if self.objects.pods is None else tuple(shown_pods),
            workloads=tuple(workloads),
            namespaces_scanned=self.options.namespaces or None,
            unread_namespaces=self.objects.unread_namespaces,
            autoscalers=autoscalers,
            autoscalers_read=self.objects.autoscalers_read,
            quotas=None if self.objects.quotas is None else quotas(self.objects.quotas, self.registry),
            signs=signs.observe(self.objects, {family.id: family.pods for family in self.families.values()}),
            server_version=self.objects.server_version,
            unknown=tuple(dict.fromkeys(self.unknown + aggregated(self.pods.values()))),
        )

    def _node(self, item: NodeObject) -> Node:
        found = self.registry.inventory(item)
        pools: list[AcceleratorPool] = list(found.pools)
        offered = self.objects.claims.pools(item)
        in_use = self.objects.claims.drivers_in_use(item.metadata.name)
        unknown = list(found.unknown)
        if offered:
            vendors = {pool.vendor for pool in offered}
            pools = [pool for pool in pools if pool.vendor not in vendors or pool.allocatable_units] + offered
            unknown = [entry for entry in unknown if entry.about != "node capacity"]
        elif in_use:
            pools = [
                replace(pool, resource=sorted(in_use)[0], allocatable_units=pool.capacity_units, note=None)
                if pool.note and pool.capacity_units
                else pool
                for pool in pools
            ]
            if not pools:
                pools = [AcceleratorPool(driver, "", None, None, None, None) for driver in sorted(in_use)]
                why = "its devices are held by claims, and ResourceSlices could not be read"
                unknown.append(Unknown(f"capacity of {', '.join(sorted(in_use))} on node {item.metadata.name}", why))
        conditions = {row.type: row.status for row in item.status.conditions or []}
        taints = [taint for taint in item.spec.taints or [] if taint.effect in _BLOCKING_EFFECTS]
        return Node(
            name=item.metadata.name,
            labels=dict(item.metadata.labels or {}),
            ready=conditions.get("Ready") == "True",
            cordoned=bool(item.spec.unschedulable),
            taints=tuple(f"{taint.key}={taint.value or ''}:{taint.effect}" for taint in taints),
            pools=tuple(pools),
            instance_type=instance_type(item),
            created_at=instant(item.metadata.creation_timestamp),
            unknown=tuple(unknown),
        )

    def _place(self, item: PodObject) -> None:
        meta = item.metadata
        node = self.nodes.get(item.spec.node_name or "")
        amount = held(item, self.registry, self.objects.claims, node.pools if node else ())
        owner = self.owners.top(meta)
        family_id = f"{self.objects.cluster}/{meta.namespace}/{owner.kind}/{owner.name}"
        family = self.families.setdefault(family_id, Family(family_id, meta.namespace, owner))
        family.pods.append(item)
        conditions = {row.type: row for row in item.status.conditions or []}
        ready = conditions.get("Ready")
        ended = item.status.phase in _ENDED
        cores = self._cores.get((meta.namespace, meta.name))
        is_ready = ready is not None and ready.status == "True" and item.status.phase == "Running"
        self.pods[(meta.namespace, meta.name)] = Pod(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            phase=item.status.phase,
            node=item.spec.node_name or None,
            workload_id=family_id,
            ready=is_ready and meta.deletion_timestamp is None,
            holds=bool(item.spec.node_name) and not ended,
            requests=amount.requests,
            created_at=instant(meta.creation_timestamp),
            ready_at=instant(ready.last_transition_time) if ready is not None and is_ready else None,
            deleting=meta.deletion_timestamp is not None,
            waiting_reason=None if item.spec.node_name or ended else _waiting(item),
            visible_devices=visible_devices(item) if not amount.requests else None,
            group=owner.group,
            cpu_used_cores=cores,
            cpu_allowed_cores=None if cores is None else allowed_cores(item.spec),
            tolerations=tolerations(item.spec),
            unknown=amount.unknown,
        )

    def _holds_or_wants(self, item: PodObject) -> bool:
        pod = self.pods[(item.metadata.namespace, item.metadata.name)]
        return bool(pod.requests) or pod.visible_devices is not None

    def _shown(self, pod: Pod) -> bool:
        return (
            bool(pod.requests)
            or pod.visible_devices is not None
            or pod.workload_id in self.described
            or bool(pod.readings)
        )

    def _alone(self) -> dict[str, tuple[tuple[str, str], int]]:
        """By node: the one pod that holds every whole device of it, and how many."""
        holders: dict[str, list[tuple[tuple[str, str], float]]] = defaultdict(list)
        for key, pod in self.pods.items():
            if pod.holds and pod.node and pod.requests:
                whole = all(request.sharing == "none" and request.units for request in pod.requests)
                holders[pod.node].append((key, sum(request.units or 0 for request in pod.requests) if whole else 0))
        found = {}
        for name, rows in holders.items():
            node = self.nodes.get(name)
            capacity = sum(pool.capacity_units or 0 for pool in node.pools) if node else 0
            if len(rows) == 1 and rows[0][1] and rows[0][1] == capacity:
                found[name] = (rows[0][0], capacity)
        return found

    def _exporters(self, silent: Iterable[PodKey]) -> Exporters:
        """Exporters of the nodes on which these pods stand."""
        nodes = {node for key in silent if (node := self.pods[key].node)}
        all_seen = self.objects.pods is not None and not self.objects.unread_namespaces
        return find_exporters(self.objects.pods or [], self.objects.services or [], nodes, all_seen=all_seen)

    def _node_of(self, key: PodKey) -> str | None:
        pod = self.pods.get(key)
        return pod.node if pod is not None else None

    def _questions(self, family: Family) -> list[Question]:
        found = self.described.get(family.id)
        if found is None:
            return []
        questions = []
        asked_model = asked_unknown = False
        for item in family.pods:
            pod = self.pods[(item.metadata.namespace, item.metadata.name)]
            if item.status.phase != "Running" or not pod.holds:
                continue
            view = found.view_of(item)
            known = found.engine.name != "unknown"
            worker = pod.group is not None and _is_worker(item) and found.engine.name != "ray-serve"
            ask = view is not None and not worker and (known or not asked_unknown) and self.options.collect_runtime
            resource = next((request.resource for request in pod.requests if request.units != 0), None)
            if resource is None and pod.visible_devices is not None:
                resource = "nvidia.com/gpu"
            endpoint = found.endpoint_of(view) if view is not None and ask and pod.ready else None
            target = Target(
                item.metadata.namespace,
                item.metadata.name,
                view.container.name if view else item.spec.containers[0].name if item.spec.containers else "",
                item.status.pod_ip,
                endpoint.scheme if endpoint else "http",
            )
            questions.append(
                Question(
                    target,
                    resource,
                    found.engine.name,
                    endpoint,
                    bool(endpoint) and not asked_model,
                    tuple(c.name for c in item.spec.containers if container_amounts(c, self.registry)),
                )
            )
            asked_model |= endpoint is not None
            asked_unknown |= not known and endpoint is not None
        return questions

    def _workload(self, family: Family, told: Mapping[tuple[str, str], Told]) -> Workload:
        keys = [(item.metadata.namespace, item.metadata.name) for item in family.pods]
        answers = [told[key] for key in keys if key in told]
        return build_workload(
            family.id,
            self.objects.cluster,
            family.owner,
            family.pods,
            [self.pods[key] for key in keys],
            self.described[family.id],
            answers,
        )

    def _without_pods(self) -> list[Workload]:
        """Controllers whose template requests accelerators and that have no pod now (scaled to zero)."""
        found = []
        for item in self.objects.controllers:
            if item.kind not in ("Deployment", "StatefulSet") or item.spec.template is None or item.metadata.owner():
                continue
            namespace = item.metadata.namespace
            key = f"{self.objects.cluster}/{namespace}/{item.kind}/{item.metadata.name}"
            if key in self.families or (self.options.namespaces and namespace not in self.options.namespaces):
                continue
            shape = PodObject(_pod_meta(item), item.spec.template.spec)
            amount = held(shape, self.registry, self.objects.claims, ())
            if not amount.requests or self.objects.pods is None:
                continue
            owner = Owner(
                item.kind,
                item.metadata.name,
                item.api_version,
                instant(item.metadata.creation_timestamp),
                item.spec.replicas,
                item.spec.template,
            )
            described = describe(namespace, owner, [shape], self.registry, None)
            units = [request.units for request in amount.requests]
            workload = build_workload(key, self.objects.cluster, owner, [shape], [], described, [])
            known = [unit for unit in units if unit is not None]
            found.append(replace(workload, gpus_per_replica=sum(known) if len(known) == len(units) else None))
        return found


def _pod_meta(item: ControllerObject) -> Meta:
    """Metadata of a pod that a controller would make."""
    template = item.spec.template
    labels = template.metadata.labels if template else None
    return Meta(item.metadata.name, item.metadata.namespace, labels=labels)


def aggregated(pods: Iterable[Pod]) -> list[Unknown]:
    """One entry a reason that a read of pods failed, so that a thousand pods do not make a thousand lines."""
    groups: dict[tuple[str, str, Subject | None], list[str]] = defaultdict(list)
    for pod in pods:
        name = f"{pod.namespace}/{pod.name}"
        entries = [*pod.unknown, *(pod.runtime.unknown if pod.runtime else ())]
        for entry in entries:
            if entry.read_failed:
                what = entry.what.removesuffix(f" of pod {name}").removesuffix(f" held by pod {name}")
                groups[(what, entry.why, entry.about)].append(name)
    found = []
    for (what, why, about), names in sorted(groups.items(), key=lambda one: one[0][:2]):
        whose = f"pod {names[0]}" if len(names) == 1 else f"{len(names)} pods ({names[0]}, …)"
        found.append(Unknown(f"{what} of {whose}", why, read_failed=True, about=about))
    return found


def _waiting(item: PodObject) -> str:
    """Why a pod that is bound to no node waits."""
    if item.spec.scheduling_gates:
        return "SchedulingGated"
    for row in item.status.conditions or []:
        if row.type == "PodScheduled" and row.status == "False":
            reason = printable(row.reason or "Unschedulable", 60)
            return f"{reason}: {printable(row.message, 200)}" if row.message else reason
    return "Pending"


def _is_worker(item: PodObject) -> bool:
    """Workers of a group serve no requests of their own, but for those of Ray Serve, whose replicas run on them."""
    meta = item.metadata
    index = meta.label("leaderworkerset.sigs.k8s.io/worker-index")
    return (index not in (None, "0")) or meta.label("ray.io/node-type") == "worker"


def _with_autoscaler(workload: Workload, autoscalers: Sequence[Autoscaler]) -> Workload:
    mine = [
        scaler
        for scaler in autoscalers
        if (scaler.namespace, scaler.target_kind, scaler.target_name)
        == (workload.namespace, workload.kind, workload.name)
    ]
    best = next((scaler for scaler in mine if scaler.kind == "ScaledObject"), mine[0] if mine else None)
    return replace(workload, autoscaler=best) if best else workload
