"""From NAL units to access units, and which of those can be trusted after a loss.

A picture that refers to one that did not arrive whole looks like anything, flames and smoke included. So after a loss
every picture counts as damaged until one comes that refers to nothing before it.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from embereye.wire.video.nal import START_CODE, Codec, NalKind, NalUnit, VideoError

MAX_UNIT = 4 * 1024 * 1024  # bytes of an access unit; a key frame of 4K at the highest quality stays below it
MAX_SLICES = 2_048  # of a picture
MAX_SETS = 64  # parameter sets that are kept, of MAX_SET bytes each
MAX_SET = 4_096


@dataclass(frozen=True, slots=True)
class AccessUnit:
    """One coded picture with what stands before it, each NAL unit behind a start code (annex B)."""

    data: bytes
    timestamp: int  # of presentation, 90 kHz
    size: tuple[int, int]  # width and height in pixels
    key: bool = False  # decoding can begin here
    reference: bool = True  # others refer to it
    damaged: str = ""  # why it must not be trusted; empty: it may be
    refreshes: bool = False  # damaged, but a part of what ends the damage: it has to be decoded all the same
    encoding: str = "H264"
    spoils: bool = False  # damaged, and so is what follows, until a picture comes that decoding can begin at


@dataclass(eq=False, slots=True)
class _Arriving:
    timestamp: int
    nals: list[bytes]
    held: int = 0
    slices: int = 0
    sets: int = 0  # the types of the parameter sets in it, a bit for each
    key: bool = False
    closed: bool = False
    intra: bool = False  # its slices refer to no other picture
    reference: bool = False
    recovery: int = -1
    problem: str = ""


class Assembler:
    """Puts NAL units together. `sets` are parameter sets that are known from elsewhere, as from an SDP.

    What comes before the first picture that decoding can begin at is left out.
    """

    def __init__(self, codec: Codec, sets: Iterable[bytes] = ()) -> None:
        self.malformed = 0  # NAL units
        self.problem = ""  # of the latest malformed NAL unit, or why pictures are damaged
        self.skipped = 0  # access units before the first one that decoding could begin at
        self.split_pictures = False  # the sender ended a picture and went on with it: its markers mean nothing
        self._codec = codec
        self._sets: dict[tuple[int, int], bytes] = {}
        self._size = (0, 0)
        self._layers = 0  # the highest temporal layer seen
        self._unit: _Arriving | None = None
        self._joined = False  # a picture has come that decoding can begin at
        self._damaged = "it began before we began to listen"  # why pictures are; empty: they are not
        self._recovering = 0  # pictures until the damage is over
        self._ended: int | None = None  # timestamp of the access unit before, where nothing was lost since
        self._leading: int | None = None  # timestamp; pictures shown before it refer to what did not come
        for nal in sets:
            self._keep_set(nal)

    @property
    def open(self) -> bool:
        """Whether an access unit is arriving."""
        return self._unit is not None

    def _keep_set(self, nal: bytes) -> None:
        try:
            found = self._codec.inspect(nal)
        except VideoError as error:
            self.malformed += 1
            self.problem = str(error)
            return
        if found.kind is NalKind.PARAMETERS:
            self._note_set(found, nal)

    def _note_set(self, found: NalUnit, nal: bytes) -> None:
        if len(nal) <= MAX_SET and (found.parameter in self._sets or len(self._sets) < MAX_SETS):
            self._sets[found.parameter] = nal
        if found.size != (0, 0):
            self._size = found.size

    def add(self, nal: bytes, timestamp: int) -> AccessUnit | None:
        """Add the next NAL unit; returns the access unit before it, if this one begins another."""
        try:
            found = self._codec.inspect(nal)
        except VideoError as error:
            self.malformed += 1
            self.problem = str(error)
            if self._unit is not None and self._unit.timestamp == timestamp:
                self._unit.problem = str(error)
            return None
        if found.kind is NalKind.UNUSED:
            return None
        unit, ended = self._unit, None
        if unit is not None and (unit.timestamp != timestamp or (unit.slices and _begins_unit(found))):
            ended, unit = self.finish(), None
        if unit is None:
            unit = self._unit = _Arriving(timestamp, [])
        self._put(unit, found, nal)
        return ended

    def _put(self, unit: _Arriving, found: NalUnit, nal: bytes) -> None:
        if found.kind is NalKind.SLICE:
            if unit.slices == 0 and not found.begins:
                self.split_pictures |= not unit.problem and unit.timestamp == self._ended
                unit.problem = unit.problem or "its first slice did not arrive"
            unit.slices += 1
            unit.key |= found.key
            unit.closed |= found.closed
            self._layers = max(self._layers, found.layer)
            unit.reference |= found.reference or found.layer < self._layers
            unit.intra = (unit.intra or unit.slices == 1) and bool(unit.sets) and self._codec.intra(nal)
        elif found.kind is NalKind.PARAMETERS:
            unit.sets |= 1 << found.parameter[0]
            self._note_set(found, nal)
        unit.recovery = max(unit.recovery, found.recovery)
        unit.held += len(nal) + len(START_CODE)
        if unit.held > MAX_UNIT or unit.slices > MAX_SLICES:
            unit.problem = f"an access unit of more than {MAX_UNIT} bytes or {MAX_SLICES} slices"
            unit.nals.clear()
            return
        unit.nals.append(nal)

    def note_loss(self, timestamp: int | None) -> AccessUnit | None:
        """Note that something is missing before what comes next, whose timestamp is `timestamp`; None: unknown.

        Returns the access unit that was arriving, where it ended with the loss.
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
        """Note that of a NAL unit with the header `head` at `timestamp` only a part has come."""
        self._ended = None
        if self._unit is None or self._unit.timestamp != timestamp:
            self._unit = _Arriving(timestamp, [])
        unit = self._unit
        unit.problem = unit.problem or "a part of it was lost"
        with contextlib.suppress(VideoError):
            found = self._codec.inspect(head + b"\0")
            unit.slices += found.kind is NalKind.SLICE
            unit.reference |= found.reference or found.layer < self._layers

    def _break(self, why: str) -> None:
        if self._joined:
            self._damaged = why
            self._recovering = 0
            self.problem = why

    def finish(self) -> AccessUnit | None:
        """End the access unit that is arriving; None where there is none, or none that decoding could begin at yet."""
        unit, self._unit = self._unit, None
        if unit is None or not (unit.slices or unit.problem):
            return None
        self._ended = unit.timestamp
        key = unit.slices > 0 and (unit.key or unit.recovery >= 0 or unit.intra)
        if key and not unit.problem and not self._sets:
            unit.problem = "its parameter sets have not come"
        if not unit.problem and key:
            self._begin_anew(unit)
        if not self._joined:
            self.skipped += 1
            return None
        return self._judged(unit, key=key)

    def _begin_anew(self, unit: _Arriving) -> None:
        """Note that what was lost before `unit` matters no more, at once or after some pictures."""
        if not self._damaged:
            return
        self._joined = True
        if unit.key or unit.recovery <= 0:
            self._damaged, self._recovering = "", 0
            self._leading = None if unit.closed else unit.timestamp
        elif not self._recovering:
            self._recovering = unit.recovery

    def _judged(self, unit: _Arriving, *, key: bool) -> AccessUnit:
        damaged = unit.problem or self._damaged
        if unit.problem:
            if unit.reference or not unit.slices:
                self._break("a picture that it refers to is damaged")
            self.problem = unit.problem
        refreshes = not unit.problem and self._recovering > 0
        if refreshes:
            self._recovering -= 1
            if not self._recovering:
                self._damaged = ""
        if not damaged and self._leading is not None and unit.timestamp != self._leading:
            if key:
                # What leads this one refers to nothing before the one that decoding began at. No key frame leads: if
                # it seems to be shown before that, the sender's clock was set.
                self._leading = None
            elif (unit.timestamp - self._leading) & 0xFFFF_FFFF > 0x7FFF_FFFF:
                damaged = "it refers to pictures before the one that decoding began at"
        nals = unit.nals
        if key and not all(unit.sets >> kind & 1 for kind, _ in self._sets):
            nals = [*(nal for _, nal in sorted(self._sets.items())), *nals]
        data = START_CODE + START_CODE.join(nals) if nals else b""
        spoils = bool(self._damaged) and not self._recovering
        return AccessUnit(
            data, unit.timestamp, self._size, key, unit.reference, damaged, refreshes, self._codec.name, spoils
        )


def _begins_unit(found: NalUnit) -> bool:
    """Whether `found`, behind a slice, begins the next access unit."""
    return found.begins or found.kind in {NalKind.PREFIX, NalKind.PARAMETERS}
