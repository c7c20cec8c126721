"""Write Motion JPEG in Matroska (RFC 9559) frame by frame with the frames' own times, and read it back.

Every frame is a separate cluster, so a file that breaks off is readable up to its last whole frame.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from embereye.units import MILLISECOND

EBML, SEGMENT, SEEK_HEAD, VOID = 0x1A45DFA3, 0x18538067, 0x114D9B74, 0xEC
INFO, TRACKS, CLUSTER, CUES = 0x1549A966, 0x1654AE6B, 0x1F43B675, 0x1C53BB6B
TIMESTAMP, SIMPLE_BLOCK, DATE = 0xE7, 0xA3, 0x4461
EPOCH_2001 = 978_307_200_000_000_000  # the start of Matroska's dates, in nanoseconds since the Unix epoch
UNKNOWN_SIZE = b"\x01" + 7 * b"\xff"
BLOCK_HEAD = b"\x81\x00\x00\x80"  # track 1, at the time of its cluster, a key frame
CUES_EVERY_MS = 1_000  # the precision of a seek
MAX_ELEMENT = 64 * 1024 * 1024  # bytes; a frame has at most 8 MB


class MatroskaError(ValueError):
    """The bytes are not a file that `Muxer` wrote."""


@dataclass(frozen=True)
class Patch:
    """Bytes that replace those at `offset`."""

    offset: int
    data: bytes


@dataclass(frozen=True)
class Still:
    """One frame."""

    time_ns: int  # nanoseconds since the Unix epoch, whole milliseconds
    jpeg: bytes


@dataclass
class Muxer:
    """Makes the bytes of one file: `begin`, then every `frame`, then `finish`."""

    width: int  # pixels
    height: int  # pixels
    title: str
    began_ns: int  # time of the first frame, nanoseconds since the Unix epoch
    _written: int = field(default=0, init=False)
    _segment: int = field(default=0, init=False)  # offset of the segment's first byte of content
    _seek: int = field(default=0, init=False)
    _duration: int = field(default=0, init=False)
    _latest_ms: int = field(default=-1, init=False)
    _cues: list[tuple[int, int]] = field(default_factory=list, init=False)  # time, offset in the segment

    def begin(self) -> bytes:
        """The bytes before the first frame."""
        head = _element(
            EBML,
            _number(0x4286, 1) + _number(0x42F7, 1) + _number(0x42F2, 4) + _number(0x42F3, 8)
            + _text(0x4282, "matroska") + _number(0x4287, 4) + _number(0x4285, 2),
        )  # fmt: skip
        head += _id(SEGMENT) + UNKNOWN_SIZE
        self._segment = len(head)
        self._seek = len(head)
        head += _element(VOID, bytes(len(_seek_head(0)) - 2))
        info = _number(0x2AD7B1, MILLISECOND) + _element(DATE, struct.pack(">q", self.began_ns - EPOCH_2001))
        info += _text(0x7BA9, self.title) + _text(0x4D80, "EmberEye") + _text(0x5741, "EmberEye")
        duration = _element(0x4489, struct.pack(">d", 0.0))
        information = _element(INFO, info + duration)
        self._duration = len(head) + len(information) - 8
        video = _element(0xE0, _number(0xB0, self.width) + _number(0xBA, self.height))
        entry = _number(0xD7, 1) + _number(0x73C5, 1) + _number(0x83, 1) + _number(0x9C, 0) + _text(0x86, "V_MJPEG")
        head += information + _element(TRACKS, _element(0xAE, entry + video))
        self._written = len(head)
        return head

    def frame(self, jpeg: bytes, time_ns: int) -> bytes:
        """The next frame; b"" if it is not later than the one before: players need increasing times."""
        at = (time_ns - self.began_ns) // MILLISECOND
        if at <= self._latest_ms:
            return b""
        self._latest_ms = at
        if not self._cues or at - self._cues[-1][0] >= CUES_EVERY_MS:
            self._cues.append((at, self._written - self._segment))
        data = _element(CLUSTER, _number(TIMESTAMP, at) + _element(SIMPLE_BLOCK, BLOCK_HEAD + jpeg))
        self._written += len(data)
        return data

    def finish(self) -> tuple[bytes, list[Patch]]:
        """The bytes behind the last frame, and patches of the head for values that are known only now."""
        points = b"".join(
            _element(0xBB, _number(0xB3, at) + _element(0xB7, _number(0xF7, 1) + _number(0xF1, offset)))
            for at, offset in self._cues
        )
        tail = _element(CUES, points)
        size = self._written + len(tail) - self._segment
        return tail, [
            Patch(self._segment - 8, struct.pack(">Q", size | 1 << 56)),
            Patch(self._seek, _seek_head(self._written - self._segment)),
            Patch(self._duration, struct.pack(">d", float(max(0, self._latest_ms)))),
        ]


def frames(data: bytes | memoryview) -> Iterator[Still]:
    """The whole frames in a file that `Muxer` wrote, even if it breaks off. MatroskaError if it is another file."""
    view, offset, began_ns = memoryview(data), 0, 0
    if bytes(view[:4]) != _id(EBML):
        raise MatroskaError("not a Matroska file")
    while (element := _read(view, offset)) is not None:
        name, start, end = element
        if name == SEGMENT:
            offset = start
            continue
        if end > len(view):
            return
        offset = end
        if name == INFO and (date := _find(view, DATE, start, end)) is not None and len(date) == 8:
            began_ns = struct.unpack(">q", date)[0] + EPOCH_2001
        elif name == CLUSTER:
            at, block = _find(view, TIMESTAMP, start, end), _find(view, SIMPLE_BLOCK, start, end)
            if at is not None and block is not None and len(block) > 4:
                yield Still(began_ns + int.from_bytes(at) * MILLISECOND, bytes(block[4:]))


def _find(view: memoryview, wanted: int, offset: int, end: int) -> memoryview | None:
    while offset < end and (element := _read(view, offset)) is not None:
        name, start, offset = element
        if name == wanted and offset <= end:
            return view[start:offset]
    return None


def _read(view: memoryview, offset: int) -> tuple[int, int, int] | None:
    """(id, start, end) of the content of the element at `offset`; None if its head is incomplete or malformed."""
    head = bytes(view[offset : offset + 12])
    if not head or not head[0]:
        return None
    width = 9 - head[0].bit_length()
    if width > 4 or len(head) <= width or not head[width]:
        return None
    name = int.from_bytes(head[:width])
    length = 9 - head[width].bit_length()
    if len(head) < width + length:
        return None
    size = int.from_bytes(head[width : width + length]) & (1 << 7 * length) - 1
    unknown = size == (1 << 7 * length) - 1
    if size > MAX_ELEMENT and name != SEGMENT:
        return None
    start = offset + width + length
    return name, start, len(view) if unknown else start + size


def _id(name: int) -> bytes:
    return name.to_bytes((name.bit_length() + 7) // 8)


def _element(name: int, content: bytes) -> bytes:
    size = len(content)
    length = 1 if size < 127 else 4
    return _id(name) + (size | 1 << 7 * length).to_bytes(length) + content


def _number(name: int, value: int) -> bytes:
    return _element(name, value.to_bytes(max(1, (value.bit_length() + 7) // 8)))


def _text(name: int, value: str) -> bytes:
    return _element(name, value.encode())


def _seek_head(cues: int) -> bytes:
    return _element(SEEK_HEAD, _element(0x4DBB, _element(0x53AB, _id(CUES)) + _element(0x53AC, cues.to_bytes(8))))
