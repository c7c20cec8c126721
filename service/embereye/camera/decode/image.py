"""Decoding of one compressed frame: reduced for the detectors, and sometimes as a still for people.

A `DecodeOrder` names everything that is needed of a frame, and `decode_frame` returns it as a `Decoded`. A JPEG is
reduced by a factor of up to 8 while it is decoded, then shrunk to the working size. It is decoded again only if a still
or a close-up needs more pixels. simplejpeg decodes usual pictures, OpenCV truncated, rotated and unusually coloured
ones. No state remains between frames. Decoder processes use this for pictures and `video` for videos.
"""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from embereye.detect.vision.networks.appearance import AppearanceNetwork, has_close_up
from embereye.detect.vision.working import CLOSER_SIDE, cut, reduction, shrunk, to_working_size
from embereye.units import Box, Polygon
from embereye.wire.jpeg.header import EOI, is_finished

DecodedImage = npt.NDArray[np.uint8]  # (rows, columns, 3), BGR

STILL_SIDE = 320  # pixels of a still's long side, at most
STILL_MIN_SIDE = 240  # pixels; an image this large serves detection and the still, so one decoding is enough
STILL_BYTES = 20_000  # of a still, at most: every status report carries one
PICTURE_QUALITIES = 85, 60, 35, 10  # of a JPEG for people or the fleet's own model; the first that fits is used
NO_IMAGE: DecodedImage = np.zeros((0, 0, 3), np.uint8)  # the image of a frame that is not analysed
EXIF_REACH = 64  # bytes at the start that contain Exif's marker, also after a JFIF segment: the image may be rotated
_REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


class UndecodableError(Exception):
    """A frame that passed the header check but cannot be decoded."""

    crashed = False  # True: it crashed the process that was decoding it
    reason = "undecodable"  # its label in the ledger


class TruncatedError(UndecodableError):
    """A JPEG without an end marker whose last pixels are missing too."""

    reason = "truncated"


class PictureDelayedError(Exception):
    """The decoder has the frame but shows its picture after a later one."""


@dataclass(frozen=True)
class DecodeOrder:
    """Instructions for decoding one frame."""

    scale: int  # 1, 2, 4 or 8: factor by which the image is reduced
    still: Sequence[Box] | None = None  # boxes to draw into a still; None: no still
    picture_side: int = 0  # long side, in pixels, of an additional JPEG, at most; 0: none
    smoothed: bool = True  # video: smooth block edges, from the next key frame on
    # Parts that the appearance network judges with more pixels, in addition to the whole picture; None: do not run it.
    close_ups: Sequence[Box] | None = None
    detail: Box | None = None  # part to return with more pixels, if the frame has more
    image: bool = True  # False: the image is not analysed; of a video, later pictures refer to it
    hidden: Sequence[Polygon] = ()  # parts that are black in the still and in the additional JPEG
    masked: Sequence[Polygon] = ()  # parts that the appearance network does not judge for a flame


@dataclass(frozen=True)
class Decoded:
    """One frame, decoded."""

    image: DecodedImage  # of the working size; NO_IMAGE if none was wanted
    still: bytes  # JPEG; empty if none was made
    cpu_seconds: float
    unit: int = 0  # video: number of the access unit that this picture came from
    picture: bytes = b""  # JPEG, if one was wanted
    logits: tuple[float, ...] = ()  # from AppearanceNetwork.logits; empty if it did not run
    closer: DecodedImage | None = None  # the image with more pixels, for close-ups; not sent to the shard
    detail: DecodedImage | None = None  # the part that was wanted with more pixels


NOT_DECODED = Decoded(NO_IMAGE, b"", 0.0)  # for a picture that is neither analysed nor referred to


def decode_frame(
    order: DecodeOrder,
    data: bytes | memoryview,
    width: int,
    height: int,
    into: memoryview | None = None,
    picture_bytes: float = math.inf,
) -> Decoded:
    """Decode the frame `data` of `width` x `height` pixels; raise UndecodableError if that is impossible.

    A frame that is neither analysed nor shown is not decoded. An image that decodes directly to the working size is
    written to `into`. A JPEG for people has `picture_bytes` at most.
    """
    if not order.image and not order.picture_side:
        return NOT_DECODED
    began = time.thread_time()
    try:
        picture = b""
        if order.picture_side:
            large = decode(data, reduction(width, height, order.picture_side), (width, height))
            large = shrunk(large, order.picture_side) if max(large.shape[:2]) > order.picture_side else large
            picture = make_picture(large, order.hidden, picture_bytes)
        if not order.image:
            return Decoded(NO_IMAGE, b"", time.thread_time() - began, picture=picture)
        image = decode(data, order.scale, (width, height), into)
        still = b""
        if order.still is not None:
            scale = reduction(width, height, STILL_MIN_SIDE)
            shown = image if scale == order.scale else decode(data, scale, (width, height))
            still = make_still(shown, order.still, order.hidden)
        closer = detail = None
        if (has_close_up(order.close_ups) or order.detail) and (
            scale := reduction(width, height, CLOSER_SIDE)
        ) < order.scale:
            closer = decode(data, scale, (width, height))
            detail = cut(closer, order.detail) if order.detail else None
        image = to_working_size(image)
    except cv2.error as error:
        raise UndecodableError(str(error)) from error
    cpu_seconds = time.thread_time() - began
    return Decoded(image, still, cpu_seconds, picture=picture, closer=closer, detail=detail)


def add_logits(decoded: Decoded, order: DecodeOrder, network: AppearanceNetwork | None) -> Decoded:
    """Add the logits of `network` to `decoded` if `order` requests them."""
    if order.close_ups is None or network is None:
        return decoded
    began = time.thread_time()
    logits = network.logits(decoded.image, order.close_ups, decoded.closer, order.masked)
    return replace(decoded, logits=logits, closer=None, cpu_seconds=decoded.cpu_seconds + time.thread_time() - began)


def decode(
    data: bytes | memoryview, scale: int, size: tuple[int, int] | None = None, into: memoryview | None = None
) -> DecodedImage:
    """Decode `data` to BGR, reduced by `scale` (1, 2, 4 or 8); raise UndecodableError if that is impossible.

    If only the end marker is missing, the picture is whole. If pixels are missing too, that is a TruncatedError.

    If the header's `size` (width, height) is known, simplejpeg decodes it, `into` memory that is large enough. It is a
    thin layer over the library that OpenCV uses and takes 10 % less time for the same image. OpenCV decodes truncated,
    rotated and unusually coloured images.
    """
    finished = data[-2:] == EOI or is_finished(data)
    if not finished:
        data = bytes(data) + EOI
    if size and data[-2:] == EOI and b"Exif" not in bytes(data[:EXIF_REACH]):
        width, height = (-(-side // scale) for side in size)
        if into and len(into) < 3 * width * height:
            into = None
        with contextlib.suppress(ValueError):
            return _decode_quickly(data, width, height, into, finished=finished)
    elif not finished:
        with contextlib.suppress(ValueError):
            _decode_quickly(data, 1, 1, finished=False)  # only to find its end
    image = cv2.imdecode(np.frombuffer(data, np.uint8), _REDUCED[scale])
    if image is None:
        raise UndecodableError("not a decodable image")
    return image  # type: ignore[return-value]


def _decode_quickly(
    data: bytes | memoryview, width: int, height: int, into: memoryview | None = None, *, finished: bool
) -> DecodedImage:
    """Decode `data` by simplejpeg to at least `width` x `height` pixels; raise ValueError if OpenCV has to do it.

    If it was not `finished` by the camera, raise TruncatedError if pixels are missing too.
    """
    try:
        return simplejpeg.decode_jpeg(  # type: ignore[no-any-return]
            data, "BGR", min_height=height, min_width=width, strict=not finished, buffer=into
        )
    except ValueError as error:
        if not finished and "premature end" in str(error).lower():
            raise TruncatedError("the picture ends before its last pixel") from error
        raise


def hide(image: DecodedImage, polygons: Sequence[Polygon]) -> None:
    """Make `polygons` of `image` black, with the pixels that their edges touch."""
    height, width = image.shape[:2]
    for polygon in polygons:
        corners = np.array([(x * width, y * height) for x, y in polygon]).round().astype(np.int32)
        cv2.fillPoly(image, [corners], (0, 0, 0))


def make_picture(image: DecodedImage, hidden: Sequence[Polygon], most: float = math.inf) -> bytes:
    """Make `hidden` of `image` black and encode it as a JPEG of `most` bytes, if the lowest quality allows that."""
    hide(image, hidden)
    data = b""
    for quality in PICTURE_QUALITIES:
        data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= most:
            break
    return data


def make_still(image: DecodedImage, boxes: Sequence[Box], hidden: Sequence[Polygon] = ()) -> bytes:
    """Encode a small JPEG of `image` for people, with `boxes` drawn in and `hidden` black. `image` is not modified.

    Returns b"" if even the lowest quality needs more than STILL_BYTES.
    """
    image = shrunk(image, STILL_SIDE) if max(image.shape[:2]) > STILL_SIDE else image.copy()
    hide(image, hidden)
    height, width = image.shape[:2]
    for x, y, w, h in boxes:
        corners = (int(x * width), int(y * height)), (int((x + w) * width), int((y + h) * height))
        cv2.rectangle(image, *corners, (0, 0, 255), 1)
    for quality in (75, 55, 35, 15):
        data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= STILL_BYTES:
            return data
    return b""
