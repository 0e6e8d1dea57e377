"""What do pods say of their accelerators and engines? Exporters first, then engines, then exec; bounded, stoppable."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from piqc_pipeline.cluster.accelerators.plugin import AcceleratorPlugin, Registry, Tool
from piqc_pipeline.cluster.answers import Answers, Reply, Target
from piqc_pipeline.cluster.claims import vendor_of
from piqc_pipeline.cluster.device_metrics import DeviceUse, PodKey, engine_devices
from piqc_pipeline.cluster.engines import runtime as metrics
from piqc_pipeline.cluster.engines.endpoints import Endpoint
from piqc_pipeline.cluster.engines.names import metric_prefixes, names_of
from piqc_pipeline.cluster.exporters import Exporters, ask_exporters, of_the_only_holder
from piqc_pipeline.cluster.exposition import Page, parse
from piqc_pipeline.cluster.kubernetes import Deadline, ReadFailed, Stopped
from piqc_pipeline.cluster.prometheus import Prometheus
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.cluster.workers import aside, run_all
from piqc_pipeline.facts.snapshot import AcceleratorReading, EngineRuntime, Unknown

Step = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Question:
    """One running pod that is to be asked.

    Attributes:
        resource: Resource key of the accelerators that it holds; None where it holds none.
        engine: Name of its engine; `unknown` is asked once for metrics, which may tell.
        endpoint: Where the engine listens; None where it is not to be asked.
        ask_model: Whether to ask which model is loaded: once a workload is enough.
        holders: Containers that hold accelerators, each of which sees its own; empty: the target's alone.
    """

    target: Target
    resource: str | None
    engine: str
    endpoint: Endpoint | None
    ask_model: bool = False
    holders: tuple[str, ...] = ()

    @property
    def key(self) -> PodKey:
        """Namespace and name."""
        return self.target.namespace, self.target.pod


@dataclass
class Told:
    """What one pod told."""

    readings: tuple[AcceleratorReading, ...] = ()
    runtime: metrics.Reading | None = None
    models: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    unknown: list[Unknown] = field(default_factory=list)


@dataclass
class _First:
    """The first read of an engine's counters."""

    port: int
    path: str
    page: Page
    source: metrics.Source
    at: float


class Prober:
    """Asks the pods of one cluster."""

    def __init__(
        self, answers: Answers, registry: Registry, deadline: Deadline, workers: int, step: Step | None = None
    ) -> None:
        """Prepare; nothing is asked yet."""
        self.answers = answers
        self.registry = registry
        self.deadline = deadline
        self.workers = workers
        self.step = step
        self.told: dict[PodKey, Told] = defaultdict(Told)
        self.exporter_problems: dict[str, Reply] = {}
        self.unknown: list[Unknown] = []
        self._first: dict[PodKey, _First] = {}

    def ask_prometheus(self, prometheus: Prometheus) -> None:
        """Take the accelerators that Prometheus knows; what it cannot say is asked for otherwise."""
        try:
            self.take_devices(aside(prometheus.devices, self.deadline))
        except ReadFailed as failure:
            what = "accelerators by Prometheus"
            self.unknown.append(Unknown(what, failure.why, read_failed=True, about="utilization"))
        except Stopped:
            return

    def ask_prometheus_for_engines(self, prometheus: Prometheus, questions: Sequence[Question], now: float) -> None:
        """Take the metrics of engines that could not be asked themselves."""
        lacking = [
            question
            for question in questions
            if question.endpoint is not None
            and question.engine != "unknown"
            and ((told := self.told[question.key].runtime) is None or told.runtime.healthy is None)
        ]
        if not lacking:
            return
        try:
            keys = [question.key for question in lacking]
            found = aside(lambda: prometheus.engines(keys, now), self.deadline)
        except ReadFailed as failure:
            what = "engine metrics by Prometheus"
            self.unknown.append(Unknown(what, failure.why, read_failed=True, about="engine metrics"))
            return
        except Stopped:
            return
        for question in lacking:
            if (scrape := found.get(question.key)) is not None:
                self._keep(question, scrape, "prometheus")
                self.told[question.key].prefixes = metric_prefixes(scrape.later)

    def ask_exporters(
        self,
        exporters: Exporters,
        node_of: Callable[[PodKey], str | None],
        alone: Mapping[str, tuple[PodKey, int]],
    ) -> None:
        """Read what the device exporters say of pods that nothing was told of yet.

        Args:
            exporters: Whom to ask.
            node_of: The node of a pod.
            alone: By node: the one pod that holds all of its devices, and how many; theirs they are, named or not.
        """
        told = ask_exporters(self.answers, exporters, node_of, self._run)
        self.exporter_problems = told.problems
        self.take_devices(of_the_only_holder(told.devices, alone))

    def share_readings(self, sharers: Mapping[PodKey, Sequence[PodKey]]) -> None:
        """Give the pods that share a card what the exporter says of the placeholder that holds it for them."""
        for holder, keys in sharers.items():
            for key in keys:
                self.told[key].readings = self.told[key].readings or self.told[holder].readings

    def take_devices(self, devices: Sequence[DeviceUse]) -> None:
        """Give each pod the devices that an exporter names it for, where no other source told how busy they are."""
        found: dict[PodKey, list[AcceleratorReading]] = defaultdict(list)
        for use in devices:
            if use.pod is not None:
                found[use.pod].append(use.reading)
        for key in self.unread(set(found)):
            self.told[key].readings = tuple(found[key])

    def unread(self, keys: set[PodKey]) -> set[PodKey]:
        """Those of these pods whose utilization is not known yet."""
        return {key for key in keys if not any(r.utilization_pct is not None for r in self.told[key].readings)}

    def ask_engines(self, questions: Sequence[Question]) -> None:
        """Read each engine's health and metrics, the metrics twice."""
        asked = [question for question in questions if question.endpoint is not None]
        self._run("engines", [lambda q=q: self._scrape_first(q) for q in asked])  # type: ignore[misc]
        again = [question for question in asked if question.key in self._first]
        self._run("rates", [lambda q=q: self._scrape_again(q) for q in again])  # type: ignore[misc]

    def ask_tools(self, questions: Sequence[Question]) -> None:
        """Run the vendor's tool in each pod whose accelerators no exporter and no engine told of."""
        asked = [
            question
            for question in questions
            if self.answers.runs_tools
            and question.resource is not None
            and not any(reading.utilization_pct is not None for reading in self.told[question.key].readings)
        ]
        self._run("accelerators", [lambda q=q: self._run_tool(q) for q in asked])  # type: ignore[misc]

    def _run(self, name: str, tasks: Sequence[Callable[[], None]]) -> None:
        step = self.step
        report = None if step is None else lambda done, of: step(name, done, of)
        for error in run_all(tasks, self.workers, self.deadline, report):
            raise error

    def _scrape_first(self, question: Question) -> None:
        endpoint = question.endpoint
        if endpoint is None:
            return
        told = self.told[question.key]
        found, reply = self._find_page(question, endpoint)
        healthy: bool | None = None if reply is None else False if reply.down else None
        if found is not None:
            self._first[question.key] = found
            told.prefixes = metric_prefixes(found.page)
            told.readings = told.readings or engine_devices(found.page)
            healthy = True
            if question.engine != "unknown":
                health = self.answers.fetch(question.target, endpoint.http_port or found.port, endpoint.health_path)
                healthy = not (health.text is None and health.down)
        if (
            question.ask_model
            and endpoint.models_path
            and healthy is not False
            and (found or question.engine != "unknown")
        ):
            port = endpoint.http_port or (found.port if found else 0)
            models = self.answers.fetch(question.target, port, endpoint.models_path) if port else Reply(None)
            told.models = read_models(models.text)
            healthy = True if told.models else healthy
        if found is None or healthy is False:
            self._first.pop(question.key, None)
            self._tell_down(question, healthy, reply)

    def _find_page(self, question: Question, endpoint: Endpoint) -> tuple[_First | None, Reply | None]:
        """The first port and path with an engine's metrics; else the most telling failure."""
        worst: Reply | None = None
        for port in endpoint.ports:
            for path in dict.fromkeys((endpoint.metrics_path, "/metrics")):
                reply = self.answers.fetch(question.target, port, path)
                if reply.text is not None:
                    page = parse(reply.text)
                    if names_of(page) is not None:
                        return _First(port, path, page, reply.source, time.monotonic()), None
                    reply = Reply(None, reply.source, "its page has no metrics of an engine that is known")
                if worst is None or (reply.failed, reply.down) > (worst.failed, worst.down):
                    worst = reply
                if reply.down or reply.failed:
                    break
        return None, worst

    def _tell_down(self, question: Question, healthy: bool | None, reply: Reply | None) -> None:
        if question.engine == "unknown":
            return
        why = reply.why if reply is not None else "its health page says that it is not healthy"
        where = f"{question.target.namespace}/{question.target.pod}"
        failed = bool(reply and reply.failed)
        entry = Unknown(f"engine metrics of pod {where}", why, read_failed=failed, about="engine metrics")
        self.told[question.key].runtime = metrics.Reading(EngineRuntime(healthy, "none", unknown=(entry,)))

    def _scrape_again(self, question: Question) -> None:
        first = self._first[question.key]
        window = self.answers.window_seconds()
        waited = time.monotonic() - first.at
        if waited < window:
            self.deadline.sleep(window - waited)
        reply = self.answers.fetch(question.target, first.port, first.path)
        now = time.monotonic()
        page = parse(reply.text) if reply.text is not None else None
        seconds = self._recorded_window(question) or (now - first.at)
        if page is not None and names_of(page) is not None:
            scrape = metrics.Scrape(page, first.page, seconds)
        else:
            scrape = metrics.Scrape(first.page)
        self._keep(question, scrape, first.source)

    def _recorded_window(self, question: Question) -> float | None:
        recorded = getattr(self.answers, "recorded_window", None)
        return recorded(question.key) if recorded is not None else None

    def _keep(self, question: Question, scrape: metrics.Scrape, source: metrics.Source) -> None:
        told = self.told[question.key]
        where = f"{question.target.namespace}/{question.target.pod}"
        reading = metrics.read_scrape(scrape, source, where)
        if reading is not None and told.models:
            served = tuple(sorted({*reading.runtime.served_models, *told.models}))
            reading = replace(reading, runtime=replace(reading.runtime, served_models=served))
        told.runtime = reading

    def finish(self) -> None:
        """Keep the first read of engines that were not read twice before the scan was stopped."""
        for key, first in sorted(self._first.items()):
            told = self.told[key]
            if told.runtime is None:
                told.runtime = metrics.read_scrape(metrics.Scrape(first.page), first.source, "/".join(key))

    def _run_tool(self, question: Question) -> None:
        resource = question.resource or ""
        owned = self.registry.tool_of(resource, vendor_of(resource))
        if owned is None:
            return
        plugin, tool = owned
        seen: dict[object, AcceleratorReading] = {}
        for container in question.holders or (question.target.container,):
            for at, reading in enumerate(self._list(plugin, tool, replace(question.target, container=container))):
                seen.setdefault(reading.uuid or (container, at), reading)
        told = self.told[question.key]
        told.readings = tuple(seen.values()) or told.readings

    def _list(self, plugin: AcceleratorPlugin, tool: Tool, target: Target) -> tuple[AcceleratorReading, ...]:
        """What the tool lists inside one container."""
        where = f"{target.namespace}/{target.pod}"
        told = self.told[(target.namespace, target.pod)]
        for at, command in enumerate(tool.commands):
            reply = self.answers.run(target, tool.name, command)
            if reply.text is not None and tool.older and tool.refusal in reply.text:
                reply = self.answers.run(target, tool.name, tool.older[at])
            if reply.text is not None or reply.failed:
                break
        if reply.text is None:
            what = f"utilization of pod {where}"
            told.unknown.append(Unknown(what, reply.why, read_failed=reply.failed, about="utilization"))
            return ()
        listing = plugin.read_tool(reply.text)
        told.unknown += [
            Unknown(f"accelerators of pod {where}", f"{tool.name}: {text}", about="devices seen")
            for text in listing.problems
        ]
        if not listing.readings and not listing.problems:
            why = f"{tool.name} lists no accelerator"
            told.unknown.append(Unknown(f"utilization of pod {where}", why, about="utilization"))
        return listing.readings


class _Model(msgspec.Struct):
    id: str | None = None
    name: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model] | None = None
    models: list[_Model] | None = None
    model_id: str | None = None


def read_models(text: str | None) -> tuple[str, ...]:
    """Models that an engine says it has loaded (`/v1/models`, Ollama's `/api/tags`, TGI's `/info`)."""
    try:
        answer = msgspec.json.decode((text or "").encode("utf-8", "replace"), type=_Models)
    except msgspec.DecodeError:
        return ()
    names = [row.id or row.name for row in [*(answer.data or []), *(answer.models or [])]]
    return tuple(printable(name, 200) for name in [*names, answer.model_id] if name)[:64]
