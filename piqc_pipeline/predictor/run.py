"""How does the service start and end? Puts settings, artifact, Prometheus and HTTP together, and runs one worker.

One worker is enough: it answers thousands of requests a second; more replicas are for availability.
"""

import logging
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvicorn

from piqc_pipeline.errors import UsageError
from piqc_pipeline.predictor import bounds, heap
from piqc_pipeline.predictor.anchor import LiveAnchor
from piqc_pipeline.predictor.engine import Engine, EngineOptions
from piqc_pipeline.predictor.lean import load
from piqc_pipeline.predictor.limits_watch import LimitsWatch
from piqc_pipeline.predictor.live import prometheus_from_settings
from piqc_pipeline.predictor.logs import log_json
from piqc_pipeline.predictor.reload import ArtifactWatch
from piqc_pipeline.predictor.service import create_service
from piqc_pipeline.predictor.token import BearerToken
from piqc_pipeline.scaling.limits_file import FILE
from piqc_pipeline.scaling.policy import policy_from_settings
from piqc_pipeline.settings import Settings

log = logging.getLogger(__name__)

DRAIN_SECONDS = 10
"""Requests in flight get this long after SIGTERM."""


def serve(
    settings: Settings,
    artifact: Path,
    *,
    host: str,
    port: int,
    token_file: Path | None = None,
    limits_file: Path | None = None,
    access_log: bool = False,
    debug: bool = False,
) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        settings: Prometheus, policy and refresh.
        artifact: Folder of the promoted artifact; it may appear later.
        host: Address to listen on.
        port: Port; 0 takes a free one, which the log names.
        token_file: File with the bearer token, if clients need one.
        limits_file: Replica limits; None: those beside the manifests in the data folder, where there are any.
        access_log: Log every request.
        debug: Log at debug level.

    Raises:
        UsageError: The address is taken, or a file cannot be read.
        PrometheusError: The token or CA of Prometheus cannot be read.
    """
    log_json("debug" if debug else "info")
    heap.use_one_arena()
    sys.setswitchinterval(0.001)  # a refresh in its thread lets requests in after 1 ms, not 5
    token = BearerToken(token_file) if token_file else None
    limits = LimitsWatch(limits_file or settings.data_dir / "manifests" / FILE, required=limits_file is not None)
    options = EngineOptions(policy_from_settings(settings), settings.refresh_seconds, limits)
    source = prometheus_from_settings(settings)
    if source is None:
        log.warning("PIQC_PROMETHEUS_URL is not set: forecasts are served as trained, without live demand")
    engine = Engine(ArtifactWatch(artifact, load), source, LiveAnchor(), options, clock_from(settings))
    listener = _listen(host, port)
    log.info("listening on http://%s:%d, artifact %s", host, listener.getsockname()[1], artifact)
    config = uvicorn.Config(
        create_service(engine, token),
        http=bounds.BoundedProtocol,
        loop="auto",
        ws="none",
        access_log=access_log,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=bounds.KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        limit_concurrency=bounds.MAX_CONNECTIONS,
    )
    uvicorn.Server(config).run(sockets=[listener])


def clock_from(settings: Settings) -> Callable[[], datetime]:
    """The machine's clock; or one that starts at `PIQC_NOW`, or at the end of the demo's data, and then runs."""
    if settings.now is None and settings.cluster != "demo":
        return lambda: datetime.now(UTC)
    first, started = settings.clock(), time.monotonic()
    return lambda: first + timedelta(seconds=time.monotonic() - started)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    listener.set_inheritable(True)
    return listener
