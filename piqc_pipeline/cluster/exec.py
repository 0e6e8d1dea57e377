"""What does a command print inside a container? One exec over WebSocket, with a time limit and a limit of output.

Each session has a connection of its own: the official client's `stream` patches a shared object and is not safe
between threads (kubernetes-client/python#928). Protocol: `v5.channel.k8s.io` and `v4.channel.k8s.io`; channel 1 is
standard output, 2 standard error, 3 the status at the end.
"""

import contextlib
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import websocket
from kubernetes.stream.ws_client import create_websocket, get_websocket_url

from piqc_pipeline.cluster.kubernetes import ApiServer, ReadFailed
from piqc_pipeline.cluster.redact import printable

MAX_OUTPUT_BYTES = 8 * 1024 * 1024
_POLL_SECONDS = 0.2
"""How soon a running command notices that the scan was stopped."""
_STDOUT, _STDERR, _STATUS = 1, 2, 3


@dataclass(frozen=True)
class Output:
    """What a command printed.

    Attributes:
        code: Exit code; None where the container could not start it.
    """

    stdout: str
    stderr: str
    code: int | None

    @property
    def not_found(self) -> bool:
        """Whether the container has no such program."""
        return self.code in (126, 127) or (
            self.code is None and ("not found" in self.stderr or "no such file" in self.stderr.lower())
        )


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _ExecStatus(msgspec.Struct):
    status: str = ""
    message: str = ""
    details: _Details | None = None


def run(server: ApiServer, namespace: str, pod: str, container: str, command: tuple[str, ...]) -> Output:
    """Run a command and wait for its end.

    Raises:
        ReadFailed: Exec was refused, failed, or did not end in time.
        Stopped: The scan's time is over.
    """
    server.deadline.check()
    ends = time.monotonic() + min(server.timeout_seconds, server.deadline.remaining())
    query = urlencode(
        [("container", container), ("stdin", "false"), ("stdout", "true"), ("stderr", "true"), ("tty", "false")]
        + [("command", word) for word in command]
    )
    path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/exec?{query}"
    headers = {key.lower(): value for key, value in server.headers().items()}
    socket = _open(server, get_websocket_url(server.host + path), headers, ends)
    try:
        return _collect(server, socket, ends)
    finally:
        with contextlib.suppress(Exception):
            socket.shutdown()


def _open(server: ApiServer, url: str, headers: dict[str, str], ends: float) -> Any:
    left = max(0.05, ends - time.monotonic())
    previous = websocket.getdefaulttimeout()
    if previous is None:
        websocket.setdefaulttimeout(server.timeout_seconds)
    try:
        socket = create_websocket(server.client.configuration, url, headers)
        socket.settimeout(min(left, _POLL_SECONDS))
        return socket
    except websocket.WebSocketBadStatusException as error:
        raise ReadFailed(error.status_code, _refusal(error)) from error
    except (websocket.WebSocketException, OSError, ValueError) as error:
        timed_out = isinstance(error, websocket.WebSocketTimeoutException | TimeoutError)
        why = f"exec did not begin within {server.timeout_seconds:g} s" if timed_out else "the exec connection failed"
        raise ReadFailed(0, why) from error


def _collect(server: ApiServer, socket: Any, ends: float) -> Output:
    channels: dict[int, list[bytes]] = {_STDOUT: [], _STDERR: [], _STATUS: []}
    size = 0
    while True:
        server.deadline.check()
        if time.monotonic() > ends:
            raise ReadFailed(0, f"exec did not end within {server.timeout_seconds:g} s")
        try:
            opcode, data = socket.recv_data()
        except websocket.WebSocketTimeoutException:
            continue
        except (websocket.WebSocketException, OSError) as error:
            if channels[_STATUS]:
                break
            raise ReadFailed(0, "the exec connection was closed before the command ended") from error
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            break
        if opcode not in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT) or not data:
            continue
        if data[0] in channels:
            channels[data[0]].append(data[1:])
            size += len(data)
        if size > MAX_OUTPUT_BYTES:
            raise ReadFailed(0, "the command printed more than can be read")
        if data[0] == _STATUS:
            break
    if not channels[_STATUS]:
        raise ReadFailed(0, "the exec connection was closed before the command ended")
    out, err = (b"".join(channels[number]).decode("utf-8", "replace") for number in (_STDOUT, _STDERR))
    code, message = _code(b"".join(channels[_STATUS]))
    return Output(out, err or message, code)


def _code(text: bytes) -> tuple[int | None, str]:
    try:
        status = msgspec.json.decode(text, type=_ExecStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, printable(text.decode("utf-8", "replace"))
    if status.status == "Success":
        return 0, ""
    for cause in (status.details.causes or []) if status.details else []:
        if cause.reason == "ExitCode" and cause.message.isascii() and cause.message.isdigit():
            return int(cause.message), ""
    return None, printable(status.message)


def _refusal(error: websocket.WebSocketBadStatusException) -> str:
    body = getattr(error, "resp_body", None) or b""
    message = ""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        message = str(msgspec.json.decode(body, type=dict[str, Any]).get("message") or "")
    words = f": {printable(message, 120)}" if message else ""
    if error.status_code == 403:
        return f"exec is forbidden{words}"
    return f"exec was answered with {error.status_code}{words}"
