"""Routing of a connection's parsed lines: to their devices, or to the shards that own them.

A line names its device, or belongs to the device that the connection has named last. At most one connection speaks for
a device (`speaker.py`). Lines of a device that another shard owns are relayed to that shard (`relay.py`).

`Routing` remembers the device, or the relay, of a connection's regular lines. Its transport (`sessions.py`) passes
quiet ones by that shortcut, without parsing them. They are one object, because a shard has thousands of connections and
every read passes here.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakSet

from embereye.process.timing.running import Running
from embereye.sensor.device.arrivals import row_of
from embereye.sensor.device.readings import ClearBands
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.fleet import Fleet
from embereye.sensor.relay import Origin, Relay, Relays
from embereye.sensor.speaker import PINNED, refusal
from embereye.sensor.tick import TickBatcher
from embereye.shard.access import EVERYTHING, NOTHING, DeviceAccess, Grant
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
CALIBRATION_RETRY_NS = 5 * SECOND  # between two requests for the calibration
AHEAD_LINES = 64  # most lines of one read that are parsed ahead of the tick
EXPEDITE_SECONDS = 0.02  # between two early ticks for the same session
NOT_ITS_CERTIFICATE = "certificate of another device"

Measured = SensorReading | Rows | FrameWords | Eeprom


class Owner(Protocol):
    """The part of a shard that its sessions use."""

    access: DeviceAccess
    commands: Commands
    garbage: Counter[str]  # invalid lines, by reason
    clear: ClearBands | None  # None: no assignment yet
    batcher: TickBatcher
    fleet: Fleet

    @property
    def relays(self) -> Relays:
        """The streams to the fleet's other shards."""

    @property
    def running(self) -> Running:
        """The detector of stalls of this process."""

    def is_own(self, peername: tuple[str, int]) -> bool:
        """True if the connection from `peername` belongs to this shard's canary."""


class Register(Protocol):
    """The part of the sessions that one of them uses."""

    relayed: int  # messages relayed to the shard that owns their device
    relay_dropped: int

    def note_valid_line(self, session: Any) -> None:
        """Note that `session` has received a valid line."""

    def deny(self, address: str, why: str, detail: str = "") -> None:
        """Log why the device at `address` is refused, once per reason."""


class Routing:
    """The devices and relays of one connection."""

    __slots__ = (
        "_asked_ns",
        "_device",
        "_expedited_at",
        "_has_valid_line",
        "_identity",
        "_origin",
        "_owner",
        "_register",
        "_relay_route",
        "_relays",
        "_shape",
        "_spoken_for",
        "address",
        "grant",
        "number",
        "reader",
    )  # fmt: skip

    def __init__(self, owner: Owner, register: Register, number: int) -> None:
        self.number = number  # when the device connected, nanoseconds since the Unix epoch; unique in this process
        self.address = ""  # remote host
        self.grant: Grant = EVERYTHING  # the devices that it may speak for
        self.reader = LineReader()
        self._owner = owner
        self._register = register
        self._identity = ""
        self._origin: Origin | None = None  # the device's connection to the shard that relays its lines; None: direct
        self._relays: dict[tuple[str, bool], Relay] | None = None  # by shard, and whether this shard analyses, too
        self._asked_ns = 0  # when the calibration was last requested
        self._has_valid_line = False
        self._expedited_at = 0.0  # event loop time of the last early tick
        self._spoken_for: WeakSet[SensorDevice] | None = None  # weak: must not outlive the shard's own reference
        # Shortcuts for regular lines of the known `_shape`: they belong to `_device`, or are relayed by `_relay_route`
        # with this prefix. None: each line is parsed and routed.
        self._shape: Shape | None = None
        self._device: SensorDevice | None = None
        self._relay_route: tuple[Relay, bytes] | None = None

    def command(self, word: str) -> None:
        """Send a bare command to the device."""
        raise NotImplementedError

    def set_origin(self, origin: Origin) -> None:
        """Make this the session of a device's connection to another shard, which has admitted it and relays it."""
        self._origin = origin
        # Cap at the relay's connect time: a peer whose clock is ahead must not win forever.
        self.number = min(origin.since_ns, self.number)
        self.grant = Grant(origin.device)

    @property
    def is_serving_fleet_device(self) -> bool:
        """True if it speaks for a device of the fleet, here or at another shard."""
        devices = self._spoken_for or ()
        return bool(self._relays) or any(device.spec.zone and device.arrivals.speaker is self for device in devices)

    @property
    def is_relayed(self) -> bool:
        """True if another shard has admitted the device and relays its lines."""
        return self._origin is not None

    def _close_routes(self) -> None:
        """Stop speaking for devices, and close the relays."""
        for device in self._spoken_for or ():
            if device.arrivals.speaker is self:
                device.arrivals.speaker = None
        for relay in (self._relays or {}).values():
            relay.close()
        self._relays = None

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
            self._register.relayed += len(lines)
        else:
            self._register.relay_dropped += len(lines)
        return True

    def _has_urgent_line(self, lines: int) -> bool:
        """True if a complete line may change a level; `lines` is the number of lines in the latest read."""
        now = asyncio.get_running_loop().time()
        if lines > AHEAD_LINES or now - self._expedited_at < EXPEDITE_SECONDS:
            return False
        for message in self.reader.parse_ahead():
            if isinstance(message, SensorReading | FrameWords):
                name = message.location or self._identity
                device = self._owner.fleet.owned(name)
                if _may_change(device, message) if device else self._may_start_sign(name, message):
                    self._expedited_at = now
                    return True
        return False

    def _may_start_sign(self, name: str, message: SensorReading | FrameWords) -> bool:
        """True if a reading may start a sign at another shard, which owns the device. Frames wait for the tick."""
        clear = self._owner.clear
        if clear is None or self._origin is not None or not isinstance(message, SensorReading):
            return False
        return clear.may_change(row_of(message)) and self._owner.fleet.peer_of(name) is not None

    def handle_lines(self, items: Sequence[Message | Rows], now_ns: int) -> None:
        """Route the parsed messages, in order, to their devices."""
        if self.grant is NOTHING:
            return
        if not self._has_valid_line and any(not isinstance(item, Garbage) for item in items):
            self._has_valid_line = True
            self._register.note_valid_line(self)
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
        device = self._owner.fleet.owned(name)
        if device is None and self._origin is None:
            self._find_relay_route(shape, name)
            return
        if device is None or device.arrivals.speaker is not self or self._owner.fleet.peer_of(name):
            return  # another shard needs the lines, too: they are routed one by one
        if self._origin is not None and self._origin.shared:
            return  # the relaying shard counts the lines, too
        self._shape = shape
        if self._owner.batcher.archive is None:  # the archive gets its lines from the tick
            self._device = device
            self.reader.expect(shape.prefix)

    def _find_relay_route(self, shape: Shape, name: str) -> None:
        """Remember the relay for regular lines of a device that only another shard owns."""
        peer = self._owner.fleet.peer_of(name)
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
        if (sender := self._owner.fleet.owned(self._identity)) is not None:
            sender.arrivals.refuse(reason)

    def _route(self, name: str, item: Measured, now_ns: int) -> None:
        if not self.grant.is_for(name):
            self._owner.garbage[NOT_ITS_CERTIFICATE] += 1
            certified = f'its certificate is for device "{self.grant.device}"'
            self._register.deny(self.address, certified, f', but it sends as "{name[:80]}"')
            return
        device = self._owner.fleet.owned(name)
        if peer := self._owner.fleet.peer_of(name):
            # The other shard owns it. Until it covers the device, this shard may still own it, and both need the lines.
            self._relay(peer, name, item, shared=device is not None)
            if device is None:
                return
        if device is None:
            device = self._owner.fleet.undeclared(name)
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

    def _is_heard(self, device: SensorDevice, now_ns: int) -> bool:
        """True if the speaker of `device` was heard within the deadline."""
        # After a stall, silence proves nothing: count from the end of the stall.
        heard_ns = max(device.arrivals.watch.heard_ns, self._owner.running.since(now_ns))
        return now_ns - heard_ns <= self._owner.fleet.settings.deadline_ns

    def _speak_for(self, device: SensorDevice, count: int, now_ns: int) -> bool:
        """Become the speaker of `device`; or refuse its `count` messages, and return False, if another session is."""
        arrivals = device.arrivals
        speaker = arrivals.speaker
        if isinstance(speaker, Routing):
            pins = self._owner.access.pins
            if why := refusal(self, speaker, pins=pins, is_heard=lambda: self._is_heard(device, now_ns)):
                arrivals.refuse(why, count)
                rival = self.address if why == PINNED else f"an older connection from {self.address}"
                if arrivals.note_rival(rival, now_ns) and why == PINNED:
                    logger.warning(
                        "device %s: refused %s, which sends as this device while %s does",
                        device.spec.id, self.address, speaker.address,
                    )  # fmt: skip
                return False
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
            self._register.relay_dropped += len(messages)
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
                self._register.relayed += 1
            else:
                self._register.relay_dropped += 1

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
