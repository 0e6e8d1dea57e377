"""How much may one client send, and how long may it take? A connection's limits, before any of our code sees it.

uvicorn's own parser reads headers of any length for as long as a client likes; this class ends both.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_REQUEST_BYTES = 16 * 1024
"""Request line, headers and body together; the longest real request has under 1 KiB."""

REQUEST_SECONDS = 10.0
"""From a request's first byte to its last."""

MAX_CONNECTIONS = 1024
KEEP_ALIVE_SECONDS = 75
"""Longer than HPA's sync and KEDA's polling, so that they keep their connection."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b'content-length: 70\r\n\r\n{"reason":"too_long","detail":"a request may have 16384 bytes in all"}'
)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's fast protocol with a limit on bytes and time of a request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Same arguments as uvicorn's."""
        super().__init__(*args, **kwargs)
        self._received = 0
        self._deadline: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Count before parsing."""
        self._received += len(data)
        if self._received > MAX_REQUEST_BYTES:
            self._cancel_deadline()
            self.transport.write(_TOO_LARGE)
            self.transport.close()
            return
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)
        super().data_received(data)

    def on_message_complete(self) -> None:
        """The request is whole: the next one starts from nothing."""
        self._received = 0
        self._cancel_deadline()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for any more."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
