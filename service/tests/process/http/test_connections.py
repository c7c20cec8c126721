import asyncio
import contextlib
import errno
import socket
import ssl
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import web
from harness.eventually import eventually
from harness.servers.certificates import SiteAuthority

from embereye.process.event_loop import EventLoop
from embereye.process.http import connections as http_connections
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tls import listener
from embereye.process.tls.folder import ServerTls
from embereye.process.tls.trust import trusting
from embereye.units import MIB

CLIP = 24 * MIB  # more than a connection and both its ends hold


class Pending:
    """Answers that wait until they are released."""

    def __init__(self) -> None:
        self.waiting = 0
        self.released = asyncio.Event()

    async def answer(self, _: web.Request) -> web.Response:
        self.waiting += 1
        await self.released.wait()
        return web.Response(text="ok")

    async def until(self, count: int) -> None:
        await eventually(lambda: self.waiting >= count, 20)


@pytest.fixture
def pending() -> Pending:
    return Pending()


async def ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pending: Pending) -> AsyncIterator[int]:
    """A server with room for eight connections, which may be idle for two seconds."""
    monkeypatch.setattr(http_connections, "room", lambda: 8)
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", 2.0)
    monkeypatch.setattr(http_connections, "SWEEP_SECONDS", 0.05)
    app = web.Application()
    app.router.add_get("/", ok)
    app.router.add_get("/pending", pending.answer)
    (tmp_path / "clip").write_bytes(bytes(CLIP))

    async def clip(_: web.Request) -> web.FileResponse:
        return web.FileResponse(tmp_path / "clip")

    app.router.add_get("/clip", clip)
    runner = await serve_http(app, "127.0.0.1", 0, connections=http_connections.Connections())
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(16))  # one for each that waits for its answer
    yield bound_port(runner)
    await runner.cleanup()


class Peer:
    """A connection from an address of loopback."""

    def __init__(self, port: int, address: str) -> None:
        self.socket = socket.socket()
        self.socket.bind((address, 0))
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", port))

    async def ask(self, path: str = "/") -> bytes:
        """The status line of an answer; empty where the connection was ended instead."""
        try:
            self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return (await asyncio.to_thread(self.socket.recv, 4096)).partition(b"\r\n")[0]
        except ConnectionError:
            return b""

    async def ended(self) -> bool:
        try:
            return await asyncio.to_thread(self.socket.recv, 1) == b""
        except ConnectionError:
            return True


async def test_one_address_gets_half_of_the_connections(port: int, pending: Pending) -> None:
    greedy = [Peer(port, "127.0.0.1") for _ in range(6)]
    assert await greedy[5].ask() == b"HTTP/1.1 200 OK"  # a client with idle connections gets in
    assert [await peer.ended() for peer in greedy[:2]] == [True] * 2
    answers = [asyncio.create_task(peer.ask("/pending")) for peer in greedy[2:]]
    await pending.until(4)
    assert await Peer(port, "127.0.0.1").ask() == b""
    assert await Peer(port, "127.0.0.2").ask() == b"HTTP/1.1 200 OK"
    pending.released.set()
    assert await asyncio.gather(*answers) == [b"HTTP/1.1 200 OK"] * 4


async def test_the_longest_idle_connection_makes_room_for_another(port: int) -> None:
    peers = [Peer(port, f"127.0.0.{number // 3 + 1}") for number in range(9)]
    assert await peers[8].ask() == b"HTTP/1.1 200 OK"
    assert await peers[0].ended()
    assert await peers[1].ask() == b"HTTP/1.1 200 OK"


def test_making_room_does_not_search_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    class Watched(http_connections._Connection):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += 1
            return super().__getattribute__(name)

    monkeypatch.setattr(http_connections, "_Connection", Watched)
    connections, ended = http_connections.Connections(2_000), []
    for number in range(1_100):  # of the first place half of all, then of others
        place = "10.0.0.1" if number < 1_000 else f"10.0.1.{number - 1_000}"
        assert connections.admit(asyncio.Protocol(), place, lambda number=number: ended.append(number))
    looks = 0
    for _ in range(100):
        assert connections.admit(asyncio.Protocol(), "10.0.0.1", lambda: None)
    assert ended == list(range(100))
    assert looks < 2_000


async def test_a_busy_connection_does_not_make_room(port: int, pending: Pending) -> None:
    peers = [Peer(port, f"127.0.0.{number // 3 + 1}") for number in range(8)]
    answers = [asyncio.create_task(peer.ask("/pending")) for peer in peers]
    await pending.until(8)
    assert await Peer(port, "127.0.0.9").ask() == b""
    pending.released.set()
    assert await asyncio.gather(*answers) == [b"HTTP/1.1 200 OK"] * 8


async def test_a_connection_that_is_silent_or_never_ends_its_request_is_ended(port: int) -> None:
    silent, slow, persistent = Peer(port, "127.0.0.1"), Peer(port, "127.0.0.2"), Peer(port, "127.0.0.3")
    assert await persistent.ask()
    slow.socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ")
    ended = [asyncio.create_task(peer.ended()) for peer in (silent, slow, persistent)]
    for _ in range(100):
        await asyncio.sleep(0.1)
        try:
            slow.socket.send(b"a")
        except OSError:
            break
    assert await asyncio.gather(*ended) == [True] * 3


async def test_a_long_download_is_not_idle_while_it_is_read(port: int) -> None:
    def download(peer: Peer) -> int:
        got, began = 0, time.monotonic()
        while got < CLIP:
            part = len(peer.socket.recv(256 * 1024))
            if not part:
                break
            got += part
            time.sleep(max(0.0, got / CLIP * 5.0 - (time.monotonic() - began)))  # five seconds in all
        return got

    slow_reader, stalled = Peer(port, "127.0.0.1"), Peer(port, "127.0.0.2")
    for peer in (slow_reader, stalled):
        peer.socket.sendall(b"GET /clip HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await asyncio.to_thread(download, slow_reader) >= CLIP
    await asyncio.sleep(1)

    def drain() -> int:
        got = 0
        try:
            while part := len(stalled.socket.recv(1024 * 1024)):
                got += part
        except OSError:
            pass
        return got

    assert await asyncio.to_thread(drain) < CLIP


async def test_a_crowd_that_arrives_while_the_server_is_busy_is_admitted_at_once() -> None:
    crowd = 500  # people who sign in as an alarm sounds; a refused connection would be dialled again after 1 s
    if int(Path("/proc/sys/net/core/somaxconn").read_text()) < crowd:
        pytest.skip("this system lets fewer connections wait")
    runner = await serve_http(web.Application(), "127.0.0.1", 0, connections=http_connections.Connections())
    with contextlib.ExitStack() as stack:
        for _ in range(crowd):  # the event loop accepts none of them meanwhile
            dialled = stack.enter_context(socket.socket())
            dialled.settimeout(0.5)
            dialled.connect(("127.0.0.1", bound_port(runner)))
    await runner.cleanup()


def test_a_handshake_that_ends_as_it_makes_room_for_another_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # uvloop reads before it ends what was called off
    uvloop.run(_crowd_out_a_handshake(tmp_path, monkeypatch), loop_factory=EventLoop)
    assert not caplog.records


async def _crowd_out_a_handshake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = SiteAuthority(folder).issue("hub", alternatives=["localhost"])
    connections = http_connections.Connections(2)
    runner = await serve_http(web.Application(), "127.0.0.1", 0, ServerTls(pair.folder), connections=connections)
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    shaking = trusting(pair.ca).wrap_bio(heard, said, server_hostname="localhost")
    with socket.socket() as first, socket.socket() as second:
        first.settimeout(20)
        first.connect(("127.0.0.1", bound_port(runner)))
        with contextlib.suppress(ssl.SSLWantReadError):
            shaking.do_handshake()
        first.sendall(said.read())
        while not said.pending:
            heard.write(await asyncio.to_thread(first.recv, 65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                shaking.do_handshake()
        admit = connections.admit

        def admit_and_finish(*arguments: Any) -> bool:
            admitted = admit(*arguments)
            first.sendall(said.read())
            return admitted

        monkeypatch.setattr(connections, "admit", admit_and_finish)
        second.connect(("127.0.0.1", bound_port(runner)))
        with contextlib.suppress(ConnectionError):
            assert await asyncio.to_thread(first.recv, 65536) == b""
        assert len(connections) == 1
    await runner.cleanup()


async def test_a_lack_of_descriptors_is_logged_once_and_listening_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop, full = asyncio.get_running_loop(), [OSError(errno.EMFILE, "Too many open files") for _ in range(5)]
    accept = loop.sock_accept

    async def accepted(listening: socket.socket) -> tuple[socket.socket, Any]:
        if full:
            raise full.pop()
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", accepted)
    monkeypatch.setattr(listener, "PAUSE_SECONDS", 0.0)
    pair = SiteAuthority(tmp_path).issue("hub", alternatives=["localhost"])
    runner = await serve_http(web.Application(), "127.0.0.1", 0, ServerTls(pair.folder))
    async with asyncio.timeout(20):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", bound_port(runner), ssl=trusting(pair.ca), server_hostname="localhost"
        )
    writer.close()
    await runner.cleanup()
    assert caplog.text.count("a connection cannot be accepted: [Errno 24] Too many open files") == 1
