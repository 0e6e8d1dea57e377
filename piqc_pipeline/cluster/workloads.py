"""What is one workload? Its engine and model, its replicas or groups, its age, and what its pods said, added up."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from piqc_pipeline.cluster.accelerators.plugin import Registry
from piqc_pipeline.cluster.answers import Answers
from piqc_pipeline.cluster.engines import runtime
from piqc_pipeline.cluster.engines.commands import environment_of, invocations
from piqc_pipeline.cluster.engines.endpoints import Endpoint, endpoint_of
from piqc_pipeline.cluster.engines.identify import ContainerView, confirm, identify
from piqc_pipeline.cluster.engines.model import config_paths, config_variables, model_of
from piqc_pipeline.cluster.engines.sizes import model_size, quantization_in_name
from piqc_pipeline.cluster.objects import Container, PodObject, PodSpec, TolerationRow
from piqc_pipeline.cluster.owners import Owner
from piqc_pipeline.cluster.probing import Told
from piqc_pipeline.cluster.redact import HIDDEN, is_secret_name, printable, safe_arguments, safe_labels
from piqc_pipeline.cluster.requests import container_amounts, tolerations
from piqc_pipeline.facts.snapshot import EngineIdentity, ModelIdentity, Pod, Topology, Unknown, Workload

MAX_UNKNOWN = 20
"""Entries kept on one workload; what its other pods lack is the same."""


@dataclass(frozen=True)
class Described:
    """Engine and model of a workload, by the spec of its pods.

    Attributes:
        template: The pod that stands for all: the newest that is not ending.
        views: Chosen container by name of the pod's revision.
    """

    engine: EngineIdentity
    model: ModelIdentity
    template: PodObject
    view: ContainerView | None
    registry: Registry
    revisions: int = 1
    _views: dict[str, ContainerView | None] = field(default_factory=dict)
    _endpoints: dict[int, Endpoint] = field(default_factory=dict)

    def view_of(self, pod: PodObject) -> ContainerView | None:
        """The container that runs the engine, or holds the accelerators, in this pod."""
        key = _revision(pod)
        if key not in self._views:
            self._views[key] = main_view(pod, self.registry, None)
        return self._views[key]

    def endpoint_of(self, view: ContainerView) -> Endpoint:
        """Where the engine listens."""
        if id(view) not in self._endpoints:
            self._endpoints[id(view)] = endpoint_of(view, self.engine.name)
        return self._endpoints[id(view)]


def describe(
    namespace: str, owner: Owner, pods: Sequence[PodObject], registry: Registry, answers: Answers | None
) -> Described:
    """Engine and model of the workload that these pods are."""
    ranked = sorted(pods, key=lambda pod: _rank(pod, registry), reverse=True)
    template = ranked[0]
    labels = dict(template.metadata.labels or {})
    view = main_view(template, registry, answers)
    revisions = len({ref.uid or ref.name for pod in pods if (ref := pod.metadata.owner()) and ref.kind == "ReplicaSet"})
    if view is None:
        return Described(EngineIdentity("unknown", 0.0, "low"), ModelIdentity(None), template, None, registry)
    engine = identify(view, labels)
    model = model_of(view, engine, labels, _config_text(view, template, answers))
    return Described(engine, model, template, view, registry, max(1, revisions), {_revision(template): view})


def _revision(pod: PodObject) -> str:
    """What made the pod: pods of one ReplicaSet are alike."""
    owner = pod.metadata.owner()
    return (owner.uid or owner.name) if owner else pod.metadata.name


def main_view(pod: PodObject, registry: Registry, answers: Answers | None) -> ContainerView | None:
    """The container that matters: of those that request accelerators (else of all), the one most like an engine."""
    containers = [*pod.spec.containers, *(c for c in pod.spec.init_containers or [] if c.restart_policy == "Always")]
    if not containers:
        return None
    holding = [c for c in containers if container_amounts(c, registry) or (c.resources and c.resources.claims)]
    labels = pod.metadata.labels or {}
    views = [_view(container, pod, answers) for container in holding or containers]
    if len(views) == 1:
        return views[0]
    scored = [(identify(view, labels).score, -at, view) for at, view in enumerate(views)]
    return max(scored, key=lambda row: (row[0], row[1]))[2]


def _view(container: Container, pod: PodObject, answers: Answers | None) -> ContainerView:
    environment = environment_of(container)
    found = ContainerView(container, tuple(invocations(container, environment)), environment)
    config = _config_values(found, pod, answers) if answers is not None else {}
    if not config:
        return found
    environment = environment_of(container, config)
    return ContainerView(container, tuple(invocations(container, environment)), environment)


def _config_values(view: ContainerView, pod: PodObject, answers: Answers) -> dict[tuple[str, str], str]:
    """Values of the ConfigMap keys that say something of the model; nothing else of a ConfigMap is looked at."""
    wanted = config_variables(view.invocations)
    found: dict[tuple[str, str], str] = {}
    for variable in view.container.env or []:
        source = variable.value_from.config_map_key_ref if variable.value_from else None
        if source is None or variable.name not in wanted or is_secret_name(variable.name):
            continue
        texts = answers.config_map(pod.metadata.namespace, source.name) or {}
        if source.key in texts:
            found[(source.name, source.key)] = texts[source.key]
    return found


def _config_text(view: ContainerView, pod: PodObject, answers: Answers | None) -> dict[str, str]:
    """Text of the configuration files that the command names, where they lie in a ConfigMap that can be read."""
    found: dict[str, str] = {}
    if answers is None:
        return found
    maps = {volume.name: volume.config_map.name for volume in pod.spec.volumes or [] if volume.config_map}
    for path in config_paths(view.invocations):
        for mount in view.container.volume_mounts or []:
            if mount.name not in maps or not path.startswith(mount.mount_path):
                continue
            texts = answers.config_map(pod.metadata.namespace, maps[mount.name]) or {}
            key = mount.sub_path or path.removeprefix(mount.mount_path).lstrip("/")
            if key in texts:
                found[path] = texts[key]
    return found


def _rank(pod: PodObject, registry: Registry) -> tuple[bool, bool, bool, str, str]:
    """Which pod stands for the workload: one that holds accelerators, leads, lives, is newest."""
    holds = bool(pod.spec.resource_claims) or any(container_amounts(c, registry) for c in pod.spec.containers)
    leads = pod.metadata.label("leaderworkerset.sigs.k8s.io/worker-index") in (None, "0")
    alive = pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")
    return holds, leads, alive, pod.metadata.creation_timestamp or "", pod.metadata.name


def build_workload(
    key: str,
    cluster: str,
    owner: Owner,
    objects: Sequence[PodObject],
    pods: Sequence[Pod],
    described: Described,
    told: Sequence[Told],
) -> Workload:
    """The workload, from its pods and what they told."""
    prefixes = [prefix for answer in told for prefix in answer.prefixes]
    engine = confirm(described.engine, prefixes) if prefixes else described.engine
    models = sorted({name for answer in told for name in answer.models})
    model = _with_loaded_model(described.model, models)
    unknown = [entry for pod in pods for entry in pod.unknown]
    readings = [answer.runtime for answer in told if answer.runtime is not None]
    groups = _groups(pods)
    if groups:
        # Of a Ray cluster those nodes tell on which replicas of the engine run; the others have nothing to tell.
        readings = [one for one in readings if one.runtime.source != "none"] or readings
    summed = runtime.add_readings(readings) if readings else None
    if summed is not None:
        unknown += summed.unknown
    if described.revisions > 1:
        why = f"{described.revisions} revisions of it run at the same time"
        unknown.append(Unknown(f"one model of {key}", why, about="model"))
    if engine.name != "unknown" and model.name is None and model.served_name is None:
        why = "neither its arguments, its environment nor its answers name one"
        unknown.append(Unknown(f"model of {key}", why, about="model"))
    template = described.template
    container = described.view.container if described.view else None
    return Workload(
        id=key,
        cluster=cluster,
        namespace=template.metadata.namespace,
        kind=owner.kind,
        name=owner.name,
        api_version=owner.api_version,
        engine=engine,
        model=model,
        is_inference=engine.name != "unknown",
        replicas_wanted=owner.replicas,
        replicas_ready=_ready(pods, groups),
        gpus_per_replica=_per_replica(pods, groups, owner),
        images=tuple(sorted({c.image for pod in objects for c in pod.spec.containers if c.image})),
        created_at=owner.created_at or _oldest(pods),
        labels=safe_labels(template.metadata.labels),
        http_port=described.endpoint_of(described.view).http_port if described.view else None,
        cpu_request=_requested(container, "cpu"),
        memory_request=_requested(container, "memory"),
        topology=_topology(pods, groups),
        pod_spec=shown_spec(template.spec),
        tolerations=tolerations(template.spec),
        runtime=summed,
        unknown=tuple(dict.fromkeys(unknown))[:MAX_UNKNOWN],
    )


def _with_loaded_model(model: ModelIdentity, loaded: Sequence[str]) -> ModelIdentity:
    """What the engine says it has loaded fills what its arguments do not say."""
    if not loaded:
        return model
    served = model.served_name or loaded[0]
    if model.name is None:
        size = model_size(loaded[0])
        return replace(
            model,
            name=loaded[0],
            served_name=served,
            parameters_total=size.total,
            parameters_active=size.active,
            quantization=model.quantization or quantization_in_name(loaded[0]) or size.published_as,
            evidence=(*model.evidence, "the engine says which model it has loaded"),
        )
    if model.parameters_total is None and (size := model_size(loaded[0])).total is not None:
        return replace(model, served_name=served, parameters_total=size.total, parameters_active=size.active)
    return replace(model, served_name=served)


def _groups(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    """Pods by group; empty where each pod is a replica of its own."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.group is not None and pod.phase not in ("Succeeded", "Failed"):
            found.setdefault(pod.group, []).append(pod)
    return found


def _ready(pods: Sequence[Pod], groups: Mapping[str, list[Pod]]) -> int:
    if groups:
        return sum(all(pod.ready for pod in members) for members in groups.values())
    return sum(pod.ready for pod in pods)


def _units(pods: Sequence[Pod]) -> float | None:
    found = [request.units for pod in pods for request in pod.requests]
    return None if any(unit is None for unit in found) else math.fsum(unit for unit in found if unit is not None)


def _per_replica(pods: Sequence[Pod], groups: Mapping[str, list[Pod]], owner: Owner) -> float | None:
    """Units of one replica: the commonest among its live pods, or groups; of the newest where two are as common."""
    live = [pod for pod in pods if pod.phase not in ("Succeeded", "Failed") and not pod.deleting] or list(pods)
    sizes = [_units(members) for members in groups.values()] if groups else [_units([pod]) for pod in live]
    if not sizes or None in sizes:
        return None
    ranked = Counter(sizes).most_common()
    if len(ranked) > 1 and ranked[0][1] == ranked[1][1] and not groups:
        newest = max(live, key=lambda pod: (pod.created_at.timestamp() if pod.created_at else 0.0, pod.name))
        return _units([newest])
    return ranked[0][0]


def _topology(pods: Sequence[Pod], groups: Mapping[str, list[Pod]]) -> Topology | None:
    if not groups:
        return None
    nodes = {pod.node for members in groups.values() for pod in members if pod.node}
    return Topology(len(groups), max(len(members) for members in groups.values()), len(nodes))


def _oldest(pods: Sequence[Pod]) -> datetime | None:
    return min((pod.created_at for pod in pods if pod.created_at is not None), default=None)


def _requested(container: Container | None, key: str) -> str | None:
    requests = container.resources.requests if container and container.resources else None
    return printable(str(requests[key]), 40) if requests and key in requests else None


def shown_spec(spec: PodSpec) -> dict[str, object]:
    """A pod's spec as far as is safe to show: names of variables, never their values; arguments redacted."""
    found: dict[str, object] = {"containers": [_shown_container(container) for container in spec.containers]}
    if spec.init_containers:
        found["initContainers"] = [_shown_container(container) for container in spec.init_containers]
    if spec.node_selector:
        found["nodeSelector"] = safe_labels(spec.node_selector)
    if spec.tolerations:
        found["tolerations"] = [_stated(row) for row in spec.tolerations]
    return found


def _stated(row: TolerationRow) -> dict[str, object]:
    fields = {"key": row.key, "operator": row.operator, "value": row.value, "effect": row.effect}
    return {name: text for name, text in fields.items() if text is not None}


def _shown_container(container: Container) -> dict[str, object]:
    shown: dict[str, object] = {"name": container.name, "image": container.image}
    if container.command:
        shown["command"] = safe_arguments(container.command)
    if container.args:
        shown["args"] = safe_arguments(container.args)
    if container.env:
        shown["env"] = [{"name": variable.name, "value": HIDDEN} for variable in container.env]
    if container.ports:
        shown["ports"] = [{"containerPort": port.container_port} for port in container.ports]
    if container.resources:
        rows = (("requests", container.resources.requests), ("limits", container.resources.limits))
        shown["resources"] = {name: dict(value) for name, value in rows if value}
    return shown
