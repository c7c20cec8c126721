"""The write-ahead log of a SQLite file: finds damage in it that SQLite does not report, and reads what is whole.

SQLite reads the log up to the first wrong checksum, because a power cut may leave an unfinished transaction there. If
whole frames that commit follow, the log is damaged instead: their transactions were acknowledged, and would be lost.

The checksum of a frame covers all frames before it. It starts from the one stored in the frame before, so each frame
can be checked on its own.
"""

import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGICS = {0x377F0682: "<", 0x377F0683: ">"}  # with the order of bytes in checksums
HEADER, FRAME = 32, 24  # bytes
PAGE = 4_096  # bytes; SQLite's default
MASK = 2**32 - 1


@dataclass(frozen=True)
class Frame:
    """A whole frame of a log."""

    index: int
    page: int  # number of the page
    commits: bool  # it ends a transaction
    data: bytes


@dataclass(frozen=True)
class Log:
    """The readable frames of a log."""

    frames: list[Frame]
    damage: str  # a clause; '' if the log is whole


def read_log(wal: Path) -> Log:
    """Read the log `wal`. OSError if that fails."""
    data = wal.read_bytes()
    if len(data) < HEADER:
        return Log([], "")
    magic, size = struct.unpack(">I4xI", data[:12])
    order = MAGICS.get(magic, "")
    known = bool(order) and _checksum(order, data[:24], (0, 0)) == struct.unpack(">2I", data[24:32])
    if not known:
        size, order = PAGE, "<" if sys.byteorder == "little" else ">"
    frames = list(_whole_frames(data, size, order, data[16:24] if known else b""))
    while frames and not frames[-1].commits:
        frames.pop()  # an unfinished transaction
    if not known:
        return Log(frames, "its write-ahead log has no valid header")
    missing = sorted(set(range(frames[-1].index)) - {frame.index for frame in frames}) if frames else []
    return Log(frames, f"frame {missing[0] + 1} of its write-ahead log is damaged" if missing else "")


def _whole_frames(data: bytes, size: int, order: str, salts: bytes) -> Iterator[Frame]:
    """Yield the frames with a valid checksum; without `salts`, which all frames share, take the most frequent ones."""
    places = range(HEADER, len(data) - FRAME - size + 1, FRAME + size)
    if not salts:
        salts = Counter(data[place + 8 : place + 16] for place in places).most_common(1)[0][0] if places else b""
    before = data[24:32]
    for index, place in enumerate(places):
        head, page = data[place : place + FRAME], data[place + FRAME : place + FRAME + size]
        start = struct.unpack(">2I", before)
        before = head[16:24]
        if head[8:16] == salts and _checksum(order, head[:8] + page, start) == struct.unpack(">2I", before):
            number, pages = struct.unpack(">2I", head[:8])
            yield Frame(index, number, bool(pages), page)


def _checksum(order: str, data: bytes, start: tuple[int, ...]) -> tuple[int, ...]:
    """Return SQLite's checksum of `data`, which continues from `start`."""
    first, second = start
    for even, odd in struct.iter_unpack(f"{order}2I", data):
        first = (first + even + second) & MASK
        second = (second + odd + first) & MASK
    return first, second
