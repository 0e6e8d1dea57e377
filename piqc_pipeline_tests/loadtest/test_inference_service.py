"""Does the small inference service carry the typical day, and do its metrics say what it did?"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from loadtest.inference_service import Device

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "loadtest.inference_service", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                httpx.get(f"{url}/health", timeout=1)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=10)


def sample(text: str, name: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(name + "{")).split()[-1])


def test_activity_is_the_busy_share_of_the_last_window() -> None:
    seconds = iter([0.0, 0.0, 1.0, 4.0, 20.0])
    device = Device(clock=lambda: next(seconds))  # built at 0, works from 0 to 4 (asked once more at 1), read at 20
    device.generate(1)
    assert device.read_activity() == pytest.approx(4 / 20)


@pytest.mark.service
@pytest.mark.parametrize("body", [b"", b"{}", b'{"tokens": 0}', b'{"tokens": 1e9}', b'{"tokens": "x"}', b"[" * 2000])
def test_malformed_request_is_refused(service: str, body: bytes) -> None:
    assert httpx.post(f"{service}/infer", content=body, timeout=5).status_code == 400


@pytest.mark.service
def test_typical_day_runs_headless_with_no_failed_request(service: str) -> None:
    before = sample(httpx.get(f"{service}/metrics", timeout=5).text, "vllm:request_success_total")
    locust = Path(sys.executable).with_name("locust")
    command = [locust, "-f", "loadtest/locustfile.py", "--headless", "--host", service, "--only-summary", "--json"]
    command += ["--day-seconds", "30", "--peak-rps", "40", "--tokens", "4", "--stop-timeout", "5"]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (stats,) = json.loads(done.stdout)
    assert stats["num_failures"] == 0
    # The day's mean is 72.5 of 200, so 14.5 of 40 requests/s over 30 s: 435. Half of it where others use the machine.
    assert stats["num_requests"] > 217
    text = httpx.get(f"{service}/metrics", timeout=5).text
    assert sample(text, "vllm:request_success_total") - before == stats["num_requests"]
    assert sample(text, "vllm:num_requests_waiting") == 0
    assert 0 < sample(text, "DCGM_FI_PROF_GR_ENGINE_ACTIVE") <= 1
