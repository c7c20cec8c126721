"""Write a gRPC stream of messages straight to its socket: the part of HTTP/2 (RFC 9113) that a sender needs.

A hundred real clients in one process use a quarter of a core, which the measured shard then lacks. The library h2 takes
16 µs to frame a message of 30 kB; this takes 1.9: 2.4 % of a core at 1,500 messages/s against 0.3 %.
"""

import asyncio
import contextlib
import socket
import ssl
import struct

from embereye.units import split_address

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = struct.Struct(">IBI")  # length and type (24 and 8 bits), flags, stream
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
INITIAL_WINDOW_SIZE = 4
SETTING, NUMBER = struct.Struct(">HI"), struct.Struct(">I")
PREFIX = struct.Struct(">?I")  # of a gRPC message: compressed or not, bytes
WINDOW, CHUNK = 65_535, 16_384  # bytes: initial window, largest frame
STREAM = 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame."""
    return FRAME.pack(len(payload) << 8 | kind, flags, stream) + payload


def header_block(fields: dict[str, str]) -> bytes:
    """Encode `fields` as HPACK literals (RFC 7541, 6.2.2) of fewer than 127 bytes each."""
    texts = (text.encode() for pair in fields.items() for text in pair)
    coded = [bytes([len(text)]) + text for text in texts]
    return b"".join(b"\0" + name + value for name, value in zip(coded[::2], coded[1::2], strict=True))


class Messages:
    """A connection with one stream, on the event loop. The latest message waits until the previous one is sent."""

    def __init__(self, target: str, method: str, tls: ssl.SSLContext | None = None) -> None:
        """`tls` is a TLS context with ALPN "h2"; None: no TLS."""
        self._socket = socket.create_connection(split_address(target))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self._socket = tls.wrap_socket(self._socket, server_hostname=split_address(target)[0])
        self._socket.setblocking(False)
        fields = {":method": "POST", ":scheme": "https" if tls else "http", ":path": method, ":authority": target}
        fields |= {"te": "trailers", "content-type": "application/grpc"}
        self._unsent = PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, STREAM, header_block(fields))
        self._windows = {0: WINDOW, STREAM: WINDOW}
        self._initial = WINDOW
        self._message = memoryview(b"")  # rest of the message that is being sent
        self._waiting = b""
        self._received = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)
        self._flush()

    def close(self) -> None:
        """Close the connection at once."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()

    def offer(self, *parts: bytes) -> bool:
        """Send the message of these serialised `parts`. It replaces a waiting one; True if none was waiting."""
        replaced = bool(self._waiting)
        self._waiting = b"".join((PREFIX.pack(False, sum(map(len, parts))), *parts))
        if not self._unsent:
            self._flush()
        return not replaced

    def _flush(self) -> None:
        parts: list[bytes | memoryview] = [self._unsent]
        while self._message or self._waiting:
            if not self._message:
                self._message, self._waiting = memoryview(self._waiting), b""
            size = min(len(self._message), CHUNK, *self._windows.values())
            if size <= 0:
                break
            for stream in self._windows:
                self._windows[stream] -= size
            parts += (FRAME.pack(size << 8 | DATA, 0, STREAM), self._message[:size])
            self._message = self._message[size:]
        try:
            sent = self._send(parts) if len(parts) > 1 or self._unsent else 0
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        self._unsent = b"" if sent == sum(map(len, parts)) else b"".join(parts)[sent:]
        if self._unsent:
            self._loop.add_writer(self._socket, self._flush)
        else:
            self._loop.remove_writer(self._socket)

    def _send(self, parts: list[bytes | memoryview]) -> int:
        if isinstance(self._socket, ssl.SSLSocket):
            return self._socket.send(b"".join(parts))
        return self._socket.sendmsg(parts)

    def _receive(self) -> bytes:
        """Read what has arrived; with TLS all of it, because decrypted data does not wake the event loop."""
        if not isinstance(self._socket, ssl.SSLSocket):
            return self._socket.recv(65_536)
        received = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := self._socket.recv(65_536):
                received += part
            assert part, "the shard must not close a connection"
        return received

    def _read(self) -> None:
        received = self._received + self._receive()
        assert isinstance(self._socket, ssl.SSLSocket) or len(received) > len(self._received), (
            "the shard must not close a connection"
        )
        at = 0
        while len(received) - at >= FRAME.size:
            word, flags, stream = FRAME.unpack_from(received, at)
            end = at + FRAME.size + (word >> 8)
            if end > len(received):
                break
            self._receive_frame(word & 0xFF, flags, stream, received[at + FRAME.size : end])
            at = end
        self._received = received[at:]
        self._flush()

    def _receive_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert kind not in (RST_STREAM, GOAWAY), "the shard must not close a stream"
        assert kind != HEADERS or not flags & END_STREAM, "the shard must not close a stream"
        if kind == WINDOW_UPDATE:
            self._windows[stream] += NUMBER.unpack(payload)[0]
        elif kind == SETTINGS and not flags & ACK:
            for number, value in SETTING.iter_unpack(payload):
                if number == INITIAL_WINDOW_SIZE:
                    self._windows[STREAM] += value - self._initial
                    self._initial = value
            self._unsent += frame(SETTINGS, ACK, 0)
        elif kind == PING and not flags & ACK:
            self._unsent += frame(PING, ACK, 0, payload)
        elif kind == DATA and payload:
            update = NUMBER.pack(len(payload))
            self._unsent += frame(WINDOW_UPDATE, 0, 0, update) + frame(WINDOW_UPDATE, 0, STREAM, update)
