"""Decodes one compressed frame: reduced for the detectors, and now and then as a still for people."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from embereye.detect.vision.networks.appearance import AppearanceNetwork
from embereye.detect.vision.working import CLOSER_SIDE, cut, reduction, shrunk, to_working_size
from embereye.units import Box
from embereye.wire.jpeg.header import EOI

DecodedImage = npt.NDArray[np.uint8]  # (rows, columns, 3), BGR

STILL_SIDE = 320  # pixels of the long side of a still, at most
STILL_LEAST = 240  # pixels of the long side that a large image is reduced to at least, so that it is decoded once
STILL_BYTES = 20_000  # of a still, at most: it travels with every status report
NO_IMAGE: DecodedImage = np.zeros((0, 0, 3), np.uint8)  # of a frame that nobody looks at
EXIF_REACH = 64  # bytes in which an image that may have to be rotated says so: after JFIF's segment, if there is one
_REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


class UndecodableError(Exception):
    """A frame that passed the header check and cannot be decoded all the same."""

    crashed = False  # it ended the process that was to decode it


@dataclass(frozen=True)
class DecodeOrder:
    """How a frame is to be decoded."""

    scale: int  # 1, 2, 4 or 8: the factor by which the image is reduced
    still: Sequence[Box] | None = None  # the boxes to draw into a still; None: no still is wanted
    picture_side: int = 0  # of a video: pixels of the long side of a JPEG that is wanted besides, at most; 0: none
    smoothed: bool = True  # of a video: whether the edges of its blocks are, from the next key frame on
    # What the appearance network is to judge, with more pixels, beside the whole picture; None: it is not to run.
    close_ups: Sequence[Box] | None = None
    detail: Box | None = None  # the part of it that is wanted with more pixels, if it has more
    image: bool = True  # False: nobody looks at it; of a video, pictures after it need it


@dataclass(frozen=True)
class Decoded:
    """One frame, decoded."""

    image: DecodedImage  # of the working size; NO_IMAGE where none was wanted
    still: bytes  # JPEG; empty: none was made
    cpu_seconds: float
    unit: int = 0  # of a video: the number of the access unit whose picture this is
    picture: bytes = b""  # of a video: JPEG, where one was wanted
    logits: tuple[float, ...] = ()  # of the appearance network: as AppearanceNetwork.logits says; or none
    closer: DecodedImage | None = None  # the same with more pixels, where close-ups are wanted; it goes no further
    detail: DecodedImage | None = None  # the part of that which is wanted


NOT_DECODED = Decoded(NO_IMAGE, b"", 0.0)  # of a picture that nobody looks at and no other needs


def decode_frame(
    order: DecodeOrder, data: bytes | memoryview, width: int, height: int, into: memoryview | None = None
) -> Decoded:
    """Decode the frame `data` of `width` x `height` pixels; UndecodableError where that is impossible.

    One that nobody looks at is left as it is. An image that has the working size as soon as it is decoded is written
    straight `into` that memory.
    """
    if not order.image:
        return NOT_DECODED
    began = time.thread_time()
    try:
        image = decode(data, order.scale, (width, height), into)
        still = b""
        if order.still is not None:
            scale = reduction(width, height, STILL_LEAST)
            shown = image if scale == order.scale else decode(data, scale, (width, height))
            still = make_still(shown, order.still)
        closer = detail = None
        if (order.close_ups or order.detail) and (scale := reduction(width, height, CLOSER_SIDE)) < order.scale:
            closer = decode(data, scale, (width, height))
            detail = cut(closer, order.detail) if order.detail else None
        image = to_working_size(image)
    except cv2.error as error:
        raise UndecodableError(str(error)) from error
    return Decoded(image, still, time.thread_time() - began, closer=closer, detail=detail)


def judged(decoded: Decoded, order: DecodeOrder, network: AppearanceNetwork | None) -> Decoded:
    """`decoded` with what `network` says of it, where `order` asks for that."""
    if order.close_ups is None or network is None:
        return decoded
    began = time.thread_time()
    logits = network.logits(decoded.image, order.close_ups, decoded.closer)
    return replace(decoded, logits=logits, closer=None, cpu_seconds=decoded.cpu_seconds + time.thread_time() - began)


def decode(
    data: bytes | memoryview, scale: int, size: tuple[int, int] | None = None, into: memoryview | None = None
) -> DecodedImage:
    """`data` as BGR, reduced by `scale` (1, 2, 4 or 8); UndecodableError where that is impossible.

    Where its header's `size` (width, height) is known, simplejpeg, a thin layer over the library that OpenCV uses as
    well, makes the same image in 10 % less time, `into` memory that is large enough. A truncated, rotated or unusually
    coloured image is left to OpenCV.
    """
    if size and data[-2:] == EOI and b"Exif" not in bytes(data[:EXIF_REACH]):
        width, height = (-(-side // scale) for side in size)
        if into and len(into) < 3 * width * height:
            into = None
        with contextlib.suppress(ValueError):
            return simplejpeg.decode_jpeg(  # type: ignore[no-any-return]
                data, "BGR", min_height=height, min_width=width, strict=False, buffer=into
            )
    image = cv2.imdecode(np.frombuffer(data, np.uint8), _REDUCED[scale])
    if image is None:
        raise UndecodableError("the decoder refused it")
    return image  # type: ignore[return-value]


def make_still(image: DecodedImage, boxes: Sequence[Box]) -> bytes:
    """A small JPEG of `image` for people, with `boxes` drawn into it; `image` itself stays as it is.

    Empty where even the lowest quality needs more than STILL_BYTES.
    """
    image = shrunk(image, STILL_SIDE) if max(image.shape[:2]) > STILL_SIDE else image.copy()
    height, width = image.shape[:2]
    for x, y, w, h in boxes:
        corners = (int(x * width), int(y * height)), (int((x + w) * width), int((y + h) * height))
        cv2.rectangle(image, *corners, (0, 0, 255), 1)
    for quality in (75, 55, 35, 15):
        data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= STILL_BYTES:
            return data
    return b""
