"""Wire between the pool and its decoder processes: frames and images in shared memory, orders and replies by socket.

Both ends use the same classes: `Order` and `Forget` go to a decoder, a `Reply` comes back for every `Order`. Several
are sent in one message. Byte order and sizes are those of this machine.

A decoder handles hostile bytes in a large C library, so its replies are checked: `read_replies` raises GarbledError.
"""

import math
import mmap
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

import numpy as np

from embereye.camera.decode.image import (
    Decoded,
    DecodedImage,
    DecodeOrder,
    PictureDelayedError,
    TruncatedError,
    UndecodableError,
)
from embereye.detect.vision.working import WORKING_SIDE
from embereye.units import Box, Polygon

# Limits in CPU time end an endless loop soon, but spare a process that waits because the machine is suspended or busy.
FRAME_SECONDS = 5.0  # CPU time for one frame; the slowest valid frame takes a tenth of that
UNIT_SECONDS = 0.7  # CPU time for one access unit of a video; the slowest valid unit takes a tenth of that
HANG_SECONDS = 30.0  # wall time for one frame; a decoder that waits longer hangs
SLOTS = 24  # frames in one decoder's memory at a time
FRAME_BYTES = 8 * 1024 * 1024  # of a compressed frame, at most
IMAGE_BYTES = 1024 * 1024  # of an image of the working size, its still, a picture for the model, and a detail
PICTURE_BYTES = 512 * 1024  # of a picture for the model, at most
DETAIL_BYTES = 3 * WORKING_SIDE**2 * 2  # of a detail, at most: slightly more than an image of the working size
SLOT_BYTES = FRAME_BYTES + IMAGE_BYTES  # of address space; untouched pages use no memory
# offset of the byte with the slot in work; if the decoder crashes, it names the frame to blame
MARK = SLOTS * SLOT_BYTES
AT_NONE = 255  # value of that byte while the decoder is idle
SHARE_BYTES = MARK + mmap.PAGESIZE  # shared memory of one decoder
MESSAGE_BYTES = 40_960  # of orders, or of replies, in one message, at most
REASON_BYTES = 200  # of a failure's reason, at most
ENCODINGS = ("H264", "H265")

# Slot, scale, boxes of the still, still wanted, close-ups, appearance network wanted, detail wanted, image wanted,
# video, side of the additional JPEG, hidden parts, masked parts, bytes, width, height. The boxes, the close-ups, the
# detail's box and the hidden and the masked parts, each with its number of corners, follow.
_ORDER = struct.Struct("=BBB?B????HBBIHH")
_BOX = struct.Struct("=4f")
_CORNER = struct.Struct("=2f")
# For a video: encoding, stream, smooth block edges, first unit is a key frame, number of access units, which follow.
_VIDEO = struct.Struct("=BI??H")
_UNIT = struct.Struct("=II")  # bytes, number
_FORGET = struct.Struct("=BI")  # AT_NONE in place of the slot, stream
# Slot, outcome, start and end time, CPU seconds, rows and columns of the image, bytes of the still and of the picture
# for the model, unit shown, rows and columns of the detail, bytes of what follows: a reason or the network's logits.
_REPLY = struct.Struct("=BBdddHHIIIHHH")
_LOGIT = struct.Struct("=f")
_LAYOUT = [
    *(part.format for part in (_ORDER, _BOX, _CORNER, _VIDEO, _UNIT, _FORGET, _REPLY, _LOGIT)),
    SLOTS, FRAME_BYTES, IMAGE_BYTES, ENCODINGS,
]  # fmt: skip
# A decoder's first message. It identifies the layout, because a program that was upgraded in place may start decoders
# of its new version.
READY = f"ready {crc32(repr(_LAYOUT).encode()):08x}".encode()


class GarbledError(Exception):
    """A decoder's message that is no reply to an order."""


@dataclass(slots=True)
class Units:
    """The access units of a video in a slot, one after another."""

    encoding: str  # one of ENCODINGS
    stream: int  # identifies the decoder's context for this video
    sizes: Sequence[tuple[int, int]]  # bytes and number of each unit
    fresh: bool  # the first one is a key frame


@dataclass(slots=True)
class Order:
    """One frame to decode: it is in `slot`, and the result is written there."""

    slot: int
    how: DecodeOrder
    size: int  # bytes
    width: int  # pixels
    height: int
    video: Units | None = None  # None: the frame is a picture

    def pack(self) -> bytes:
        """Return the order as a decoder reads it."""
        how, video = self.how, self.video
        still, close_ups = how.still or (), how.close_ups or ()
        message = _ORDER.pack(
            self.slot, how.scale, len(still), how.still is not None, len(close_ups), how.close_ups is not None,
            how.detail is not None, how.image, video is not None, how.picture_side, len(how.hidden),
            len(how.masked), self.size, self.width, self.height,
        )  # fmt: skip
        if still or close_ups or how.detail:
            details = (how.detail,) if how.detail else ()
            message += b"".join(_BOX.pack(*box) for box in (*still, *close_ups, *details))
        for polygon in (*how.hidden, *how.masked):
            message += bytes((len(polygon),)) + b"".join(_CORNER.pack(*corner) for corner in polygon)
        if video:
            encoding = ENCODINGS.index(video.encoding)
            message += _VIDEO.pack(encoding, video.stream, how.smoothed, video.fresh, len(video.sizes))
            message += b"".join(_UNIT.pack(*unit) for unit in video.sizes)
        return message

    @classmethod
    def unpack(cls, message: bytes, at: int) -> tuple["Order", int]:
        """Read the order that begins at byte `at`; return it and the position after it."""
        (slot, scale, stills, still_wanted, close, network_wanted, detail_wanted, image_wanted, is_video,
         side, hidden_parts, masked_parts, size, width, height) = _ORDER.unpack_from(message, at)  # fmt: skip
        at += _ORDER.size
        behind = at + (stills + close + detail_wanted) * _BOX.size
        boxes: list[Box] = list(_BOX.iter_unpack(message[at:behind]))
        detail = boxes.pop() if detail_wanted else None
        polygons: list[Polygon] = []
        for _ in range(hidden_parts + masked_parts):
            at, behind = behind + 1, behind + 1 + message[behind] * _CORNER.size
            polygons.append(tuple(_CORNER.iter_unpack(message[at:behind])))
        video, smoothed = None, True
        if is_video:
            encoding, stream, smoothed, fresh, count = _VIDEO.unpack_from(message, behind)
            at, behind = behind + _VIDEO.size, behind + _VIDEO.size + count * _UNIT.size
            video = Units(ENCODINGS[encoding], stream, list(_UNIT.iter_unpack(message[at:behind])), fresh)
        still, close_ups = boxes[:stills] if still_wanted else None, boxes[stills:] if network_wanted else None
        hidden, masked = tuple(polygons[:hidden_parts]), tuple(polygons[hidden_parts:])
        how = DecodeOrder(scale, still, side, smoothed, close_ups, detail, image_wanted, hidden, masked)
        return cls(slot, how, size, width, height, video), behind


@dataclass(slots=True)
class Forget:
    """Drop the context of a video. It has no reply."""

    stream: int

    def pack(self) -> bytes:
        """Return the order as a decoder reads it."""
        return _FORGET.pack(AT_NONE, self.stream)


def read_order(message: bytes, at: int) -> tuple[Order | Forget, int]:
    """Read the order that begins at byte `at`; return it and the position after it."""
    if message[at] == AT_NONE:
        return Forget(_FORGET.unpack_from(message, at)[1]), at + _FORGET.size
    return Order.unpack(message, at)


class Outcome(IntEnum):
    """The result of an order."""

    FAILED = 0
    DECODED = 1
    DELAYED = 2  # the decoder shows the picture later
    TRUNCATED = 3


_OUTCOMES = frozenset(Outcome)


@dataclass(slots=True)
class Reply:
    """A decoder's answer to one order. Times are monotonic seconds."""

    slot: int
    outcome: int  # an Outcome
    began: float
    ended: float
    cpu_seconds: float = 0.0
    size: tuple[int, int] = (0, 0)  # rows and columns of the image
    still: int = 0  # bytes of the still
    picture: int = 0  # bytes of the picture for the model
    unit: int = 0  # video: number of the unit shown
    detail: tuple[int, int] = (0, 0)  # rows and columns of the detail; 0: none
    rest: bytes = b""  # the reason of a failure, or the appearance network's logits

    @classmethod
    def write(cls, memory: memoryview, slot: int, decoded: Decoded, began: float) -> "Reply":
        """Copy `decoded` into `slot` of `memory` and return the reply; the work on it began at `began`."""
        rows, columns = decoded.image.shape[:2]
        image = image_in(memory, slot, rows, columns)
        if not np.may_share_memory(image, decoded.image):
            image[:] = decoded.image
        picture = decoded.picture if len(decoded.picture) <= PICTURE_BYTES else b""
        behind = decoded.still + picture
        place = slot * SLOT_BYTES + FRAME_BYTES + image.size
        memory[place : place + len(behind)] = behind
        high = wide = 0
        if decoded.detail is not None and decoded.detail.size <= DETAIL_BYTES:
            high, wide = decoded.detail.shape[:2]
            image_in(memory, slot, high, wide, image.size + len(behind))[:] = decoded.detail
        logits = b"".join(_LOGIT.pack(logit) for logit in decoded.logits)
        return cls(
            slot, Outcome.DECODED, began, time.monotonic(), decoded.cpu_seconds, (rows, columns), len(decoded.still),
            len(picture), decoded.unit, (high, wide), logits,
        )  # fmt: skip

    def pack(self) -> bytes:
        """Return the reply as the pool reads it."""
        return _REPLY.pack(
            self.slot, self.outcome, self.began, self.ended, self.cpu_seconds, *self.size, self.still, self.picture,
            self.unit, *self.detail, len(self.rest),
        ) + self.rest  # fmt: skip

    def result(self, memory: memoryview) -> Decoded | Exception:
        """Return the frame as decoded into `memory`, or the reason why it was not.

        The image and the detail are views, overwritten once the slot is reused.
        """
        if self.outcome == Outcome.DELAYED:
            return PictureDelayedError()
        if self.outcome != Outcome.DECODED:
            error = TruncatedError if self.outcome == Outcome.TRUNCATED else UndecodableError
            return error(self.rest.decode(errors="replace"))
        image = image_in(memory, self.slot, *self.size)
        begin, size = self.slot * SLOT_BYTES + FRAME_BYTES + image.size, self.still + self.picture
        behind = bytes(memory[begin : begin + size]) if size else b""
        detail = image_in(memory, self.slot, *self.detail, image.size + size) if self.detail[0] else None
        logits = tuple(logit for (logit,) in _LOGIT.iter_unpack(self.rest))
        return Decoded(image, behind[: self.still], self.cpu_seconds, self.unit, behind[self.still :], logits,
                       detail=detail)  # fmt: skip


def read_replies(message: bytes) -> Iterator[Reply]:
    """Yield the replies in `message`; raise GarbledError at one that cannot be read or exceeds its slot."""
    at = 0
    while at < len(message):
        try:
            (slot, outcome, began, ended, cpu_seconds, rows, columns, still, picture, unit, high, wide,
             further) = _REPLY.unpack_from(message, at)  # fmt: skip
        except struct.error as error:
            raise GarbledError(f"{len(message) - at} bytes are no reply") from error
        at += _REPLY.size + further
        if at > len(message) or 3 * (rows * columns + high * wide) + still + picture > IMAGE_BYTES:
            raise GarbledError("the result exceeds its message or its slot")
        # comparisons with NaN are false
        timed = -math.inf < began <= ended < math.inf and 0.0 <= cpu_seconds < math.inf
        if slot >= SLOTS or outcome not in _OUTCOMES or not timed:
            raise GarbledError("its values are impossible")
        if outcome == Outcome.DECODED and further % _LOGIT.size:
            raise GarbledError(f"{further} bytes are no logits")
        yield Reply(slot, outcome, began, ended, cpu_seconds, (rows, columns), still, picture, unit, (high, wide),
                    message[at - further : at])  # fmt: skip


def image_in(memory: memoryview, slot: int, rows: int, columns: int, offset: int = 0) -> DecodedImage:
    """Return a view of the image of `rows` x `columns` in `slot`. It is overwritten once the slot is reused.

    A detail starts `offset` bytes after the image's start.
    """
    return np.ndarray((rows, columns, 3), np.uint8, memory, slot * SLOT_BYTES + FRAME_BYTES + offset)
