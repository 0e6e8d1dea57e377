"""How is an API server reached and asked? Kubeconfig or service account, pages of lists, a reason for each failure.

The official client finds the configuration and opens the connections; its typed models are not used (they cost 65
times as much). What is asked for belongs to `listings.py`.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
import urllib3

from piqc_pipeline.cluster.kubeconfig import SERVICE_ACCOUNT, load_kubeconfig, load_service_account
from piqc_pipeline.cluster.options import ScanOptions
from piqc_pipeline.cluster.redact import printable
from piqc_pipeline.errors import ClusterUnreachable, CredentialsRefused

PAGE_SIZE = 500
MAX_TRIES = 3
MAX_RESTARTS = 3
MAX_BODY_BYTES = 256 * 1024 * 1024
BACKOFF_SECONDS = 0.25
MAX_RETRY_AFTER_SECONDS = 30.0
CONNECT_SECONDS = 5.0
INTERRUPTED = "the scan was interrupted"
_RETRIED = frozenset({429, 500, 502, 503, 504})

T = TypeVar("T")


class ReadFailed(Exception):
    """A read that failed or was refused.

    Attributes:
        status: HTTP status; 0 where there was no answer.
        why: One clause, fit to be shown.
    """

    def __init__(self, status: int, why: str) -> None:
        """Keep the status and the reason."""
        super().__init__(why)
        self.status = status
        self.why = why


class Stopped(Exception):
    """The scan was interrupted, or its deadline has passed; nothing more is asked."""


@dataclass
class Deadline:
    """How long the scan may still take, and whether it was told to stop."""

    seconds: float
    started: float = field(default_factory=time.monotonic)
    stop: threading.Event = field(default_factory=threading.Event)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.seconds - (time.monotonic() - self.started))

    def why_over(self) -> str | None:
        """Why nothing more may be asked, in one clause; None where it may."""
        if self.stop.is_set():
            return INTERRUPTED
        return f"the deadline of {self.seconds:g} s has passed" if self.remaining() <= 0 else None

    def check(self) -> None:
        """Raise `Stopped` where nothing more may be asked."""
        if self.why_over() is not None:
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than is left; raise `Stopped` when told to stop."""
        self.stop.wait(min(seconds, self.remaining()))
        self.check()


@dataclass(frozen=True)
class Answer:
    """What the API server, or a pod through it, answered."""

    status: int
    body: bytes
    retry_after: float | None = None


class _PageMeta(msgspec.Struct):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _ListPage(msgspec.Struct, Generic[T]):
    items: list[T] | None | msgspec.UnsetType = msgspec.UNSET
    metadata: _PageMeta | None = None
    kind: str = ""


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list.

    Attributes:
        broken: Objects that could not be read; they are not among the items.
        next: Token of the next page; None at the end.
    """

    items: list[T]
    next: str | None = None
    broken: int = 0


class _Status(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


@dataclass
class ApiServer:
    """One API server, asked with a deadline."""

    client: Any
    cluster_name: str
    context: str | None
    timeout_seconds: float
    deadline: Deadline
    in_cluster: bool = False
    broken: dict[str, int] = field(default_factory=dict)
    """By path of a list: objects of it that could not be read."""

    @property
    def host(self) -> str:
        """Address of the server."""
        return str(self.client.configuration.host)

    def headers(self) -> dict[str, str]:
        """Authorization of this moment; short-lived tokens are renewed by the client."""
        headers: dict[str, str] = dict(self.client.default_headers)
        self.client.update_params_for_auth(headers, [], ["BearerToken"])
        return headers

    def ask(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | None = None,
        accept: str = "application/json",
        timeout_seconds: float | None = None,
        tries: int = MAX_TRIES,
    ) -> Answer:
        """The answer to one request, whatever its status; tried again where the server asks for it, or does not answer.

        Raises:
            ReadFailed: Nobody answered.
            Stopped: The scan's time is over.
        """
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {**self.headers(), "Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/json"
        for attempt in range(1, tries + 1):
            self.deadline.check()
            try:
                answer = self._once(method, url, headers, body, timeout_seconds or self.timeout_seconds)
            except urllib3.exceptions.HTTPError as error:
                timed_out = _timed_out(error)
                self.deadline.check()
                if attempt >= (min(tries, 2) if timed_out else tries):
                    raise ReadFailed(0, _transport_words(error, timeout_seconds or self.timeout_seconds)) from error
                self.deadline.sleep(BACKOFF_SECONDS * attempt)
                continue
            if answer.status not in _RETRIED or attempt == tries:
                return answer
            self.deadline.sleep(min(answer.retry_after or BACKOFF_SECONDS * attempt, MAX_RETRY_AFTER_SECONDS))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _once(self, method: str, url: str, headers: dict[str, str], body: bytes | None, seconds: float) -> Answer:
        seconds = min(seconds, max(0.05, self.deadline.remaining()))
        ends = time.monotonic() + seconds
        response = self.client.rest_client.pool_manager.request(
            method,
            url,
            headers=headers,
            body=body,
            timeout=urllib3.Timeout(connect=min(seconds, CONNECT_SECONDS), read=seconds),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            parts: list[bytes] = []
            size = 0
            while part := response.read1(256 * 1024):
                parts.append(part)
                size += len(part)
                if time.monotonic() > ends:
                    raise urllib3.exceptions.TimeoutError("the answer took too long")
                if size > MAX_BODY_BYTES or self.deadline.stop.is_set():
                    raise urllib3.exceptions.ProtocolError("the answer was cut off")
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return Answer(
            response.status,
            b"".join(parts),
            _seconds(response.headers.get("Retry-After")),
        )

    def read(self, path: str, query: Mapping[str, str] | None = None, accept: str = "application/json") -> bytes:
        """The body of a successful answer.

        Raises:
            ReadFailed: The server refused, failed, or answered with something that is no JSON.
            CredentialsRefused: It answered 401.
        """
        answer = self.ask(path, query, accept=accept)
        if answer.status == 401:
            raise CredentialsRefused(
                f"the API server at {self.host} refused the credentials (401): log in again, "
                "or choose another context with --context"
            )
        if answer.status >= 300:
            raise ReadFailed(answer.status, _refusal_words(answer))
        if answer.body.lstrip()[:1] not in (b"{", b"["):
            what = (
                "HTML: a proxy is in between" if b"<html" in answer.body[:2000].lower() else "something that is no JSON"
            )
            raise ReadFailed(answer.status, f"the API server answered {what}")
        return answer.body

    def pages(self, path: str, item: type[T], accept: str = "application/json") -> Iterator[list[T] | None]:
        """Every object of a list, page by page. After 410 the list begins again: None is given first.

        A page may be empty although more follow ("zero items in the event all requested objects are filtered out",
        Kubernetes API, `limit`).

        Raises:
            ReadFailed: The server refused, failed, or answered with something that is no list.
        """
        for restart in range(MAX_RESTARTS):
            try:
                if restart:
                    yield None
                yield from self._pass(path, item, accept)
                return
            except ReadFailed as failure:
                if failure.status != 410 or restart + 1 == MAX_RESTARTS:
                    raise
                self.deadline.sleep(BACKOFF_SECONDS * restart)

    def _pass(self, path: str, item: type[T], accept: str) -> Iterator[list[T]]:
        token: str | None = None
        self.broken[path] = 0
        while True:
            query = {"limit": str(PAGE_SIZE)}
            if token:
                query["continue"] = token
            page = decode_page(self.read(path, query, accept), item)
            self.broken[path] += page.broken
            yield page.items
            if not page.next:
                return
            if page.next == token:
                raise ReadFailed(200, "the API server gives the same page again and again")
            token = page.next

    def every(self, path: str, item: type[T], accept: str = "application/json") -> list[T]:
        """Every object of a list.

        Raises:
            ReadFailed: As for `pages`.
        """
        found: list[T] = []
        for page in self.pages(path, item, accept):
            if page is None:
                found.clear()
            found += page or ()
        return found


def decode_page(body: bytes, item: type[T]) -> Page[T]:
    """One page of a list. An object that has a field of an odd type is left out, and counted; the rest is read.

    Raises:
        ReadFailed: It is no list.
    """
    try:
        return _page(_decoder(item).decode(body))
    except (msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        pass
    except msgspec.DecodeError as error:
        raise ReadFailed(200, f"the answer is cut off or no JSON ({printable(str(error), 80)})") from error
    try:
        page = _page(msgspec.json.decode(body, type=_ListPage[msgspec.Raw]))
    except RecursionError as error:
        raise ReadFailed(200, "the answer is nested deeper than Kubernetes objects are") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReadFailed(200, f"the answer is no list ({printable(str(error), 80)})") from error
    found = []
    for raw in page.items:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found.append(msgspec.json.decode(raw, type=item, strict=False))
    return Page(found, page.next, len(page.items) - len(found))


def _page(answer: "_ListPage[T]") -> Page[T]:
    """The page of an answer; Go writes an empty list as null, but never leaves it out."""
    if isinstance(answer.items, msgspec.UnsetType):
        raise ReadFailed(200, f"the API server answered with {printable(answer.kind, 40) or 'something'} and no list")
    return Page(answer.items or [], answer.metadata.continue_ if answer.metadata else None)


_DECODERS: dict[type, Any] = {}


def _decoder(item: type[T]) -> "msgspec.json.Decoder[_ListPage[T]]":
    if item not in _DECODERS:
        _DECODERS[item] = msgspec.json.Decoder(_ListPage[item])  # type: ignore[valid-type]
    found: msgspec.json.Decoder[_ListPage[T]] = _DECODERS[item]
    return found


def connect(options: ScanOptions, deadline: Deadline | None = None) -> ApiServer:
    """The API server that the options name; nothing is asked yet.

    Raises:
        NotConfigured: There is neither a kubeconfig nor a service account.
        UsageError: The kubeconfig has no such context, or cannot be read.
    """
    from kubernetes import client  # 0.6 s that a recording need not pay

    deadline = deadline or Deadline(options.deadline_seconds)
    configuration = client.Configuration()
    configuration.retries = False
    configuration.connection_pool_maxsize = options.workers + 8
    in_cluster = options.mode == "incluster" or (
        options.mode == "auto"
        and options.kubeconfig is None
        and options.context is None
        and not os.environ.get("KUBECONFIG")
        and not Path("~/.kube/config").expanduser().exists()
        and (SERVICE_ACCOUNT / "token").exists()
    )
    if in_cluster:
        name, context = load_service_account(configuration), None
    else:
        name, context = load_kubeconfig(options, configuration)
    return ApiServer(
        client=client.ApiClient(configuration),
        cluster_name=options.cluster_name or name,
        context=context,
        timeout_seconds=options.timeout_seconds,
        deadline=deadline,
        in_cluster=in_cluster,
    )


def server_version(server: ApiServer) -> str | None:
    """The server's version, asked first so that a wrong address is told at once.

    Raises:
        ClusterUnreachable: Nobody answers, or something else does.
        CredentialsRefused: It answered 401.
    """
    try:
        body = server.read("/version")
        version = msgspec.json.decode(body, type=dict[str, Any]).get("gitVersion")
        return printable(str(version), 60) if version else None
    except ReadFailed as failure:
        if failure.status in (403, 404):
            return None
        raise ClusterUnreachable(
            f"cannot reach the cluster at {server.host}: {failure.why}; check the address in the kubeconfig, "
            "the network and the context"
        ) from failure
    except msgspec.DecodeError as error:
        raise ClusterUnreachable(
            f"{server.host} answers, but not as a Kubernetes API server; check the address in the kubeconfig"
        ) from error


def _timed_out(error: Exception) -> bool:
    """Whether time ran out. urllib3 counts a refused connection among its timeouts."""
    refused = isinstance(error, urllib3.exceptions.NewConnectionError)
    return isinstance(error, urllib3.exceptions.TimeoutError) and not refused


def _transport_words(error: Exception, seconds: float) -> str:
    text = str(error)
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError) and _timed_out(error):
        return f"no connection within {min(seconds, CONNECT_SECONDS):g} s"
    if _timed_out(error):
        return f"no answer within {seconds:g} s"
    for sign, words in (
        ("refused", "the connection was refused"),
        ("reset", "the connection was reset"),
        ("IncompleteRead", "the answer was cut off"),
        ("aborted", "the connection was closed before an answer"),
        ("Name or service not known", "its name cannot be resolved"),
        ("resolve", "its name cannot be resolved"),
        ("CERTIFICATE_VERIFY_FAILED", "its certificate cannot be verified"),
        ("WRONG_VERSION_NUMBER", "it speaks no TLS; is it http?"),
        ("unreachable", "the network is unreachable"),
    ):
        if sign in text:
            return words
    return f"the connection failed ({type(error).__name__})"


def _refusal_words(answer: Answer) -> str:
    """The server's refusal in one clause."""
    reason, message = None, None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        status = msgspec.json.decode(answer.body, type=_Status)
        reason, message = status.reason, status.message
    if answer.status == 403:
        return f"forbidden{': ' + printable(message, 160) if message else ''}"
    words = {404: "not found", 410: "the list expired while it was read", 429: "the server asks to slow down"}
    text = words.get(answer.status) or (printable(message, 120) if message else None) or printable(reason or "", 60)
    return f"the API server answered {answer.status}" + (f" ({text})" if text else "")


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() else None
