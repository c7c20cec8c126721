"""Bodies that no handler reads: behind refusals, and compressed ones."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from harness.servers.certificates import SiteAuthority

from embereye.process.http.connections import Connections
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tls.folder import ServerTls
from embereye.process.tls.trust import trusting
from embereye.units import MIB

SENT = 256 * MIB  # far more than the buffers of a connection and both its ends hold
READ = 32 * MIB


async def refuse(_: web.Request) -> web.Response:
    return web.json_response({"error": "not signed in"}, status=401)


async def measure(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


def application() -> web.Application:
    app = web.Application()
    app.router.add_post("/refused", refuse)
    app.router.add_post("/measured", measure)
    return app


@pytest.fixture
async def port() -> AsyncIterator[int]:
    runner = await serve_http(application(), "127.0.0.1", 0, connections=Connections())
    yield bound_port(runner)
    await runner.cleanup()


async def flood(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str, more: str
) -> tuple[bytes, bytes, int]:
    """Send a body for as long as the server takes it; return the status line, the headers and the bytes sent."""
    writer.write(f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {SENT}\r\n{more}\r\n".encode())
    answering = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    sent = 0
    try:
        async with asyncio.timeout(20):
            while sent < SENT:
                writer.write(bytes(MIB))
                await writer.drain()
                sent += MIB
    except ConnectionError:
        pass
    status, _, headers = (await answering).partition(b"\r\n")
    async with asyncio.timeout(20):
        while not writer.is_closing() and await reader.read(1024):
            pass
    writer.close()
    return status, headers, sent


@pytest.mark.parametrize(
    ("line", "more", "status"),
    [
        ("POST /refused", "", b"401"),
        ("POST /refused", "Content-Encoding: gzip\r\n", b"401"),
        ("PUT /refused", "Content-Encoding: deflate\r\n", b"405"),
        ("POST /nowhere", "Content-Encoding: zstd\r\n", b"404"),
        ("POST /measured", "Content-Encoding: br\r\n", b"413"),
        ("POST /refused", "Expect: miracles\r\n", b"417"),
    ],
)
async def test_a_body_behind_a_refusal_is_not_read_and_ends_the_connection(
    port: int, line: str, more: str, status: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer, headers, sent = await flood(reader, writer, line, more)
    assert (answer.split()[1], b"Connection: close" in headers, sent < READ) == (status, True, True)


async def test_a_body_behind_a_refusal_is_not_read_over_tls_either(tmp_path: Path) -> None:
    pair = SiteAuthority(tmp_path).issue("hub", alternatives=["localhost"])
    runner = await serve_http(application(), "127.0.0.1", 0, ServerTls(pair.folder))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", bound_port(runner), ssl=trusting(pair.ca), server_hostname="localhost"
    )
    answer, _, sent = await flood(reader, writer, "POST /refused", "")
    await runner.cleanup()
    assert (answer.split()[1], sent < READ) == (b"401", True)


async def test_a_small_body_behind_a_refusal_can_be_sent_whole(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(bytes(2000))
    assert (b" 401 " in head, await reader.read()) == (True, b'{"error": "not signed in"}')
    writer.close()


async def test_a_refused_request_whose_body_has_arrived_keeps_its_connection(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        head = await reader.readuntil(b"\r\n\r\n")
        assert (b" 401 " in head, b"Connection: close" in head) == (True, False)
        await reader.readuntil(b"}")
    writer.close()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_a_compressed_body_is_not_decompressed(port: int, encoding: str) -> None:
    bomb = gzip.compress(bytes(64 * MIB))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/measured", data=bomb, headers={"Content-Encoding": encoding}) as answer,
    ):
        assert (answer.status, await answer.read()) == (200, bomb)
