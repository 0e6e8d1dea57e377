"""How is a living cluster scanned? Lists first, then pods through the API server; everything read-only and in time."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from urllib.parse import quote

import msgspec
import urllib3

from piqc_pipeline.cluster import exec as pod_exec
from piqc_pipeline.cluster import namespaces
from piqc_pipeline.cluster.accelerators.plugin import Registry
from piqc_pipeline.cluster.answers import Reply, Target
from piqc_pipeline.cluster.assembly import Assembly
from piqc_pipeline.cluster.kubernetes import ApiServer, ReadFailed, Stopped, connect, server_version
from piqc_pipeline.cluster.objects import LabelSelector
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.cluster.probing import Prober
from piqc_pipeline.cluster.prometheus import Prometheus
from piqc_pipeline.cluster.reader import Reader
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.cluster.relevance import Relevance
from piqc_pipeline.cluster.selectors import parse_selector
from piqc_pipeline.cluster.workers import aside, interruptible
from piqc_pipeline.errors import ClusterUnreachable, UsageError
from piqc_pipeline.facts.snapshot import ClusterSnapshot, Pod, Unknown

PAGE_SECONDS = 10.0
"""An engine that takes longer for a page of metrics is not answering."""
_UNREACHABLE = "error trying to reach service"
_NO_EXEC = "exec is forbidden"


def read(
    options: ScanOptions, now: datetime, progress: Callable[[str, int, int], None] | None = None
) -> ClusterSnapshot:
    """Scan; see `piqc_pipeline.cluster.read_live`."""
    if options.mode == "dry-run":
        raise UsageError("mode dry-run touches no cluster, so there is no snapshot; choose another --mode")
    selector = parse_selector(options.selector)
    server = connect(options)
    with _without_collections(), interruptible(server.deadline):
        return _read(server, selector, options, now, progress)


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


def _read(
    server: ApiServer,
    selector: LabelSelector | None,
    options: ScanOptions,
    now: datetime,
    progress: Callable[[str, int, int], None] | None,
) -> ClusterSnapshot:
    version = _version(server)
    registry = Registry()
    relevance = Relevance(registry)
    reader = Reader(server, options.namespaces, relevance.matters, options.workers, with_usage=options.collect_runtime)
    objects = reader.read((lambda done, of: progress("lists", done, of)) if progress else lambda done, of: None)
    objects.server_version = version
    if server.deadline.stop.is_set() and objects.nodes is None and objects.pods is None:
        raise KeyboardInterrupt
    assembly = Assembly(objects, options, registry, now)
    if options.namespaces_expected:
        where = f"the cluster {objects.cluster} has"
        assembly.unknown += namespaces.check(options.namespaces, objects.namespaces, objects.seen_namespaces(), where)
    answers = LiveAnswers(server, options)
    assembly.place()
    assembly.describe(selector, answers)
    prometheus = None
    if options.prometheus:
        seconds = min(options.timeout_seconds, options.prometheus.timeout_seconds)
        prometheus = Prometheus(replace(options.prometheus, timeout_seconds=seconds), server.deadline)
    prober = assembly.ask(answers, server.deadline, progress, prometheus)
    if (reason := server.deadline.why_over()) is not None:
        assembly.unknown.append(
            Unknown("figures of pods that were not asked yet", reason, read_failed=True, about="utilization")
        )
    assembly.unknown += answers.refusals()
    found = assembly.finish(prober.told, lambda pod: _silence(pod, options, answers, prober))
    return replace(found, interrupted=server.deadline.stop.is_set())


def _version(server: ApiServer) -> str | None:
    """The server's version; where the scan is stopped before it is told, there is nothing to report."""
    try:
        return aside(lambda: server_version(server), server.deadline)
    except Stopped:
        if server.deadline.stop.is_set():
            raise KeyboardInterrupt from None
        raise ClusterUnreachable(
            f"cannot reach the cluster at {server.host}: {server.deadline.why_over()} before it answered; "
            "give --deadline more seconds, or check the address in the kubeconfig, the network and the context"
        ) from None


def _silence(pod: Pod, options: ScanOptions, answers: "LiveAnswers", prober: Prober) -> Unknown:
    """Why a pod that holds accelerators has no utilization."""
    what = f"utilization of pod {pod.namespace}/{pod.name}"
    if (reason := answers.server.deadline.why_over()) is not None:
        return Unknown(what, reason, read_failed=True, about="utilization")
    problem = prober.exporter_problems.get(pod.node or "")
    exporter = f"the exporter on its node: {problem.why}" if problem else "no exporter's metrics name it"
    failed = problem is not None and problem.failed
    if not options.allow_exec:
        return Unknown(what, f"{exporter}; exec is switched off", read_failed=failed, about="utilization")
    why = f"{exporter}; no tool for its accelerators runs in it"
    return Unknown(what, why, read_failed=failed, about="utilization")


class LiveAnswers:
    """Asks pods of a living cluster: through the API server's proxy, directly, or by exec."""

    def __init__(self, server: ApiServer, options: ScanOptions) -> None:
        """Prepare; nothing is asked yet."""
        self.server = server
        self.options = options
        self.runs_tools = options.allow_exec
        self._no_proxy: dict[str, str] = {}
        self._no_exec: set[str] = set()
        self._no_config: set[str] = set()
        self._hung: dict[tuple[str, str], str] = {}
        self._missing: set[tuple[str, str]] = set()
        self._maps: dict[tuple[str, str], dict[str, str] | None] = {}
        self._direct = urllib3.PoolManager(num_pools=16, maxsize=4, retries=False)

    def window_seconds(self) -> float:
        """As the options say."""
        return self.options.rate_window_seconds

    def refusals(self) -> list[Unknown]:
        """Namespaces whose pods may not be asked by exec."""
        why = f"{_NO_EXEC}; grant `create pods/exec`, or give DCGM metrics"
        return [
            Unknown(f"utilization by exec in namespace {namespace}", why, read_failed=True, about="utilization")
            for namespace in sorted(self._no_exec)
        ]

    def _execute(self, target: Target, command: tuple[str, ...]) -> pod_exec.Output | Reply:
        """What the command printed, else why it was not run; a pod that hung and a namespace that refuses are left."""
        key = target.namespace, target.pod
        if not self.options.allow_exec:
            return Reply(None, why="exec is switched off")
        if target.namespace in self._no_exec:
            return Reply(None, why=_NO_EXEC, failed=True)
        if key in self._hung:
            return Reply(None, why=self._hung[key], failed=True)
        try:
            return pod_exec.run(self.server, target.namespace, target.pod, target.container, command)
        except ReadFailed as failure:
            why = failure.why
            if failure.status == 403:
                self._no_exec.add(target.namespace)
                why = _NO_EXEC
            elif failure.status == 401:
                why = "exec was refused the credentials (401)"
            else:
                self._hung[key] = why
            return Reply(None, why=why, failed=True)

    def run(self, target: Target, tool: str, command: tuple[str, ...]) -> Reply:
        """The command's output by exec, where exec is allowed and granted."""
        output = self._execute(target, command)
        if isinstance(output, Reply):
            return output
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
        return self._by_exec(target, port, path) or reply

    def _by_proxy(self, target: Target, port: int, path: str) -> Reply:
        """`source` is `proxy` where the container itself answered, whatever it said."""
        if target.namespace in self._no_proxy:
            return Reply(None, why=self._no_proxy[target.namespace], failed=True)
        scheme = "https:" if target.scheme == "https" else ""
        url = f"/api/v1/namespaces/{quote(target.namespace)}/pods/{scheme}{quote(target.pod)}:{port}/proxy{path}"
        reply, forbidden = self._through_server(url, port, path)
        if forbidden:
            reply = Reply(None, why="pods/proxy is forbidden: grant `get pods/proxy`, or allow exec", failed=True)
            self._no_proxy[target.namespace] = reply.why
        return reply

    def fetch_service(self, namespace: str, service: str, port: int, path: str) -> Reply:
        """A page of any pod behind a Service, through the API server."""
        url = f"/api/v1/namespaces/{quote(namespace)}/services/{quote(service)}:{port}/proxy{path}"
        reply, forbidden = self._through_server(url, port, path)
        why = "services/proxy is forbidden: grant `get services/proxy`"
        return Reply(None, why=why, failed=True) if forbidden else reply

    def _through_server(self, url: str, port: int, path: str) -> tuple[Reply, bool]:
        """What is served behind a proxy of the API server, and whether that proxy itself is forbidden."""
        try:
            answer = self.server.ask(url, accept="*/*", timeout_seconds=self._page_seconds(), tries=1)
        except ReadFailed as failure:
            return Reply(None, why=failure.why, failed=True), False
        if answer.status == 200:
            return Reply(answer.body.decode("utf-8", "replace"), "proxy"), False
        message = _status_message(answer.body)
        if answer.status == 403 and message is not None:
            return Reply(None, why="forbidden", failed=True), True
        if message is not None and _UNREACHABLE in message:
            return Reply(None, why=f"nothing answers on port {port}", down=True), False
        if message is not None:
            why = f"the API server answered {answer.status} ({printable(message, 80)})"
            return Reply(None, why=why, failed=True), False
        return Reply(None, "proxy", f"{path} was answered with {answer.status}", down=answer.status >= 500), False

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
            output = self._execute(target, command)
            if isinstance(output, Reply):
                return None
            if output.not_found:
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
        if namespace in self._no_config:
            return None
        if key not in self._maps:
            path = f"/api/v1/namespaces/{quote(namespace)}/configmaps/{quote(name)}"
            try:
                body = aside(lambda: self.server.read(path), self.server.deadline)
                self._maps[key] = msgspec.json.decode(body, type=_ConfigMap).data
            except Stopped:
                return None
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
