"""A Prometheus on loopback behind TLS of its own CA, basic authentication and a tenant header."""

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from piqc_pipeline.settings import Settings

USER, PASSWORD, TENANT = "me", "s3cret", "team-a"


@dataclass
class Guarded:
    """The server's settings, and what it was asked.

    Attributes:
        asked: Queries that passed.
        refused: Requests that did not.
        times_down: Answers 503 that often before it answers.
    """

    url: str
    ca_file: Path
    asked: list[str] = field(default_factory=list)
    refused: int = 0
    times_down: int = 0

    def settings(self, **more: object) -> Settings:
        """Settings that pass."""
        return Settings(
            **{
                "prometheus_url": self.url,
                "prometheus_username": USER,
                "prometheus_password": PASSWORD,
                "prometheus_ca_file": self.ca_file,
                "prometheus_headers": {"X-Scope-OrgID": TENANT},
                **more,
            }  # type: ignore[arg-type]
        )


@contextmanager
def guarded_prometheus(folder: Path, series: list[dict[str, object]]) -> Iterator[Guarded]:
    """Answers every query with the series."""
    certificate = _certificate(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    guarded = Guarded(f"https://127.0.0.1:{server.server_port}", certificate)
    server.state, server.series = guarded, series  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield guarded
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, form: str) -> None:
        state: Guarded = self.server.state  # type: ignore[attr-defined]
        wanted = f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"
        if self.headers["Authorization"] != wanted or self.headers["X-Scope-OrgID"] != TENANT:
            state.refused += 1
            self._send(401, b"no")
        elif state.times_down > 0:
            state.times_down -= 1
            self._send(503, b"starting")
        elif "/label/" in self.path:
            self._send(200, json.dumps({"status": "success", "data": ["DCGM_FI_DEV_GPU_UTIL"]}).encode())
        else:
            state.asked.append(parse_qs(form)["query"][0])
            result = {"resultType": "vector", "result": self.server.series}  # type: ignore[attr-defined]
            self._send(200, json.dumps({"status": "success", "data": result}).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prometheus")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder / "ca.pem"
