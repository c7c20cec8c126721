"""Assemble pictures from JPEG over RTP (RFC 2435).

Every packet states where in its picture its bytes belong. So packets that overtook each other are put in place without
waiting; the reorder window only decides when to complete a picture that has gaps. If the sender uses restart markers, a
loss costs only the restart intervals in it.

At most two pictures are incomplete at a time: the newest, and the one before it while it has gaps. A gap is a loss
after WINDOW packets of a newer picture, or after `deadline_ns` without a packet of its picture.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from embereye.units import Box, counted
from embereye.wire.jpeg.header import EOI, MAX_PIXELS, MAX_SIDE, SOI, JpegError
from embereye.wire.jpeg.restart import RESTART_0, Run, infer_interval, repair, smallest
from embereye.wire.jpeg.tables import EXTRA_FIELD, Geometry, header, quantization
from embereye.wire.rtp.arriving import ArrivingPicture, received_runs
from embereye.wire.rtp.onvif_extension import EXTENSION, JpegDescription, describe
from embereye.wire.rtp.packet import FIXED, MARKER, Arrival, Packet, PacketReception
from embereye.wire.rtp.payload_header import (
    MAIN,
    OFFSET,
    PAYLOAD_TYPE,
    RESTART,
    PayloadError,
    PayloadHeader,
    read_payload_header,
)
from embereye.wire.rtp.receiver import DEADLINE_NS, TAKEOVER_NS, PictureReceiver

WINDOW = 32  # packets of a newer picture, after which a gap in the previous one is a loss
FRUITLESS_NS = 5_000_000_000  # nanoseconds without a usable picture, after which another sender may replace this one
MAX_PICTURE = 8 * 1024 * 1024  # bytes of one picture
MAX_FRAGMENTS = 16_384  # of one picture
MAX_INTERVALS = 16_384  # of one picture that are put in place individually
SEARCHED_PICTURES = 8  # pictures of a sender searched entirely for restart markers that it does not announce
SEARCHED_ROWS = 2  # searched at the start of every later picture, in rows of MCUs of mean size
SEARCHED_BYTES = 2048  # searched of every later picture in addition, at another place each time
RUN = 6  # joined packets from which on comparing them all at once is faster
RUNS = 256  # most packets compared at once
USABLE = 0.5  # share of a picture that must have arrived
FAST = struct.Struct(">HHIIII")  # RTP's fixed header, type-specific and offset, then type, Q, width, height
WORD = np.dtype(np.uint32)
HEAD = FAST.size // WORD.itemsize  # words in FAST
_NOTHING: tuple["JpegFrame", ...] = ()


@dataclass(frozen=True, slots=True)
class JpegFrame:
    """One picture as a JPEG file. `lost` has the regions that are grey because they did not arrive.

    If it is not `usable`, too little arrived: `data` has only the beginning, without an end of image.
    """

    data: bytes
    timestamp: int  # 90 kHz
    lost: tuple[Box, ...] = ()
    usable: bool = True


class Depacketizer(PictureReceiver):
    """Assembles the pictures of one sender from its packets, in order. Raises no exceptions.

    `size` (width, height) is used for pictures that are too large to state their size; 0: unknown. The gaps of a
    picture are losses after `deadline_ns` without a packet of it.
    """

    def __init__(
        self, payload_type: int = PAYLOAD_TYPE, size: tuple[int, int] = (0, 0), deadline_ns: int = DEADLINE_NS
    ) -> None:
        super().__init__(payload_type, deadline_ns)
        self._size = size
        self._tables: dict[int, bytes] = {}  # DQT segments by Q, 128 to 254
        self._described: JpegDescription | None = None
        self._inferred: tuple[Geometry | None, int] = (None, 0)  # a restart interval that the sender does not state
        self._frame: ArrivingPicture | None = None  # the newest
        self._previous: ArrivingPicture | None = None  # the previous one, while it has gaps
        self._done = -1  # timestamp of the newest completed picture
        self._useful_ns = 0  # when the sender was accepted, or sent the last packet of a usable picture

    def feed(self, packet: memoryview, now_ns: int) -> Sequence[JpegFrame]:
        """Accept one packet at `now_ns` of a monotonic clock; return the pictures that it completes."""
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
            or frame.size > MAX_PICTURE
            or frame.packets >= MAX_FRAGMENTS
        ):
            return self._receive_any(packet, now_ns)
        # Nearly all packets are the next one of the current picture, so this path is short.
        reception.extended += 1
        reception.received += 1
        self._heard_ns = frame.touched_ns = now_ns
        skip = frame.skip
        if skip > FAST.size:
            frame.mark(frame.reach, RESTART.unpack_from(packet, FAST.size)[1])
        frame.put(frame.reach, bytes(packet[skip:]))
        if lead & MARKER:
            frame.end = frame.reach
            if frame.size == frame.end:
                return self._finish(frame)
        return _NOTHING

    def feed_joined(self, packets: memoryview, size: int, now_ns: int) -> Sequence[JpegFrame]:
        """Accept packets of `size` bytes, joined in `packets` (the last may be shorter); otherwise like `feed`."""
        pictures: list[JpegFrame] = []
        start, end = 0, len(packets)
        while start < end:
            consumed = self._receive_run(packets, start, size, now_ns) if end - start >= RUN * size else 0
            if not consumed:
                consumed = size
                pictures += self.feed(packets[start : start + size], now_ns)
            start += consumed
        return pictures

    def _receive_run(self, packets: memoryview, start: int, size: int, now_ns: int) -> int:
        """Accept all packets that simply continue the current picture; return the number of bytes consumed."""
        frame, reception = self._frame, self.reception
        if frame is None or size <= frame.skip or self._previous is not None or not frame.reach:
            return 0
        lead, sequence, timestamp, ssrc, place, key = FAST.unpack_from(packets, start)
        if (
            lead != self._plain
            or sequence != (reception.extended + 1) & 0xFFFF
            or (timestamp, ssrc, key) != (frame.timestamp, self.ssrc, frame.key)
            or place & OFFSET != frame.reach
            or frame.size > MAX_PICTURE
            or frame.packets >= MAX_FRAGMENTS
        ):
            return 0
        count = min((len(packets) - start) // size, 0x10000 - sequence, RUNS)  # `feed` handles the wrap
        step = size - frame.skip
        heads = np.ndarray((count, HEAD), ">u4", packets, start, (size, WORD.itemsize)).astype(WORD)
        growth, expected = heads - heads[0], _expected_growth(step)[:count]
        if growth.tobytes() != expected.tobytes():
            count = int((growth == expected).all(axis=1).argmin())
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
        """Complete the pictures whose missing packets are overdue at `now_ns`; return them."""
        pictures: list[JpegFrame] = []
        for frame in (self._previous, self._frame):
            if frame is not None and now_ns - frame.touched_ns >= self._deadline_ns:
                pictures += self._finish(frame)
        return pictures

    @property
    def has_pending(self) -> bool:
        """True if a picture is arriving; then `poll` must be called from time to time."""
        return self._frame is not None

    def _receive_any(self, data: memoryview, now_ns: int) -> Sequence[JpegFrame]:
        if (packet := self._parse(data)) is None:
            return _NOTHING
        pictures: list[JpegFrame] = []
        if packet.ssrc != self.ssrc:
            if not self._admit_sender(packet, now_ns):
                self.counts.strangers += 1
                return _NOTHING
            pictures += self._change_sender(packet)
            self._useful_ns = now_ns
        arrival = self.reception.count_packet(packet.sequence)
        if arrival is Arrival.STRAY:
            return pictures
        if arrival is Arrival.RESTART:
            pictures += self._complete_all()
            self._done = -1
        self._heard_ns = now_ns
        pictures += self._receive_payload(packet, arrival, now_ns)
        return pictures

    def _admit_sender(self, packet: Packet, now_ns: int) -> bool:
        """True if packets of another sender count from now on: the first sender, or one that replaces a silent one.

        A sender without usable pictures is replaced too: a stranger's packet may have been mistaken for the first.
        """
        fruitless = now_ns - self._useful_ns >= FRUITLESS_NS
        silent_ns = TAKEOVER_NS if fruitless else now_ns - self._heard_ns
        return self.ssrc < 0 or self._probation.admit(packet, silent_ns)

    def _change_sender(self, packet: Packet) -> Sequence[JpegFrame]:
        pictures = self._complete_all()
        self.ssrc = packet.ssrc
        self.reception = PacketReception()
        self._tables.clear()
        self._described = None
        self._done = -1
        return pictures

    def _complete_all(self) -> Sequence[JpegFrame]:
        pictures: list[JpegFrame] = []
        for frame in (self._previous, self._frame):
            if frame is not None:
                pictures += self._finish(frame)
        return pictures

    def _receive_payload(self, packet: Packet, arrival: Arrival, now_ns: int) -> Sequence[JpegFrame]:
        payload = packet.payload
        try:
            head = read_payload_header(payload)
        except (PayloadError, JpegError) as error:
            self._refuse(str(error))
            return _NOTHING
        pictures, frame = self._assign_picture(packet, head.key, head.offset, arrival, now_ns)
        if frame is None:
            return pictures
        if head.key != frame.key or max(head.offset, frame.size) > MAX_PICTURE or frame.packets >= MAX_FRAGMENTS:
            self._refuse(f"it contradicts its picture, or makes it larger than {MAX_PICTURE} bytes")
            return pictures
        self._note_header(frame, head, packet)
        frame.touched_ns = now_ns
        if frame.has_packet(head.offset):
            self.counts.duplicates += 1
            return pictures
        frame.mark(head.offset, head.count)
        frame.ordered = frame.ordered and head.offset == frame.reach
        frame.put(head.offset, bytes(payload[head.size :]))
        if packet.marker:
            frame.end = head.offset + len(payload) - head.size
        return [*pictures, *self._finish_if_complete(frame)]

    def _note_header(self, frame: ArrivingPicture, head: PayloadHeader, packet: Packet) -> None:
        """Store the tables and sizes in a packet's headers, for its picture and for later ones."""
        if head.tables:
            frame.tables = head.tables
            if head.quality < 255:  # 255: the tables are valid for this picture only
                self._tables[head.quality] = head.tables
        if packet.extension == EXTENSION:
            frame.described = self._described = describe(packet.extension_data) or self._described
        frame.interval = head.interval or frame.interval

    def _assign_picture(
        self, packet: Packet, key: int, offset: int, arrival: Arrival, now_ns: int
    ) -> tuple[list[JpegFrame], ArrivingPicture | None]:
        """Find or start the picture of a packet, None if it is complete; also return pictures ended by a new one."""
        pictures: list[JpegFrame] = []
        for frame in (self._frame, self._previous):
            if frame is None or packet.timestamp != frame.timestamp:
                continue
            if frame.end < 0 or arrival is Arrival.LATE or offset > 0:
                if frame is self._previous:
                    return pictures, frame
                return self._age_previous(), frame
            break  # the sender's clock stalls: a marker has ended a picture, too
        if arrival is Arrival.LATE or (packet.timestamp == self._done and offset > 0):
            self.counts.stale += 1
            return pictures, None
        if self._frame is not None:
            if self._previous is not None:
                pictures += self._finish(self._previous)
            self._previous, self._frame = self._frame, None
            # This packet directly follows the last one of the previous picture: its marker is missing, not lost.
            previous = self._previous
            if previous.end < 0 and previous.ordered and offset == 0 and self._in_order(previous):
                previous.end = previous.reach
                pictures += self._finish_if_complete(previous)
        self.reception.note_arrival(packet.timestamp, now_ns)
        skip = FIXED.size + MAIN.size + (RESTART.size if key >> 24 & EXTRA_FIELD else 0)
        self._frame = ArrivingPicture(packet.timestamp, key, skip, self.reception.extended, touched_ns=now_ns)
        return pictures, self._frame

    def _in_order(self, frame: ArrivingPicture) -> bool:
        return self.reception.extended - frame.sequence == frame.packets

    def _age_previous(self) -> list[JpegFrame]:
        """Count a packet of the newest picture against the gaps of the previous one."""
        frame = self._previous
        if frame is None:
            return []
        frame.newer += 1
        return list(self._finish(frame)) if frame.newer >= WINDOW else []

    def _finish_if_complete(self, frame: ArrivingPicture) -> Sequence[JpegFrame]:
        return self._finish(frame) if 0 <= frame.end <= frame.size else _NOTHING

    def _finish(self, frame: ArrivingPicture) -> Sequence[JpegFrame]:
        """Complete `frame` as it is, and the previous one before it."""
        pictures: list[JpegFrame] = []
        if frame is self._previous:
            self._previous = None
        else:
            self._frame = None
            if self._previous is not None:
                pictures += self._finish(self._previous)
        joining, self._done = self._done < 0, frame.timestamp
        if joining and 0 not in frame.parts:
            return pictures  # we joined in the middle of it
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
        """Build the picture of `frame`; JpegError if its tables or its size are unknown."""
        geometry = self._geometry(frame)
        tables = self._tables_for(frame)
        whole = frame.ordered and frame.size == frame.end
        runs = [] if whole else received_runs(frame)
        if whole or (len(runs) == 1 and runs[0].offset == 0 and runs[0].last):
            if frame.size < smallest(geometry.units, geometry.type):
                raise JpegError(
                    "truncated", f"{counted(frame.size, 'byte')} cannot be {geometry.width}x{geometry.height} pixels"
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
        """The restart interval of a whole scan whose sender does not state it, as FFmpeg does not; 0: no markers.

        The scan is that of the JPEG `data`, from `begin` on. Only a sender's first pictures are searched entirely. Of
        later ones, the beginning and one more part are searched, another part each time.
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
            raise JpegError("unsupported JPEG", "it has restart markers, and its sender does not state their interval")
        self._inferred = (geometry, interval)
        return interval

    def _tables_for(self, frame: ArrivingPicture) -> bytes:
        quality = frame.key >> 16 & 0xFF
        if quality < 128:
            return quantization(quality)
        current = (frame.described and frame.described.tables) or frame.tables
        tables = current or (self._described and self._described.tables) or self._tables.get(quality, b"")
        if not tables:
            raise JpegError("unsupported JPEG", f"the quantization tables of Q {quality} are missing")
        return tables


@lru_cache(maxsize=256)
def _geometry(key: int, size: tuple[int, int]) -> Geometry:
    """The grid of a picture whose packets state `key`; `size` is known from elsewhere, 0: unknown."""
    kind = key >> 24 & ~EXTRA_FIELD
    width, height = (key >> 8 & 0xFF) * 8, (key & 0xFF) * 8
    # The header counts in units of 8 pixels, so an exactly known size is better. FFmpeg's count wraps at 256.
    if any(known and (given + 7) // 8 % 256 * 8 != known for given, known in zip(size, (width, height), strict=True)):
        size = (0, 0)
    size = size[0] or width, size[1] or height
    if not all(size):
        raise JpegError("unsupported JPEG", "larger than 2040 pixels, and of unknown size. Set its size.")
    geometry = Geometry(*size, kind)
    if max(geometry.width, geometry.height) > MAX_SIDE or geometry.width * geometry.height > MAX_PIXELS:
        raise JpegError("too large", f"{geometry.width}x{geometry.height} pixels")
    return geometry


@lru_cache(maxsize=64)
def _expected_growth(step: int) -> npt.NDArray[np.uint32]:
    """The growth of FAST's words over RUNS packets in order, each with `step` bytes of payload, from the first on."""
    growth = np.zeros((RUNS, HEAD), WORD)
    growth[:, 0] = np.arange(RUNS)  # the sequence number
    growth[:, 3] = np.arange(RUNS) * step  # the offset
    return growth
