"""A blocking client of the hub's associations: for control loops, for which an event loop's turn is a long wait."""

import socket
import ssl
import struct
import time
from collections import deque
from enum import Enum
from types import TracebackType
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from embereye.process.lifecycle import UserError
from embereye.process.tls.client import ClientTls
from embereye.units import SECOND, split_address
from embereye.v1.association_pb2 import Associate, Associated
from embereye.wire.delimited import (
    LENGTH_DELIMITED,
    LONG,
    Buffer,
    DelimitedError,
    DelimitedReader,
    delimited,
    varint,
)

M = TypeVar("M", bound=Message)
VERSION = 1
UNIX = "unix:"
CHUNK = 256 * 1024  # bytes read at once
LIMIT = 16 * 1024 * 1024  # bytes of one message
CONNECT_SECONDS = 5.0
SLEEP_SECONDS = 50e-6  # between two looks, of those who poll with sleep
NOT_NOW = (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # nothing came, or goes


class LinkError(Exception):
    """The association has ended, or did not come about; the text says why."""


class Wait(Enum):
    """How to wait for what comes: asleep in the system, by looking all the time, or by looking every 50 µs."""

    BLOCK = "block"
    POLL = "poll"
    SLEEP = "sleep"


class Link:
    """One association. `send` and `receive` messages of the stream that it is for; `close` it."""

    def __init__(
        self,
        address: str,
        call: str,
        token: str,
        *,
        tls: ClientTls | None = None,
        wait: Wait = Wait.BLOCK,
        timeout: float = 5.0,
    ) -> None:
        """`address` is "host:port" or "unix:PATH", `timeout` seconds for each answer. LinkError: it is not let in."""
        self.address = address
        self.timeout = timeout
        self.waited_ns = 0  # in `receive`
        self.sent = self.received = 0  # bytes of the latest message, its length included
        self._wait = wait
        self._reader = DelimitedReader(LIMIT)
        self._messages: deque[bytes] = deque()
        try:
            self._socket = _connect(address, tls)
        except (OSError, ValueError, UserError) as error:
            raise LinkError(f"{address} cannot be reached: {error}") from error
        try:
            self._prepare()
            self.send(Associate(version=VERSION, token=token, call=call))
            self.name = self.receive(Associated).name
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        if isinstance(self._socket, ssl.SSLSocket) and self._wait is Wait.BLOCK:
            self._socket.settimeout(self.timeout)  # it would wait on past one of the socket's options
        elif self._wait is Wait.BLOCK:
            # As an option of the socket: with Python's own timeout each read would be two calls of the system.
            self._socket.settimeout(None)
            whole, part = divmod(int(self.timeout * SECOND), SECOND)
            interval = struct.pack("@ll", whole, part // 1000)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)
        else:
            self._socket.setblocking(False)

    def send(self, message: Message) -> None:
        """Send `message`; LinkError where the connection is gone."""
        data = delimited(message.SerializeToString())
        self.sent = len(data)
        self.send_bytes(data)

    def send_with(self, message: Message, field: int, data: Buffer) -> None:
        """Send `message` with `data` as its bytes field of number `field`, which is copied nowhere."""
        head = message.SerializeToString() + varint(field << 3 | LENGTH_DELIMITED) + varint(len(data))
        head = varint(len(head) + len(data)) + head
        self.sent = len(head) + len(data)
        if len(data) < LONG:  # a copy takes less than another call of the system
            self.send_bytes(head + data)
        else:
            self.send_bytes(head)
            self.send_bytes(data)

    def send_bytes(self, data: Buffer) -> None:
        """Send what has its length in front already."""
        rest = memoryview(data)
        deadline = 0.0
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except NOT_NOW as error:
                deadline = deadline or time.monotonic() + self.timeout
                if self._wait is Wait.BLOCK or time.monotonic() > deadline:
                    raise LinkError(f"{self.address} reads nothing for {self.timeout:g} s") from error
                time.sleep(SLEEP_SECONDS)
            except OSError as error:
                raise LinkError(f"the connection to {self.address} is broken: {error}") from error

    def receive(self, kind: type[M]) -> M:
        """The next message; LinkError with the hub's reason where it ends the association, or says nothing."""
        if not self._messages:
            began = time.monotonic_ns()
            try:
                while not self._messages:
                    self._read(began)
            finally:
                self.waited_ns += time.monotonic_ns() - began
        data = self._messages.popleft()
        self.received = len(data) + (1 if len(data) < 0x80 else 2 if len(data) < 0x4000 else 3)
        try:
            message = kind.FromString(data)
        except DecodeError as error:
            raise LinkError(f"{self.address} sends what is no {kind.DESCRIPTOR.name}") from error
        if message.HasField("released"):
            raise LinkError(message.released.reason)  # type: ignore[attr-defined]
        return message

    def _read(self, began: int) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except NOT_NOW as error:
            if self._wait is Wait.BLOCK or time.monotonic_ns() - began > self.timeout * SECOND:
                raise LinkError(f"{self.address} says nothing for {self.timeout:g} s") from error
            if self._wait is Wait.SLEEP:
                time.sleep(SLEEP_SECONDS)
            return
        except OSError as error:
            raise LinkError(f"the connection to {self.address} is broken: {error}") from error
        if not data:
            raise LinkError(f"{self.address} has closed the connection")
        try:
            self._messages += self._reader.receive(data)
        except DelimitedError as error:
            raise LinkError(f"{self.address}: {error}") from error

    def detach(self) -> socket.socket:
        """The connection itself, for those who do without `send` and `receive` from here on; it blocks."""
        self._socket.setblocking(True)
        return self._socket

    def close(self) -> None:
        """End the association."""
        self._socket.close()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def _connect(address: str, tls: ClientTls | None) -> socket.socket:
    if address.startswith(UNIX):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.connect(address.removeprefix(UNIX))
        except OSError:
            connection.close()
            raise
        return connection
    host, port = split_address(address)
    connection = socket.create_connection((host.strip("[]"), port), timeout=CONNECT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        return connection
    return tls.context().wrap_socket(connection, server_hostname=tls.server_name or host.strip("[]"))
