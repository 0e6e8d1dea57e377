"""Does the real process start, answer, take a new artifact and end, with only what it needs in memory?"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from piqc_pipeline.predictor.run import clock_from
from piqc_pipeline.settings import DEMO_NOW, load_settings

PIQC = str(Path(sys.executable).with_name("piqc"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PIQC_")}
    command = [PIQC, "serve", "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{url}/healthz", timeout=1)
                break
            time.sleep(0.1)
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
        if process.stderr:
            process.stderr.close()


@pytest.mark.cli
def test_process_answers_logs_json_and_ends_with_sigterm(tmp_path: Path) -> None:
    with serving("--artifact", str(tmp_path / "none")) as (url, process):
        assert httpx.get(f"{url}/healthz", timeout=5).status_code == 200
        response = httpx.get(f"{url}/readyz", timeout=5)
        assert response.status_code == 503 and response.json()["reason"] == "not_ready"
        process.send_signal(signal.SIGTERM)
        _, talk = process.communicate(timeout=20)
    assert process.returncode in (0, -signal.SIGTERM)
    rows = [json.loads(line) for line in talk.splitlines()]
    assert all({"time", "level", "message"} <= set(row) for row in rows)
    assert any("artifact refused" in row["message"] for row in rows)


@pytest.mark.cli
def test_taken_port_and_bad_files_are_one_sentence_and_exit_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run([PIQC, "serve", "--port", port], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cli
def test_process_imports_neither_prophet_nor_frames_nor_dagster() -> None:
    heavy = ("pandas", "prophet", "dagster", "duckdb", "polars", "kubernetes", "matplotlib", "cmdstanpy")
    program = "import sys, piqc_pipeline.predictor.run as _; print([m for m in sys.argv[1:] if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_on_the_demo_the_clock_starts_where_its_data_end() -> None:
    assert clock_from(load_settings(cluster="demo"))() - DEMO_NOW < timedelta(minutes=1)
