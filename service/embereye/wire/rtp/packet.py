"""Read and write RTP and RTCP (RFC 3550): headers, reception statistics, reports, a sender's clock.

Functions parse and write single packets. Two classes have state, for one sender each: `PacketReception` says if
a sequence number is next, late, stray or a restart, and counts losses for receiver reports. `CaptureClock` converts
timestamps to our time. Neither reads a clock: the receivers that own them pass every time as an argument.
"""

import struct
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from embereye.units import counted

FIXED = struct.Struct(">HHII")  # version to payload type, sequence number, timestamp, SSRC
MARKER = 0x0080  # in FIXED's first word
MAX_DROPOUT = 3_000  # packets ahead that count as lost; beyond, the sender has restarted (RFC 3550, A.1)
MAX_MISORDER = 512  # packets behind that count as late; a frame of 4K has this many
VIDEO_HZ = 90_000  # ticks of a video timestamp per second
_MASK = 0xFFFF_FFFF
RTCP_TYPES = range(192, 224)  # RTP packets of payload types 64 to 95 with a marker look the same (RFC 5761)
SENDER_REPORT, RECEIVER_REPORT, DESCRIPTION, BYE = 200, 201, 202, 203
PAYLOAD_FEEDBACK, PICTURE_LOSS, FULL_INTRA = 206, 1, 4


class RtpError(ValueError):
    """The bytes are not an RTP packet."""


class Packet(NamedTuple):
    """One RTP packet; its payload is not copied. A frozen dataclass takes three times as long to create."""

    payload_type: int
    marker: bool
    sequence: int
    timestamp: int
    ssrc: int
    payload: memoryview
    extension: int = -1  # the profile's 16 bits; -1: no extension
    extension_data: bytes = b""


def parse_packet(data: memoryview) -> Packet:
    """Parse one packet; RtpError if it is malformed."""
    size = len(data)
    if size < FIXED.size:
        raise RtpError(f"{counted(size, 'byte')}; an RTP header has {FIXED.size}")
    lead, sequence, timestamp, ssrc = FIXED.unpack_from(data)
    if lead >> 14 != 2:
        raise RtpError(f"RTP version {lead >> 14}, not 2")
    start = FIXED.size + 4 * (lead >> 8 & 0x0F)
    extension, extension_data = -1, b""
    if lead & 0x1000:
        if start + 4 > size:
            raise RtpError("its header extension is truncated")
        extension = data[start] << 8 | data[start + 1]
        end = start + 4 + 4 * (data[start + 2] << 8 | data[start + 3])
        extension_data = bytes(data[start + 4 : end])
        start = end
    if lead & 0x2000:
        size -= data[size - 1]  # the padding includes its length byte, but some cameras write 0 for none
    if start > size:
        raise RtpError("its header and padding are longer than the packet")
    return Packet(
        lead & 0x7F, bool(lead & MARKER), sequence, timestamp, ssrc, data[start:size], extension, extension_data
    )


def is_rtcp(data: memoryview) -> bool:
    """True if `data` is an RTCP report that shares its port with RTP (RFC 5761)."""
    return len(data) >= 8 and data[0] >> 6 == 2 and data[1] in RTCP_TYPES


class Arrival(Enum):
    """The position of a packet's sequence number relative to earlier ones."""

    NEXT = auto()  # in order, or ahead of a gap
    LATE = auto()  # behind the newest: reordered, or a duplicate
    STRAY = auto()  # far from all others: dropped, unless the next packet follows it
    RESTART = auto()  # the sender has restarted


class PacketReception:
    """Counts the packets of one sender as RFC 3550 A.1 and A.3 do.

    `extended` is the highest sequence number, with its wraps. A hot path may count the packet that is exactly the next
    one itself: `extended += 1; received += 1`.
    """

    def __init__(self) -> None:
        self.extended = -1
        self.received = 0
        self.jitter = 0.0  # ticks, RFC 3550 A.8, measured at the first packet of each frame
        self._base = 0
        self._stray = -1
        self._reported = (0, 0)  # expected and received at the last report
        self._transit = 0

    def count_packet(self, sequence: int) -> Arrival:
        """Count the packet with this sequence number unless it is stray; return its position."""
        if self.extended < 0:
            self._start(sequence)
            return Arrival.NEXT
        ahead = (sequence - self.extended - 1) & 0xFFFF
        if ahead < MAX_DROPOUT:
            self.extended += ahead + 1
            self.received += 1
            return Arrival.NEXT
        if ahead >= 0x10000 - MAX_MISORDER:
            self.received += 1
            return Arrival.LATE
        if sequence != self._stray:
            self._stray = (sequence + 1) & 0xFFFF
            return Arrival.STRAY
        self._start(sequence)
        return Arrival.RESTART

    def _start(self, sequence: int) -> None:
        self.extended = self._base = sequence
        self.received = 1
        self._stray = -1
        self._reported = (0, 0)

    @property
    def expected(self) -> int:
        """Packets sent since the first one received."""
        return self.extended - self._base + 1 if self.extended >= 0 else 0

    @property
    def lost(self) -> int:
        """Packets that did not arrive; duplicates count against it, as in RFC 3550."""
        return self.expected - self.received

    def note_arrival(self, timestamp: int, now_ns: int) -> None:
        """Add the arrival of a frame's first packet to the jitter."""
        transit = (now_ns * VIDEO_HZ // 1_000_000_000 - timestamp) & _MASK
        change = (transit - self._transit) & _MASK
        self._transit = transit
        if change < 10 * VIDEO_HZ or change > _MASK - 10 * VIDEO_HZ:
            self.jitter += (min(change, _MASK + 1 - change) - self.jitter) / 16

    def report_block(self, ssrc: int, last_report: int, delay: int) -> bytes:
        """The report block about sender `ssrc` (RFC 3550, 6.4.1); its share of losses is since the previous block.

        `last_report` is the middle 32 bits of the last sender report's NTP time, `delay` the time since it in 1/65536
        s.
        """
        expected, received = self.expected - self._reported[0], self.received - self._reported[1]
        self._reported = (self.expected, self.received)
        missing = max(0, expected - received)
        share = min(255, missing * 256 // expected) if expected > 0 else 0
        total = max(-0x800000, min(0x7FFFFF, self.lost)) & 0xFFFFFF
        return struct.pack(
            ">IIIIII", ssrc, share << 24 | total, self.extended & _MASK, int(self.jitter) & _MASK, last_report, delay
        )


def receiver_report(receiver: int, block: bytes, name: str) -> bytes:
    """A compound RTCP packet: `block` from PacketReception.report_block, or b"", and the receiver's `name`."""
    report = struct.pack(">BBHI", 0x80 | bool(block), RECEIVER_REPORT, 1 + len(block) // 4, receiver) + block
    text = name.encode()[:255]
    item = struct.pack(">IBB", receiver, 1, len(text)) + text
    item += b"\0" * (4 - len(item) % 4)
    return report + struct.pack(">BBH", 0x81, DESCRIPTION, len(item) // 4) + item


def key_frame_request(receiver: int, sender: int) -> bytes:
    """A picture loss indication (RFC 4585, 6.3.1): requests a key frame of `sender`. It must follow a report."""
    return struct.pack(">BBHII", 0x80 | PICTURE_LOSS, PAYLOAD_FEEDBACK, 2, receiver, sender)


def full_intra_request(receiver: int, sender: int, number: int) -> bytes:
    """A full intra request (RFC 5104, 4.3.1), for a `sender` without PLI; each new request has the next `number`."""
    return struct.pack(">BBHIIIB3x", 0x80 | FULL_INTRA, PAYLOAD_FEEDBACK, 4, receiver, 0, sender, number & 0xFF)


def is_key_frame_request(data: bytes | memoryview) -> bool:
    """True if a compound packet has a picture loss indication or a full intra request (RFC 4585, RFC 5104)."""
    start = 0
    while start + 8 <= len(data) and data[start] >> 6 == 2:
        if data[start + 1] == PAYLOAD_FEEDBACK and data[start] & 0x1F in {PICTURE_LOSS, FULL_INTRA}:
            return True
        start += 4 + 4 * (data[start + 2] << 8 | data[start + 3])
    return False


@dataclass(frozen=True, slots=True)
class SenderReport:
    """A sender's clock at one moment."""

    ssrc: int
    ntp: int  # 64 bits: seconds since 1900, and their fraction
    timestamp: int  # the RTP timestamp of the same moment

    @property
    def middle(self) -> int:
        """The 32 bits by which a receiver report refers to this report."""
        return self.ntp >> 16 & _MASK


def parse_rtcp(data: bytes | memoryview, sender: int) -> tuple[SenderReport | None, bool]:
    """The sender report in a compound packet, and True if it says good-bye for the SSRC `sender` (-1: for any).

    The report is None if there is none. Raises no exceptions.
    """
    report, bye, start = None, False, 0
    while start + 8 <= len(data) and data[start] >> 6 == 2:
        kind = data[start + 1]
        end = start + 4 + 4 * (data[start + 2] << 8 | data[start + 3])
        if kind == SENDER_REPORT and end - start >= 28 and end <= len(data):
            ssrc, high, low, timestamp = struct.unpack_from(">IIII", data, start + 4)
            report = SenderReport(ssrc, high << 32 | low, timestamp)
        if kind == BYE:
            named = memoryview(data)[start + 4 : min(end, start + 4 + 4 * (data[start] & 0x1F))]
            left = {int.from_bytes(named[at : at + 4]) for at in range(0, len(named), 4)}
            bye = bye or sender < 0 or not left or sender in left
        start = end
    return report, bye


class CaptureClock:
    """Converts a sender's timestamps to our time, in even steps as the camera took the frames, despite network jitter.

    The packet with the shortest travel time gives the offset between the two clocks. The offset may grow by DRIFT, more
    than two crystals differ by.

    A jump of more than JUMP_NS means a new clock, or one that runs too slow: cameras that send fewer pictures in the
    dark may count as if they sent all. After two such jumps at the same speed, time passes at that speed as long as it
    lasts.
    """

    DRIFT = 0.0005
    JUMP_NS = 1_000_000_000
    MEASURED_NS = 5_000_000_000  # between two measurements of the speed of a slow clock
    SLOW = 0.95  # share of VIDEO_HZ; a clock below it runs too slow
    ALIKE = 0.1  # share of VIDEO_HZ; speeds that differ by less are equal

    def __init__(self) -> None:
        self._timestamp = 0
        self._ticks = 0  # since the first frame
        self._media = 0  # nanoseconds since the first frame, by the sender's clock
        self._distance = 0  # nanoseconds
        self._now = 0
        self._speed = 1.0  # of the sender's clock, relative to VIDEO_HZ
        self._suspected = -1.0  # speed at the latest jump
        self._since = 0, 0  # ticks and time at the start of the speed measurement

    def capture_ns(self, timestamp: int, now_ns: int) -> int:
        """The time at which the frame of `timestamp`, which arrived at `now_ns` (Unix epoch), was taken."""
        step = (timestamp - self._timestamp) & _MASK
        step -= _MASK + 1 if step > _MASK // 2 else 0
        self._timestamp = timestamp
        self._ticks += step
        if self._speed == 1.0:
            self._media += step * 1_000_000_000 // VIDEO_HZ
        elif self._speed > 0.01:
            self._media += int(step * 1_000_000_000 / VIDEO_HZ / self._speed)
        else:  # the clock is stopped
            self._media += now_ns - self._now
        distance = now_ns - self._media
        allowed = self._distance + int((now_ns - self._now) * self.DRIFT)
        if not self._now or abs(distance - self._distance) > self.JUMP_NS:
            self._suspect(now_ns, gradual=bool(self._now) and abs(step) < VIDEO_HZ // 2)
            allowed = distance
        elif self._speed != 1.0 and now_ns - self._since[1] > self.MEASURED_NS:
            speed = self._measure(now_ns)
            self._speed = speed if abs(speed - self._speed) < self.ALIKE and speed < self.SLOW else 1.0
        self._now = now_ns
        self._distance = min(distance, allowed)
        return self._media + self._distance

    def _suspect(self, now_ns: int, *, gradual: bool) -> None:
        """Measure the speed after a jump; `gradual`: the jump accumulated over several timestamps."""
        speed = self._measure(now_ns)
        if not gradual:
            speed = -1.0
        known = gradual and abs(speed - self._suspected) < self.ALIKE and -self.ALIKE < speed < self.SLOW
        self._speed, self._suspected = max(0.0, speed) if known else 1.0, speed

    def _measure(self, now_ns: int) -> float:
        """Measure the speed of the sender's clock since the last measurement."""
        ticks, since = self._since
        passed, self._since = self._ticks - ticks, (self._ticks, now_ns)
        return passed * 1_000_000_000 / VIDEO_HZ / max(1, now_ns - since)
