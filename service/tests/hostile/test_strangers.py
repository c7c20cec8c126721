"""Strangers who reach a port without proving anything: only they suffer from their actions."""

import asyncio
import contextlib
import shutil
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from harness.eventually import eventually

from embereye.process.grpc_server import channel
from embereye.shard.access import STREAMS
from embereye.units import MIB

from .site import HOST, SMOKE, Site

# HTTP/2 (RFC 9113): as much as is needed for attacks.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 0x1, 0x4
NO_WINDOW = b"\x00\x04\x00\x00\x00\x00"  # INITIAL_WINDOW_SIZE 0: the server may send nothing


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def call(method: str, stream: int) -> bytes:
    """A gRPC call with a single, empty message."""
    fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    texts = [text.encode() for pair in fields.items() for text in pair]
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
                     for name, value in zip(texts[::2], texts[1::2], strict=True))  # fmt: skip
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, bytes(5))


def greet(port: int, settings: bytes = b"") -> socket.socket:
    """Open a connection that starts HTTP/2 and sends nothing more."""
    connection = socket.create_connection((HOST, port), timeout=20)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
    return connection


@pytest.mark.parametrize("name", ["shard-0", "hub"])
async def test_a_health_watch_that_reads_nothing_keeps_no_process_from_ending(site: Site, name: str) -> None:
    await site.honest()
    with greet(site.ports[name][0], NO_WINDOW) as stranger:
        stranger.sendall(call("/grpc.health.v1.Health/Watch", 1))
        await asyncio.sleep(1)
        assert await asyncio.to_thread(site.end, name) == 0


@contextlib.contextmanager
def _crowding(port: int, count: int) -> Iterator[None]:
    """During the block, have `count` idle connections to `port`, and replace those that are closed."""
    over = threading.Event()

    def crowd() -> None:
        connections: list[socket.socket] = []
        while not over.is_set():
            for connection in list(connections):
                with contextlib.suppress(BlockingIOError):
                    ended = True
                    with contextlib.suppress(ConnectionError):
                        ended = not connection.recv(1)
                    if ended:
                        connections.remove(connection)
                        connection.close()
            while len(connections) < count:
                connections.append(socket.socket())
                connections[-1].setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    connections[-1].connect((HOST, port))
            time.sleep(0.02)
        for connection in connections:
            connection.close()

    thread = threading.Thread(target=crowd)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def test_idle_connections_do_not_keep_a_probe_from_its_answer(site: Site) -> None:
    await site.honest()
    port = site.ports["shard-0"][2]

    def probe() -> bytes:
        with urllib.request.urlopen(f"http://{HOST}:{port}/healthz", timeout=10) as answer:
            return bytes(answer.read())

    with _crowding(port, 100):
        await asyncio.sleep(1)
        for _ in range(10):
            assert await asyncio.to_thread(probe) == b"ok\n"
            await asyncio.sleep(0.1)


def _resident(site: Site, name: str) -> int:
    """Resident bytes of a process, from the system, because the process may be too busy."""
    text = Path(f"/proc/{site.processes[name].pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.skipif(not shutil.which("prlimit"), reason="prlimit (util-linux) is not installed")
async def test_a_thousand_idle_grpc_connections_leave_descriptors_for_others(site: Site) -> None:
    site.prefix = ["prlimit", "--nofile=1024:1024"]
    honest = await site.honest("late")

    # In a separate process, because this one has only as many descriptors as the machine gives it.
    site.launch("crowd", str(Path(__file__).with_name("crowd.py")), str(site.ports["shard-0"][0]), "1100")
    await eventually(lambda: "connected" in site.log("crowd"), goal="the crowd is connected", seconds=60)
    honest.line = SMOKE
    await site.alarmed("honest")
    late = site.speaker("shard-0", "late")
    late.line = SMOKE
    await site.alarmed("late")
    await site.covered(["honest", "late"])
    site.end("hub")
    site.prefix = []
    site.start("hub")  # the shard has to dial it again
    await site.covered(["honest", "late"])
    assert site.running("crowd")


async def test_endless_streams_from_one_address_leave_memory_and_streams_for_others(site: Site) -> None:
    honest = await site.honest()
    before, target = _resident(site, "shard-0"), f"{HOST}:{site.ports['shard-0'][0]}"
    async with contextlib.AsyncExitStack() as stack:
        links = [await stack.enter_async_context(channel(target)) for _ in range(10)]
        calls: list[grpc.aio.StreamStreamCall[bytes, bytes]] = []

        async def refused() -> bool:
            """True if the most are open and the others were refused; open more while none was refused."""
            codes = {await stream.code() for stream in calls if stream.done()}
            if grpc.StatusCode.RESOURCE_EXHAUSTED in codes:
                return sum(not stream.done() for stream in calls) == STREAMS // 2
            calls.extend(link.stream_stream("/embereye.v1.Ingest/Stream")() for link in links for _ in range(50))
            await asyncio.sleep(0.2)
            return False

        try:
            # Not all at once: beyond some thousand, gRPC cancels streams that a slow server has not accepted yet.
            await eventually(refused, goal="streams are refused", seconds=100)
            codes = {await stream.code() for stream in calls if stream.done()}
            assert codes <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}
            honest.line = SMOKE
            await site.alarmed("honest")
            grown = _resident(site, "shard-0") - before
            assert grown < 300 * MIB, f"{grown / MIB:.0f} MiB"
        finally:
            for stream in calls:
                stream.cancel()
