"""How does a Prometheus scrape a load that runs faster than the clock? A live exporter on accelerated time."""

import time
from bisect import bisect_right
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from piqc_pipeline.errors import UsageError
from piqc_pipeline.history.openmetrics import GaugeSeries

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class LiveExporter:
    """Serves `/metrics` with what each series is at the accelerated instant; starts over at its end."""

    def __init__(
        self,
        metric: str,
        series: list[GaugeSeries],
        speed: float,
        host: str = "127.0.0.1",
        port: int = 9400,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the address; serving starts with `serve`.

        Args:
            metric: Name of the gauge.
            series: What to play.
            speed: Seconds of load a second of the clock; 60 plays a day in 24 minutes.
            host: Address to listen on.
            port: Port; 0 takes a free one (see `address`).
            clock: Seconds that only rise.

        Raises:
            UsageError: The address is taken or the series are empty.
        """
        if not series or not list(series[0].times):
            raise UsageError("there is nothing to play: generate at least one step")
        self._metric, self._speed, self._clock = metric, speed, clock
        self._series = [(entry.labels, list(entry.times), list(entry.values)) for entry in series]
        self._began = clock()
        page = self.page

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802 - http.server's name
                body = page().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing at each scrape."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error

    @property
    def address(self) -> str:
        """Where to scrape."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def page(self) -> str:
        """The exposition at this instant."""
        elapsed = (self._clock() - self._began) * self._speed
        lines = [f"# TYPE {self._metric} gauge"]
        for labels, times, values in self._series:
            span = times[-1] - times[0] or 1.0
            position = bisect_right(times, times[0] + elapsed % span) - 1
            text = ",".join(f'{name}="{value}"' for name, value in labels.items())
            lines.append(f"{self._metric}{{{text}}} {values[position]:g}")
        return "\n".join(lines) + "\n"

    def serve(self) -> None:
        """Answer until `close` is called from another thread, or the process is interrupted."""
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """Stop answering and give the port back."""
        self._server.shutdown()
        self._server.server_close()
