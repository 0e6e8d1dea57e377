"""A throwaway DAGSTER_HOME with the project's own dagster.yaml, and processes that end with the test."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 30


def environment(home: Path, data_dir: Path) -> dict[str, str]:
    """The demo's environment; nothing of the developer's own PIQC settings comes through."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PIQC_", "DAGSTER_"))}
    return {
        **own,
        "DAGSTER_HOME": str(home),
        "PIQC_CLUSTER": "demo",
        "PIQC_DATA_DIR": str(data_dir),
        "PYTHONWARNINGS": "ignore",
    }


def dagster(*arguments: str, env: dict[str, str], timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the real `dagster` to its end."""
    command = [sys.executable, "-m", "dagster", *arguments]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


@contextlib.contextmanager
def started(command: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A service in a process group of its own; interrupted, then killed, at the end."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=env, cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(STOP_SECONDS)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_until(ready: Callable[[], bool], what: str, seconds: float) -> None:
    """Ask until it is so, or fail with what was waited for."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.5)


def answers(url: str) -> bool:
    """Whether a server answers there."""
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
