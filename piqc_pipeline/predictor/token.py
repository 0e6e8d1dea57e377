"""May this client ask? An optional bearer token, read from a file that may be rotated."""

import hmac
import logging
import time
from pathlib import Path

from piqc_pipeline.errors import UsageError

log = logging.getLogger(__name__)

RECHECK_SECONDS = 5.0
MAX_TOKEN_BYTES = 8192


class BearerToken:
    """The token of a file; read again when the file changes, the old one kept while the new one cannot be read."""

    def __init__(self, path: Path) -> None:
        """Read the file once.

        Raises:
            UsageError: It cannot be read or is empty.
        """
        self._path = path
        self._checked = time.monotonic()
        self._stamp = -1
        try:
            self._token = self._read()
        except OSError as error:
            raise UsageError(f"cannot read the bearer token from {path}: {error.strerror}") from error
        if not self._token:
            raise UsageError(f"the token file {path} is empty; write the token into it")

    def admits(self, header: bytes | None) -> bool:
        """Whether an `Authorization` header carries the token; in constant time."""
        if time.monotonic() - self._checked >= RECHECK_SECONDS:
            self._renew()
        scheme, _, given = (header or b"").partition(b" ")
        return hmac.compare_digest(given.strip(), self._token) and scheme.lower() == b"bearer"

    def _renew(self) -> None:
        self._checked = time.monotonic()
        try:
            if self._path.stat().st_mtime_ns != self._stamp:
                self._token = self._read() or self._token
        except OSError as error:
            log.warning("cannot read %s again: %s; the token of before stays", self._path, error.strerror)

    def _read(self) -> bytes:
        self._stamp = self._path.stat().st_mtime_ns
        with self._path.open("rb") as file:
            return file.read(MAX_TOKEN_BYTES).strip()
