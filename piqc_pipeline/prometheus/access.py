"""How is a Prometheus reached? Address, credentials and limits, as values; nothing is asked here.

Works with Prometheus and whatever speaks its API (Thanos, Mimir, VictoriaMetrics, managed services) by a bearer
token, basic authentication, TLS and extra headers.
"""

import base64
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.settings import Settings

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES = 256 * 2**20
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2."""
_FRAMING = ("content-length", "transfer-encoding", "connection")
"""Headers that say where a request ends, which belongs to the transport."""


@dataclass(frozen=True)
class PrometheusAccess:
    """How to reach a Prometheus.

    Attributes:
        url: Base address, `http://host:9090`; a path prefix (Mimir's `/prometheus`) belongs to it.
        timeout_seconds: Time limit of one request.
        token_file: File with a bearer token, read at each request because clusters rotate it.
        username, password: Basic authentication; goes before a token.
        ca_file: CA bundle that signed the server's certificate.
        headers: More headers, for instance `X-Scope-OrgID`.
        allow_partial: Take an answer that the server itself calls partial, with a warning.
        max_answer_bytes: A longer answer is not read to its end.
    """

    url: str
    timeout_seconds: float = 30.0
    token_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_partial: bool = False
    max_answer_bytes: int = MAX_ANSWER_BYTES

    @property
    def base(self) -> str:
        """The address without a slash at its end, as messages name it."""
        return self.url.rstrip("/")

    def client_options(self) -> dict[str, Any]:
        """What an `httpx.Client` or `httpx.AsyncClient` is made with.

        Raises:
            PrometheusError: The CA or token file, or a header, cannot be used.
        """
        self._authorization()
        for name, value in self.headers.items():
            self._check_header(name, value)
        try:
            # Without TLS nothing is verified, and the usual CAs need not be read, which takes 50 ms.
            usual = not self.url.startswith("http://")
            verify = ssl.create_default_context(cafile=str(self.ca_file)) if self.ca_file else usual
        except (OSError, ssl.SSLError) as error:
            raise PrometheusError(
                f"cannot use {self.ca_file} as the CA of Prometheus at {self.base}: {error}"
            ) from error
        return {
            "timeout": self.timeout_seconds,
            "auth": self._authorize,
            "verify": verify,
            # gzip costs more than it saves in a cluster: 5.1 s against 2.0 s for a week of 1,000 series.
            "headers": {"Accept-Encoding": "identity", "Accept": "application/json", **self.headers},
            # A redirect leads to a login page more often than to Prometheus, and would carry the headers there.
            "follow_redirects": False,
        }

    def _authorize(self, request: "httpx.Request") -> "httpx.Request":
        authorization = self._authorization()
        if authorization is not None:
            request.headers["Authorization"] = authorization
        return request

    def _check_header(self, name: str, value: str) -> None:
        """Refuse what HTTP has no place for; libraries would repeat the value, which may be a secret."""
        wrong = None
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _FRAMING:
            wrong = "HTTP allows no header of that name here"
        elif not (value.isascii() and value.isprintable()):
            wrong = "its value holds something else than letters, digits and signs of ASCII"
        if wrong:
            raise PrometheusError(f"cannot send the header {name!r} to {self.base}: {wrong}; check the headers")

    def _authorization(self) -> str | None:
        if self.username:
            pair = f"{self.username}:{self.password or ''}".encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        if self.token_file is None:
            return None
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise PrometheusError(
                f"cannot read the token of Prometheus from {self.token_file}: {error.strerror}"
            ) from error
        except UnicodeDecodeError as error:
            raise PrometheusError(
                f"cannot read the token of Prometheus from {self.token_file}: it is no text"
            ) from error
        if not token or not token.isprintable():
            what = "it is empty" if not token else "it holds more than one line; write the token alone"
            raise PrometheusError(f"cannot read the token of Prometheus from {self.token_file}: {what}")
        return f"Bearer {token}"


def access_from_settings(settings: Settings, url: str | None = None) -> PrometheusAccess | None:
    """Access to the Prometheus that the settings name, or to the one at `url`; None where there is neither."""
    url = url or settings.prometheus_url
    if not url:
        return None
    password = settings.prometheus_password
    return PrometheusAccess(
        url=url,
        timeout_seconds=settings.prometheus_timeout_seconds,
        token_file=settings.prometheus_token_file,
        username=settings.prometheus_username,
        password=password.get_secret_value() if password else None,
        ca_file=settings.prometheus_ca_file,
        headers={name: value.get_secret_value() for name, value in settings.prometheus_headers.items()},
    )
