"""Sessions of text devices: one TCP connection each, lines in, bare command words out.

A session parses its bytes into lines and routes each line to the device that it names. Nearly all lines are quiet:
they cross no threshold and are counted at once, without being parsed. All other bytes wait in the session for the
tick, which analyses the lines of many devices together; a line that crosses a threshold starts the tick at once.

At most one session speaks for a device. The newest connection wins, unless the fleet's access rules bind a device to
the address that is heard now. Lines of a device that another shard owns are relayed to that shard (`relay.py`), where
they arrive in a separate session (`relay_service.py`).

`Sessions` limits the number of connections. If there are too many, it closes one that has sent no valid line, else one
that serves no device of the fleet.
"""

import asyncio
import logging
import math
import resource
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, cast
from weakref import WeakSet

from embereye.process.grpc_server import most_connections
from embereye.process.identity.credentials import expiry
from embereye.process.tasks import Tasks
from embereye.process.timing.clock import EPOCH_OFFSET_NS, now_ns
from embereye.process.timing.running import Running
from embereye.sensor.device.arrivals import row_of
from embereye.sensor.device.readings import ClearBands
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.relay import Origin, Relay, Relays
from embereye.sensor.tick import TickBatcher
from embereye.shard.access import EVERYTHING, NOTHING, DeviceAccess, Grant, Names, NotAdmittedError, names_of
from embereye.shard.links import PeerAddress
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Commands, Peer
from embereye.wire.device.encode import encode, is_name
from embereye.wire.device.messages import (
    RAM_WORDS,
    Eeprom,
    FrameWords,
    Garbage,
    LocationId,
    Message,
    SensorReading,
    SerialNumber,
)
from embereye.wire.device.reader import LineReader, Rows
from embereye.wire.device.rows import Shape

logger = logging.getLogger(__name__)
MAX_CONNECTIONS = 20_000  # a process has 1,048,576 file descriptors at best; a building has fewer devices
RESERVED = 256  # descriptors for hub, other shards and files; those for gRPC are reserved in addition
SPEAK_SECONDS = 30.0  # for a new connection to send a valid line; a device names itself in its first one
OUTGOING_LIMIT = 4096  # bytes of commands that a device may leave unread; beyond it no more are sent
CALIBRATION_RETRY_NS = 5 * SECOND  # between two requests for the calibration
AHEAD_BYTES = 16 * 1024  # most waiting bytes that are parsed ahead of the tick, in search of an urgent line
AHEAD_LINES = 64  # most lines of one read that are parsed ahead of the tick
EXPEDITE_SECONDS = 0.02  # between two early ticks for the same session
# Bytes that may wait in one session. The kernel buffers as much again; more would only make the data older.
WAITING_LIMIT = 64 * 1024
RECEIVE_BUFFER = 64 * 1024
TOTAL_LIMIT = 32 * 1024 * 1024  # bytes waiting in all sessions from which each is limited to CROWDED_LIMIT
CROWDED_LIMIT = 2048
SUPERSEDED = "a newer connection speaks for it"
PINNED = "another address speaks for it"
NOT_ITS_CERTIFICATE = "certificate of another device"
MAX_DENIED = 1_000  # addresses whose denial is remembered, so that it is logged once

Measured = SensorReading | Rows | FrameWords | Eeprom


class Owner(Protocol):
    """The part of a shard that its sessions use."""

    access: DeviceAccess
    commands: Commands
    garbage: Counter[str]  # invalid lines, by reason
    relayed: int  # messages relayed to the shard that owns their device
    relay_dropped: int
    clear: ClearBands | None  # None: no assignment yet
    batcher: TickBatcher

    @property
    def relays(self) -> Relays:
        """The streams to the fleet's other shards."""
        ...

    @property
    def deadline_ns(self) -> int:
        """Nanoseconds without data after which a device is dark."""
        ...

    @property
    def running(self) -> Running:
        """The detector of stalls of this process."""
        ...

    def is_own(self, peername: tuple[str, int]) -> bool:
        """True if the connection from `peername` belongs to this shard's canary."""
        ...

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state if this shard owns it, else None."""
        ...

    def undeclared(self, device: str, now_ns: int) -> SensorDevice | None:
        """The state of an undeclared device, which is shown but not watched; None if there are too many."""
        ...

    def peer_of(self, device: str) -> Peer | None:
        """The other shard that owns the device, else None."""
        ...

    def peers(self) -> Iterable[Peer]:
        """The fleet's other shards."""
        ...


class Sessions:
    """The open sessions of one shard's text listeners."""

    def __init__(self, owner: Owner) -> None:
        self.tasks = Tasks()  # tasks that the sessions started
        self._owner = owner
        self._open: set[TextSession] = set()
        self._latest_number = 0
        reserved = RESERVED + most_connections(control=False) + most_connections(control=True)
        self._most = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - reserved)
        self._mute: dict[TextSession, float] = {}  # no valid line yet → when they connected, monotonic seconds
        self._unverified: dict[TextSession, None] = {}  # not yet known to serve a fleet's device, oldest first
        self._denied: OrderedDict[str, str] = OrderedDict()  # address → the reason that was logged
        self.refused = 0
        self.handshakes_failed = 0  # TLS handshakes

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> "TextSession":
        """Make the protocol of a new connection, as `create_server` needs it."""
        self._latest_number = max(self._latest_number + 1, now_ns())
        return TextSession(self._owner, self, self._latest_number)

    def add(self, session: "TextSession") -> bool:
        """Add an open session; False if there is no room.

        If necessary, it closes a session without a valid line, or else one that serves no device of the fleet.
        """
        if len(self._open) >= self._most and not (self._close_mute(1) or self._close_useless()):
            self.refused += 1
            return False
        self._open.add(session)
        self._unverified[session] = None
        self._mute[session] = time.monotonic()
        return True

    def note_valid_line(self, session: "TextSession") -> None:
        """Note that `session` has received a valid line."""
        self._mute.pop(session, None)

    def close_unusable(self) -> None:
        """Close connections without a valid line for too long, or with an expired certificate. Call it regularly."""
        now = time.time()
        for session in [session for session in self._open if session.tls and session.tls.expires < now]:
            session.close()
        due = time.monotonic() - SPEAK_SECONDS
        self._close_mute(sum(since < due for since in self._mute.values()))

    def _close_mute(self, count: int) -> bool:
        """Close the `count` sessions that have waited longest for a valid line; False if there is none."""
        longest = list(islice(self._mute, count))
        for session in longest:
            self.remove(session)
            session.abort()
        self.refused += len(longest)
        return bool(longest)

    def _close_useless(self) -> bool:
        """Close the oldest session that serves no device of the fleet; False if there is none."""
        while self._unverified:
            session = next(iter(self._unverified))
            del self._unverified[session]  # a session that serves a device is verified once
            if not session.is_serving_fleet_device:
                self.remove(session)
                session.abort()
                self.refused += 1
                return True
        return False

    def admit(self, session: "TextSession") -> bool:
        """Set the devices that `session` may speak for, by the access rules; False if there are none."""
        if session.is_relayed or self._owner.is_own(session.peername):
            return True
        try:
            session.grant = self._owner.access.check_text(session.address, session.tls.names if session.tls else None)
        except NotAdmittedError as error:
            session.grant = NOTHING  # ignore waiting bytes, and those that are read while TLS ends
            self.deny(session.address, str(error))
            return False
        return True

    def deny(self, address: str, why: str, detail: str = "") -> None:
        """Log why the device at `address` is refused, once per reason: it dials again every second or so.

        `detail` is added to the line; it may differ with each line of the device.
        """
        if self._denied.get(address) != why:
            self._denied[address] = why
            if len(self._denied) > MAX_DENIED:
                self._denied.popitem(last=False)
            logger.warning("text device at %s: refused: %s%s", address, why, detail)

    def recheck(self) -> None:
        """Apply changed access rules: close every session that may now speak for other devices, or for none."""
        for session in [session for session in self._open if not session.in_tls_handshake]:
            granted = session.grant
            if not self.admit(session) or session.grant != granted:
                session.grant = NOTHING  # ignore its lines until it is closed
                session.close()

    def recheck_certified(self) -> None:
        """Close every session with TLS: certificates of another authority are required now."""
        for session in [session for session in self._open if session.tls and not session.in_tls_handshake]:
            session.close()

    def remove(self, session: "TextSession") -> None:
        """Remove a session that is closed."""
        self._open.discard(session)
        self._mute.pop(session, None)
        self._unverified.pop(session, None)

    def forget_routes(self) -> None:
        """Route the next line of every session without shortcuts: the assignment has changed."""
        for session in self._open:
            session.forget_route()

    def count_dropped(self, lines: int) -> None:
        """Count relayed lines that were dropped for lack of room."""
        self._owner.relay_dropped += lines

    def close(self) -> None:
        """Close every connection: its device dials again and finds the shard that serves it now."""
        for session in list(self._open):
            session.close()

    async def stop(self) -> None:
        """Close every connection, and wait until all tasks of the sessions have ended."""
        self.close()
        await self.tasks.stop()


@dataclass(slots=True)
class TlsState:
    """The TLS state of a connection."""

    abort: Callable[[], None]  # ends the handshake
    names: Names | None = None  # names in the client's certificate
    expires: float = math.inf  # when that certificate expires, seconds since the Unix epoch


class TextSession(asyncio.Protocol):
    """One device's connection. Invalid lines are counted and skipped; they never end the session."""

    __slots__ = (
        "_asked_ns",
        "_device",
        "_expedited_at",
        "_has_valid_line",
        "_identity",
        "_origin",
        "_owner",
        "_paused",
        "_relay_route",
        "_relays",
        "_sessions",
        "_shape",
        "_spoken_for",
        "_transport",
        "address",
        "grant",
        "number",
        "queued",
        "reader",
        "tls",
    )  # fmt: skip

    def __init__(self, owner: Owner, sessions: Sessions, number: int) -> None:
        self.number = number  # when the device connected, nanoseconds since the Unix epoch; unique in this process
        self.queued = False
        self.address = ""  # remote host
        self.grant: Grant = EVERYTHING  # the devices that it may speak for
        self.tls: TlsState | None = None  # None: no TLS
        self.reader = LineReader()
        self._owner = owner
        self._sessions = sessions
        self._transport: asyncio.Transport | None = None
        self._identity = ""
        self._origin: Origin | None = None  # the device's connection to the shard that relays its lines; None: direct
        self._relays: dict[tuple[str, bool], Relay] | None = None  # by shard, and whether this shard analyses, too
        self._asked_ns = 0  # when the calibration was last requested
        self._has_valid_line = False
        self._paused = False
        self._expedited_at = 0.0  # event loop time of the last early tick
        self._spoken_for: WeakSet[SensorDevice] | None = None  # weak: must not outlive the shard's own reference
        # Shortcuts for regular lines of the known `_shape`: they belong to `_device`, or are relayed by `_relay_route`
        # with this prefix. None: each line is parsed and routed.
        self._shape: Shape | None = None
        self._device: SensorDevice | None = None
        self._relay_route: tuple[Relay, bytes] | None = None

    @property
    def peername(self) -> tuple[str, int]:
        """The remote host and port."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return (str(peer[0]), int(peer[1])) if peer else ("", 0)

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Note the start of a TLS handshake; False if there is no room. See `TlsListener`."""
        self.address = address
        self.tls = TlsState(abort)
        return self._sessions.add(self)

    def abandon(self, why: str) -> None:
        """Note that the handshake failed; `why` is empty if this process ended it."""
        self._sessions.remove(self)
        if why:
            self._sessions.handshakes_failed += 1
            self._sessions.deny(self.address, f"TLS: {why}")

    def set_origin(self, origin: Origin) -> None:
        """Make this the session of a device's connection to another shard, which has admitted it and relays it."""
        self._origin = origin
        # Cap at the relay's connect time: a peer whose clock is ahead must not win forever.
        self.number = min(origin.since_ns, self.number)
        self.grant = Grant(origin.device)

    @property
    def in_tls_handshake(self) -> bool:
        """True while the TLS handshake lasts."""
        return self.tls is not None and self._transport is None

    @property
    def is_serving_fleet_device(self) -> bool:
        """True if it speaks for a device of the fleet, here or at another shard."""
        devices = self._spoken_for or ()
        return bool(self._relays) or any(device.spec.zone and device.arrivals.speaker is self for device in devices)

    @property
    def is_relayed(self) -> bool:
        """True if another shard has admitted the device and relays its lines."""
        return self._origin is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the device, and send it the command that starts its stream."""
        self._transport = cast("asyncio.Transport", transport)
        if self.tls is None and not self._sessions.add(self):
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._identity = self.address = str(peer[0]).removeprefix("::ffff:") if peer else "unknown"
        if self.tls is not None:
            certificate = transport.get_extra_info("peercert") or {}
            self.tls.names = names_of(certificate)
            if certificate:
                self.tls.expires = expiry(certificate)
        if not self._sessions.admit(self):
            self._transport.abort()
            return
        if (connection := transport.get_extra_info("socket")) is not None:
            _keep_alive(connection)
        if self._origin is None:
            self.command(self._owner.commands.start)

    def connection_lost(self, exc: Exception | None) -> None:
        """Analyse the waiting bytes, then remove the session."""
        if self.queued:
            self._owner.batcher.expedite(self)
            self._owner.batcher.flush()
        self._sessions.remove(self)
        for device in self._spoken_for or ():
            if device.arrivals.speaker is self:
                device.arrivals.speaker = None
        for relay in (self._relays or {}).values():
            relay.close()
        self._relays = None

    def data_received(self, data: bytes) -> None:
        """Count or relay quiet lines at once; queue everything else for the tick."""
        device = self._device
        if device is None:
            if self._relay_route is None:
                self.reader.receive(data)
            elif self._relay_quiet_lines(data, *self._relay_route):
                return
        elif lines := self.reader.receive(data, device.readings.quiet_line):
            device.arrivals.count_quiet_lines(lines, time.monotonic_ns() + EPOCH_OFFSET_NS)
            return
        waiting, batcher = self.reader.waiting, self._owner.batcher
        batcher.add(self, len(data))
        if waiting > WAITING_LIMIT or (batcher.waiting > TOTAL_LIMIT and waiting > CROWDED_LIMIT):
            self._pause()
        elif waiting <= AHEAD_BYTES and b"!" in data and self._has_urgent_line(data.count(b"!")):
            batcher.expedite(self)

    def _relay_quiet_lines(self, data: bytes, relay: Relay, prefix: bytes) -> bool:
        """Forward quiet lines unparsed. True if `data` contains only such lines."""
        clear = self._owner.clear
        if clear is None or relay.closed:
            self.forget_route()
            self.reader.receive(data)
            return False
        lines = self.reader.receive(data, clear.quiet_line)
        if not lines:
            return False
        if relay.send(b"".join([prefix + line[0] for line in lines]), later=True):
            self._owner.relayed += len(lines)
        else:
            self._owner.relay_dropped += len(lines)
        return True

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading if it was paused: the waiting bytes are being analysed."""
        if self._paused and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _has_urgent_line(self, lines: int) -> bool:
        """True if a complete line may change a level; `lines` is the number of lines in the latest read."""
        now = asyncio.get_running_loop().time()
        if lines > AHEAD_LINES or now - self._expedited_at < EXPEDITE_SECONDS:
            return False
        for message in self.reader.parse_ahead():
            if isinstance(message, SensorReading | FrameWords):
                name = message.location or self._identity
                device = self._owner.owned(name)
                if _may_change(device, message) if device else self._may_start_sign(name, message):
                    self._expedited_at = now
                    return True
        return False

    def _may_start_sign(self, name: str, message: SensorReading | FrameWords) -> bool:
        """True if a reading may start a sign at another shard, which owns the device. Frames wait for the tick."""
        clear = self._owner.clear
        if clear is None or self._origin is not None or not isinstance(message, SensorReading):
            return False
        return clear.may_change(row_of(message)) and self._owner.peer_of(name) is not None

    def handle_lines(self, items: Sequence[Message | Rows], now_ns: int) -> None:
        """Route the parsed messages, in order, to their devices."""
        if self.grant is NOTHING:
            return
        if not self._has_valid_line and any(not isinstance(item, Garbage) for item in items):
            self._has_valid_line = True
            self._sessions.note_valid_line(self)
        for item in items:
            try:
                self._handle(item, now_ns)
            except Exception:
                logger.exception("device %s: a message could not be handled", self._identity)
        if self._shape is not self.reader.shape:
            self._find_route(self.reader.shape)

    def _find_route(self, shape: Shape | None) -> None:
        """Remember the device of regular lines, so that quiet ones need no tick."""
        self.forget_route()
        if shape is None:
            return
        name = shape.location or self._identity
        device = self._owner.owned(name)
        if device is None and self._origin is None:
            self._find_relay_route(shape, name)
            return
        if device is None or device.arrivals.speaker is not self or self._owner.peer_of(name):
            return  # another shard needs the lines, too: they are routed one by one
        if self._origin is not None and self._origin.shared:
            return  # the relaying shard counts the lines, too
        self._shape = shape
        if self._owner.batcher.archive is None:  # the archive gets its lines from the tick
            self._device = device
            self.reader.expect(shape.prefix)

    def _find_relay_route(self, shape: Shape, name: str) -> None:
        """Remember the relay for regular lines of a device that only another shard owns."""
        peer = self._owner.peer_of(name)
        relay = (self._relays or {}).get((peer.shard, False)) if peer else None
        if relay is None or relay.closed or not self.grant.is_for(name) or not is_name(name):
            return
        self._shape = shape
        # A line without a name belongs to the connection's device; the other shard needs the name in the line.
        self._relay_route = relay, shape.prefix if shape.location else b"#Sensor" + name.encode() + b":"
        self.reader.expect(shape.prefix)

    def forget_route(self) -> None:
        """Forget the device of the regular lines: it may have changed."""
        self._shape = self._device = self._relay_route = None

    def command(self, word: str) -> None:
        """Send a bare command, unless the device has left too many unread."""
        transport = self._transport
        if not word or transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() < OUTGOING_LIMIT:
            transport.write(word.encode())

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
        elif self.tls is not None:
            self.tls.abort()

    def abort(self) -> None:
        """End the connection at once, without sending what waits."""
        if self._transport is not None:
            self._transport.abort()
        elif self.tls is not None:
            self.tls.abort()

    def _handle(self, item: Message | Rows, now_ns: int) -> None:
        match item:
            case SerialNumber(device) | LocationId(device):
                self._identity = device
                self.forget_route()
            case Garbage(reason=reason):
                self._refuse(reason)
            case Eeprom(name):
                self._route(name or self._identity, item, now_ns)
            case SensorReading(location) | FrameWords(location) | Rows(location):
                self._route(location or self._identity, item, now_ns)

    def _refuse(self, reason: str) -> None:
        self._owner.garbage[reason] += 1
        if (sender := self._owner.owned(self._identity)) is not None:
            sender.arrivals.refuse(reason)

    def _route(self, name: str, item: Measured, now_ns: int) -> None:
        if not self.grant.is_for(name):
            self._owner.garbage[NOT_ITS_CERTIFICATE] += 1
            certified = f'its certificate is for device "{self.grant.device}"'
            self._sessions.deny(self.address, certified, f', but it sends as "{name[:80]}"')
            return
        device = self._owner.owned(name)
        if peer := self._owner.peer_of(name):
            # The other shard owns it. Until it covers the device, this shard may still own it, and both need the lines.
            self._relay(peer, name, item, shared=device is not None)
            if device is None:
                return
        if device is None:
            device = self._owner.undeclared(name, now_ns)
            if device is None:
                return
        arrivals, count = device.arrivals, len(item.values) if isinstance(item, Rows) else 1
        if self._origin is not None and self._origin.shared:
            arrivals.ledger.shared += count
        if arrivals.speaker is not self and not self._speak_for(device, count, now_ns):
            return
        self._batch(device, item, now_ns)
        if device.frames.wants_calibration and now_ns - self._asked_ns > CALIBRATION_RETRY_NS:
            self._asked_ns = now_ns
            self.command(self._owner.commands.calibration)

    def _batch(self, device: SensorDevice, item: Measured, now_ns: int) -> None:
        """Add `item` to the tick's batch."""
        batcher = self._owner.batcher
        match item:
            case Rows(values=values):
                batcher.add_rows(device, values)
            case SensorReading():
                batcher.add_reading(device, row_of(item))
            case FrameWords(words=words):
                batcher.add_frame(device, words, now_ns)
                if device.frames.calibration is None and len(words) == RAM_WORDS * 2:
                    device.frames.wants_calibration = True
            case Eeprom(words=words):
                batcher.analyse_collected(now_ns)  # earlier frames belong to the earlier calibration
                batcher.calibrate(device, words, now_ns)

    def _is_pinned_to(self, speaker: "TextSession", device: SensorDevice, now_ns: int) -> bool:
        """True if access rules bind `device` to its present `speaker`, which is still heard, and not to this session.

        The rules bind a device to its certificate, else to the address it was first heard from. A session with the
        device's certificate is never excluded.
        """
        if not self._owner.access.pins or self.grant.device:
            return False
        if speaker.address == self.address and not speaker.grant.device:
            return False
        return self._is_heard(device, now_ns)

    def _is_heard(self, device: SensorDevice, now_ns: int) -> bool:
        """True if the speaker of `device` was heard within the deadline."""
        # After a stall, silence proves nothing: count from the end of the stall.
        heard_ns = max(device.arrivals.watch.heard_ns, self._owner.running.since(now_ns))
        return now_ns - heard_ns <= self._owner.deadline_ns

    def _speak_for(self, device: SensorDevice, count: int, now_ns: int) -> bool:
        """Become the speaker of `device`; or refuse its `count` messages, and return False, if another session is."""
        arrivals = device.arrivals
        speaker = arrivals.speaker
        if isinstance(speaker, TextSession) and self._is_pinned_to(speaker, device, now_ns):
            arrivals.refuse(PINNED, count)
            if arrivals.note_rival(self.address, now_ns):
                logger.warning(
                    "device %s: refused %s, which sends as this device while %s does",
                    device.spec.id, self.address, speaker.address,
                )  # fmt: skip
            return False
        if isinstance(speaker, TextSession) and speaker.number > self.number and self._is_heard(device, now_ns):
            arrivals.refuse(SUPERSEDED, count)
            arrivals.note_rival(f"an older connection from {self.address}", now_ns)
            return False
        if isinstance(speaker, TextSession):
            speaker.forget_route()
            if self.number != speaker.number:  # equal: the device's same connection, relayed in another way
                arrivals.ledger.takeovers += 1
                age = "newer" if self.number > speaker.number else "older"
                logger.warning("device %s: its lines now come from the %s of two connections", device.spec.id, age)
        arrivals.speaker = self
        if self._spoken_for is None:
            self._spoken_for = WeakSet()
        self._spoken_for.add(device)
        return True

    def _relay(self, peer: Peer, name: str, item: Measured, *, shared: bool) -> None:
        messages = item.readings() if isinstance(item, Rows) else [item]
        if self._origin is not None:
            # Never relay twice: two shards whose assignments differ for a moment would relay to each other forever.
            self._owner.relay_dropped += len(messages)
            return
        relays = self._relays = self._relays or {}
        relay = relays.get((peer.shard, shared))
        if relay is None or relay.closed:
            if replaced := relays.pop((peer.shard, not shared), None):
                replaced.close()
            origin = Origin(self.number, shared, self.address, self.grant.device or "")
            relay = self._owner.relays.open(PeerAddress(peer.shard, peer.control), origin, self._forward_command)
            relays[peer.shard, shared] = relay
            self.forget_route()
        for message in messages:
            if relay.send(encode(_named(name, message))):
                self._owner.relayed += 1
            else:
                self._owner.relay_dropped += 1

    def _forward_command(self, word: str) -> None:
        """Forward another shard's command to the device; not the start command, because it already streams."""
        if word in {self._owner.commands.calibration, self._owner.commands.request} - {self._owner.commands.start}:
            self.command(word)


def _may_change(device: SensorDevice, message: SensorReading | FrameWords) -> bool:
    """True if `message` may change a level of `device`."""
    if isinstance(message, SensorReading):
        return device.readings.may_change(row_of(message))
    return device.frames.is_startling(message.words)


def _named(name: str, message: SensorReading | FrameWords | Eeprom) -> SensorReading | FrameWords | Eeprom:
    """Copy `message` with the device's name, which a device need not send in every line."""
    return replace(message, id=name) if isinstance(message, Eeprom) else replace(message, location=name)


def _keep_alive(connection: socket.socket) -> None:
    """Have the kernel detect within about 30 s that a peer is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Linux does not probe while sent data is unacknowledged; without a limit it would retransmit for 15 minutes.
    options = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
    for option, value in options:
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
