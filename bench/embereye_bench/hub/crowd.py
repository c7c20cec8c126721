"""Run many cheap WebSocket subscribers in one process: bytes and times are stored, only pings are answered.

It prints one line of JSON once all are connected, and another for each line on standard input, with the arrivals since.
It ends with its input.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import cast

import uvloop

from embereye.process.lifecycle import raise_descriptor_limit
from embereye_bench.hub.feed_server import TOKEN

AT_ONCE = 100  # connections opened at the same time
PLACES = 8  # loopback addresses to connect from: a hub limits the connections of one address


@dataclass
class Arrivals:
    """The payloads received, in order of arrival."""

    payloads: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)  # monotonic nanoseconds
    ended: Counter[str] = field(default_factory=Counter)  # connections, by reason

    def collect(self) -> dict[str, object]:
        """Return {payload in hexadecimal: times} and start again."""
        payloads, times = self.payloads, self.times
        self.payloads, self.times = [], []
        by_payload: dict[bytes, list[int]] = {}
        for payload, time_ns in zip(payloads, times, strict=True):
            by_payload.setdefault(payload, []).append(time_ns)
        return {
            "arrivals": {payload.hex(): times for payload, times in by_payload.items()},
            "ended": self.ended,
        }


class Subscriber(asyncio.Protocol):
    """A WebSocket subscriber, from its handshake on."""

    def __init__(self, seen: Arrivals, request: bytes) -> None:
        self.opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # the status line
        self._seen = seen
        self._request = request
        self._buffer = b""
        self._frames = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        buffer = self._buffer + data if self._buffer else data
        if not self._frames:
            head, separator, buffer = buffer.partition(b"\r\n\r\n")
            if not separator:
                self._buffer = head
                return
            self._frames = head.startswith(b"HTTP/1.1 101")
            if not self.opened.done():
                self.opened.set_result(head.partition(b"\r\n")[0].decode())
        self._buffer = self._read(buffer, now) if self._frames else b""

    def _read(self, buffer: bytes, now: int) -> bytes:
        position, end, seen = 0, len(buffer), self._seen
        while end - position >= 2:
            length, start = buffer[position + 1], position + 2
            if length == 126:
                if end - position < 4:
                    break
                length, start = int.from_bytes(buffer[position + 2 : position + 4]), position + 4
            if end - start < length:
                break
            if buffer[position] == 0x88:
                self._transport.close()  # as a browser does when asked to close
            elif buffer[position] == 0x89:
                # A pong (RFC 6455, 5.5.3), masked with zeros: the server disconnects clients that do not answer.
                answer = bytes((0x8A, 0x80 | length, 0, 0, 0, 0)) + buffer[start : start + length]
                self._transport.write(answer)
            elif buffer[position] in {0x81, 0x82}:
                seen.payloads.append(buffer[start : start + length])
                seen.times.append(now)
            position = start + length
        return buffer[position:]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_result(f"lost: {exc or 'closed'}")
        self._seen.ended["lost" if exc else "closed"] += 1


def request(host: str, path: str, token: str) -> bytes:
    """The handshake request of a WebSocket."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()


async def _open(port: int, count: int, path: str, token: str, seen: Arrivals) -> tuple[Counter[str], list[Subscriber]]:
    loop, gate = asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)
    statuses, opened = Counter[str](), list[Subscriber]()
    handshake = request(f"127.0.0.1:{port}", path, token)

    async def connect(number: int) -> None:
        async with gate:
            place = (f"127.0.0.{number % PLACES + 1}", 0)
            try:
                _, protocol = await loop.create_connection(
                    lambda: Subscriber(seen, handshake), "127.0.0.1", port, local_addr=place
                )
            except OSError as error:
                statuses[f"refused: {error.strerror}"] += 1
                return
            opened.append(protocol)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(30):
                    statuses[await protocol.opened] += 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(connect(number))
    return statuses, opened


async def _run(port: int, count: int, path: str, token: str) -> None:
    seen = Arrivals()
    began = time.perf_counter()
    statuses, subscribers = await _open(port, count, path, token, seen)
    seconds = time.perf_counter() - began
    print(json.dumps({"opened": statuses, "seconds": seconds, "connected": len(subscribers)}), flush=True)
    while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        print(json.dumps(seen.collect()), flush=True)


def main() -> None:
    """Subscribe until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--path", default="/v1/alarms/ws?format=binary")
    parser.add_argument("--token", default=TOKEN)
    arguments = parser.parse_args()
    raise_descriptor_limit()
    uvloop.run(_run(arguments.port, arguments.count, arguments.path, arguments.token))


if __name__ == "__main__":
    main()
