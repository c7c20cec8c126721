"""A blocking client of the hub's associations, for control loops that cannot wait for an event loop's turn.

A link connects, sends `Associate` with its token and the name of a call, and receives `Associated`. From then on both
ends exchange messages with a length prefix. The caller's thread does all the work: `receive` blocks in the system, or
polls the socket, as `Wait` says.

Silence beyond the timeout, a broken connection or a release by the hub raises LinkError; a link does not reconnect.
"""

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
SLEEP_SECONDS = 50e-6  # between two polls with Wait.SLEEP
NOT_NOW = (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # the socket is not ready


class LinkError(Exception):
    """The association has ended or could not be opened; the text says why."""


class Wait(Enum):
    """The way to wait for messages: block in the system, poll all the time, or poll every 50 µs."""

    BLOCK = "block"
    POLL = "poll"
    SLEEP = "sleep"


class Link:
    """One association with the hub. `send` and `receive` messages; `close` it at the end."""

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
        """Connect to `address`, "host:port" or "unix:PATH"; `timeout` is seconds per answer. LinkError if refused."""
        self.address = address
        self.timeout = timeout
        self.waited_ns = 0  # time spent in `receive`
        self.sent = self.received = 0  # bytes of the latest message, with its length prefix
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
            self._socket.settimeout(self.timeout)  # TLS ignores the socket's options
        elif self._wait is Wait.BLOCK:
            # A socket option, because Python's timeout would make two system calls for each read.
            self._socket.settimeout(None)
            whole, part = divmod(int(self.timeout * SECOND), SECOND)
            interval = struct.pack("@ll", whole, part // 1000)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)
        else:
            self._socket.setblocking(False)

    def send(self, message: Message) -> None:
        """Send `message`; LinkError if the connection is broken."""
        data = delimited(message.SerializeToString())
        self.sent = len(data)
        self.send_bytes(data)

    def send_with(self, message: Message, field: int, data: Buffer) -> None:
        """Send `message` with `data` as its bytes field number `field`, without a copy of large `data`."""
        head = message.SerializeToString() + varint(field << 3 | LENGTH_DELIMITED) + varint(len(data))
        head = varint(len(head) + len(data)) + head
        self.sent = len(head) + len(data)
        if len(data) < LONG:  # a copy is cheaper than another system call
            self.send_bytes(head + data)
        else:
            self.send_bytes(head)
            self.send_bytes(data)

    def send_bytes(self, data: Buffer) -> None:
        """Send `data`, which already has its length prefix."""
        rest = memoryview(data)
        deadline = 0.0
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except NOT_NOW as error:
                deadline = deadline or time.monotonic() + self.timeout
                if self._wait is Wait.BLOCK or time.monotonic() > deadline:
                    raise LinkError(f"{self.address} has read nothing for {self.timeout:g} s") from error
                time.sleep(SLEEP_SECONDS)
            except OSError as error:
                raise LinkError(f"the connection to {self.address} is broken: {error}") from error

    def receive(self, kind: type[M]) -> M:
        """The next message. LinkError if the hub is silent or ends the association, with its reason."""
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
            raise LinkError(f"{self.address} sent a message that is not a valid {kind.DESCRIPTOR.name}") from error
        if message.HasField("released"):
            raise LinkError(message.released.reason)  # type: ignore[attr-defined]
        return message

    def _read(self, began: int) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except NOT_NOW as error:
            if self._wait is Wait.BLOCK or time.monotonic_ns() - began > self.timeout * SECOND:
                raise LinkError(f"{self.address} has sent nothing for {self.timeout:g} s") from error
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
        """The blocking connection, for use without `send` and `receive` from now on."""
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
