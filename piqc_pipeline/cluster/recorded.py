"""How is a recorded cluster read? The output of `kubectl get … -A -o json`, and what its pods answered, if kept.

`NAME-answers.json` beside `NAME.json` is a JSON object: `windowSeconds` (between the two pages of metrics) and
`pods`, by `namespace/name`: `readThrough` (`exec`, `proxy`), `tools` (output by tool, `nvidia-smi`), `pages` (by
`PORT/path` one text, or a list of two).
"""

import codecs
import contextlib
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from piqc_pipeline.cluster import namespaces
from piqc_pipeline.cluster.accelerators.plugin import Registry
from piqc_pipeline.cluster.answers import Reply, Target
from piqc_pipeline.cluster.assembly import Assembly
from piqc_pipeline.cluster.claims import Claims
from piqc_pipeline.cluster.engines.runtime import Source
from piqc_pipeline.cluster.kubernetes import Deadline
from piqc_pipeline.cluster.listings import BY_KIND, CONTROLLERS
from piqc_pipeline.cluster.namespaces import Names
from piqc_pipeline.cluster.objects import NodeObject, PodObject
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.cluster.reader import ClusterObjects
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.cluster.relevance import Relevance
from piqc_pipeline.cluster.selectors import parse_selector
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
from piqc_pipeline.errors import DumpUnreadable
from piqc_pipeline.facts.snapshot import ClusterSnapshot, Pod, Unknown

DEMO_CLUSTER = "demo"
MAX_DUMP_BYTES = 4 * 1024**3
_GZIP = b"\x1f\x8b"
_CONTROLLER_KINDS = {listing.kind: f"{listing.group}/{listing.versions[0]}" for listing in CONTROLLERS}
_HOW = "record it with `kubectl get nodes,pods,deploy,rs,sts,ds,jobs,cronjobs,services,hpa,quota -A -o json`"


class _Head(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _PodAnswers(msgspec.Struct, rename="camel"):
    read_through: Source = "recorded"
    tools: dict[str, str] = {}
    pages: dict[str, str | list[str]] = {}


class _AnswersFile(msgspec.Struct, rename="camel"):
    window_seconds: float = 0.0
    pods: dict[str, _PodAnswers] = {}


def demo_path() -> Path:
    """The recorded cluster that ships with the program."""
    return Path(str(files("piqc_pipeline").joinpath("data", "cluster.json")))


def read(path: Path, now: datetime, cluster_name: str | None, options: ScanOptions | None) -> ClusterSnapshot:
    """Read a recording; see `piqc_pipeline.cluster.read_dump`."""
    options = options or ScanOptions()
    selector = parse_selector(options.selector)
    registry = Registry()
    objects = read_objects(path, cluster_name or path.stem, Relevance(registry))
    answers = RecordedAnswers(_read_answers(path.with_name(f"{path.stem}-answers.json")), objects.config_maps)
    assembly = Assembly(objects, options, registry, now)
    where = f"{path.name} holds"
    assembly.unknown += namespaces.check(options.namespaces, objects.namespaces, objects.seen_namespaces(), where)
    assembly.place()
    assembly.describe(selector, answers)
    prober = assembly.ask(answers, Deadline(options.deadline_seconds), None)
    return assembly.finish(prober.told, _silence)


def _silence(pod: Pod) -> Unknown:
    what = f"utilization of pod {pod.namespace}/{pod.name}"
    return Unknown(what, "the recording holds no answer of it", about="utilization")


def read_objects(path: Path, cluster: str, relevance: Relevance) -> ClusterObjects:
    """The objects of a recording. Kinds that are missing are told as unknown, never taken as empty.

    Raises:
        DumpUnreadable: The file is missing, empty, cut off or something else.
    """
    found = ClusterObjects(cluster)
    seen: set[str] = set()
    spaces: set[str] = set()
    broken = 0
    for raw, kind in _items(path, _text(path)):
        if kind is not None:
            seen.add(kind)
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                spaces.add(_keep(found, kind, raw, relevance))
                continue
        broken += 1
        if kind is None or kind == "Pod":
            found.unread_namespaces = ("*",)  # it may hold anything
    if not seen & {"Node", "Pod"}:
        kinds = ", ".join(sorted(kind for kind in seen if kind)[:5]) or "none"
        raise DumpUnreadable(f"{path} holds neither nodes nor pods (kinds in it: {printable(kinds, 80)}); {_HOW}")
    _complete(found, seen)
    whole = found.pods is not None and not broken
    found.namespaces = Names(frozenset(spaces - {""}) if whole else None, "the recording does not hold every pod")
    if broken:
        what = f"{broken} object{'s' if broken > 1 else ''} of {path.name}"
        found.unknown.append(Unknown(what, "they cannot be read as Kubernetes objects", read_failed=True))
    return found


def _text(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise DumpUnreadable(f"{path} is a folder; name the recorded file, or {_HOW}")
        if path.stat().st_size > MAX_DUMP_BYTES:
            raise DumpUnreadable(f"{path} is larger than {MAX_DUMP_BYTES // 1024**3} GiB; record one cluster at a time")
        text = path.read_bytes()
    except OSError as error:
        raise DumpUnreadable(f"cannot read the recorded cluster {path}: {error.strerror or error}; {_HOW}") from error
    text = _as_utf8(text)
    if not text.strip():
        raise DumpUnreadable(f"the recorded cluster {path} is empty; {_HOW}")
    return text


def _as_utf8(text: bytes) -> bytes:
    """The text without its byte order mark. `kubectl get … > cluster.json` in Windows PowerShell writes UTF-16."""
    if text.startswith(codecs.BOM_UTF8):
        return text.removeprefix(codecs.BOM_UTF8)
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return text.decode("utf-16", "replace").encode()
    return text


def _items(path: Path, text: bytes) -> list[tuple[msgspec.Raw, str | None]]:
    """Every object of the file, and the kind that its list says where it says none itself.

    The API server's typed lists (`PodList`) do not repeat the kind; `jq -s` makes an array of such lists.
    """
    start = text.lstrip()[:1]
    if text.startswith(_GZIP):
        raise DumpUnreadable(f"{path} is compressed: unpack it with gunzip first; {_HOW}")
    if start not in (b"{", b"["):
        words = "HTML" if b"<html" in text[:2000].lower() else "no JSON (is it YAML? use -o json)"
        raise DumpUnreadable(f"{path} is {words}; {_HOW}")
    try:
        if start == b"[":
            return [row for raw in msgspec.json.decode(text, type=list[msgspec.Raw]) for row in _unpacked(raw, "")]
        head = msgspec.json.decode(text, type=_Head)
        if head.items is not None or head.kind in BY_KIND:
            return list(_unpacked(msgspec.Raw(text), ""))
    except msgspec.ValidationError as error:
        raise DumpUnreadable(f"{path} is JSON, but no list of Kubernetes objects ({error}); {_HOW}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        words = "holds several JSON documents" if "trailing" in str(error) else "is cut off or no JSON"
        raise DumpUnreadable(f"{path} {words} ({printable(str(error), 80)}); {_HOW}") from error
    except RecursionError as error:
        raise DumpUnreadable(f"{path} is nested deeper than Kubernetes objects are; {_HOW}") from error
    raise DumpUnreadable(f"{path} is JSON, but no list of Kubernetes objects; {_HOW}")


def _unpacked(raw: msgspec.Raw, default: str) -> Iterator[tuple[msgspec.Raw, str | None]]:
    """The object and its kind; of a list, its items. None as kind: it is no object."""
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        yield raw, None
        return
    if head.items is None:
        yield raw, head.kind or default
        return
    for item in head.items:
        yield from _unpacked(item, head.kind.removesuffix("List"))


def _keep(found: ClusterObjects, kind: str, raw: msgspec.Raw, relevance: Relevance) -> str:
    """Keep the object; the namespace that it tells of, nothing where there is none."""
    space = ""

    def as_(item: type[Any]) -> Any:
        nonlocal space
        try:
            decoded = msgspec.json.decode(raw, type=item)
        except msgspec.ValidationError:
            decoded = msgspec.json.decode(raw, type=item, strict=False)
        space = decoded.metadata.namespace
        return decoded

    match kind:
        case "Node":
            node = as_(NodeObject)
            found.nodes = found.nodes or []
            found.nodes.append(node)
        case "Pod":
            found.pods = found.pods if found.pods is not None else []
            pod = as_(PodObject)
            if relevance.matters(pod):
                found.pods.append(pod)
        case "Service":
            found.services = found.services if found.services is not None else []
            found.services.append(as_(ServiceObject))
        case "HorizontalPodAutoscaler" | "ScaledObject":
            found.autoscalers.append((kind, as_(AutoscalerObject)))
        case "ServiceMonitor" | "PodMonitor":
            found.monitors[kind] = [*(found.monitors.get(kind) or []), as_(MonitorObject)]
            found.prometheus_operator = True
        case "ResourceClaim":
            claim: ClaimObject = as_(ClaimObject)
            found.claims.claims = found.claims.claims if found.claims.claims is not None else {}
            found.claims.claims[(claim.metadata.namespace, claim.metadata.name)] = claim
        case "ResourceSlice":
            found.claims.slices = [*(found.claims.slices or []), as_(SliceObject)]
        case "PodMetrics":
            found.usage.append(as_(UsageObject))
        case "ResourceQuota":
            found.quotas = [*(found.quotas or []), as_(QuotaObject)]
        case "ConfigMap":
            item: ConfigMapObject = as_(ConfigMapObject)
            found.config_maps[(item.metadata.namespace, item.metadata.name)] = item
        case _ if kind in _CONTROLLER_KINDS:
            controller: ControllerObject = as_(ControllerObject)
            controller.kind, controller.api_version = kind, controller.api_version or _CONTROLLER_KINDS[kind]
            found.controllers.append(controller)
        case "Namespace":
            space = as_(BareObject).metadata.name
        case _:
            pass
    return space


def _complete(found: ClusterObjects, seen: set[str]) -> None:
    for kind, present in (("Node", found.nodes is not None), ("Pod", found.pods is not None)):
        if not present:
            listing = BY_KIND[kind]
            why = f"the recording holds no {listing.plural}"
            what = f"{listing.plural}: {listing.effect}"
            found.unknown.append(Unknown(what, why, read_failed=True, about=listing.subject))
    for kind in ("ServiceMonitor", "PodMonitor"):
        if seen & {"ServiceMonitor", "PodMonitor"}:
            found.monitors.setdefault(kind, [])
    found.autoscalers_read = bool(found.autoscalers)
    found.claims = found.claims if found.claims.claims or found.claims.slices else Claims()


def _read_answers(path: Path) -> _AnswersFile:
    if not path.is_file():
        return _AnswersFile()
    try:
        return msgspec.json.decode(path.read_bytes(), type=_AnswersFile)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DumpUnreadable(
            f"cannot read the recorded answers {path} ({printable(str(error), 100)}); record them again, or remove it"
        ) from error


class RecordedAnswers:
    """What pods answered when the recording was made."""

    runs_tools = True

    def __init__(self, recorded: _AnswersFile, config_maps: Mapping[tuple[str, str], ConfigMapObject]) -> None:
        """Take the recording."""
        self.recorded = recorded
        self.config_maps = config_maps
        self._reads: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def window_seconds(self) -> float:
        """Nothing to wait for."""
        return 0.0

    def recorded_window(self, _: tuple[str, str]) -> float:
        """Seconds between the two recorded reads."""
        return self.recorded.window_seconds

    def run(self, target: Target, tool: str, command: tuple[str, ...]) -> Reply:
        """What the tool printed."""
        answers = self.recorded.pods.get(f"{target.namespace}/{target.pod}")
        if answers is None:
            return Reply(None, why="the recording holds no answer of it")
        text = answers.tools.get(tool)
        return Reply(text, "exec") if text is not None else Reply(None, why=f"its container has no {tool}")

    def fetch(self, target: Target, port: int, path: str) -> Reply:
        """The recorded page: the first of two when it is asked for first, then the second."""
        answers = self.recorded.pods.get(f"{target.namespace}/{target.pod}")
        if answers is None:
            return Reply(None, why="the recording holds no answer of it")
        page = answers.pages.get(f"{port}{path}")
        if page is None:
            return Reply(None, why=f"nothing answers on port {port}", down=not answers.pages)
        if isinstance(page, str):
            return Reply(page, answers.read_through)
        with self._lock:
            key = (f"{target.namespace}/{target.pod}", f"{port}{path}")
            at = self._reads.get(key, 0)
            self._reads[key] = at + 1
        return Reply(page[min(at, len(page) - 1)] if page else None, answers.read_through)

    def fetch_service(self, namespace: str, service: str, port: int, path: str) -> Reply:
        """Nothing: pages are recorded by pod."""
        return Reply(None, why="the recording holds no answer of it")

    def config_map(self, namespace: str, name: str) -> dict[str, str] | None:
        """The texts of a recorded ConfigMap."""
        item = self.config_maps.get((namespace, name))
        return item.data if item is not None else None
