"""Publish events to WebSocket subscribers: by the hub's feed, a peer library, or bare sockets.

For each line of JSON on standard input, {"rate": EVENTS_PER_SECOND, "seconds": S}, it answers with the cost and the
publishing time of each event. It ends with its input.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import uvloop
from prometheus_client import CollectorRegistry

from embereye.hub.databases.store import StoreThreads
from embereye.hub.feeds.feed import Entry
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.levels import ZoneState
from embereye.process.http.connections import Connections
from embereye.process.http.server import bound_port, serve_http
from embereye.process.lifecycle import raise_descriptor_limit
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye_bench.process import peak_mb

TOKEN = "of-this-benchmark-alone-0123456789abcdef"
EVENT_BYTES = 150
LEAST_SLEEP = 0.001  # seconds

Publish = Callable[[list[AlarmEvent]], None]
Site = contextlib.AbstractAsyncContextManager[tuple[int, Publish]]


def event(cursor: int, size: int = EVENT_BYTES) -> AlarmEvent:
    """Make an event of `size` bytes on the wire."""
    made = AlarmEvent(
        cursor=cursor,
        time_ns=time.time_ns(),
        namespace="default",
        zone=f"hall-{cursor % 50}",
        alarm="0123456789abcdef",
        type=AlarmEvent.TYPE_EVIDENCE,
        state=ZoneState.ALARM.wire,
        previous=ZoneState.ALARM.wire,
        why="also smoke 12.1 % ≥ 8 % at s-17",
    )
    made.why += "." * (size - made.ByteSize())
    return made


@contextlib.asynccontextmanager
async def _embereye() -> AsyncIterator[tuple[int, Publish]]:
    with tempfile.TemporaryDirectory() as folder:
        hub = Hub(StoreThreads(Path(folder)), retention_ns=10**18)
        await hub.open()
        hub.access.set_admin_token(TOKEN)
        app = Api(hub).app(CollectorRegistry())
        runner = await serve_http(app, "127.0.0.1", 0, connections=Connections())
        yield bound_port(runner), hub.feed.publish
        hub.feed.close()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _websockets(form: str) -> AsyncIterator[tuple[int, Publish]]:
    # As the library's documentation recommends.
    from google.protobuf import json_format
    from websockets.asyncio.server import ServerConnection, broadcast, serve

    connections: set[ServerConnection] = set()

    async def handle(connection: ServerConnection) -> None:
        connections.add(connection)
        try:
            await connection.wait_closed()
        finally:
            connections.discard(connection)

    def publish(events: list[AlarmEvent]) -> None:
        for event in events:
            text = json_format.MessageToJson(event, indent=None, ensure_ascii=False)
            broadcast(connections, event.SerializeToString() if form == "binary" else text)

    async with serve(handle, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        yield next(iter(server.sockets)).getsockname()[1], publish


@contextlib.asynccontextmanager
async def _sockets() -> AsyncIterator[tuple[int, Publish]]:
    """The least possible work: a frame is encoded once, and handed to the system for each subscriber."""
    connections: list[socket.socket] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        await writer.drain()
        connections.append(socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())))
        await reader.read()

    def publish(events: list[AlarmEvent]) -> None:
        for event in events:
            data = Entry(event).binary_frame
            for connection in connections:
                connection.send(data)

    async with await asyncio.start_server(accept, "127.0.0.1", 0, backlog=1024) as server:
        yield server.sockets[0].getsockname()[1], publish
        for connection in connections:
            connection.close()


async def _publish(publish: Publish, first: int, rate: float, seconds: float) -> list[int]:
    """Publish events one at a time, as alarms come; return their times in monotonic nanoseconds."""
    published: list[int] = []
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        while len(published) < elapsed * rate:
            made = event(first + len(published))
            published.append(time.monotonic_ns())
            publish([made])
        due = (len(published) + 1) / rate
        await asyncio.sleep(max(LEAST_SLEEP, began + due - time.perf_counter()))
    return published


async def _serve(kind: str, form: str) -> None:
    sites: dict[str, Callable[[], Site]] = {
        "embereye": _embereye,
        "sockets": _sockets,
        "websockets": lambda: _websockets(form),
    }
    async with sites[kind]() as (port, publish):
        print(json.dumps({"port": port}), flush=True)
        loop, first = asyncio.get_running_loop(), 1
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            cpu, began = time.process_time(), time.perf_counter()
            published = await _publish(publish, first, command["rate"], command["seconds"]) if command else []
            await asyncio.sleep(command.get("rest", 0.3))
            report = {
                "cpu": time.process_time() - cpu, "elapsed": time.perf_counter() - began, "first": first,
                "published": published, "memory": peak_mb(),
            }  # fmt: skip
            first += len(published)
            print(json.dumps(report), flush=True)


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["embereye", "sockets", "websockets"])
    parser.add_argument("--format", choices=["json", "binary"], default="binary")
    arguments = parser.parse_args()
    raise_descriptor_limit()
    uvloop.run(_serve(arguments.kind, arguments.format))


if __name__ == "__main__":
    main()
