"""H.264 and H.265 decoding with libavcodec: one context per camera, pictures directly in the wanted size.

A context has the pictures that others refer to, so one context gets all access units of a camera in order.

A picture may come out some units after its own. Therefore each unit's number travels with it and names the picture.
Only the latest picture of a call is used; its planes are reduced before they are converted to BGR. After an
UndecodableError the caller drops the context and waits for a key frame.
"""

import math
import time
from collections.abc import Sequence
from functools import lru_cache

import av
import cv2
import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame

from embereye.camera.decode import hardware
from embereye.camera.decode.image import (
    NO_IMAGE,
    STILL_SIDE,
    Decoded,
    DecodedImage,
    DecodeOrder,
    PictureDelayedError,
    UndecodableError,
    make_picture,
    make_still,
)
from embereye.detect.vision.networks.appearance import has_close_up
from embereye.detect.vision.working import (
    CLOSER_SIDE,
    INTERPOLATED,
    WORKING_SIDE,
    WORKING_SLACK,
    to_working_size,
    window,
)
from embereye.units import WHOLE, Box
from embereye.wire.jpeg.header import MAX_PIXELS

_DECODERS = {"H264": "h264", "H265": "hevc"}
_PLANAR = frozenset({"yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p"})
_FULL_RANGE = 2  # AVCOL_RANGE_JPEG
_BT709 = 1  # AVCOL_SPC_BT709
_CHROMA = {True: (1.5748, -0.1873, -0.4681, 1.8556), False: (1.402, -0.344136, -0.714136, 1.772)}  # for BT.709, BT.601

Plane = npt.NDArray[np.uint8]


class VideoDecoder:
    """One camera's context.

    Smoothing block edges takes a fifth of the decoding time. Pictures that are reduced to a quarter or less hardly
    differ without it, although later pictures refer to the unsmoothed ones (see docs/how-to/video.md).
    """

    def __init__(self, encoding: str, *, smoothed: bool = True, picture_bytes: float = math.inf) -> None:
        """Create a context; a JPEG for the model has `picture_bytes` at most."""
        self.encoding, self.smoothed = encoding, smoothed
        self._picture_bytes = picture_bytes
        context = hardware.open_context(_DECODERS[encoding], hardware.wanted())
        context.thread_count = 1
        context.options = {"max_pixels": str(MAX_PIXELS)} | ({} if smoothed else {"skip_loop_filter": "all"})
        self._context = context

    def decode(self, order: DecodeOrder, units: Sequence[tuple[bytes | memoryview, int]]) -> Decoded:
        """Decode `units`, pairs of data and number, in order, and return the latest picture to be shown by then.

        Raises UndecodableError if that is impossible, PictureDelayedError if there is no picture yet.
        """
        began = time.thread_time()
        latest: VideoFrame | None = None
        try:
            for data, number in units:
                packet = av.Packet(data)  # type: ignore[arg-type] # it takes any buffer
                packet.pts = number
                if frames := self._context.decode(packet):
                    latest = frames[-1]
        except av.FFmpegError as error:
            raise UndecodableError(str(error)) from error
        if latest is None:
            raise PictureDelayedError
        if latest.is_corrupt:
            raise UndecodableError("parts of the picture are missing")
        return self._rendered(order, latest, began)

    def _rendered(self, order: DecodeOrder, frame: VideoFrame, began: float) -> Decoded:
        try:
            image = bgr(frame, WORKING_SIDE, WORKING_SLACK) if order.image else NO_IMAGE
            still = make_still(bgr(frame, STILL_SIDE), order.still, order.hidden) if order.still is not None else b""
            picture = b""
            if order.picture_side:
                picture = make_picture(bgr(frame, order.picture_side), order.hidden, self._picture_bytes)
            closer = bgr(frame, CLOSER_SIDE) if has_close_up(order.close_ups) else None
            more = WORKING_SLACK * max(frame.width, frame.height) >= WORKING_SIDE
            detail = to_working_size(bgr(frame, CLOSER_SIDE, place=order.detail)) if order.detail and more else None
        except (cv2.error, ValueError) as error:
            raise UndecodableError(str(error)) from error
        return Decoded(image, still, time.thread_time() - began, frame.pts or 0, picture, closer=closer, detail=detail)


def bgr(frame: VideoFrame, side: int, slack: float = 1.0, place: Box = WHOLE) -> DecodedImage:
    """Convert the part `place` of `frame` to BGR, as if the whole had a long side of `side` pixels.

    The frame is reduced only if `slack` times its long side reaches `side`. The planes are cut and reduced before they
    are merged, so no full-size image is made.
    """
    longest = max(frame.width, frame.height)
    factor = side / longest if slack * longest >= side and longest > side else 1.0
    size = max(1, round(frame.width * factor)), max(1, round(frame.height * factor))
    if frame.format.name not in _PLANAR:
        frame = frame.reformat(*size, format="yuv444p")
    planes = [window(plane, place) for plane in _planes(frame)]
    size = max(1, round(size[0] * place[2])), max(1, round(size[1] * place[3]))
    planes = [_reduced(plane, size) for plane in planes]
    full = frame.color_range == _FULL_RANGE or frame.format.name.startswith("yuvj")
    return cv2.transform(cv2.merge(planes), _matrix(full, frame.colorspace == _BT709))  # type: ignore[return-value]


def _planes(frame: VideoFrame) -> list[Plane]:
    """The Y, U and V planes of `frame`, without copying."""
    return [
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height, : plane.width]  # type: ignore[call-overload]
        for plane in frame.planes
    ]


def _reduced(plane: Plane, size: tuple[int, int]) -> Plane:
    width, height = size
    # Halve repeatedly: OpenCV has a fast path for that factor only.
    while plane.shape[1] >= 2 * width and plane.shape[0] >= 2 * height:
        plane = cv2.resize(plane, (plane.shape[1] // 2, plane.shape[0] // 2), interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    if plane.shape == (height, width):
        return plane
    interpolation = cv2.INTER_LINEAR if width > INTERPOLATED * plane.shape[1] else cv2.INTER_AREA
    return cv2.resize(plane, size, interpolation=interpolation)  # type: ignore[return-value]


@lru_cache(maxsize=4)
def _matrix(full: bool, bt709: bool) -> npt.NDArray[np.float32]:
    """The matrix from (Y, Cb, Cr, 1) to (B, G, R), ITU-R BT.601 or BT.709, full or limited range."""
    red, green_blue, green_red, blue = _CHROMA[bt709]
    luma, chroma, black = (1.0, 1.0, 0.0) if full else (255 / 219, 255 / 224, 16.0)
    rows = [(blue, 0.0), (green_blue, green_red), (0.0, red)]
    return np.array(
        [[luma, chroma * cb, chroma * cr, -luma * black - 128 * chroma * (cb + cr)] for cb, cr in rows], np.float32
    )
