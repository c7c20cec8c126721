"""Strangers who reach a port and prove nothing: what they do costs them, and nobody else."""

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

from embereye.process.grpc_server import channel
from embereye.shard.access import STREAMS_PER_CLIENT
from embereye.units import MIB

from .site import HOST, SMOKE, Site, until

# HTTP/2 (RFC 9113): as much of it as it takes to be a nuisance.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 0x1, 0x4
NO_WINDOW = b"\x00\x04\x00\x00\x00\x00"  # of INITIAL_WINDOW_SIZE: nothing may be sent


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def call(method: str, stream: int) -> bytes:
    """A gRPC call whose only message is empty."""
    fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    texts = [text.encode() for pair in fields.items() for text in pair]
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
                     for name, value in zip(texts[::2], texts[1::2], strict=True))  # fmt: skip
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, bytes(5))


def greet(port: int, settings: bytes = b"") -> socket.socket:
    """A connection that has said that it speaks HTTP/2, and no more."""
    connection = socket.create_connection((HOST, port), timeout=20)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
    return connection


@pytest.mark.parametrize("name", ["shard-0", "hub"])
async def test_who_watches_the_health_and_reads_nothing_keeps_no_process_from_ending(site: Site, name: str) -> None:
    await site.honest()
    with greet(site.ports[name][0], NO_WINDOW) as stranger:
        stranger.sendall(call("/grpc.health.v1.Health/Watch", 1))
        await asyncio.sleep(1)
        assert await asyncio.to_thread(site.end, name) == 0


@contextlib.contextmanager
def _crowding(port: int, count: int) -> Iterator[None]:
    """As long as it lasts, `count` connections to `port` that ask for nothing, and others for those that are ended."""
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


async def test_connections_that_ask_for_nothing_keep_no_probe_from_its_answer(site: Site) -> None:
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
    """Bytes of memory that a process has, as the system tells it: the process itself may be too busy."""
    text = Path(f"/proc/{site.processes[name].pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.skipif(not shutil.which("prlimit"), reason="prlimit (util-linux) is not installed")
async def test_a_thousand_grpc_connections_that_call_nothing_leave_descriptors_for_everybody_else(site: Site) -> None:
    site.prefix = ["prlimit", "--nofile=1024:1024"]
    honest = await site.honest("late")

    def crowd() -> list[socket.socket]:
        found = []
        for _ in range(1_100):
            with contextlib.suppress(OSError):
                found.append(greet(site.ports["shard-0"][0]))
        return found

    strangers = await asyncio.to_thread(crowd)
    try:
        honest.line = SMOKE
        await site.alarmed("honest")
        late = site.speaker("shard-0", "late")
        late.line = SMOKE
        await site.alarmed("late")
        await site.covered(["honest", "late"])
        site.end("hub")
        site.prefix = []
        site.start("hub")  # whom the shard has to dial again
        await site.covered(["honest", "late"])
    finally:
        for stranger in strangers:
            stranger.close()


async def test_streams_without_end_from_one_address_leave_memory_and_streams_for_others(site: Site) -> None:
    honest = await site.honest()
    before, target = _resident(site, "shard-0"), f"{HOST}:{site.ports['shard-0'][0]}"
    async with contextlib.AsyncExitStack() as stack:
        links = [await stack.enter_async_context(channel(target)) for _ in range(10)]
        calls: list[grpc.aio.StreamStreamCall[bytes, bytes]] = []

        async def refused() -> bool:
            """Whether as many are open as may be and the others were told so; where nobody was told, open some more."""
            told = {await one.code() for one in calls if one.done()}
            if grpc.StatusCode.RESOURCE_EXHAUSTED in told:
                return sum(not one.done() for one in calls) == STREAMS_PER_CLIENT
            calls.extend(link.stream_stream("/embereye.v1.Ingest/Stream")() for link in links for _ in range(50))
            await asyncio.sleep(0.2)
            return False

        try:
            # Not all at once: gRPC itself cancels what a slow server has not yet looked at, beyond some thousand.
            await until(refused, "streams are refused", 100)
            told = {await one.code() for one in calls if one.done()}
            assert told <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}
            honest.line = SMOKE
            await site.alarmed("honest")
            grown = _resident(site, "shard-0") - before
            assert grown < 300 * MIB, f"{grown / MIB:.0f} MiB"
        finally:
            for one in calls:
                one.cancel()
