import asyncio
import contextlib
import socket
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from embereye.process.http import pages as module
from embereye.process.http.pages import metrics_pages, serve_pages
from embereye.process.lifecycle import UserError


def explode():
    raise ZeroDivisionError("boom")


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
async def served():
    """(port, what is wrong: the test says so)."""
    registry, wrong = CollectorRegistry(), []
    Gauge("doors", "Open doors.", registry=registry).set(3)
    pages = {**metrics_pages(registry, lambda: "; ".join(wrong)), "/broken": explode}
    server = await serve_pages(pages, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], wrong
    server.close()


async def asked(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(10):
        writer.write(request)
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body.decode()


async def test_metrics_and_health_are_served(served):
    port, wrong = served
    head, body = await asked(port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
    assert f"Content-Length: {len(body)}" in head
    assert "doors 3.0\n" in body
    assert (await asked(port, b"GET /healthz HTTP/1.0\r\n\r\n"))[1] == "ok\n"
    wrong.append("the disk is full")
    head, body = await asked(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith("HTTP/1.1 503 ")
    assert body == "the disk is full\n"


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /else HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 405),
        ("GET /broken HTTP/1.1", 500),
        ("garbage", 400),
        ("\x16\x03\x01\x02", 400),
    ],
)
async def test_a_request_that_cannot_be_answered_is_refused(served, request_line, status):
    head, _ = await asked(served[0], request_line.encode("latin-1") + b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")


async def test_a_head_request_gets_no_body(served):
    head, body = await asked(served[0], b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert "Content-Length: 3" in head
    assert body == ""


@pytest.mark.parametrize("request_bytes", [b"GET /metrics HTTP/1.1\r\n", b"", b"GET / " + b"x" * 100_000])
async def test_a_slow_or_too_long_request_is_cut_off(served, monkeypatch, request_bytes):
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.1)
    with contextlib.suppress(ConnectionError):
        assert await asked(served[0], request_bytes) == ("", "")


async def test_a_client_that_reads_no_answer_is_cut_off(monkeypatch):
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.1)
    answered = asyncio.Event()

    def endless():
        answered.set()
        return 200, "text/plain", bytes(64 << 20)  # more than the system takes for who reads nothing

    server = await serve_pages({"/endless": endless}, "127.0.0.1", 0)
    before = descriptors()
    async with asyncio.timeout(60):
        with socket.create_connection(server.sockets[0].getsockname()) as silent:
            silent.sendall(b"GET /endless HTTP/1.1\r\n\r\n")
            await answered.wait()
            while descriptors() > before + 1:  # one is ours
                await asyncio.sleep(0.01)
    server.close()


async def test_without_room_the_client_with_most_connections_loses_its_oldest(served, monkeypatch):
    monkeypatch.setattr(module, "CONNECTIONS", 4)
    port = served[0]
    other = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    assert (await asked(port, b"GET /healthz HTTP/1.1\r\n\r\n"))[1] == "ok\n"
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            assert await idle[0][0].read() == b""
    for reader, writer in (other, *idle[1:]):
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            assert (await reader.read()).endswith(b"ok\n")
        writer.close()


@pytest.mark.parametrize("host", ["[::]", "0.0.0.0"])
async def test_every_address_means_ipv4_too(host):
    server = await serve_pages(metrics_pages(CollectorRegistry()), host, 0)
    port = next(name[1] for listening in server.sockets if len(name := listening.getsockname()) == 2)
    assert (await asked(port, b"GET /healthz HTTP/1.1\r\n\r\n"))[1] == "ok\n"
    server.close()


async def test_a_taken_port_is_one_sentence(served):
    with pytest.raises(UserError, match=rf"cannot listen for HTTP on 127\.0\.0\.1:{served[0]}"):
        await serve_pages({}, "127.0.0.1", served[0])
