"""A push goes to the address that was typed, once it succeeds, and says plainly when it does not."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from piqc_pipeline.errors import UsageError
from piqc_pipeline.report.push import PushFailed, push, read_token


class Receiver:
    """A server on loopback that answers with the statuses given, in order, and keeps what it got."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.got: list[tuple[str, str | None, bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, self.headers["Authorization"], body))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/ingest"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


def test_the_document_arrives_with_its_token(receiver: Receiver) -> None:
    push(receiver.url, '{"a": 1}', "secret", 5, "the bundle")
    assert receiver.got == [("/v1/ingest", "Bearer secret", b'{"a": 1}')]


def test_a_busy_server_is_asked_again_and_no_more_than_three_times(receiver: Receiver) -> None:
    receiver.statuses = [503, 503, 200]
    push(receiver.url, "{}", None, 5, "the bundle", wait_seconds=0.01)
    assert len(receiver.got) == 3
    receiver.statuses = [503] * 9
    with pytest.raises(PushFailed, match="HTTP 503"):
        push(receiver.url, "{}", None, 5, "the bundle", wait_seconds=0.01)
    assert len(receiver.got) == 6


@pytest.mark.parametrize("status", [301, 400, 401, 404])
def test_a_refusal_is_an_error_and_no_redirect_is_followed(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    with pytest.raises(PushFailed, match=f"HTTP {status}"):
        push(receiver.url, "{}", "secret", 5, "the bundle")
    assert len(receiver.got) == 1


def test_the_message_holds_no_password_of_the_address() -> None:
    with pytest.raises(PushFailed) as raised:
        push("http://user:hunter2@127.0.0.1:9/x?key=hunter3", "{}", None, 0.2, "the bundle", wait_seconds=0.01)
    assert "hunter" not in str(raised.value)


@pytest.mark.parametrize("url", ["ftp://x/y", "no-scheme", "http://", "http://[::1"])
def test_an_address_that_cannot_be_meant_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        push(url, "{}", None, 1, "the bundle")


def test_a_token_is_one_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  abc\n")
    assert read_token(file) == "abc"
    assert read_token(None) is None
    for text in ("", "a\nb", "\x00"):
        file.write_text(text)
        with pytest.raises(UsageError):
            read_token(file)
    with pytest.raises(UsageError, match="cannot read"):
        read_token(tmp_path / "none")
