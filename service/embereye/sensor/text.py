"""Text devices: one TCP connection each, lines in, bare command words out."""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, cast

from embereye.sensor.device import SensorDevice
from embereye.v1.shard_pb2 import Commands, Peer
from embereye.wire.device import (
    DeviceParser,
    Eeprom,
    FrameWords,
    Garbage,
    LocationId,
    Message,
    SensorReading,
    SerialNumber,
    encode,
)

logger = logging.getLogger(__name__)
MAX_CONNECTIONS = 20_000  # a process has 1,048,576 file descriptors at best; a building has fewer devices
OUTGOING_LIMIT = 4096  # bytes a device may leave unread before it is sent no more words
RELAY_LIMIT = 1 << 20  # bytes that may wait for another shard before a device's lines are dropped
CALIBRATION_RETRY_NS = 5_000_000_000  # nanoseconds between two requests for the calibration


class Owner(Protocol):
    """What a session needs of its shard."""

    commands: Commands
    garbage: Counter[str]  # lines that were no message, by reason
    relayed: int  # messages passed on to the shard that owns their device
    relay_dropped: int

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state where this shard owns it."""
        ...

    def undeclared(self, device: str, now_ns: int) -> SensorDevice | None:
        """State of a device that no fleet declares, to be shown but not watched; None where there are too many."""
        ...

    def peer_of(self, device: str) -> Peer | None:
        """The shard that owns the device where it is another one."""
        ...

    def take(self, device: SensorDevice, message: SensorReading | FrameWords | Eeprom, now_ns: int) -> None:
        """Analyse one message of a device."""
        ...


class Sessions:
    """The open sessions of one shard's text listeners."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._open: set[TextSession] = set()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> asyncio.Protocol:
        """A protocol for one more connection: a factory for `create_server`."""
        return TextSession(self._owner, self)

    def opened(self, session: "TextSession") -> bool:
        """Count `session` in; False where there is no room."""
        if len(self._open) >= MAX_CONNECTIONS:
            self.refused += 1
            return False
        self._open.add(session)
        return True

    def closed(self, session: "TextSession") -> None:
        """Count `session` out."""
        self._open.discard(session)

    def close(self) -> None:
        """Close every connection: its device dials again and finds the shard that serves it now."""
        for session in list(self._open):
            session.close()


class TextSession(asyncio.Protocol):
    """One device's connection. Garbage is counted and skipped; only the device itself can end its session."""

    def __init__(self, owner: Owner, sessions: Sessions) -> None:
        self._owner = owner
        self._sessions = sessions
        self._parser = DeviceParser()
        self._transport: asyncio.Transport | None = None
        self._identity = ""
        self._relays: dict[str, Relay] = {}
        self._asked_ns = 0  # when the calibration was last asked for

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the device with the word that makes it stream."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._sessions.opened(self):
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._identity = str(peer[0]) if peer else "unknown"
        if (connection := transport.get_extra_info("socket")) is not None:
            _keep_alive(connection)
        self.command(self._owner.commands.start)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the session."""
        self._sessions.closed(self)
        for relay in self._relays.values():
            relay.close()
        self._relays.clear()

    def data_received(self, data: bytes) -> None:
        """Take what arrived; nothing a device sends may end the shard."""
        now = time.time_ns()
        for message in self._parser.feed(data):
            try:
                self._handle(message, now)
            except Exception:
                logger.exception("device %s: a message could not be handled", self._identity)

    def command(self, word: str) -> None:
        """Send a bare word, unless the device reads none."""
        transport = self._transport
        if not word or transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() < OUTGOING_LIMIT:
            transport.write(word.encode())

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _handle(self, message: Message, now: int) -> None:
        match message:
            case SerialNumber(device) | LocationId(device):
                self._identity = device
            case Garbage(reason=reason):
                self._owner.garbage[reason] += 1
            case Eeprom(name):
                self._route(name or self._identity, message, now)
            case SensorReading(location) | FrameWords(location):
                self._route(location or self._identity, message, now)

    def _route(self, name: str, message: SensorReading | FrameWords | Eeprom, now: int) -> None:
        device = self._owner.owned(name)
        if device is None and (peer := self._owner.peer_of(name)):
            self._relay(peer, name, message)
            return
        if device is None:
            device = self._owner.undeclared(name, now)
            if device is None:
                return
        device.request = self.command
        self._owner.take(device, message, now)
        if device.wants_calibration and now - self._asked_ns > CALIBRATION_RETRY_NS:
            self._asked_ns = now
            self.command(self._owner.commands.calibration)

    def _relay(self, peer: Peer, name: str, message: SensorReading | FrameWords | Eeprom) -> None:
        relay = self._relays.get(peer.tcp)
        if relay is None or relay.closed:
            relay = self._relays[peer.tcp] = Relay(peer.tcp, self._pass_back)
        if relay.send(encode(_named(name, message))):
            self._owner.relayed += 1
        else:
            self._owner.relay_dropped += 1

    def _pass_back(self, words: bytes) -> None:
        # The owner greets the relay as if it were the device, which is streaming already.
        for word in (self._owner.commands.calibration, self._owner.commands.request):
            if word and word.encode() in words:
                self.command(word)


def _named(name: str, message: SensorReading | FrameWords | Eeprom) -> SensorReading | FrameWords | Eeprom:
    """`message` as the device would send it if it named itself in every line."""
    return replace(message, id=name) if isinstance(message, Eeprom) else replace(message, location=name)


class Relay(asyncio.Protocol):
    """A line to the shard that owns a device which connected here. Bounded; what does not fit is dropped."""

    def __init__(self, address: str, words: Callable[[bytes], None]) -> None:
        self.closed = False
        self._words = words
        self._transport: asyncio.Transport | None = None
        self._waiting = bytearray()
        self._task = asyncio.get_running_loop().create_task(self._dial(address), name=f"relay-{address}")

    async def _dial(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(3.0):
                await asyncio.get_running_loop().create_connection(lambda: self, host.strip("[]"), int(port))
        except (OSError, ValueError, TimeoutError) as error:
            logger.warning("relay to %s: %s", address, error or "timed out")
            self.closed = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what has been waiting."""
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:
            self._transport.close()
            return
        self._transport.write(bytes(self._waiting))
        self._waiting.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the session make a new line when it needs one."""
        self.closed = True

    def data_received(self, data: bytes) -> None:
        """Pass the owner's words back to the device."""
        self._words(data)

    def send(self, line: bytes) -> bool:
        """Send `line`; False where it had to be dropped."""
        if self._transport is None:
            if len(self._waiting) + len(line) > RELAY_LIMIT:
                return False
            self._waiting += line
            return True
        if self._transport.get_write_buffer_size() > RELAY_LIMIT:
            return False
        self._transport.write(line)
        return True

    def close(self) -> None:
        """Close the line."""
        self.closed = True
        self._task.cancel()
        if self._transport is not None:
            self._transport.close()


def _keep_alive(connection: socket.socket) -> None:
    """Notice a peer that vanished without a word within about 30 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
