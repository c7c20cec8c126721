"""Text devices: one TCP connection each, lines in, bare command words out.

A read that holds a few usual, unsuspicious lines is done with at once. Everything else waits, as bytes, for
the tick; what crosses a threshold makes the tick come at once.
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
from embereye.process.timing.clock import BEGAN_NS, now_ns
from embereye.process.timing.running import Running
from embereye.sensor.device.arrivals import row_of
from embereye.sensor.device.readings import ClearBands
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.relay import Passed, Relay, Relays
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
KEPT_BACK = 256  # descriptors for everything else, beside those for gRPC: hub, other shards, files
SPEAK_SECONDS = 30.0  # for a connection to say whose it is; a device says so with its first line
OUTGOING_LIMIT = 4096  # bytes a device may leave unread before it is sent no more words
CALIBRATION_RETRY_NS = 5 * SECOND  # between two requests for the calibration
AHEAD_BYTES = 16 * 1024  # waiting bytes up to which lines are parsed ahead of the tick: one of them may not wait for it
AHEAD_LINES = 64  # in one read, likewise
HURRY_SECONDS = 0.02  # between two early ticks for the same session
# What may wait in one session. The kernel keeps as much again: more would only make the device's data older.
WAITING_LIMIT = 64 * 1024
RECEIVE_BUFFER = 64 * 1024
# What may wait in all sessions before each is kept to CROWDED_LIMIT.
TOTAL_LIMIT = 32 * 1024 * 1024
CROWDED_LIMIT = 2048
SUPERSEDED = "a newer connection speaks for it"
PINNED = "another address speaks for it"
NOT_ITS_CERTIFICATE = "certificate of another device"
MAX_DENIED = 1_000  # addresses that are remembered

Measured = SensorReading | Rows | FrameWords | Eeprom


class Owner(Protocol):
    """What a session needs of its shard."""

    access: DeviceAccess
    commands: Commands
    garbage: Counter[str]  # lines that were no message, by reason
    relayed: int  # messages passed on to the shard that owns their device
    relay_dropped: int
    clear: ClearBands | None  # None: it has no assignment
    batcher: TickBatcher

    @property
    def relays(self) -> Relays:
        """The way to the fleet's other shards."""
        ...

    @property
    def deadline_ns(self) -> int:
        """Nanoseconds without data after which a device is dark."""
        ...

    @property
    def running(self) -> Running:
        """Since when the shard has been running."""
        ...

    def is_own(self, peername: tuple[str, int]) -> bool:
        """Whether a connection from `peername` is the shard's own."""
        ...

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state where this shard owns it."""
        ...

    def undeclared(self, device: str, now_ns: int) -> SensorDevice | None:
        """State of a device that no fleet declares, to be shown but not watched; None where there are too many."""
        ...

    def peer_of(self, device: str) -> Peer | None:
        """The shard that owns the device where it is another one."""
        ...

    def peers(self) -> Iterable[Peer]:
        """The fleet's other shards."""
        ...


class Sessions:
    """The open sessions of one shard's text listeners."""

    def __init__(self, owner: Owner) -> None:
        self.tasks = Tasks()  # that its sessions started
        self._owner = owner
        self._open: set[TextSession] = set()
        self._last = 0
        kept_back = KEPT_BACK + most_connections(control=False) + most_connections(control=True)
        self._most = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - kept_back)
        self._unspoken: dict[TextSession, float] = {}  # that have not said whose they are → since, monotonic seconds
        self._suspected: dict[TextSession, None] = {}  # that were not found to be of use, the oldest first
        self._denied: OrderedDict[str, str] = OrderedDict()  # address → why, as it was told
        self.refused = 0
        self.handshakes_failed = 0  # of TLS

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> "TextSession":
        """A protocol for one more connection: a factory for `create_server`."""
        self._last = max(self._last + 1, now_ns())
        return TextSession(self._owner, self, self._last)

    def opened(self, session: "TextSession") -> bool:
        """Count `session` in; False where there is no room.

        One that says nothing makes room for it, or else one that says nothing of a device of the fleet.
        """
        if len(self._open) >= self._most and not (self._drop_silent(1) or self._drop_useless()):
            self.refused += 1
            return False
        self._open.add(session)
        self._suspected[session] = None
        self._unspoken[session] = time.monotonic()
        return True

    def spoke(self, session: "TextSession") -> None:
        """Note that `session` has said something that makes sense."""
        self._unspoken.pop(session, None)

    def drop_silent(self) -> None:
        """Close connections on which nothing was said that makes sense, or whose certificate has expired.

        To be called now and then.
        """
        now = time.time()
        for session in [session for session in self._open if session.tls and session.tls.expires < now]:
            session.close()
        due = time.monotonic() - SPEAK_SECONDS
        self._drop_silent(sum(since < due for since in self._unspoken.values()))

    def _drop_silent(self, count: int) -> bool:
        """Close the `count` that have been silent for longest; whether there was one."""
        longest = list(islice(self._unspoken, count))
        for session in longest:
            self.closed(session)
            session.abort()
        self.refused += len(longest)
        return bool(longest)

    def _drop_useless(self) -> bool:
        """Close the oldest connection that is of no use to the fleet; whether there was one."""
        while self._suspected:
            session = next(iter(self._suspected))
            del self._suspected[session]  # of each that is of use this is asked once
            if not session.is_of_use:
                self.closed(session)
                session.abort()
                self.refused += 1
                return True
        return False

    def admits(self, session: "TextSession") -> bool:
        """Whether a device may speak from where `session` comes from."""
        if session.is_passed_on or self._owner.is_own(session.peername):
            return True
        try:
            session.grant = self._owner.access.check_text(session.address, session.tls.names if session.tls else None)
        except NotAdmittedError as error:
            session.grant = NOTHING  # what still waits, or is read while TLS ends, counts no more
            self.deny(session.address, str(error))
            return False
        return True

    def deny(self, address: str, why: str, detail: str = "") -> None:
        """Tell why nobody listens to a device at `address`; it dials again every second or so, and is told once.

        `detail` is what may be another with each of its lines.
        """
        if self._denied.get(address) != why:
            self._denied[address] = why
            if len(self._denied) > MAX_DENIED:
                self._denied.popitem(last=False)
            logger.warning("a text device at %s is not listened to: %s%s", address, why, detail)

    def recheck(self) -> None:
        """Close the connections of devices that are not admitted any more, or may not speak for the same ones."""
        for session in [session for session in self._open if not session.shakes_hands]:
            granted = session.grant
            if not self.admits(session) or session.grant != granted:
                session.grant = NOTHING  # what it says until it is closed counts no more
                session.close()

    def recheck_certified(self) -> None:
        """Close the connections of devices that showed a certificate: another authority is asked for now."""
        for session in [session for session in self._open if session.tls and not session.shakes_hands]:
            session.close()

    def closed(self, session: "TextSession") -> None:
        """Count `session` out."""
        self._open.discard(session)
        self._unspoken.pop(session, None)
        self._suspected.pop(session, None)

    def forget(self) -> None:
        """Look anew for whose lines come on which connection: the assignment has changed."""
        for session in self._open:
            session.forget()

    def drop_relayed(self, lines: int) -> None:
        """Count lines that another shard passed on, and that found no room."""
        self._owner.relay_dropped += lines

    def close(self) -> None:
        """Close every connection: its device dials again and finds the shard that serves it now."""
        for session in list(self._open):
            session.close()

    async def stop(self) -> None:
        """Close every connection, and wait until nothing that the sessions started runs any more."""
        self.close()
        await self.tasks.stop()


@dataclass(slots=True)
class TlsState:
    """What a connection that speaks TLS has beside the others."""

    abort: Callable[[], None]  # ends the handshake
    names: Names | None = None  # of the certificate that was shown
    expires: float = math.inf  # until when that holds, seconds since the Unix epoch


class TextSession(asyncio.Protocol):
    """One device's connection. Garbage is counted and skipped; only the device itself can end its session."""

    __slots__ = (
        "_asked_ns",
        "_device",
        "_hurried_at",
        "_identity",
        "_owner",
        "_passed",
        "_passing",
        "_paused",
        "_relays",
        "_sessions",
        "_shape",
        "_spoke",
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
        self.number = number  # when the device connected, nanoseconds since the Unix epoch: one connection, one number
        self.queued = False
        self.address = ""  # that the connection comes from
        self.grant: Grant = EVERYTHING  # what it may speak for
        self.tls: TlsState | None = None  # None: it speaks no TLS
        self.reader = LineReader()
        self._owner = owner
        self._sessions = sessions
        self._transport: asyncio.Transport | None = None
        self._identity = ""
        self._passed: Passed | None = None  # the other end is a shard, which says so of the device's connection
        self._relays: dict[tuple[str, bool], Relay] | None = None  # by shard, and whether we analyse the lines, too
        self._asked_ns = 0  # when the calibration was last asked for
        self._spoke = False  # something that makes sense
        self._paused = False
        self._hurried_at = 0.0  # event loop time
        self._spoken_for: WeakSet[SensorDevice] | None = None  # one that the shard lets go of is not kept here
        self._shape: Shape | None = None  # of its regular lines, once they are known to be those of `_device`
        self._device: SensorDevice | None = None
        # Where its regular lines are passed on to, and what they begin with there; None: it has to be looked for.
        self._passing: tuple[Relay, bytes] | None = None

    @property
    def peername(self) -> tuple[str, int]:
        """Host and port that the connection comes from."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return (str(peer[0]), int(peer[1])) if peer else ("", 0)

    def begin(self, address: str, abort: Callable[[], None]) -> bool:
        """Begin with a handshake of TLS; False where there is no room. See `TlsListener`."""
        self.address = address
        self.tls = TlsState(abort)
        return self._sessions.opened(self)

    def abandon(self, why: str) -> None:
        """The handshake has failed; `why` is empty where it was ended from here."""
        self._sessions.closed(self)
        if why:
            self._sessions.handshakes_failed += 1
            self._sessions.deny(self.address, f"TLS: {why}")

    def pass_on(self, passed: Passed) -> None:
        """Be the session of a connection to another shard, which has admitted its device."""
        self._passed = passed
        # Nothing is newer than the connection that it came by: whose clock is ahead would speak for good.
        self.number = min(passed.since_ns, self.number)
        self.grant = Grant(passed.device)

    @property
    def shakes_hands(self) -> bool:
        """Whether the handshake of TLS still lasts."""
        return self.tls is not None and self._transport is None

    @property
    def is_of_use(self) -> bool:
        """Whether it speaks for a device of the fleet, here or at another shard."""
        spoken_for = self._spoken_for or ()
        return bool(self._relays) or any(one.spec.zone and one.arrivals.speaker is self for one in spoken_for)

    @property
    def is_passed_on(self) -> bool:
        """Whether another shard has admitted its device."""
        return self._passed is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the device with the command that makes it stream, where it may speak."""
        self._transport = cast("asyncio.Transport", transport)
        if self.tls is None and not self._sessions.opened(self):
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._identity = self.address = str(peer[0]).removeprefix("::ffff:") if peer else "unknown"
        if self.tls is not None:
            certificate = transport.get_extra_info("peercert") or {}
            self.tls.names = names_of(certificate)
            if certificate:
                self.tls.expires = expiry(certificate)
        if not self._sessions.admits(self):
            self._transport.abort()
            return
        if (connection := transport.get_extra_info("socket")) is not None:
            _keep_alive(connection)
        if self._passed is None:
            self.command(self._owner.commands.start)

    def connection_lost(self, exc: Exception | None) -> None:
        """Analyse what was still waiting, then forget the session."""
        if self.queued:
            self._owner.batcher.hurry(self)
            self._owner.batcher.flush()
        self._sessions.closed(self)
        for device in self._spoken_for or ():
            if device.arrivals.speaker is self:
                device.arrivals.speaker = None
        for relay in (self._relays or {}).values():
            relay.close()
        self._relays = None

    def data_received(self, data: bytes) -> None:
        """Count quiet lines at once, keep everything else for the tick; nothing a device sends may end the shard."""
        device = self._device
        if device is None:
            if self._passing is None:
                self.reader.receive(data)
            elif self._pass_lines(data, *self._passing):
                return
        elif lines := self.reader.receive(data, device.readings.quiet_line):
            device.arrivals.count_quiet_lines(lines, time.monotonic_ns() + BEGAN_NS)
            return
        waiting, batcher = self.reader.waiting, self._owner.batcher
        batcher.add(self, len(data))
        if waiting > WAITING_LIMIT or (batcher.waiting > TOTAL_LIMIT and waiting > CROWDED_LIMIT):
            self._pause()
        elif waiting <= AHEAD_BYTES and b"!" in data and self._urgent(data.count(b"!")):
            batcher.hurry(self)

    def _pass_lines(self, data: bytes, relay: Relay, prefix: bytes) -> bool:
        """Pass regular lines on that may begin nothing, as they are; whether `data` is nothing else."""
        clear = self._owner.clear
        if clear is None or relay.closed:
            self.forget()
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
        """Read again where it was paused: what waited is being analysed."""
        if self._paused and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _urgent(self, lines: int) -> bool:
        """Whether a line that has ended, `lines` of them with the latest read, may change a level."""
        now = asyncio.get_running_loop().time()
        if lines > AHEAD_LINES or now - self._hurried_at < HURRY_SECONDS:
            return False
        for message in self.reader.parse_ahead():
            if isinstance(message, SensorReading | FrameWords):
                name = message.location or self._identity
                device = self._owner.owned(name)
                if _may_change(device, message) if device else self._may_begin(name, message):
                    self._hurried_at = now
                    return True
        return False

    def _may_begin(self, name: str, message: SensorReading | FrameWords) -> bool:
        """Whether a message of a device that is another shard's may begin something there. Frames wait for the tick."""
        clear = self._owner.clear
        if clear is None or self._passed is not None or not isinstance(message, SensorReading):
            return False
        return clear.may_change(row_of(message)) and self._owner.peer_of(name) is not None

    def handle_lines(self, items: Sequence[Message | Rows], now_ns: int) -> None:
        """Hand what was read of its bytes, in order, to the devices that it speaks for."""
        if self.grant is NOTHING:
            return
        if not self._spoke and any(not isinstance(item, Garbage) for item in items):
            self._spoke = True
            self._sessions.spoke(self)
        for item in items:
            try:
                self._handle(item, now_ns)
            except Exception:
                logger.exception("device %s: a message could not be handled", self._identity)
        if self._shape is not self.reader.shape:
            self._recognise(self.reader.shape)

    def _recognise(self, shape: Shape | None) -> None:
        """Remember whose regular lines come here, so that quiet ones need no tick."""
        self.forget()
        if shape is None:
            return
        name = shape.location or self._identity
        device = self._owner.owned(name)
        if device is None and self._passed is None:
            self._recognise_passed(shape, name)
            return
        if device is None or device.arrivals.speaker is not self or self._owner.peer_of(name):
            return  # what another shard has to hear as well goes line by line
        if self._passed is not None and self._passed.also:
            return  # as does what the relaying shard counts as well
        self._shape = shape
        if self._owner.batcher.archive is None:  # what is archived has to come with a tick
            self._device = device
            self.reader.expect(shape.prefix)

    def _recognise_passed(self, shape: Shape, name: str) -> None:
        """Remember where regular lines of a device go that is another shard's alone."""
        peer = self._owner.peer_of(name)
        relay = (self._relays or {}).get((peer.shard, False)) if peer else None
        if relay is None or relay.closed or not self.grant.permits(name) or not is_name(name):
            return
        self._shape = shape
        # A line that names nobody is the device's that the connection is of: there it has to say so.
        self._passing = relay, shape.prefix if shape.location else b"#Sensor" + name.encode() + b":"
        self.reader.expect(shape.prefix)

    def forget(self) -> None:
        """Forget whose lines come here: it may have changed."""
        self._shape = self._device = self._passing = None

    def command(self, word: str) -> None:
        """Send a bare command, unless the device reads none."""
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
        """End the connection at once, whatever waits to be sent."""
        if self._transport is not None:
            self._transport.abort()
        elif self.tls is not None:
            self.tls.abort()

    def _handle(self, item: Message | Rows, now_ns: int) -> None:
        match item:
            case SerialNumber(device) | LocationId(device):
                self._identity = device
                self.forget()
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
        if not self.grant.permits(name):
            self._owner.garbage[NOT_ITS_CERTIFICATE] += 1
            certified = f'its certificate is of "{self.grant.device}"'
            self._sessions.deny(self.address, certified, f', and it is "{name[:80]}"')
            return
        device = self._owner.owned(name)
        if peer := self._owner.peer_of(name):
            # Another shard's; or ours until that one covers it, for which it has to hear the device.
            self._relay(peer, name, item, also=device is not None)
            if device is None:
                return
        if device is None:
            device = self._owner.undeclared(name, now_ns)
            if device is None:
                return
        arrivals, count = device.arrivals, len(item.values) if isinstance(item, Rows) else 1
        if self._passed is not None and self._passed.also:
            arrivals.ledger.shared += count
        if arrivals.speaker is not self and not self._speak_for(device, count, now_ns):
            return
        self._batch(device, item, now_ns)
        if device.frames.wants_calibration and now_ns - self._asked_ns > CALIBRATION_RETRY_NS:
            self._asked_ns = now_ns
            self.command(self._owner.commands.calibration)

    def _batch(self, device: SensorDevice, item: Measured, now_ns: int) -> None:
        """Have `item` analysed with the other ones of the tick."""
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
                batcher.settle(now_ns)  # the frames before it were measured under the calibration before it
                batcher.calibrate(device, words, now_ns)

    def _is_kept_out(self, device: SensorDevice, other: "TextSession", now_ns: int) -> bool:
        """Whether `other` goes on speaking for `device`: from another address, or proved, and still heard.

        Who proves that it is the device is let in whoever else speaks.
        """
        if not self._owner.access.pins or self.grant.device:
            return False
        if other.address == self.address and not other.grant.device:
            return False
        return self._is_heard(device, now_ns)

    def _is_heard(self, device: SensorDevice, now_ns: int) -> bool:
        """Whether who speaks for `device` was heard within the deadline."""
        # Of a shard that stood still it is not known yet whom it would have heard.
        heard_ns = max(device.arrivals.watch.heard_ns, self._owner.running.since(now_ns))
        return now_ns - heard_ns <= self._owner.deadline_ns

    def _speak_for(self, device: SensorDevice, count: int, now_ns: int) -> bool:
        """Become the one who speaks for `device`; False, and `count` messages refused, where another one does."""
        arrivals = device.arrivals
        other = arrivals.speaker
        if isinstance(other, TextSession) and self._is_kept_out(device, other, now_ns):
            arrivals.refuse(PINNED, count)
            if arrivals.note_rival(self.address, now_ns):
                logger.warning(
                    "device %s: %s claims to be it and is refused, as %s is heard as it",
                    device.spec.id, self.address, other.address,
                )  # fmt: skip
            return False
        if isinstance(other, TextSession) and other.number > self.number and self._is_heard(device, now_ns):
            arrivals.refuse(SUPERSEDED, count)
            arrivals.note_rival(f"an older connection from {self.address}", now_ns)
            return False
        if isinstance(other, TextSession):
            other.forget()
            if self.number != other.number:  # else the same connection of the device, passed on in another way
                arrivals.ledger.takeovers += 1
                which = "a newer" if self.number > other.number else "an older"
                logger.warning("device %s: %s connection speaks for it now", device.spec.id, which)
        arrivals.speaker = self
        if self._spoken_for is None:
            self._spoken_for = WeakSet()
        self._spoken_for.add(device)
        return True

    def _relay(self, peer: Peer, name: str, item: Measured, *, also: bool) -> None:
        messages = item.readings() if isinstance(item, Rows) else [item]
        if self._passed is not None:
            # Two shards whose assignments differ for a moment would send it to and fro.
            self._owner.relay_dropped += len(messages)
            return
        relays = self._relays = self._relays or {}
        relay = relays.get((peer.shard, also))
        if relay is None or relay.closed:
            if other := relays.pop((peer.shard, not also), None):
                other.close()
            passed = Passed(self.number, also, self.address, self.grant.device or "")
            relay = self._owner.relays.open(PeerAddress(peer.shard, peer.control), passed, self._pass_back)
            relays[peer.shard, also] = relay
            self.forget()
        for message in messages:
            if relay.send(encode(_named(name, message))):
                self._owner.relayed += 1
            else:
                self._owner.relay_dropped += 1

    def _pass_back(self, word: str) -> None:
        """Pass another shard's command on to the device, which is streaming already."""
        if word in {self._owner.commands.calibration, self._owner.commands.request} - {self._owner.commands.start}:
            self.command(word)


def _may_change(device: SensorDevice, message: SensorReading | FrameWords) -> bool:
    """Whether what `message` says may change a level."""
    if isinstance(message, SensorReading):
        return device.readings.may_change(row_of(message))
    return device.frames.startles(message.words)


def _named(name: str, message: SensorReading | FrameWords | Eeprom) -> SensorReading | FrameWords | Eeprom:
    """`message` as the device would send it if it named itself in every line."""
    return replace(message, id=name) if isinstance(message, Eeprom) else replace(message, location=name)


def _keep_alive(connection: socket.socket) -> None:
    """Notice a peer that vanished without a word within about 30 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Linux does not probe while something is not acknowledged, and sends that again for a quarter of an hour.
    options = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
    for option, value in options:
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
