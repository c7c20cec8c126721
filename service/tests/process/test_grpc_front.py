"""The front of open gRPC ports, with real clients and with raw HTTP/2 frames (RFC 9113)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness.eventually import eventually
from harness.servers.certificates import SiteAuthority

from embereye.process import grpc_front
from embereye.process.grpc_front import UNREAD, WAITING_CALLS_EACH, CallQueue, Front, Peer, peer_of
from embereye.process.grpc_server import GrpcServer, channel
from embereye.process.http2 import ACKNOWLEDGEMENT, PREFACE
from embereye.process.tls.folder import ServerTls

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, UNKNOWN = 0, 1, 3, 4, 6, 8, 200
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
LARGE = 3 * 2**20  # bytes; more than the front's buffers


class Server(grpc.GenericRpcHandler):
    """A gRPC server that answers every call with `size` bytes, and notes who calls."""

    def __init__(self, *, tls: ServerTls | None = None, greeting_seconds: float = 60.0, size: int = LARGE) -> None:
        self.size = size
        self.peers: list[Peer] = []
        self.called = asyncio.Event()
        self.grpc = GrpcServer([], tls=tls, greeting_seconds=greeting_seconds)
        self.grpc._server.add_generic_rpc_handlers((self,))
        self.port = self.grpc.listen("[::]:0")

    def service(self, details: Any) -> Any:
        return None if details.method.startswith("/grpc.health") else grpc.unary_unary_rpc_method_handler(self.answer)

    async def answer(self, _: bytes, context: Any) -> bytes:
        self.peers.append(peer_of(context))
        self.called.set()
        return bytes(self.size)


async def call(link: Any) -> int:
    return len(await link.unary_unary("/test/Call")(b"", timeout=60))


@contextlib.asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Server]:
    server = Server(**options)
    await server.grpc.start()
    await server.grpc.set_serving(True)
    try:
        yield server
    finally:
        await server.grpc.stop()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def begin(stream: int, path: str) -> bytes:
    """The headers of a call."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    texts = [text.encode() for pair in fields.items() for text in pair]
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
                     for name, value in zip(texts[::2], texts[1::2], strict=True))  # fmt: skip
    return frame(HEADERS, END_HEADERS, stream, block)


def check(stream: int, path: str = "/grpc.health.v1.Health/Check") -> bytes:
    """A call with an empty message."""
    return begin(stream, path) + frame(DATA, END_STREAM, stream, bytes(5))


GREETING = PREFACE + frame(SETTINGS, 0, 0, b"\x00\x04\x00\x10\x00\x00")  # INITIAL_WINDOW_SIZE 1 MB


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, int, int, bytes]]:
    """Read type, flags, stream and payload of each frame until the connection ends."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            header = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(header[:3]))
            yield header[3], header[4], int.from_bytes(header[5:]), payload


async def first_frames(reader: asyncio.StreamReader, size: int) -> AsyncIterator[tuple[int, int, int, bytes]]:
    """Read the frames in the first bytes, nearly `size`."""
    async for read in frames(reader):
        yield read
        size -= 9 + len(read[3])
        if size < 2**20:
            return


async def ended_streams(reader: asyncio.StreamReader, count: int) -> int:
    """Read until the server has ended `count` streams; the number of its settings and acknowledgements."""
    ended = settings = 0
    async with asyncio.timeout(60):
        async for kind, flags, _, _ in frames(reader):
            settings += kind == SETTINGS
            ended += kind == HEADERS and bool(flags & END_STREAM)
            if ended == count:
                return settings
    raise AssertionError(f"the connection ended after {ended} streams")


@pytest.mark.parametrize("size", [1, 5, 10_000])
async def test_calls_may_come_before_and_around_the_acknowledgement(size: int) -> None:
    """The client's bytes arrive in parts of `size` bytes; its acknowledgement is somewhere among its calls."""
    sent = GREETING + check(1) + frame(PING, 0, 0, bytes(8)) + check(3) + ACKNOWLEDGEMENT + check(5)
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for start in range(0, len(sent), size):
            writer.write(sent[start : start + size])
            await asyncio.sleep(0)
        assert await ended_streams(reader, 3) >= 2
        writer.write(check(7))
        await ended_streams(reader, 1)
        writer.close()


async def test_a_client_that_acknowledges_nothing_is_closed_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(greeting_seconds=0.3) as server:
        for sent in (GREETING + check(1), GREETING, GREETING[:30], b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            async with asyncio.timeout(60):
                kinds = [kind async for kind, *_ in frames(reader)]
            assert kinds[0] == SETTINGS
            writer.close()
        async with channel(f"127.0.0.1:{server.port}") as link:
            stub = health_pb2_grpc.HealthStub(link)
            assert await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
            await asyncio.sleep(0.5)  # longer than the greeting may take
            assert await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert len([record for record in caplog.records if "acknowledged no HTTP/2 settings" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", PREFACE + check(1), PREFACE + ACKNOWLEDGEMENT, PREFACE + b"\xff" * 9]
)
async def test_what_is_not_http2_is_closed_at_once(sent: bytes) -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        async with asyncio.timeout(30):
            answered = [stream async for _, _, stream, _ in frames(reader)]
        assert not any(answered)
        writer.close()


@pytest.mark.parametrize(("host", "seen"), [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")])
async def test_a_servicer_sees_the_address_of_the_client(host: str, seen: str) -> None:
    async with serving() as server, channel(f"{host}:{server.port}") as link:
        assert await call(link) == LARGE
        assert server.peers == [Peer(seen, {})]


async def test_a_servicer_sees_the_certificate_of_the_client(tmp_path: Path) -> None:
    authority = SiteAuthority(tmp_path)
    shown, device = authority.issue("server", alternatives=["127.0.0.1"]), authority.issue("camera-1")
    tls = ServerTls(shown.folder, device.folder)
    async with serving(tls=tls) as server:
        files = [(device.folder / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
        async with grpc.aio.secure_channel(f"127.0.0.1:{server.port}", grpc.ssl_channel_credentials(*files)) as link:
            assert await call(link) == LARGE
        (peer,) = server.peers
        assert peer.host == "127.0.0.1"
        assert peer.certificate["subject"] == ((("commonName", "camera-1"),),)
        stranger = grpc.ssl_channel_credentials(files[0])
        async with grpc.aio.secure_channel(f"127.0.0.1:{server.port}", stranger) as link:
            with pytest.raises(grpc.aio.AioRpcError):
                await call(link)


async def test_a_stopped_server_still_delivers_its_last_answer() -> None:
    async with serving() as server, channel(f"127.0.0.1:{server.port}") as link:
        answer = asyncio.ensure_future(call(link))
        await server.called.wait()
        await server.grpc.stop(30)
        assert await answer == LARGE
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_silent_connection_makes_room_and_an_acknowledged_one_does_not() -> None:
    queue = CallQueue()
    core = grpc.aio.server(interceptors=[queue])
    front = Front(core, queue, 2, None, shared=False, greeting_seconds=60)
    port = front.listen("127.0.0.1:0")
    await core.start()
    await front.start()

    writers: list[asyncio.StreamWriter] = []

    async def dial(sent: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writers.append(writer)
        return reader

    async with asyncio.timeout(60):
        silent = await dial()
        first = await dial(GREETING + ACKNOWLEDGEMENT)
        await eventually(lambda: len(front.greeting) == 1)
        second = await dial(GREETING + ACKNOWLEDGEMENT)
        assert await silent.read()  # the server's settings, and the end
        await eventually(lambda: not front.greeting)
        refused = await dial()
        assert not await refused.read()
        assert not first.at_eof()
        assert not second.at_eof()
        writers[1].close()
        await eventually(lambda: len(front.open) == 1)
        third = await dial()
        assert (await third.readexactly(9))[3] == SETTINGS
    front.close()
    await core.stop(0)
    await front.stop()
    assert not len(front.open)


async def test_ended_connections_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_front, "REMEMBERED", 3)
    async with serving() as server:
        for _ in range(6):
            async with channel(f"127.0.0.1:{server.port}") as link:
                await call(link)
        await eventually(lambda: not len(server.grpc._front.open))
        await eventually(lambda: len(grpc_front._peers) <= 3)


async def test_three_thousand_calls_at_once_succeed() -> None:
    async with serving(size=10) as server, channel(f"127.0.0.1:{server.port}") as link:
        assert await asyncio.gather(*(call(link) for _ in range(3_000))) == [10] * 3_000


async def test_only_some_calls_of_a_client_wait_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_front, "STALLED_SECONDS", 2.0)
    async with serving(size=10) as server, channel(f"127.0.0.1:{server.port}") as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        unfinished = [begin(stream, "/test/Call") for stream in range(1, 1_001, 2)]
        writer.write(GREETING + ACKNOWLEDGEMENT + b"".join(unfinished))
        front = server.grpc._front
        assert front
        await eventually(lambda: any(client._is_blocked for client in front.waiting))
        assert [len(client._calls) for client in front.waiting] == [WAITING_CALLS_EACH]
        assert await asyncio.gather(*(call(link) for _ in range(200))) == [10] * 200
        async with asyncio.timeout(60):
            assert HEADERS not in [kind async for kind, *_ in frames(reader)]
        assert not front.waiting
        writer.close()


async def test_calls_that_the_core_drops_do_not_block_the_others() -> None:
    async with serving(size=10) as server, channel(f"127.0.0.1:{server.port}") as link:
        front = server.grpc._front
        assert front
        while front.queue.add():
            pass
        assert await call(link) == 10


async def test_cancelled_calls_make_room_for_others() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        cancelled = [
            begin(stream, "/test/Call") + frame(RST_STREAM, 0, stream, bytes(4)) for stream in range(1, 300, 2)
        ]
        writer.write(GREETING + ACKNOWLEDGEMENT + b"".join(cancelled) + check(301))
        await ended_streams(reader, 1)
        writer.close()


async def test_a_client_that_reads_nothing_is_not_read_from() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(GREETING + ACKNOWLEDGEMENT + frame(WINDOW_UPDATE, 0, 0, (2**30).to_bytes(4)))
        streams = range(1, 80, 2)
        for stream in streams:  # 40 times 1 MB, more than the system's buffers
            writer.write(check(stream, "/test/Call"))
        front = server.grpc._front
        assert front
        await eventually(lambda: any(UNREAD in client._pauses for client in front.open))
        seen = {stream async for _, _, stream, _ in first_frames(reader, 41 * 2**20)}
        assert seen >= set(streams)
        await eventually(lambda: not any(client._pauses for client in front.open))
        writer.close()


async def test_frames_of_no_call_are_passed_on_at_a_limited_rate() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(GREETING + ACKNOWLEDGEMENT + frame(UNKNOWN, 0, 0, bytes(8)) * 350 + check(1))
        front = server.grpc._front
        assert front
        await eventually(lambda: any(client._is_blocked for client in front.open))
        await ended_streams(reader, 1)
        writer.close()
