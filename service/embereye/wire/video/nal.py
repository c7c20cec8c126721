"""What a NAL unit is for, whichever codec it is of."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Protocol

from embereye.wire.jpeg.header import MAX_PIXELS, MAX_SIDE

START_CODE = b"\0\0\0\1"
JOINED = 2_100  # NAL units taken apart at most, a picture in slices among them; a malicious sender joins a million
SEARCHED = 512  # bytes of a NAL unit in which a start code is looked for; parameter sets of cameras have a hundred


class VideoError(ValueError):
    """These bytes are nothing that may be decoded; the text is for people."""


class NalKind(Enum):
    """What a NAL unit means for the access unit that it comes in."""

    SLICE = auto()
    PARAMETERS = auto()  # a parameter set
    PREFIX = auto()  # stands before the slices of an access unit: a delimiter, or supplemental information
    OTHER = auto()  # stands anywhere
    UNUSED = auto()  # of another layer, or of an extension that no decoder here knows


@dataclass(frozen=True, slots=True)
class NalUnit:
    """One NAL unit's header, and what had to be read behind it."""

    kind: NalKind
    begins: bool = False  # it is the first slice of its picture
    key: bool = False  # its picture refers to no other one
    closed: bool = False  # and none after it refers to anything before it
    reference: bool = True  # others refer to its picture
    layer: int = 0  # temporal
    recovery: int = -1  # pictures after which a decoder that began here shows what it should; -1: not said
    parameter: tuple[int, int] = (0, 0)  # of a parameter set: its type, in the order to be sent, and its id
    size: tuple[int, int] = (0, 0)  # pixels that pictures under this parameter set have


class Codec(Protocol):
    """One of H.264 and H.265."""

    name: str  # as in an SDP

    def inspect(self, nal: bytes) -> NalUnit:
        """What `nal` is, without its start code; VideoError where it is nothing that may be decoded."""
        ...

    def intra(self, nal: bytes) -> bool:
        """Whether the slice `nal` says that it refers to no other picture, where its type does not."""
        ...


def checked_size(width: int, height: int) -> tuple[int, int]:
    """`width` and `height`; VideoError where no camera has as many pixels."""
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_PIXELS):
        raise VideoError(f"{width}x{height} pixels, at most {MAX_SIDE} a side and {MAX_PIXELS} in all")
    return width, height


def begins_with_start_code(data: bytes | memoryview) -> bool:
    """Whether a start code stands before `data`, where a NAL unit without one is expected."""
    return bytes(data[:4]).startswith((b"\0\0\1", START_CODE))


def taken_apart(nal: bytes) -> Iterable[bytes]:
    """The NAL units in what a sender took for one: some join a parameter set and all that follows it by start codes.

    No NAL unit holds a start code. It is looked for where it ends a parameter set, as to search slices takes time.
    """
    if nal.find(b"\0\0\1", 0, SEARCHED) < 0:
        return (nal,)
    return islice(nal_units(nal if begins_with_start_code(nal) else START_CODE + nal), JOINED)


def nal_units(data: bytes) -> Iterator[bytes]:
    """The NAL units of `data` between their start codes (annex B of both codecs)."""
    at = data.find(b"\0\0\1")
    while at >= 0:
        begin = at + 3
        at = data.find(b"\0\0\1", begin)
        if nal := data[begin : at if at >= 0 else len(data)].rstrip(b"\0"):
            yield nal
