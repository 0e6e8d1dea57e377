"""How does a document reach the address that the user typed? One POST, bounded in time and tries.

Nothing is sent anywhere by default, and an answer that is no success is an error.
"""

from pathlib import Path

from piqc_pipeline.errors import PiqcError, UsageError

TRIES = 3
WAIT_SECONDS = 1.0
RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})


class PushFailed(PiqcError):
    """The address did not take the document."""


class _TryAgain(Exception):
    """An answer that may be another one in a second."""


def read_token(path: Path | None) -> str | None:
    """The bearer token in a file, without surrounding white space.

    Raises:
        UsageError: The file is missing, empty, or holds more than one line.
    """
    if path is None:
        return None
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"cannot read the push token from {path}: {reason}") from None
    if not token or len(token.splitlines()) != 1 or not token.isascii() or not token.isprintable():
        raise UsageError(f"cannot use the push token in {path}: it must be one line of printable ASCII")
    return token


def push(
    url: str, body: str, token: str | None, timeout_seconds: float, what: str, *, wait_seconds: float = WAIT_SECONDS
) -> None:
    """POST a JSON text.

    Args:
        url: Where to; `http` or `https`.
        body: The JSON text.
        token: Bearer token, or None.
        timeout_seconds: Time limit of one try.
        what: What is sent, for the message.
        wait_seconds: Time between two tries.

    Raises:
        UsageError: The address cannot be meant.
        PushFailed: It could not be reached, or did not answer with success.
    """
    import httpx
    import tenacity

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise UsageError(f"cannot push to {url!r}: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"cannot push to {url!r}: write it as https://HOST/PATH")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    where = str(parsed.copy_with(userinfo=b"", query=None, fragment=None))

    @tenacity.retry(
        stop=tenacity.stop_after_attempt(TRIES),
        wait=tenacity.wait_fixed(wait_seconds),
        retry=tenacity.retry_if_exception_type((_TryAgain, httpx.TransportError)),
        reraise=True,
    )
    def attempt(client: httpx.Client) -> httpx.Response:
        answer = client.post(parsed, content=body.encode("utf-8"), headers=headers)
        if answer.status_code in RETRIED_STATUS:
            raise _TryAgain(f"HTTP {answer.status_code}")
        return answer

    try:
        with httpx.Client(timeout=timeout_seconds, follow_redirects=False) as client:
            answer = attempt(client)
    except (_TryAgain, httpx.TransportError) as error:
        raise PushFailed(f"cannot push {what} to {where}: {str(error) or type(error).__name__}; try again") from error
    if not answer.is_success:
        raise PushFailed(f"cannot push {what} to {where}: HTTP {answer.status_code}; check the address and the token")
