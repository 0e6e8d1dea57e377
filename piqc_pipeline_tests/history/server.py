"""A real Prometheus on a free port of loopback, filled with series, stopped by its own process."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from piqc_pipeline.history.openmetrics import GaugeSeries, write_openmetrics

START_LIMIT_SECONDS = 30.0

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no prometheus and promtool on PATH; Debian: apt-get install prometheus",
)


@contextmanager
def prometheus_with(
    folder: Path, metrics: Mapping[str, Sequence[GaugeSeries]], counters: frozenset[str] = frozenset()
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Address and process of a server that holds the series."""
    text, blocks = folder / "series.om", folder / "tsdb"
    with text.open("w") as stream:
        write_openmetrics(stream, metrics, counters=counters)
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=168h", "openmetrics", str(text), str(blocks)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={blocks}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not _ready(url):
            if time.monotonic() > deadline or server.poll() is not None:
                pytest.fail(f"prometheus does not start: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        yield url, server
    finally:
        server.kill()
        server.wait(timeout=10)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
