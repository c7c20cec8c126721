"""Join NAL units to access units, and decide which ones can be trusted after a loss.

A picture that refers to an incomplete one can look like anything, including flames and smoke. So after a loss every
picture counts as damaged, until one arrives that refers to nothing before it.

| state | condition | access units are | ends with |
| --- | --- | --- | --- |
| not joined | no picture yet that decoding can start at | skipped | a key frame, or a recovery point |
| damaged | something was lost | damaged, and so are those that follow | a key frame, or a recovery point |
| recovering | `_recovering` > 0 pictures before a recovery point | damaged, but must be decoded | that count |
| sound | nothing is missing | good, if complete | a loss |
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from embereye.wire.video.nal import START_CODE, Codec, NalKind, NalUnit, VideoError

MAX_UNIT = 4 * 1024 * 1024  # bytes of an access unit; a key frame of 4K at the highest quality stays below it
MAX_SLICES = 2_048  # of a picture
MAX_SETS = 64  # parameter sets stored, of MAX_SET bytes each
MAX_SET = 4_096


@dataclass(slots=True)
class AccessUnit:
    """One coded picture with its preceding NAL units, each behind a start code (annex B).

    Do not modify it. A frozen one takes five times as long to create.
    """

    data: bytes
    timestamp: int  # of presentation, 90 kHz
    size: tuple[int, int]  # width and height in pixels
    key: bool = False  # decoding can start here
    reference: bool = True  # other pictures refer to it
    damaged: str = ""  # why it must not be trusted; empty: it can be
    refreshing: bool = False  # damaged, but needed to end the damage: it must be decoded all the same
    encoding: str = "H264"
    damages_following: bool = False  # damaged, and so are the next ones, until decoding can start again
    weak_key: bool = False  # decoding can start here, but its type does not promise that it refers to no other picture


@dataclass(eq=False, slots=True)
class _Arriving:
    timestamp: int
    nals: list[bytes]
    size: int = 0  # bytes
    slices: int = 0
    sets: int = 0  # types of its parameter sets, one bit each
    key: bool = False
    closed: bool = False
    intra: bool = False  # its slices refer to no other picture
    reference: bool = False
    recovery: int = -1
    problem: str = ""


class Assembler:
    """Joins NAL units to access units. `sets` are parameter sets known in advance, for example from an SDP.

    Access units before the first picture that decoding can start at are left out.
    """

    def __init__(self, codec: Codec, sets: Iterable[bytes] = ()) -> None:
        self.malformed = 0  # NAL units
        self.problem = ""  # of the latest malformed NAL unit, or why pictures are damaged
        self.skipped = 0  # access units before the first one that decoding could start at
        self.split_pictures = False  # the sender marked the end of a picture in its middle: its markers mean nothing
        self._codec = codec
        self._sets: dict[tuple[int, int], bytes] = {}
        self._size = (0, 0)
        self._layers = 0  # the highest temporal layer seen
        self._unit: _Arriving | None = None
        self._joined = False  # a picture has arrived that decoding can start at
        self._damaged = "joined in the middle of the stream"  # why pictures are damaged; empty: they are not
        self._recovering = 0  # pictures until the damage ends
        self._ended: int | None = None  # timestamp of the previous access unit, if nothing was lost since
        self._leading: int | None = None  # timestamp; pictures shown before it refer to ones that did not arrive
        for nal in sets:
            self._add_set(nal)

    @property
    def is_open(self) -> bool:
        """True if an access unit is arriving."""
        return self._unit is not None

    def _add_set(self, nal: bytes) -> None:
        try:
            unit = self._codec.inspect(nal)
        except VideoError as error:
            self.malformed += 1
            self.problem = str(error)
            return
        if unit.kind is NalKind.PARAMETERS:
            self._note_set(unit, nal)

    def _note_set(self, unit: NalUnit, nal: bytes) -> None:
        if len(nal) <= MAX_SET and (unit.parameter in self._sets or len(self._sets) < MAX_SETS):
            self._sets[unit.parameter] = nal
        if unit.size != (0, 0):
            self._size = unit.size

    def add(self, nal: bytes, timestamp: int) -> AccessUnit | None:
        """Add the next NAL unit; return the previous access unit if this one starts another."""
        try:
            header = self._codec.inspect(nal)
        except VideoError as error:
            self.malformed += 1
            self.problem = str(error)
            if self._unit is not None and self._unit.timestamp == timestamp:
                self._unit.problem = str(error)
            return None
        if header.kind is NalKind.UNUSED:
            return None
        unit, ended = self._unit, None
        if unit is not None and (unit.timestamp != timestamp or (unit.slices and _is_unit_start(header))):
            ended, unit = self.finish(), None
        if unit is None:
            unit = self._unit = _Arriving(timestamp, [])
        self._put(unit, header, nal)
        return ended

    def _put(self, unit: _Arriving, header: NalUnit, nal: bytes) -> None:
        if header.kind is NalKind.SLICE:
            if unit.slices == 0 and not header.first_slice:
                self.split_pictures |= not unit.problem and unit.timestamp == self._ended
                unit.problem = unit.problem or "its first slice did not arrive"
            unit.slices += 1
            unit.key |= header.key
            unit.closed |= header.closed
            self._layers = max(self._layers, header.layer)
            unit.reference |= header.reference or header.layer < self._layers
            unit.intra = (unit.intra or unit.slices == 1) and bool(unit.sets) and self._codec.is_intra(nal)
        elif header.kind is NalKind.PARAMETERS:
            unit.sets |= 1 << header.parameter[0]
            self._note_set(header, nal)
        unit.recovery = max(unit.recovery, header.recovery)
        unit.size += len(nal) + len(START_CODE)
        if unit.size > MAX_UNIT or unit.slices > MAX_SLICES:
            unit.problem = f"an access unit of more than {MAX_UNIT} bytes or {MAX_SLICES} slices"
            unit.nals.clear()
            return
        unit.nals.append(nal)

    def note_loss(self, timestamp: int | None) -> AccessUnit | None:
        """Note that something is missing before the next NAL unit, whose timestamp is `timestamp`; None: unknown.

        Return the access unit that was arriving if it ended with the loss.
        """
        unit, self._ended = self._unit, None
        if unit is not None and unit.timestamp == timestamp:
            unit.problem = unit.problem or "a part of it was lost"
            return None
        ended = None
        if unit is not None:
            unit.problem = unit.problem or "its end may be lost"
            ended = self.finish()
        self._break("a picture that it refers to was lost")
        return ended

    def note_fragment(self, timestamp: int, head: bytes) -> None:
        """Note that only a part of the NAL unit with header `head` at `timestamp` has arrived."""
        self._ended = None
        if self._unit is None or self._unit.timestamp != timestamp:
            self._unit = _Arriving(timestamp, [])
        unit = self._unit
        unit.problem = unit.problem or "a part of it was lost"
        with contextlib.suppress(VideoError):
            header = self._codec.inspect(head + b"\0")
            unit.slices += header.kind is NalKind.SLICE
            unit.reference |= header.reference or header.layer < self._layers

    def _break(self, why: str) -> None:
        if self._joined:
            self._damaged = why
            self._recovering = 0
            self.problem = why

    def finish(self) -> AccessUnit | None:
        """Complete the access unit that is arriving; None if there is none, or decoding cannot start yet."""
        unit, self._unit = self._unit, None
        if unit is None or not (unit.slices or unit.problem):
            return None
        self._ended = unit.timestamp
        key = unit.slices > 0 and (unit.key or unit.recovery >= 0 or unit.intra)
        if key and not unit.problem and not self._sets:
            unit.problem = "its parameter sets are missing"
        if not unit.problem and key:
            self._resume(unit)
        if not self._joined:
            self.skipped += 1
            return None
        return self._assess(unit, key=key)

    def _resume(self, unit: _Arriving) -> None:
        """Note that losses before `unit` do not matter any more, at once or after some pictures."""
        if not self._damaged:
            return
        self._joined = True
        if unit.key or unit.recovery <= 0:
            self._damaged, self._recovering = "", 0
            self._leading = None if unit.closed else unit.timestamp
        elif not self._recovering:
            self._recovering = unit.recovery

    def _assess(self, unit: _Arriving, *, key: bool) -> AccessUnit:
        damaged = unit.problem or self._damaged
        if unit.problem:
            if unit.reference or not unit.slices:
                self._break("a picture that it refers to is damaged")
            self.problem = unit.problem
        refreshing = not unit.problem and self._recovering > 0
        if refreshing:
            self._recovering -= 1
            if not self._recovering:
                self._damaged = ""
        if not damaged and self._leading is not None and unit.timestamp != self._leading:
            if key:
                # Pictures that lead this key frame refer to nothing before the one that decoding started at. A key
                # frame itself never leads: if it seems to be shown before that one, the sender's clock was set.
                self._leading = None
            elif (unit.timestamp - self._leading) & 0xFFFF_FFFF > 0x7FFF_FFFF:
                damaged = "it refers to pictures before the one that decoding started at"
        nals = unit.nals
        if key and not all(unit.sets >> kind & 1 for kind, _ in self._sets):
            nals = [*(nal for _, nal in sorted(self._sets.items())), *nals]
        data = START_CODE + START_CODE.join(nals) if nals else b""
        damages_following = bool(self._damaged) and not self._recovering
        return AccessUnit(
            data,
            unit.timestamp,
            self._size,
            key,
            unit.reference,
            damaged,
            refreshing,
            self._codec.name,
            damages_following,
            key and not unit.key,
        )


def _is_unit_start(header: NalUnit) -> bool:
    """True if `header`, behind a slice, starts the next access unit."""
    return header.first_slice or header.kind in {NalKind.PREFIX, NalKind.PARAMETERS}
