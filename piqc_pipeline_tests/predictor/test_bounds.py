"""Can a client take the service's memory or its time? Real sockets against a real server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvicorn

from piqc_pipeline.predictor import bounds
from piqc_pipeline.predictor.service import create_service
from piqc_pipeline_tests.predictor.world import Folder, artifact, engine

GET = b"GET /v1/desired/inference/chat-8b HTTP/1.1\r\nhost: x\r\n"


@contextlib.asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[int]:
    service = create_service(engine(Folder(tmp_path / "m", artifact())))
    config = uvicorn.Config(service, port=0, http=bounds.BoundedProtocol, log_config=None, ws="none")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    while not server.servers[0].sockets:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


def talk(tmp_path: Path, say: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]) -> bytes:
    async def run() -> bytes:
        async with serving(tmp_path) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return await asyncio.wait_for(say(reader, writer), 20)
            finally:
                writer.close()

    return asyncio.run(run())


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


@pytest.mark.service
@pytest.mark.parametrize(
    "flood",
    [
        b"GET /predict?workload=" + b"x" * 20_000,
        GET + b"x-long: " + b"y" * 20_000,
        GET + b"a: b\r\n" * 4000,
        b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n" + b"z" * 20_000,
    ],
    ids=["url", "header", "headers", "body"],
)
def test_flood_is_cut_off(tmp_path: Path, flood: bytes) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(flood)
        got = b""
        with contextlib.suppress(ConnectionError):
            got = await reader.read()
        return got

    got = talk(tmp_path, say)
    assert got == b"" or b"431" in got


@pytest.mark.service
def test_slow_client_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "REQUEST_SECONDS", 0.2)

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        with contextlib.suppress(ConnectionError):
            for byte in GET:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""

    assert talk(tmp_path, say) == b""


@pytest.mark.service
def test_many_requests_on_one_connection_are_no_flood(tmp_path: Path) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for _ in range(400):  # 400 x 60 bytes, more than one request may have
            writer.write(GET + b"\r\n")
            last = await _answer(reader)
        return last

    assert talk(tmp_path, say).startswith(b"HTTP/1.1 200")


@pytest.mark.service
@pytest.mark.parametrize("line", [b"\x16\x03\x01 TLS?", b"NONSENSE", b"GET  HTTP/9.9"], ids=["tls", "word", "version"])
def test_nonsense_gets_no_number(tmp_path: Path, line: bytes) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(line + b"\r\n\r\n")
        return await reader.read()

    assert b"desired_replicas" not in talk(tmp_path, say)
