"""JPEG over RTP (RFC 2435): packets become pictures.

Every packet says where in its picture its bytes belong, so packets that overtook each other are put in place without
waiting; what a reorder window decides is only when a picture with gaps is given up. Where the sender uses restart
markers, a loss costs its restart intervals and no more.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from embereye.units import Box, counted
from embereye.wire.jpeg.header import EOI, MAX_PIXELS, MAX_SIDE, SOI, JpegError
from embereye.wire.jpeg.restart import RESTART_0, Run, infer_interval, repair, smallest
from embereye.wire.jpeg.tables import EXTRA_FIELD, Geometry, header, quantization
from embereye.wire.rtp.arriving import ArrivingPicture, runs_of
from embereye.wire.rtp.onvif_extension import EXTENSION, Described, describe
from embereye.wire.rtp.packet import FIXED, MARKER, Arrival, Packet, PacketReception, RtpError, is_rtcp, parse_packet
from embereye.wire.rtp.payload_header import (
    MAIN,
    OFFSET,
    PAYLOAD_TYPE,
    RESTART,
    PayloadError,
    PayloadHeader,
    read_payload_header,
)

WINDOW = 32  # packets of a newer picture after which a gap in the one before is a loss
DEADLINE_NS = 100_000_000  # nanoseconds without a packet of a picture after which its gaps are losses
TAKEOVER_NS = 500_000_000  # nanoseconds of silence after which another sender may take the place of this one
FRUITLESS_NS = 5_000_000_000  # nanoseconds without a usable picture, after which it may as well
PROBATION = 2  # packets in order before a sender is believed (RFC 3550, A.1)
MAX_PICTURE = 8 * 1024 * 1024  # bytes of one picture
MAX_FRAGMENTS = 16_384  # of one picture
MAX_INTERVALS = 16_384  # of one picture that are put in place one by one
SEARCHED_PICTURES = 8  # of a sender, for restart markers that it does not mention
SEARCHED_ROWS = 2  # of every later picture, in rows of MCUs of mean size
SEARCHED_BYTES = 2048  # of every later picture besides, from another place each time
RUN = 6  # packets joined, from which on they are compared all at once
RUNS = 256  # packets compared at once
USABLE = 0.5  # of a picture: with less there is nothing to be sure of
FAST = struct.Struct(">HHIIII")  # RTP's fixed header, type-specific and offset, then type, Q, width, height
WORD = np.dtype(np.uint32)
HEAD = FAST.size // WORD.itemsize  # words of FAST's
_NOTHING: tuple["JpegFrame", ...] = ()


@dataclass(frozen=True, slots=True)
class JpegFrame:
    """One picture as a JPEG file. `lost` are the parts that are grey because they did not arrive.

    Without `usable` too little arrived: `data` is the beginning that did, without an end of image.
    """

    data: bytes
    timestamp: int  # 90 kHz
    lost: tuple[Box, ...] = ()
    usable: bool = True


@dataclass
class Counts:
    """What became of packets and pictures that were no good, since the start."""

    malformed: int = 0  # packets
    other_payload: dict[int, int] = field(default_factory=dict)  # packets by payload type that is not ours
    duplicates: int = 0  # packets
    stale: int = 0  # packets of a picture that was given up or is done
    strangers: int = 0  # packets of another sender than the one listened to
    pictures: int = 0
    damaged: int = 0  # pictures that went on with parts lost
    unusable: int = 0  # pictures of which too much was lost
    problem: str = ""  # why the latest malformed packet or unusable picture was that


class Probation:
    """Whether another sender may take the place of the one that is listened to (RFC 3550, A.1)."""

    def __init__(self) -> None:
        self._candidate = (-1, -1, 0)  # SSRC, next sequence number, packets in order

    def passes(self, packet: Packet, silent_ns: int) -> bool:
        """Whether `packet` of another sender is believed; the present one has been silent for `silent_ns`."""
        ssrc, following, count = self._candidate
        in_order = (ssrc, following) == (packet.ssrc, packet.sequence)
        count = count + 1 if in_order else 1
        self._candidate = (packet.ssrc, (packet.sequence + 1) & 0xFFFF, count)
        return count >= PROBATION and silent_ns >= TAKEOVER_NS


class Depacketizer:
    """Accepts the packets of one sender, returns its pictures in order. No input makes it raise.

    `size` (width, height) is what pictures measure that are too large to say so themselves, 0: unknown; after
    `deadline_ns` without a packet of a picture its gaps are losses.
    """

    def __init__(
        self, payload_type: int = PAYLOAD_TYPE, size: tuple[int, int] = (0, 0), deadline_ns: int = DEADLINE_NS
    ) -> None:
        self.counts = Counts()
        self.reception = PacketReception()
        self.ssrc = -1
        self._payload_type = payload_type
        self._plain = 0x8000 | payload_type
        self._size = size
        self._deadline_ns = deadline_ns
        self._tables: dict[int, bytes] = {}  # DQT segments by Q, 128 to 254
        self._described: Described | None = None
        self._inferred: tuple[Geometry | None, int] = (None, 0)  # a restart interval that the sender does not state
        self._frame: ArrivingPicture | None = None  # the newest
        self._previous: ArrivingPicture | None = None  # the one before it, if it has gaps
        self._done = -1  # timestamp of the newest picture handed over
        self._heard_ns = 0
        self._useful_ns = 0  # when the sender was believed, or sent the last packet of a usable picture
        self._probation = Probation()

    def feed(self, packet: memoryview, now_ns: int) -> Sequence[JpegFrame]:
        """Accept one packet at `now_ns`, of any clock that does not go back; returns the pictures that it completes."""
        frame = self._frame
        if frame is None or len(packet) <= frame.skip:
            return self._receive_any(packet, now_ns)
        lead, sequence, timestamp, ssrc, place, key = FAST.unpack_from(packet)
        reception = self.reception
        if (
            lead & ~MARKER != self._plain
            or sequence != (reception.extended + 1) & 0xFFFF
            or timestamp != frame.timestamp
            or ssrc != self.ssrc
            or key != frame.key
            or place & OFFSET != frame.reach
            or not frame.reach
            or self._previous is not None
            or frame.held > MAX_PICTURE
            or frame.packets >= MAX_FRAGMENTS
        ):
            return self._receive_any(packet, now_ns)
        # The next packet of the current picture: nearly all are, so this path is short.
        reception.extended += 1
        reception.received += 1
        self._heard_ns = frame.touched_ns = now_ns
        skip = frame.skip
        if skip > FAST.size:
            frame.mark(frame.reach, RESTART.unpack_from(packet, FAST.size)[1])
        frame.put(frame.reach, bytes(packet[skip:]))
        if lead & MARKER:
            frame.end = frame.reach
            if frame.held == frame.end:
                return self._finish(frame)
        return _NOTHING

    def feed_joined(self, packets: memoryview, size: int, now_ns: int) -> Sequence[JpegFrame]:
        """Accept packets of `size` bytes, the last one maybe shorter, joined in `packets`; otherwise as `feed`."""
        pictures: list[JpegFrame] = []
        start, end = 0, len(packets)
        while start < end:
            taken = self._receive_run(packets, start, size, now_ns) if end - start >= RUN * size else 0
            if not taken:
                taken = size
                pictures += self.feed(packets[start : start + size], now_ns)
            start += taken
        return pictures

    def _receive_run(self, packets: memoryview, start: int, size: int, now_ns: int) -> int:
        """Accept as many packets as simply continue the current picture; returns how many bytes they have."""
        frame, reception = self._frame, self.reception
        if frame is None or size <= frame.skip or self._previous is not None or not frame.reach:
            return 0
        lead, sequence, timestamp, ssrc, place, key = FAST.unpack_from(packets, start)
        if (
            lead != self._plain
            or sequence != (reception.extended + 1) & 0xFFFF
            or (timestamp, ssrc, key) != (frame.timestamp, self.ssrc, frame.key)
            or place & OFFSET != frame.reach
            or frame.held > MAX_PICTURE
            or frame.packets >= MAX_FRAGMENTS
        ):
            return 0
        count = min((len(packets) - start) // size, 0x10000 - sequence, RUNS)  # the wrap is left to `feed`
        step = size - frame.skip
        heads = np.ndarray((count, HEAD), ">u4", packets, start, (size, WORD.itemsize)).astype(WORD)
        more, expected = heads - heads[0], _going_on(step)[:count]
        if more.tobytes() != expected.tobytes():
            count = int((more == expected).all(axis=1).argmin())
        if frame.skip > FAST.size:
            marks = np.ndarray((count, 2), np.uint8, packets, start + FAST.size + RESTART.size // 2, (size, 1)).tolist()
            for row, (high, low) in enumerate(marks):
                frame.mark(frame.reach + row * step, high << 8 | low)
        reception.extended += count
        reception.received += count
        self._heard_ns = frame.touched_ns = now_ns
        payloads = np.ndarray((count, step), np.uint8, packets, start + frame.skip, (size, 1))
        frame.append(payloads.tobytes(), step)
        return int(count * size)

    def poll(self, now_ns: int) -> Sequence[JpegFrame]:
        """The pictures whose missing packets are not waited for any longer at `now_ns`."""
        pictures: list[JpegFrame] = []
        for frame in (self._previous, self._frame):
            if frame is not None and now_ns - frame.touched_ns >= self._deadline_ns:
                pictures += self._finish(frame)
        return pictures

    @property
    def pending(self) -> bool:
        """Whether a picture is arriving; while one is, `poll` has to be called now and then."""
        return self._frame is not None

    def _receive_any(self, data: memoryview, now_ns: int) -> Sequence[JpegFrame]:
        if is_rtcp(data):
            return _NOTHING
        try:
            packet = parse_packet(data)
        except RtpError as error:
            return self._refuse(str(error))
        if packet.payload_type != self._payload_type:
            others = self.counts.other_payload
            others[packet.payload_type] = others.get(packet.payload_type, 0) + 1
            return _NOTHING
        pictures: list[JpegFrame] = []
        if packet.ssrc != self.ssrc:
            if not self._believe(packet, now_ns):
                self.counts.strangers += 1
                return _NOTHING
            pictures += self._change_sender(packet)
            self._useful_ns = now_ns
        arrival = self.reception.count_packet(packet.sequence)
        if arrival is Arrival.STRAY:
            return pictures
        if arrival is Arrival.RESTART:
            pictures += self._give_up()
            self._done = -1
        self._heard_ns = now_ns
        pictures += self._receive_payload(packet, arrival, now_ns)
        return pictures

    def _believe(self, packet: Packet, now_ns: int) -> bool:
        """Whether to listen to another sender: the first one, or one that goes on while the present one is silent.

        Whoever sends no usable picture keeps nobody out: any packet of a stranger may have been the first.
        """
        fruitless = now_ns - self._useful_ns >= FRUITLESS_NS
        silent_ns = TAKEOVER_NS if fruitless else now_ns - self._heard_ns
        return self.ssrc < 0 or self._probation.passes(packet, silent_ns)

    def _change_sender(self, packet: Packet) -> Sequence[JpegFrame]:
        pictures = self._give_up()
        self.ssrc = packet.ssrc
        self.reception = PacketReception()
        self._tables.clear()
        self._described = None
        self._done = -1
        return pictures

    def _give_up(self) -> Sequence[JpegFrame]:
        pictures: list[JpegFrame] = []
        for frame in (self._previous, self._frame):
            if frame is not None:
                pictures += self._finish(frame)
        return pictures

    def _refuse(self, problem: str) -> Sequence[JpegFrame]:
        self.counts.malformed += 1
        self.counts.problem = problem
        return _NOTHING

    def _receive_payload(self, packet: Packet, arrival: Arrival, now_ns: int) -> Sequence[JpegFrame]:
        payload = packet.payload
        try:
            head = read_payload_header(payload)
        except (PayloadError, JpegError) as error:
            return self._refuse(str(error))
        pictures, frame = self._frame_of(packet, head.key, head.offset, arrival, now_ns)
        if frame is None:
            return pictures
        if head.key != frame.key or max(head.offset, frame.held) > MAX_PICTURE or frame.packets >= MAX_FRAGMENTS:
            self._refuse(f"it contradicts its picture, or makes it larger than {MAX_PICTURE} bytes")
            return pictures
        self._note_header(frame, head, packet)
        frame.touched_ns = now_ns
        if frame.holds(head.offset):
            self.counts.duplicates += 1
            return pictures
        frame.mark(head.offset, head.count)
        frame.ordered = frame.ordered and head.offset == frame.reach
        frame.put(head.offset, bytes(payload[head.size :]))
        if packet.marker:
            frame.end = head.offset + len(payload) - head.size
        return [*pictures, *self._whole(frame)]

    def _note_header(self, frame: ArrivingPicture, head: PayloadHeader, packet: Packet) -> None:
        """Keep what a packet's headers say of its picture, and of later ones."""
        if head.tables:
            frame.tables = head.tables
            if head.quality < 255:  # 255 means that the tables hold for this picture alone
                self._tables[head.quality] = head.tables
        if packet.extension == EXTENSION:
            frame.described = self._described = describe(packet.extension_data) or self._described
        frame.interval = head.interval or frame.interval

    def _frame_of(
        self, packet: Packet, key: int, offset: int, arrival: Arrival, now_ns: int
    ) -> tuple[list[JpegFrame], ArrivingPicture | None]:
        """The picture that the packet belongs to; None: one that is done with. Also those that a new one ends."""
        pictures: list[JpegFrame] = []
        for frame in (self._frame, self._previous):
            if frame is None or packet.timestamp != frame.timestamp:
                continue
            if frame.end < 0 or arrival is Arrival.LATE or offset > 0:
                if frame is self._previous:
                    return pictures, frame
                return self._aged(), frame
            break  # a sender whose clock stands still: its marker has ended a picture, too
        if arrival is Arrival.LATE or (packet.timestamp == self._done and offset > 0):
            self.counts.stale += 1
            return pictures, None
        if self._frame is not None:
            if self._previous is not None:
                pictures += self._finish(self._previous)
            self._previous, self._frame = self._frame, None
            # The packet before this one is the last of the picture before: its marker was forgotten, not lost.
            previous = self._previous
            if previous.end < 0 and previous.ordered and offset == 0 and self._in_order(previous):
                previous.end = previous.reach
                pictures += self._whole(previous)
        self.reception.arrived(packet.timestamp, now_ns)
        skip = FIXED.size + MAIN.size + (RESTART.size if key >> 24 & EXTRA_FIELD else 0)
        self._frame = ArrivingPicture(packet.timestamp, key, skip, self.reception.extended, touched_ns=now_ns)
        return pictures, self._frame

    def _in_order(self, frame: ArrivingPicture) -> bool:
        return self.reception.extended - frame.sequence == frame.packets

    def _aged(self) -> list[JpegFrame]:
        """Count a packet of the newest picture against the gaps of the one before."""
        frame = self._previous
        if frame is None:
            return []
        frame.newer += 1
        return list(self._finish(frame)) if frame.newer >= WINDOW else []

    def _whole(self, frame: ArrivingPicture) -> Sequence[JpegFrame]:
        return self._finish(frame) if 0 <= frame.end <= frame.held else _NOTHING

    def _finish(self, frame: ArrivingPicture) -> Sequence[JpegFrame]:
        """Complete `frame` as it is, and the one before it first."""
        pictures: list[JpegFrame] = []
        if frame is self._previous:
            self._previous = None
        else:
            self._frame = None
            if self._previous is not None:
                pictures += self._finish(self._previous)
        joining, self._done = self._done < 0, frame.timestamp
        if joining and 0 not in frame.parts:
            return pictures  # it began before we began to listen
        self.counts.pictures += 1
        try:
            picture = self._build(frame)
        except JpegError as error:
            self.counts.problem = str(error)
            picture = JpegFrame(SOI, frame.timestamp, usable=False)
        if picture.usable:
            self._useful_ns = self._heard_ns
            self.counts.damaged += bool(picture.lost)
        else:
            self.counts.unusable += 1
        pictures.append(picture)
        return pictures

    def _build(self, frame: ArrivingPicture) -> JpegFrame:
        """The picture of `frame`; JpegError where its tables or its size are unknown."""
        geometry = self._geometry(frame)
        tables = self._tables_of(frame)
        whole = frame.ordered and frame.held == frame.end
        runs = [] if whole else runs_of(frame)
        if whole or (len(runs) == 1 and runs[0].offset == 0 and runs[0].last):
            if frame.held < smallest(geometry.units, geometry.type):
                raise JpegError(
                    "truncated", f"{counted(frame.held, 'byte')} cannot be {geometry.width}x{geometry.height} pixels"
                )
            parts = frame.parts.values() if whole else (runs[0].data,)
            head = header(geometry, tables, frame.interval)
            data = b"".join((head, *parts, EOI))
            if not frame.interval and (interval := self._inferred_interval(data, len(head), geometry)):
                data = header(geometry, tables, interval) + data[len(head) :]
            return JpegFrame(data, frame.timestamp)
        interval = frame.interval or (self._inferred[1] if self._inferred[0] == geometry else 0)
        head = header(geometry, tables, interval)
        if not interval or not runs or geometry.units > MAX_INTERVALS * interval:
            return self._unusable(frame, head, runs, "packets were lost, and the sender uses no restart markers")
        repaired = repair(runs, geometry, interval, math.ceil(USABLE * geometry.units))
        if not repaired.scan:
            share = 100 * repaired.lost_units / geometry.units
            return self._unusable(frame, head, runs, f"{share:.0f} % of a picture was lost")
        return JpegFrame(head + repaired.scan + EOI, frame.timestamp, repaired.lost)

    def _unusable(self, frame: ArrivingPicture, head: bytes, runs: Sequence[Run], why: str) -> JpegFrame:
        self.counts.problem = why
        beginning = runs[0].data if runs and runs[0].offset == 0 else b""
        return JpegFrame(head + beginning, frame.timestamp, usable=False)

    def _geometry(self, frame: ArrivingPicture) -> Geometry:
        described = frame.described or self._described
        return _geometry(frame.key, (described.width, described.height) if described else self._size)

    def _inferred_interval(self, data: bytes, begin: int, geometry: Geometry) -> int:
        """The restart interval of a whole scan whose sender does not state that it has any, as FFmpeg does not.

        The scan is that of the JPEG `data`, from `begin` on. A sender has them or not, so only its first pictures are
        searched to their end; of later ones the beginning and one more part, another one each time.
        """
        size = len(data) - begin - len(EOI)
        searched = size
        if self.counts.pictures > SEARCHED_PICTURES:
            searched = SEARCHED_BYTES + SEARCHED_ROWS * size * geometry.columns // geometry.units
        turn = begin + self.counts.pictures * SEARCHED_BYTES % size
        if data.find(RESTART_0, begin, begin + searched) < 0 and data.find(RESTART_0, turn, turn + SEARCHED_BYTES) < 0:
            return 0
        interval = infer_interval(data[begin : -len(EOI)], geometry)
        if not interval:
            raise JpegError("unsupported JPEG", "it has restart markers, and its sender does not say their interval")
        self._inferred = (geometry, interval)
        return interval

    def _tables_of(self, frame: ArrivingPicture) -> bytes:
        quality = frame.key >> 16 & 0xFF
        if quality < 128:
            return quantization(quality)
        own = (frame.described and frame.described.tables) or frame.tables
        tables = own or (self._described and self._described.tables) or self._tables.get(quality, b"")
        if not tables:
            raise JpegError("unsupported JPEG", f"the quantization tables of Q {quality} have not come")
        return tables


@lru_cache(maxsize=256)
def _geometry(key: int, size: tuple[int, int]) -> Geometry:
    """How a picture is cut whose packets say `key`, where `size` is known from elsewhere, 0: it is not."""
    kind = key >> 24 & ~EXTRA_FIELD
    width, height = (key >> 8 & 0xFF) * 8, (key & 0xFF) * 8
    # The header counts in units of 8 pixels, what is known exactly is better; FFmpeg's count wraps at 256.
    if any(known and (given + 7) // 8 % 256 * 8 != known for given, known in zip(size, (width, height), strict=True)):
        size = (0, 0)
    size = size[0] or width, size[1] or height
    if not all(size):
        raise JpegError("unsupported JPEG", "it is larger than 2040 pixels and nothing says how large: give its size")
    geometry = Geometry(*size, kind)
    if max(geometry.width, geometry.height) > MAX_SIDE or geometry.width * geometry.height > MAX_PIXELS:
        raise JpegError("too large", f"{geometry.width}x{geometry.height} pixels")
    return geometry


@lru_cache(maxsize=64)
def _going_on(step: int) -> npt.NDArray[np.uint32]:
    """By how much each word of FAST's is more than in the first of RUNS packets in order of `step` bytes of payload."""
    more = np.zeros((RUNS, HEAD), WORD)
    more[:, 0] = np.arange(RUNS)  # the sequence number
    more[:, 3] = np.arange(RUNS) * step  # the offset
    return more
