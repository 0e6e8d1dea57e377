"""What does a small inference service do under load? Real numeric work, one device, a queue, and its own metrics.

    python -m loadtest.inference_service --port 9000
    python -m loadtest.inference_service --measure        # requests per second that one device carries

`POST /infer {"tokens": 16}` multiplies a state through a stack of random layers once for each token, one request at
a time, as a device with batch size 1 would. `/metrics` speaks vLLM's and dcgm-exporter's names, so that the pipeline
reads it as it reads the real ones: activity is the share of time in which the device was busy. `--service-seconds`
makes each request hold the device for at least that long, for replicas that share one machine's cores.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # one device, one thread: a second one spins beside other programs

import numpy as np  # noqa: E402 - the thread limits must be set before

WIDTH = 256
LAYERS = 4
MAX_TOKENS = 4096
MAX_WAITING = 512
MAX_BODY_BYTES = 4096
WINDOW_SECONDS = 10.0
"""Activity is measured over the last full window of this length; `--window-seconds` sets another."""


class Device:
    """One accelerator's stand-in: a stack of layers, and a record of when it was busy."""

    def __init__(
        self,
        service_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        window_seconds: float = WINDOW_SECONDS,
    ) -> None:
        """Make the layers, always the same ones."""
        rng = np.random.default_rng(7)
        self.layers = [rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / np.sqrt(WIDTH) for _ in range(LAYERS)]
        self.service_seconds = service_seconds
        self.clock, self.window_seconds = clock, window_seconds
        self.busy_seconds = 0.0
        self.window_start = clock()
        self.window_busy = 0.0
        self.activity = 0.0

    def generate(self, tokens: int) -> float:
        """Work through `tokens` steps; returns a checksum of the state."""
        started = self.clock()
        state = np.ones((WIDTH, 32), dtype=np.float32)
        for _ in range(tokens):
            for layer in self.layers:
                state = np.tanh(layer @ state)
        if (rest := self.service_seconds - (self.clock() - started)) > 0:
            time.sleep(rest)
        spent = self.clock() - started
        self.busy_seconds += spent
        self.window_busy += spent
        return float(state.sum())

    def read_activity(self) -> float:
        """Share of the last window in which the device worked, 0 to 1."""
        now = self.clock()
        if (length := now - self.window_start) >= self.window_seconds:
            self.activity = min(1.0, self.window_busy / length)
            self.window_start, self.window_busy = now, 0.0
        return self.activity


class Service:
    """The ASGI application: `/infer`, `/metrics`, `/health`."""

    def __init__(self, device: Device, model: str = "demo-8b") -> None:
        """Serve one device under a model's name."""
        self.device = device
        self.model = model
        self.lock = asyncio.Lock()
        self.worker = ThreadPoolExecutor(1)
        self.waiting = self.running = self.succeeded = self.refused = self.tokens = 0
        self.seconds_sum = 0.0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        route = (scope["method"], scope["path"])
        if route == ("POST", "/infer"):
            status, body = await self.infer(receive)
        elif route == ("GET", "/metrics"):
            status, body = 200, self.metrics().encode()
        elif route == ("GET", "/health"):
            status, body = 200, b"ok"
        else:
            status, body = 404, b"no such path"
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def infer(self, receive: Any) -> tuple[int, bytes]:
        raw = b""
        while True:
            event = await receive()
            raw += event.get("body", b"")
            if len(raw) > MAX_BODY_BYTES:
                return 413, b"body too long"
            if not event.get("more_body"):
                break
        try:
            tokens = json.loads(raw)["tokens"]
            if not isinstance(tokens, int) or not 1 <= tokens <= MAX_TOKENS:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            return 400, f'send {{"tokens": 1 to {MAX_TOKENS}}}'.encode()
        if self.waiting >= MAX_WAITING:
            self.refused += 1
            return 429, b"queue is full"
        arrived = time.monotonic()
        self.waiting += 1
        async with self.lock:
            self.waiting -= 1
            self.running = 1
            try:
                checksum = await asyncio.get_running_loop().run_in_executor(self.worker, self.device.generate, tokens)
            finally:
                self.running = 0
        self.succeeded += 1
        self.tokens += tokens
        self.seconds_sum += time.monotonic() - arrived
        return 200, json.dumps({"tokens": tokens, "checksum": checksum}).encode()

    def metrics(self) -> str:
        """The state in Prometheus' text format."""
        engine = f'{{model_name="{self.model}"}}'
        activity = self.device.read_activity()
        gpu = '{gpu="0",UUID="GPU-demo-0",modelName="CPU stand-in"}'
        rows = [
            ("vllm:num_requests_running", "gauge", engine, self.running),
            ("vllm:num_requests_waiting", "gauge", engine, self.waiting),
            ("vllm:generation_tokens_total", "counter", engine, self.tokens),
            ("vllm:request_success_total", "counter", engine, self.succeeded),
            ("vllm:e2e_request_latency_seconds_sum", "counter", engine, self.seconds_sum),
            ("vllm:e2e_request_latency_seconds_count", "counter", engine, self.succeeded),
            ("loadtest_requests_refused_total", "counter", engine, self.refused),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", gpu, activity),
            ("DCGM_FI_DEV_GPU_UTIL", "gauge", gpu, 100 * activity),
        ]
        return "".join(f"# TYPE {name} {kind}\n{name}{labels} {value}\n" for name, kind, labels, value in rows)


def measure(device: Device, tokens: int, seconds: float = 2.0) -> float:
    """Requests per second that one device carries, measured back to back."""
    device.generate(tokens)
    started, done = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        device.generate(tokens)
        done += 1
    return done / (time.monotonic() - started)


def main() -> None:
    """Serve, or measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--service-seconds", type=float, default=0.0)
    parser.add_argument("--window-seconds", type=float, default=WINDOW_SECONDS)
    parser.add_argument("--load-seconds", type=float, default=0.0, help="wait before serving, as for weights")
    parser.add_argument("--tokens", type=int, default=16, help="for --measure")
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    device = Device(options.service_seconds, window_seconds=options.window_seconds)
    if options.measure:
        sys.stdout.write(f"{measure(device, options.tokens):.1f} requests/s of {options.tokens} tokens\n")
        return
    import uvicorn

    time.sleep(options.load_seconds)
    uvicorn.run(Service(device), host=options.host, port=options.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
