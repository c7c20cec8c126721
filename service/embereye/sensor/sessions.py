"""Text devices: one TCP connection each, lines in, bare command words out.

A read that holds one usual, unsuspicious line is done with at once. Everything else waits, as bytes, for the intake's
tick; what crosses a threshold makes the tick come at once.
"""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, cast

from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.relay import Relay
from embereye.sensor.tick import Intake
from embereye.v1.shard_pb2 import Commands, Peer
from embereye.wire.device.lines import (
    MAX_LINE,
    RAM_WORDS,
    CommandParser,
    DeviceParser,
    Eeprom,
    FrameWords,
    Garbage,
    LocationId,
    Message,
    PassedOn,
    SensorReading,
    SerialNumber,
    encode,
    parse_line,
)
from embereye.wire.device.rows import Shape, shape_of

logger = logging.getLogger(__name__)
MAX_CONNECTIONS = 20_000  # a process has 1,048,576 file descriptors at best; a building has fewer devices
OUTGOING_LIMIT = 4096  # bytes a device may leave unread before it is sent no more words
CALIBRATION_RETRY_NS = 5_000_000_000  # nanoseconds between two requests for the calibration
LOOK_BYTES = 16 * 1024  # waiting bytes up to which each line is looked at for what must not wait
LOOK_LINES = 64  # in one read
HURRY_SECONDS = 0.02  # between two early ticks for the same session
# What may wait in one session. The kernel keeps as much again: more would only make the device's data older.
WAITING_LIMIT = 64 * 1024
RECEIVE_BUFFER = 64 * 1024
# What may wait in all sessions before each is kept to CROWDED_LIMIT.
TOTAL_LIMIT = 32 * 1024 * 1024
CROWDED_LIMIT = 2048
SUPERSEDED = "a newer connection speaks for it"
NAN = float("nan")

NOTHING = b"\xff\xff"  # no line starts like this


def _never(text: bytes, start: int, now_ns: int) -> bool:
    """Take no reading."""
    return False


class Owner(Protocol):
    """What a session needs of its shard."""

    commands: Commands
    garbage: Counter[str]  # lines that were no message, by reason
    relayed: int  # messages passed on to the shard that owns their device
    relay_dropped: int
    intake: Intake

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state where this shard owns it."""
        ...

    def undeclared(self, device: str, now_ns: int) -> SensorDevice | None:
        """State of a device that no fleet declares, to be shown but not watched; None where there are too many."""
        ...

    def peer_of(self, device: str) -> Peer | None:
        """The shard that owns the device where it is another one."""
        ...


class Sessions:
    """The open sessions of one shard's text listeners."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._open: set[TextSession] = set()
        self._last = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> asyncio.Protocol:
        """A protocol for one more connection: a factory for `create_server`."""
        self._last = max(self._last + 1, time.time_ns())
        return TextSession(self._owner, self, self._last)

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

    def forget(self) -> None:
        """Look anew for whose lines come on which connection: the assignment has changed."""
        for session in self._open:
            session.forget()

    def close(self) -> None:
        """Close every connection: its device dials again and finds the shard that serves it now."""
        for session in list(self._open):
            session.close()


class TextSession(asyncio.Protocol):
    """One device's connection. Garbage is counted and skipped; only the device itself can end its session."""

    __slots__ = (
        "_asked_ns",
        "_chunks",
        "_devices",
        "_hurried_at",
        "_identity",
        "_left",
        "_owner",
        "_parser",
        "_passed_on",
        "_paused",
        "_prefix",
        "_relays",
        "_sessions",
        "_shape",
        "_speaks_for",
        "_take_single",
        "_transport",
        "number",
        "queued",
        "waiting",
    )  # fmt: skip

    def __init__(self, owner: Owner, sessions: Sessions, number: int) -> None:
        self.number = number  # when the device connected, nanoseconds since the Unix epoch: one connection, one number
        self.queued = False
        self.waiting = 0  # bytes in _chunks
        self._owner = owner
        self._sessions = sessions
        self._parser: DeviceParser | None = None  # made when it is needed
        self._transport: asyncio.Transport | None = None
        self._identity = ""
        self._passed_on: PassedOn | None = None  # the other end is a shard
        self._relays: dict[tuple[str, bool], Relay] | None = None  # by address, and whether we take it, too
        self._asked_ns = 0  # when the calibration was last asked for
        self._chunks: list[bytes] = []
        self._left = b""  # the start of a line
        self._paused = False
        self._hurried_at = 0.0  # event loop time
        self._devices: set[SensorDevice] | None = None  # that it has spoken for
        self._shape: Shape | None = None  # of its usual lines
        self._prefix = NOTHING  # what they start with
        self._speaks_for: SensorDevice | None = None  # whose they are
        self._take_single = _never  # of that device

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
        """Take what was still waiting, then forget the session."""
        if self.queued:
            self._owner.intake.hurry(self)
            self._owner.intake.flush()
        self._sessions.closed(self)
        for device in self._devices or ():
            if device.speaker is self:
                device.speaker = device.request = None
        for relay in (self._relays or {}).values():
            relay.close()
        self._relays = None

    def data_received(self, data: bytes) -> None:
        """Take what arrived; nothing a device sends may end the shard."""
        if data.startswith(self._prefix) and not self._chunks and not self._left:
            take = self._take_single  # called as a method it would be looked up the slow way
            if take(data, len(self._prefix), time.time_ns()):
                return
        self._chunks.append(data)
        self.waiting += len(data)
        intake = self._owner.intake
        intake.add(self, len(data))
        if self.waiting > WAITING_LIMIT or (intake.waiting > TOTAL_LIMIT and self.waiting > CROWDED_LIMIT):
            self._pause()
        elif self.waiting <= LOOK_BYTES and b"!" in data and self._urgent(data):
            intake.hurry(self)

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _urgent(self, data: bytes) -> bool:
        """Whether a line that ends in `data`, the latest read, may change a level."""
        count = data.count(b"!")
        now = asyncio.get_running_loop().time()
        if count > LOOK_LINES or now - self._hurried_at < HURRY_SECONDS:
            return False
        text = b"".join((self._left, *self._chunks)) if len(self._chunks) > 1 or self._left else data
        messages: list[Message] = []
        for line in text.split(b"!")[-1 - count : -1]:
            parse_line(line, messages)
        for message in messages:
            if isinstance(message, SensorReading | FrameWords):
                device = self._owner.owned(message.location or self._identity)
                if device is not None and _matters(device, message):
                    self._hurried_at = now
                    return True
        return False

    def collect(self) -> bytes:
        """What is waiting, which is then no longer waiting, and go on reading."""
        text = b"".join((self._left, *self._chunks))
        self._chunks.clear()
        self._left = b""
        self.waiting = 0
        if self._paused and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return text

    def usual(self) -> tuple[SensorDevice, Shape] | None:
        """Whose usual lines it sends, where that is known."""
        device = self._speaks_for
        if device is None or self._shape is None or (self._parser is not None and self._parser.skipping):
            return None
        return device, self._shape

    def keep(self, rest: bytes) -> None:
        """Keep the start of a line for the next time."""
        if len(rest) > MAX_LINE:
            self.ordered(rest, time.time_ns())
        elif not rest.isspace():
            self._left = rest

    def ordered(self, text: bytes, now_ns: int) -> None:
        """Take `text` message by message."""
        parser = self._parser = self._parser or DeviceParser()
        for message in parser.feed(text):
            try:
                self._handle(message, now_ns)
            except Exception:
                logger.exception("device %s: a message could not be handled", self._identity)
        left = parser.take()
        if left and not left.isspace():
            self._left = left
        elif not parser.skipping:
            self._parser = None
        self._learn(text)

    def _learn(self, text: bytes) -> None:
        """Remember what the usual lines of this session look like, and whose they are."""
        shape = shape_of(text)
        if shape is None:
            return
        self.forget()
        name = shape.location or self._identity
        device = self._owner.owned(name)
        if device is None or device.speaker is not self or self._owner.peer_of(name):
            return  # what another shard has to hear as well goes line by line
        if self._passed_on is None or not self._passed_on.also:
            self._shape, self._prefix, self._speaks_for = shape, shape.prefix, device
            if self._owner.intake.archive is None:  # what is kept has to come with a tick
                self._take_single = device.single

    def forget(self) -> None:
        """Forget whose lines come here: it may have changed."""
        self._shape, self._prefix, self._speaks_for, self._take_single = None, NOTHING, None, _never

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
                self.forget()
            case PassedOn():
                self._passed_on = message
                self.number = message.since_ns or self.number
                self.forget()
            case Garbage(reason=reason):
                self._owner.garbage[reason] += 1
                if (sender := self._owner.owned(self._identity)) is not None:
                    sender.refuse(reason)
            case Eeprom(name):
                self._route(name or self._identity, message, now)
            case SensorReading(location) | FrameWords(location):
                self._route(location or self._identity, message, now)

    def _route(self, name: str, message: SensorReading | FrameWords | Eeprom, now: int) -> None:
        device = self._owner.owned(name)
        if peer := self._owner.peer_of(name):
            # Another shard's; or ours until that one covers it, for which it has to hear the device.
            self._relay(peer, name, message, also=device is not None)
            if device is None:
                return
        if device is None:
            device = self._owner.undeclared(name, now)
            if device is None:
                return
        if self._passed_on is not None and self._passed_on.also:
            device.ledger.shared += 1
        if device.speaker is not self and not self._speak_for(device):
            return
        intake = self._owner.intake
        match message:
            case SensorReading():
                intake.add_reading(device, _row(message))
            case FrameWords(words=words):
                intake.add_frame(device, words, now)
                if device.calibration is None and len(words) == RAM_WORDS * 2:
                    device.wants_calibration = True
            case Eeprom(words=words):
                intake.settle(now)  # the frames before it were measured under the calibration before it
                intake.calibrate(device, words, now)
        if device.wants_calibration and now - self._asked_ns > CALIBRATION_RETRY_NS:
            self._asked_ns = now
            self.command(self._owner.commands.calibration)

    def _speak_for(self, device: SensorDevice) -> bool:
        """Become the one who speaks for `device`; False where a newer connection already does."""
        other = device.speaker
        if isinstance(other, TextSession) and other.number > self.number:
            device.refuse(SUPERSEDED)
            return False
        if isinstance(other, TextSession):
            other.forget()
            if self.number != other.number:  # else the same connection of the device, passed on in another way
                device.ledger.takeovers += 1
                logger.warning("device %s: a newer connection speaks for it now", device.spec.id)
        device.speaker, device.request = self, self.command
        self._devices = self._devices or set()
        self._devices.add(device)
        return True

    def _relay(self, peer: Peer, name: str, message: SensorReading | FrameWords | Eeprom, *, also: bool) -> None:
        if self._passed_on is not None:
            # Two shards whose assignments differ for a moment would send it to and fro.
            self._owner.relay_dropped += 1
            return
        relays = self._relays = self._relays or {}
        relay = relays.get((peer.tcp, also))
        if relay is None or relay.closed:
            if other := relays.pop((peer.tcp, not also), None):
                other.close()
            relay = relays[peer.tcp, also] = Relay(peer.tcp, encode(PassedOn(also, self.number)), self._pass_back())
        if relay.send(encode(_named(name, message))):
            self._owner.relayed += 1
        else:
            self._owner.relay_dropped += 1

    def _pass_back(self) -> Callable[[bytes], None]:
        """Passes the words of another shard on to the device."""
        commands = self._owner.commands
        # That one greets the relay as if it were the device, which is streaming already.
        words = {commands.calibration, commands.request} - {"", commands.start}
        parser = CommandParser({commands.start, *words} - {""})

        def take(data: bytes) -> None:
            for word in parser.feed(data):
                if word in words:
                    self.command(word)

        return take


def _row(reading: SensorReading) -> tuple[float, float, float, float]:
    smoke, flame, gas, digital = reading.smoke_adc, reading.flame_adc, reading.gas_adc, reading.flame_detected
    return (
        NAN if smoke is None else smoke,
        NAN if flame is None else flame,
        NAN if gas is None else gas,
        NAN if digital is None else float(digital),
    )


def _matters(device: SensorDevice, message: SensorReading | FrameWords) -> bool:
    """Whether what `message` says may change a level."""
    if isinstance(message, SensorReading):
        return device.outside(_row(message))
    return device.startled(message.words)


def _named(name: str, message: SensorReading | FrameWords | Eeprom) -> SensorReading | FrameWords | Eeprom:
    """`message` as the device would send it if it named itself in every line."""
    return replace(message, id=name) if isinstance(message, Eeprom) else replace(message, location=name)


def _keep_alive(connection: socket.socket) -> None:
    """Notice a peer that vanished without a word within about 30 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
