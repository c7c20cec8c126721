"""Read 16-bit radiometric pictures: TIFF (revision 6.0, baseline grey, uncompressed), and raw words, made TIFF.

Raw words are wrapped as TIFF when they arrive, so there is only one format behind that point. A file is checked as
a whole before any word is read: its strips must cover the stated size exactly, because thousands of them could refer to
the same bytes.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embereye.units import counted
from embereye.wire.jpeg.header import MAX_PIXELS, MAX_SIDE, JpegError, JpegHeader

Words = npt.NDArray[np.uint16]

LITTLE, BIG = b"II*\0", b"MM\0*"
MAX_ENTRIES = 256  # of a directory
MAX_STRIPS = 8_192
_SHORT, _LONG = 3, 4
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_OFFSETS, _SAMPLES, _ROWS, _COUNTS, _FORMAT = 273, 277, 278, 279, 339
_EXPECTED = {_BITS: (16, "bits"), _COMPRESSION: (1, "compression"), _SAMPLES: (1, "samples"), _FORMAT: (1, "format")}
_DEFAULTS = {_COMPRESSION: [1], _SAMPLES: [1], _FORMAT: [1]}


@dataclass(frozen=True)
class _Layout:
    width: int
    height: int
    order: str  # "<" or ">"
    strips: tuple[tuple[int, int], ...]  # offset, bytes


def is_radiometric(data: bytes) -> bool:
    """True if `data` starts like a TIFF."""
    return data[:4] in {LITTLE, BIG}


def read_header(data: bytes) -> JpegHeader:
    """The size of a 16-bit grey TIFF. JpegError if it is another file, or incomplete."""
    layout = _layout(data)
    return JpegHeader(layout.width, layout.height, 1, is_multi_scan=False, complete=True)


def read_words(data: bytes) -> Words:
    """The words of a TIFF that `read_header` accepts, (height, width)."""
    layout = _layout(data)
    content = b"".join(data[offset : offset + size] for offset, size in layout.strips)
    words = np.frombuffer(content, f"{layout.order}u2", layout.width * layout.height)
    return words.reshape(layout.height, layout.width).astype(np.uint16)


def wrap(width: int, height: int, words: bytes) -> bytes:
    """Wrap little-endian words, row by row, as TIFF; `read_header` checks their number."""
    entries = [
        (_WIDTH, _LONG, width), (_HEIGHT, _LONG, height), (_BITS, _SHORT, 16), (_COMPRESSION, _SHORT, 1),
        (_PHOTOMETRIC, _SHORT, 1), (_OFFSETS, _LONG, 0), (_SAMPLES, _SHORT, 1), (_ROWS, _LONG, height),
        (_COUNTS, _LONG, len(words)),
    ]  # fmt: skip
    start = 8 + 2 + 12 * len(entries) + 4
    head = LITTLE + struct.pack("<IH", 8, len(entries))
    for tag, kind, value in entries:
        head += struct.pack("<HHII", tag, kind, 1, start if tag == _OFFSETS else value)
    return head + bytes(4) + words


def _layout(data: bytes) -> _Layout:
    if not is_radiometric(data):
        raise JpegError("not a TIFF", f"starts with {data[:4].hex() or 'nothing'}")
    order = "<" if data[:4] == LITTLE else ">"
    try:
        tags = _tags(data, order)
    except struct.error as error:
        raise JpegError("truncated", f"ends after {counted(len(data), 'byte')}, inside its directory") from error
    for tag, (expected, name) in _EXPECTED.items():
        if (actual := tags.get(tag, _DEFAULTS.get(tag, [0]))) != [expected]:
            raise JpegError(
                "unsupported TIFF", f"{name} {actual}, not {expected}: 16-bit grey, uncompressed, is needed"
            )
    width, height = ((tags.get(tag) or [0])[0] for tag in (_WIDTH, _HEIGHT))
    if not 0 < width <= MAX_SIDE or not 0 < height <= MAX_SIDE or width * height > MAX_PIXELS:
        raise JpegError("too large", f"{width}x{height} pixels, 1 to {MAX_SIDE} a side and {MAX_PIXELS} in all")
    offsets = tags.get(_OFFSETS, [])
    strips = tuple(zip(offsets, tags.get(_COUNTS, [2 * width * height]), strict=False))
    missing = 2 * width * height - sum(max(0, min(size, len(data) - offset)) for offset, size in strips)
    if missing > 0 or len(strips) != len(offsets):
        raise JpegError("truncated", f"{width}x{height} words of 16 bits need {missing} more bytes")
    if missing < 0:  # thousands of strips may refer to the same few bytes
        raise JpegError("too large", f"{counted(-missing, 'byte')} more than {width}x{height} words of 16 bits")
    return _Layout(width, height, order, strips)


def _tags(data: bytes, order: str) -> dict[int, list[int]]:
    """The whole-number fields of the first directory, by tag."""
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, start)
    tags = {}
    for number in range(min(count, MAX_ENTRIES)):
        place = start + 2 + 12 * number
        tag, kind, values = struct.unpack_from(f"{order}HHI", data, place)
        if kind not in {_SHORT, _LONG} or values > MAX_STRIPS:
            continue
        code, size = ("H", 2) if kind == _SHORT else ("I", 4)
        at = place + 8 if values * size <= 4 else struct.unpack_from(f"{order}I", data, place + 8)[0]
        tags[tag] = list(struct.unpack_from(f"{order}{values}{code}", data, at))
    return tags
