"""Receive many small messages over one connection with few system calls and objects for each.

For each message, aiomqtt and paho read the socket three times, wake up again to send an acknowledgement, and make a
table of all properties that MQTT 5 knows. `Deliveries` reads all that has arrived at once, skips the properties, which
nothing here needs, and sends the acknowledgements of one wake-up together. It replaces two private methods of paho,
because neither library offers the choice.
"""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Callable
from typing import Any, Protocol

import aiomqtt
from paho.mqtt.enums import MessageType, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.exception import MalformedPacket

READ_BYTES = 16 * 1024  # of one read: about 150 messages, which take some ms
PUBACK = struct.Struct("!BBH")  # type, length of the rest, identifier


class Handler(Protocol):
    """The function that analyses a message."""

    def __call__(self, topic: str, payload: bytes, *, retained: bool) -> None:
        """Analyse a message; it is acknowledged afterwards."""


class BufferedSocket:
    """A connected socket whose data is read READ_BYTES at once, for a reader that asks for single bytes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._data = b""
        self._position = 0

    def recv(self, size: int) -> bytes:
        """Read at most `size` bytes; b"" if the connection has ended, BlockingIOError if nothing has arrived."""
        if self._position >= len(self._data):
            self._data, self._position = self._inner.recv(max(size, READ_BYTES)), 0
        part: bytes = self._data[self._position : self._position + size]
        self._position += len(part)
        return part

    def pending(self) -> int:
        """The number of bytes that can be read without the event loop: aiomqtt reads on while there are some."""
        buffered = len(self._data) - self._position
        return buffered or (self._inner.pending() if isinstance(self._inner, ssl.SSLSocket) else 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Deliveries:
    """Calls `handle` with each message of `client`, and acknowledges it then. Make it before the client connects.

    Messages of QoS 2 are refused: subscribe with QoS 0 or 1.
    """

    def __init__(self, client: aiomqtt.Client, handle: Handler) -> None:
        self._paho = paho = client._client
        self._handle = handle
        self._identifiers: list[int] = []  # of messages that were analysed in this wake-up
        paho._create_socket = self._buffered(paho._create_socket)  # type: ignore[method-assign]
        paho._handle_publish = self._deliver  # type: ignore[method-assign]

    @staticmethod
    def _buffered(connect: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: BufferedSocket(connect())

    def _deliver(self) -> MQTTErrorCode:
        """Read a PUBLISH packet (MQTT 5, section 3.3): topic, identifier, properties, payload."""
        packet, flags = self._paho._in_packet["packet"], self._paho._in_packet["command"]
        quality = flags >> 1 & 3
        end = 2 + int.from_bytes(packet[:2])
        identifier = 0
        try:
            topic = packet[2:end].decode()
            if quality:
                identifier = int.from_bytes(packet[end : end + 2])
                end += 2
            if self._paho.protocol == MQTTProtocolVersion.MQTTv5:
                end = _after_properties(packet, end)
        except (UnicodeDecodeError, IndexError) as error:
            raise MalformedPacket(str(error)) from error
        if end > len(packet) or quality > 1:
            raise MalformedPacket("a PUBLISH packet is too short, or has QoS 2")
        self._handle(topic, bytes(packet[end:]), retained=bool(flags & 1))
        if quality:
            self._acknowledge(identifier)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _acknowledge(self, identifier: int) -> None:
        if not self._identifiers:
            asyncio.get_running_loop().call_soon(self._send_acknowledgements)
        self._identifiers.append(identifier)

    def _send_acknowledgements(self) -> None:
        packets = b"".join(PUBACK.pack(MessageType.PUBACK, 2, identifier) for identifier in self._identifiers)
        self._identifiers.clear()
        connection, sent = self._paho.socket(), 0
        if connection is None:
            return  # the broker sends the messages again in the next connection
        if not self._paho.want_write():
            # An error is found again by the next read, which ends the connection.
            with contextlib.suppress(OSError):
                sent = connection.send(packets)
        if sent < len(packets):
            self._paho._packet_queue(MessageType.PUBACK, packets[sent:], 0, 1)


def _after_properties(packet: bytearray, start: int) -> int:
    """The index after the properties that begin at `start` with their length, 7 bits a byte; IndexError if cut."""
    length = shift = 0
    while True:
        byte = packet[start]
        start += 1
        length |= (byte & 127) << shift
        if byte < 128:
            return start + length
        shift += 7
