"""Where does an engine listen? Its port by argument, environment, probe and declaration, its paths by its kind."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from piqc_pipeline.cluster.engines.identify import ContainerView
from piqc_pipeline.cluster.engines.signatures import BY_NAME
from piqc_pipeline.cluster.objects import Container

_PORT_FLAGS = ("port", "http-port", "server-port")
_NOT_ENGINES = frozenset({"ray", "nginx", "redis-server", "etcd"})
"""Programs that a script starts beside the engine; `ray start --port` is Ray's own."""
_PORT_ENV = ("VLLM_PORT", "PORT", "HTTP_PORT", "NIM_SERVER_PORT", "NIM_HTTP_API_PORT", "SERVER_PORT")
_HTTP_NAMES = re.compile(
    r"^(http|https|api|http-api|web|serve|server|vllm|sglang|container-port|user-port|http1|openai)"
)
_METRIC_NAMES = re.compile(r"metric|prom")
_METRICS_PORTS = {"triton": 8002, "ray-serve": 8080}
_HEALTH = {"triton": "/v2/health/ready", "nim": "/v1/health/ready", "ollama": "/", "ray-serve": "/-/healthz"}
_MODEL_PATHS = {"ollama": "/api/tags", "triton": None, "tei": "/info", "tgi": "/info"}
MAX_CANDIDATES = 3


@dataclass(frozen=True)
class Endpoint:
    """Where an engine may be asked.

    Attributes:
        ports: Where metrics may be, likeliest first.
        http_port: Where requests go; None where nothing says it.
    """

    ports: tuple[int, ...]
    http_port: int | None
    scheme: str
    metrics_path: str
    health_path: str
    models_path: str | None


def endpoint_of(view: ContainerView, engine: str) -> Endpoint:
    """Where the engine in this container listens."""
    signature = BY_NAME.get(engine)
    stated = _stated_port(view)
    named = {port.name or "": number for port in view.container.ports or [] if (number := _number(port.container_port))}
    http = stated or next((n for name, n in named.items() if _HTTP_NAMES.match(name)), None)
    http = http or _probe_port(view.container, named)
    declared = [number for name, number in named.items() if not _METRIC_NAMES.search(name)]
    http = http or (declared[0] if declared else None)
    default = signature.port if signature else None
    metrics = [n for name, n in named.items() if _METRIC_NAMES.search(name)]
    fixed = next(
        (_number(item.flag("metrics-port") or "") for item in view.invocations if item.has("metrics-port")), None
    )
    candidates = [fixed, *metrics, _METRICS_PORTS.get(engine), http, *declared, default]
    ports = tuple(dict.fromkeys(port for port in candidates if port))[:MAX_CANDIDATES]
    return Endpoint(
        ports=ports,
        http_port=http,
        scheme="https" if _speaks_tls(view) else "http",
        metrics_path=signature.metrics_path if signature else "/metrics",
        health_path=_HEALTH.get(engine, "/health"),
        models_path=_MODEL_PATHS.get(engine, "/v1/models"),
    )


def _stated_port(view: ContainerView) -> int | None:
    for item in view.invocations:
        if item.program in _NOT_ENGINES:
            continue
        if (port := _number(item.flag(*_PORT_FLAGS) or "")) is not None:
            return port
    return next((port for name in _PORT_ENV if (port := _number(view.environment.get(name, ""))) is not None), None)


def _probe_port(container: Container, named: Mapping[str, int]) -> int | None:
    for probe in (container.readiness_probe, container.liveness_probe):
        if probe is not None and probe.http_get is not None and probe.http_get.port is not None:
            port = probe.http_get.port
            found = named.get(port) if isinstance(port, str) and not port.isdecimal() else _number(port)
            if found:
                return found
    return None


def _speaks_tls(view: ContainerView) -> bool:
    if any(item.has("ssl-keyfile", "ssl-certfile", "ssl-cert-file") for item in view.invocations):
        return True
    probes = (view.container.readiness_probe, view.container.liveness_probe)
    return any(probe.http_get.scheme == "HTTPS" for probe in probes if probe is not None and probe.http_get is not None)


def _number(value: int | str) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536 else None
