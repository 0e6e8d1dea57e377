"""A small Kubernetes API server on loopback: lists in pages, faults, pod proxy, exec over WebSocket. Read-only."""

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

PLURALS = {
    "Node": "nodes",
    "Pod": "pods",
    "Service": "services",
    "Namespace": "namespaces",
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "ConfigMap": "configmaps",
    "ResourceQuota": "resourcequotas",
    "ServiceMonitor": "servicemonitors",
    "PodMonitor": "podmonitors",
}


@dataclass
class Fault:
    """What goes wrong: on requests whose path matches, `times` times (-1: always)."""

    path: str
    status: int = 0
    times: int = -1
    body: str | None = None
    delay: float = 0
    reset: bool = False
    drip: bool = False
    retry_after: str | None = None


@dataclass
class Script:
    """What one pod answers: to commands by all their words or by program, to pages by `PORT/path`."""

    programs: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    pages: dict[str, tuple[int, str]] = field(default_factory=dict)
    hang: bool = False
    chunk: int = 0


@dataclass
class ApiServerDouble:
    """The server's state, changed by a test as it likes."""

    items: list[dict[str, Any]] = field(default_factory=list)
    scripts: dict[str, Script] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    groups: tuple[str, ...] = ("apps", "batch", "autoscaling", "resource.k8s.io")
    page_size: int = 0
    proxy_allowed: bool = True
    service_proxy_allowed: bool = True
    turn: int = 0
    exec_allowed: bool = True
    reviews: dict[str, bool] | None = None
    seen: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    port: int = 0
    expire_tokens: int = 0
    hollow_pages: int = 0

    def count(self, pattern: str) -> int:
        """Requests whose path and query match."""
        return sum(re.search(pattern, path) is not None for path in self.seen)

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig that names this server."""
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                }
            )
        )
        return path

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.path_qs)
        for fault in self.faults:
            if fault.times == 0 or not re.search(fault.path, request.path_qs):
                continue
            fault.times -= 1
            await asyncio.sleep(fault.delay)
            if fault.reset and request.transport is not None:
                request.transport.abort()
                return web.Response()
            if fault.drip:
                return await self.drip(request)
            if fault.body is not None:
                return web.Response(text=fault.body, status=fault.status or 200)
            if fault.status:
                return refused(
                    fault.status, "injected", {"Retry-After": fault.retry_after} if fault.retry_after else {}
                )
        return await self.route(request)

    async def drip(self, request: web.Request) -> web.StreamResponse:
        """A byte every tenth of a second, for as long as somebody listens."""
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await answer.write(b" ")
                await asyncio.sleep(0.1)
        return answer

    async def route(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/version":
            return web.json_response({"gitVersion": "v1.31.0"})
        if path == "/apis":
            return web.json_response({"kind": "APIGroupList", "groups": [{"name": name} for name in self.groups]})
        if path.endswith("/selfsubjectaccessreviews"):
            return await self.review(request)
        if match := re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/exec", path):
            pod = "/".join(match.groups())
            script = self.scripts.get(f"{pod}/{request.query.get('container')}") or self.scripts.get(pod, Script())
            return await self.execute(request, script)
        if match := re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/(?:https:)?([^/:]+):(\d+)/proxy(/.*)", path):
            return self.proxy(*match.groups())
        if match := re.fullmatch(r"/api/v1/namespaces/([^/]+)/services/([^/:]+):(\d+)/proxy(/.*)", path):
            return self.service(*match.groups())
        if match := re.fullmatch(r"/api/v1/namespaces/([^/]+)/configmaps/([^/]+)", path):
            found = [i for i in self.of("ConfigMap", match[1]) if i["metadata"]["name"] == match[2]]
            return web.json_response(found[0]) if found else refused(404, "not found")
        if match := re.fullmatch(r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([a-z]+)", path):
            kind = next((kind for kind, plural in PLURALS.items() if plural == match[2]), None)
            if kind is not None or match[2] in ("statefulsets", "daemonsets", "jobs", "cronjobs"):
                return self.page(request, self.of(kind or "", match[1]))
        return refused(404, "the server could not find the requested resource")

    def of(self, kind: str, namespace: str | None) -> list[dict[str, Any]]:
        return [
            item
            for item in self.items
            if item["kind"] == kind and (namespace is None or item["metadata"].get("namespace") == namespace)
        ]

    def page(self, request: web.Request, items: list[dict[str, Any]]) -> web.Response:
        if wanted := request.query.get("fieldSelector"):
            items = [item for item in items if f"metadata.name={item['metadata']['name']}" == wanted]
        size = min(int(request.query.get("limit", "0")) or 10**9, self.page_size or 10**9)
        start = int(request.query.get("continue", "0"))
        if start and self.expire_tokens:
            self.expire_tokens -= 1
            return refused(410, "the provided continue parameter is too old")
        if start and self.hollow_pages:
            self.hollow_pages -= 1
            return web.json_response(
                {"kind": "List", "metadata": {"continue": f"0{request.query['continue']}"}, "items": []}
            )
        more = {"continue": str(start + size)} if start + size < len(items) else {}
        left_out = {"kind", "spec"} if "PartialObjectMetadata" in request.headers.get("Accept", "") else {"kind"}
        page = items[start : start + size]
        bare = [{key: value for key, value in item.items() if key not in left_out} for item in page]
        return web.json_response({"kind": "List", "metadata": more, "items": bare})

    def proxy(self, namespace: str, pod: str, port: str, path: str) -> web.Response:
        if not self.proxy_allowed:
            return refused(403, 'pods "x" is forbidden: User "u" cannot get resource "pods/proxy"')
        pages = self.scripts.get(f"{namespace}/{pod}", Script()).pages
        if not any(key.startswith(f"{port}/") for key in pages):
            return refused(503, "error trying to reach service: dial tcp: connect: connection refused")
        status, text = pages.get(f"{port}{path}", (404, "not found"))
        return web.Response(status=status, text=text)

    def service(self, namespace: str, service: str, port: str, path: str) -> web.Response:
        """The pods behind the Service answer in turn."""
        if not self.service_proxy_allowed:
            return refused(403, 'services "x" is forbidden: User "u" cannot get resource "services/proxy"')
        behind = sorted(key for key, script in self.scripts.items() if f"{port}{path}" in script.pages)
        if not behind:
            return refused(503, "no endpoints available for service")
        self.turn += 1
        status, text = self.scripts[behind[self.turn % len(behind)]].pages[f"{port}{path}"]
        return web.Response(status=status, text=text)

    async def review(self, request: web.Request) -> web.Response:
        if self.reviews is None:
            return refused(404, "no reviews here")
        asked = (await request.json())["spec"]["resourceAttributes"]
        name = asked["resource"] + (f"/{asked['subresource']}" if asked["subresource"] else "")
        return web.json_response({"status": {"allowed": self.reviews.get(name, True)}})

    async def execute(self, request: web.Request, script: Script) -> web.StreamResponse:
        command = request.query.getall("command")
        self.commands.append(command)
        if not self.exec_allowed:
            return refused(403, 'pods "x" is forbidden: User "u" cannot create resource "pods/exec"')
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        if script.hang:
            with contextlib.suppress(asyncio.TimeoutError, Exception):
                await asyncio.wait_for(socket.receive(), 30)
            return socket
        usual = ("", f'exec: "{command[0]}": executable file not found in $PATH', 127)
        usual = script.programs.get(command[0].rpartition("/")[2], usual)
        out, err, code = script.programs.get(" ".join(command), usual)
        data = out.encode()
        size = script.chunk or max(1, len(data))
        for start in range(0, len(data), size):
            await socket.send_bytes(b"\x01" + data[start : start + size])
        if err:
            await socket.send_bytes(b"\x02" + err.encode())
        causes = {"details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
        status = {"status": "Success"} if code == 0 else {"status": "Failure", "message": f"exit {code}", **causes}
        await socket.send_bytes(b"\x03" + json.dumps(status).encode())
        await socket.close()
        return socket


def refused(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "message": message, "code": status}
    return web.json_response(body, status=status, headers=headers or {})


@contextlib.contextmanager
def serve(double: ApiServerDouble) -> Iterator[ApiServerDouble]:
    """Run the server in a thread of its own while the test runs."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    runner: list[web.AppRunner] = []

    async def start() -> None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", double.handle)
        runner.append(web.AppRunner(app, shutdown_timeout=0.05))
        await runner[0].setup()
        site = web.TCPSite(runner[0], "127.0.0.1", 0)
        await site.start()
        double.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield double
    finally:
        asyncio.run_coroutine_threadsafe(runner[0].cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
