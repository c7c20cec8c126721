"""Describe NAL units independently of the codec, and split streams into them.

A `Codec`, H.264 or H.265, reads the header of each NAL unit into a `NalUnit`. `access_unit.py` works with these alone,
so that it needs no knowledge of a codec. Streams are split at start codes; RTP's NAL units have none, except those of
senders that join several into one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from itertools import islice
from typing import Protocol

from embereye.wire.jpeg.header import MAX_PIXELS, MAX_SIDE

START_CODE = b"\0\0\0\1"
JOINED = 2_100  # NAL units to split at most, enough for a picture in slices; malicious senders join a million
REMEMBERED, REMEMBERED_BYTES = 512, 256  # parameter sets whose contents are remembered, and their largest size
SEARCHED = 512  # bytes of a NAL unit to search for a start code; parameter sets of cameras have a hundred


class VideoError(ValueError):
    """The bytes must not be decoded; the text is for people."""


class NalKind(Enum):
    """The role of a NAL unit in its access unit."""

    SLICE = auto()
    PARAMETERS = auto()  # a parameter set
    PREFIX = auto()  # precedes the slices of an access unit: a delimiter, or supplemental information
    OTHER = auto()  # allowed anywhere
    UNUSED = auto()  # belongs to another layer, or to an extension that no decoder here supports


@dataclass(frozen=True, slots=True)
class NalUnit:
    """The header of one NAL unit, and the fields behind it that are needed."""

    kind: NalKind
    first_slice: bool = False  # it is the first slice of its picture
    key: bool = False  # its picture refers to no other picture
    closed: bool = False  # and no later picture refers to anything before it
    reference: bool = True  # other pictures refer to its picture
    layer: int = 0  # temporal
    recovery: int = -1  # pictures until one decoded from here on is correct; -1: not stated
    parameter: tuple[int, int] = (0, 0)  # of a parameter set: its type, in sending order, and its id
    size: tuple[int, int] = (0, 0)  # of pictures with this parameter set, pixels


class Codec(Protocol):
    """H.264 or H.265."""

    name: str  # as in an SDP

    def inspect(self, nal: bytes) -> NalUnit:
        """Read the header of `nal`, which has no start code; VideoError if it must not be decoded."""

    def is_intra(self, nal: bytes) -> bool:
        """True if the slice `nal` states that it refers to no other picture; used where its type does not say so."""


def remembering(read: Callable[[bytes], NalUnit]) -> Callable[[bytes], NalUnit]:
    """Return `read`, which reads a parameter set, with a memory: cameras repeat small ones before each key frame."""
    remembered = lru_cache(maxsize=REMEMBERED)(read)
    return lambda nal: remembered(nal) if len(nal) <= REMEMBERED_BYTES else read(nal)


def checked_size(width: int, height: int) -> tuple[int, int]:
    """Return `width` and `height`; VideoError if they exceed those of any camera."""
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_PIXELS):
        raise VideoError(f"{width}x{height} pixels, at most {MAX_SIDE} a side and {MAX_PIXELS} in all")
    return width, height


def has_start_code(data: bytes | memoryview) -> bool:
    """True if `data`, which should be a NAL unit without a start code, begins with one."""
    return bytes(data[:4]).startswith((b"\0\0\1", START_CODE))


def split_joined(nal: bytes) -> Iterable[bytes]:
    """The NAL units in `nal`: some senders join a parameter set and all that follows by start codes, as one NAL unit.

    A NAL unit contains no start code. Only its first bytes are searched, because searching slices takes time.
    """
    if nal.find(b"\0\0\1", 0, SEARCHED) < 0:
        return (nal,)
    return islice(nal_units(nal if has_start_code(nal) else START_CODE + nal), JOINED)


def nal_units(data: bytes) -> Iterator[bytes]:
    """Yield the NAL units of `data` between its start codes (annex B of both codecs)."""
    at = data.find(b"\0\0\1")
    while at >= 0:
        begin = at + 3
        at = data.find(b"\0\0\1", begin)
        if nal := data[begin : at if at >= 0 else len(data)].rstrip(b"\0"):
            yield nal
