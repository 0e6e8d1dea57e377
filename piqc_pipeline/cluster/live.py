"""How is a living cluster scanned? Lists first, then pods through the API server; everything read-only and in time."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from urllib.parse import quote

import msgspec
import urllib3

from piqc_pipeline.cluster import exec as pod_exec
from piqc_pipeline.cluster.accelerators.plugin import Registry
from piqc_pipeline.cluster.answers import Reply, Target
from piqc_pipeline.cluster.assembly import Assembly
from piqc_pipeline.cluster.kubernetes import ApiServer, ReadFailed, connect, server_version
from piqc_pipeline.cluster.listing import Reader
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.cluster.probing import Prober
from piqc_pipeline.cluster.prometheus import Prometheus
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.cluster.relevance import Relevance
from piqc_pipeline.cluster.selectors import parse_selector
from piqc_pipeline.errors import UsageError
from piqc_pipeline.facts.snapshot import ClusterSnapshot, Pod, Unknown

PAGE_SECONDS = 10.0
"""An engine that takes longer for a page of metrics is not answering."""
_UNREACHABLE = "error trying to reach service"


def read(
    options: ScanOptions, now: datetime, progress: Callable[[str, int, int], None] | None = None
) -> ClusterSnapshot:
    """Scan; see `piqc_pipeline.cluster.read_live`."""
    if options.mode == "dry-run":
        raise UsageError("mode dry-run touches no cluster, so there is no snapshot; choose another --mode")
    with _without_collections():
        return _read(options, now, progress)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: thousands of decoded pods hold no cycles, and are walked again and again.

    Measured on 5,000 pods: a third of the time of decoding.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(options: ScanOptions, now: datetime, progress: Callable[[str, int, int], None] | None) -> ClusterSnapshot:
    selector = parse_selector(options.selector)
    server = connect(options)
    version = server_version(server)
    registry = Registry()
    relevance = Relevance(registry)
    reader = Reader(server, options.namespaces, relevance.matters, options.workers)
    objects = reader.read((lambda done, of: progress("lists", done, of)) if progress else lambda done, of: None)
    objects.server_version = version
    if server.deadline.stop.is_set() and objects.nodes is None and objects.pods is None:
        raise KeyboardInterrupt
    assembly = Assembly(objects, options, registry, now)
    answers = LiveAnswers(server, options)
    assembly.place()
    try:
        assembly.describe(selector, answers)
    except KeyboardInterrupt:
        server.deadline.stop.set()
    prometheus = None
    if options.prometheus:
        seconds = min(options.timeout_seconds, options.prometheus.timeout_seconds)
        prometheus = Prometheus(replace(options.prometheus, timeout_seconds=seconds), server.deadline)
    prober = assembly.ask(answers, server.deadline, progress, prometheus)
    if (reason := answers.stopped()) is not None:
        assembly.unknown.append(Unknown("figures of pods that were not asked yet", reason, read_failed=True))
    assembly.unknown += answers.refusals()
    return assembly.finish(prober.told, lambda pod: _silence(pod, options, answers, prober))


def _silence(pod: Pod, options: ScanOptions, answers: "LiveAnswers", prober: Prober) -> Unknown:
    """Why a pod that holds accelerators has no utilization."""
    what = f"utilization of pod {pod.namespace}/{pod.name}"
    if (reason := answers.stopped()) is not None:
        return Unknown(what, reason, read_failed=True)
    problem = prober.exporter_problems.get(pod.node or "")
    exporter = f"the exporter on its node: {problem.why}" if problem else "no exporter's metrics name it"
    failed = problem is not None and problem.failed
    if not options.allow_exec:
        return Unknown(what, f"{exporter}; exec is switched off", read_failed=failed)
    return Unknown(what, f"{exporter}; no tool for its accelerators runs in it", read_failed=failed)


class LiveAnswers:
    """Asks pods of a living cluster: through the API server's proxy, directly, or by exec."""

    def __init__(self, server: ApiServer, options: ScanOptions) -> None:
        """Prepare; nothing is asked yet."""
        self.server = server
        self.options = options
        self.runs_tools = options.allow_exec
        self._lock = threading.Lock()
        self._no_proxy: dict[str, str] = {}
        self._no_exec: dict[str, str] = {}
        self._no_config: set[str] = set()
        self._hung: dict[tuple[str, str], str] = {}
        self._missing: set[tuple[str, str]] = set()
        self._maps: dict[tuple[str, str], dict[str, str] | None] = {}
        self._direct = urllib3.PoolManager(num_pools=16, maxsize=4, retries=False)

    def window_seconds(self) -> float:
        """As the options say."""
        return self.options.rate_window_seconds

    def stopped(self) -> str | None:
        """Why nothing more may be asked; None where it may."""
        deadline = self.server.deadline
        if deadline.stop.is_set():
            return "the scan was interrupted"
        return f"the deadline of {deadline.seconds:g} s has passed" if deadline.remaining() <= 0 else None

    def refusals(self) -> list[Unknown]:
        """Permissions that pods could not be asked without, one entry a namespace and kind."""
        found = []
        for refused, what, advice in (
            (self._no_exec, "utilization by exec", "grant `create pods/exec`, or give DCGM metrics"),
        ):
            for namespace, why in sorted(refused.items()):
                found.append(Unknown(f"{what} in namespace {namespace}", f"{why}; {advice}", read_failed=True))
        return found

    def run(self, target: Target, tool: str, command: tuple[str, ...]) -> Reply:
        """The command's output by exec, where exec is allowed and granted."""
        if not self.options.allow_exec:
            return Reply(None, why="exec is switched off")
        if target.namespace in self._no_exec:
            return Reply(None, why=self._no_exec[target.namespace], failed=True)
        if (target.namespace, target.pod) in self._hung:
            return Reply(None, why=self._hung[(target.namespace, target.pod)], failed=True)
        try:
            output = pod_exec.run(self.server, target.namespace, target.pod, target.container, command)
        except ReadFailed as failure:
            if failure.status == 403:
                with self._lock:
                    self._no_exec.setdefault(target.namespace, "exec is forbidden")
                return Reply(None, why="exec is forbidden", failed=True)
            if failure.status == 401:
                return Reply(None, why="exec was refused the credentials (401)", failed=True)
            self._hung[(target.namespace, target.pod)] = failure.why
            return Reply(None, why=failure.why, failed=True)
        if output.stdout.strip():
            return Reply(output.stdout, "exec")
        if output.not_found:
            return Reply(None, why=f"its container has no {tool}")
        words = printable(output.stderr, 120)
        if words and output.code != 0:
            return Reply(output.stderr, "exec") if tool == "nvidia-smi" else Reply(None, why=f"{tool}: {words}")
        return Reply(None, why=f"{tool} printed nothing" + (f" (exit code {output.code})" if output.code else ""))

    def fetch(self, target: Target, port: int, path: str) -> Reply:
        """A page of the container: by proxy, else (inside the cluster) by its address, else by exec."""
        reply = self._by_proxy(target, port, path)
        if reply.text is not None or not (reply.failed or reply.down) or reply.source == "proxy":
            return reply
        if self.server.in_cluster and target.ip:
            direct = self._by_address(target, port, path)
            if direct.text is not None or direct.source == "pod-ip":
                return direct
        hung = (target.namespace, target.pod) in self._hung
        if self.options.allow_exec and target.namespace not in self._no_exec and not hung:
            inside = self._by_exec(target, port, path)
            if inside is not None:
                return inside
        return reply

    def _by_proxy(self, target: Target, port: int, path: str) -> Reply:
        """`source` is `proxy` where the container itself answered, whatever it said."""
        if target.namespace in self._no_proxy:
            return Reply(None, why=self._no_proxy[target.namespace], failed=True)
        scheme = "https:" if target.scheme == "https" else ""
        url = f"/api/v1/namespaces/{quote(target.namespace)}/pods/{scheme}{quote(target.pod)}:{port}/proxy{path}"
        try:
            answer = self.server.ask(url, accept="*/*", timeout_seconds=self._page_seconds(), tries=1)
        except ReadFailed as failure:
            return Reply(None, why=failure.why, failed=True)
        if answer.status == 200:
            return Reply(answer.body.decode("utf-8", "replace"), "proxy")
        message = _status_message(answer.body)
        if answer.status == 403 and message is not None:
            why = "pods/proxy is forbidden: grant `get pods/proxy`, or allow exec"
            with self._lock:
                self._no_proxy.setdefault(target.namespace, why)
            return Reply(None, why=why, failed=True)
        if message is not None and _UNREACHABLE in message:
            return Reply(None, why=f"nothing answers on port {port}", down=True)
        if message is not None:
            return Reply(None, why=f"the API server answered {answer.status} ({printable(message, 80)})", failed=True)
        return Reply(None, "proxy", f"{path} was answered with {answer.status}", down=answer.status >= 500)

    def _by_address(self, target: Target, port: int, path: str) -> Reply:
        host = f"[{target.ip}]" if target.ip and ":" in target.ip else target.ip
        seconds = self._page_seconds()
        try:
            self.server.deadline.check()
            answer = self._direct.request(
                "GET",
                f"{target.scheme}://{host}:{port}{path}",
                timeout=urllib3.Timeout(connect=min(2.0, seconds), read=seconds),
                redirect=False,
            )
        except urllib3.exceptions.HTTPError:
            return Reply(None, why=f"nothing answers on port {port}", down=True)
        if answer.status == 200:
            return Reply(answer.data.decode("utf-8", "replace"), "pod-ip")
        return Reply(None, "pod-ip", f"{path} was answered with {answer.status}", down=answer.status >= 500)

    def _by_exec(self, target: Target, port: int, path: str) -> Reply | None:
        """By curl or python inside the container; None where neither could be run."""
        url = f"{target.scheme}://127.0.0.1:{port}{path}"
        for program, command in (
            ("curl", ("curl", "-s", "-S", "-f", "-k", "--max-time", "8", url)),
            ("python3", ("python3", "-c", _FETCH, url)),
        ):
            key = (f"{target.namespace}/{target.pod}", program)
            if key in self._missing:
                continue
            try:
                output = pod_exec.run(self.server, target.namespace, target.pod, target.container, command)
            except ReadFailed as failure:
                if failure.status == 403:
                    with self._lock:
                        self._no_exec.setdefault(target.namespace, "exec is forbidden")
                else:
                    self._hung[(target.namespace, target.pod)] = failure.why
                return None
            if output.not_found:
                with self._lock:
                    self._missing.add(key)
                continue
            if output.code == 0:
                return Reply(output.stdout, "exec")
            if program == "curl" and output.code == 22:
                return Reply(None, "exec", f"{path} was answered with an error", down=True)
            return Reply(None, "exec", f"nothing answers on port {port}", down=True)
        return None

    def _page_seconds(self) -> float:
        return min(PAGE_SECONDS, self.options.timeout_seconds)

    def config_map(self, namespace: str, name: str) -> dict[str, str] | None:
        """The texts of a ConfigMap, where reading them is granted (it is not needed)."""
        key = (namespace, name)
        if namespace in self._no_config or self.stopped():
            return None
        if key not in self._maps:
            try:
                body = self.server.read(f"/api/v1/namespaces/{quote(namespace)}/configmaps/{quote(name)}")
                self._maps[key] = msgspec.json.decode(body, type=_ConfigMap).data
            except ReadFailed as failure:
                if failure.status == 403:
                    self._no_config.add(namespace)
                self._maps[key] = None
            except msgspec.DecodeError:
                self._maps[key] = None
        return self._maps[key]


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class _Status(msgspec.Struct):
    kind: str = ""
    message: str = ""


_FETCH = (
    "import ssl,sys,urllib.request as r;"
    "c=ssl.create_default_context();c.check_hostname=False;c.verify_mode=ssl.CERT_NONE;"
    "sys.stdout.write(r.urlopen(sys.argv[1],timeout=8,context=c if sys.argv[1].startswith('https') else None)"
    ".read().decode('utf-8','replace'))"
)
"""Reads one page from inside a container that has no curl; certificates of loopback are not checked."""


def _status_message(body: bytes) -> str | None:
    """The message of an API server's `Status`; None where the body is not one, so a container's own answer."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return status.message if status.kind == "Status" else None
