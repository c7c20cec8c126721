"""The size at which pictures are looked at. This needs no more than OpenCV: processes that only decode use it too."""

import cv2

from embereye.detect.vision.pixels import Picture
from embereye.units import Box

WORKING_SIDE = 160  # pixels; a flame of a hundredth of the picture's width is still a few pixels wide
CLOSER_SIDE = 640  # pixels, at least where there are so many: of what close-ups and details are cut from
WORKING_SLACK = 0.8  # nearer than this to the working size, a picture is left as it is
INTERPOLATED = 0.66  # of its size; 1080p comes here with 240 pixels
SCALES = (8, 4, 2, 1)  # what a JPEG decoder can reduce by without decoding everything


def reduction(width: int, height: int, side: int) -> int:
    """By how much to reduce a picture of this size on decoding: as far as its long side stays `side` or more."""
    return next((scale for scale in SCALES if max(width, height) >= scale * side), 1)


def working_scale(width: int, height: int) -> int:
    """By how much to reduce a picture of this size on decoding to look at it."""
    return reduction(width, height, WORKING_SIDE)


def to_working_size(frame: Picture) -> Picture:
    """`frame` with a long side of WORKING_SIDE, if it is clearly longer: limits in pixels mean the same everywhere."""
    return frame if WORKING_SLACK * max(frame.shape[:2]) < WORKING_SIDE else shrunk(frame, WORKING_SIDE)


def cut(picture: Picture, place: Box) -> Picture:
    """The part `place` of `picture`, with a long side of at most some WORKING_SIDE."""
    return to_working_size(window(picture, place))


def window(picture: Picture, place: Box) -> Picture:
    """The part `place` of `picture`, or of one of its planes, where it lies: at least a pixel."""
    height, width = picture.shape[:2]
    x, y, wide, high = place
    left, top = min(int(x * width), width - 1), min(int(y * height), height - 1)
    return picture[top : max(top + 1, round((y + high) * height)), left : max(left + 1, round((x + wide) * width))]


def shrunk(picture: Picture, side: int) -> Picture:
    """`picture` with a long side of `side` pixels, which is less than it has."""
    height, width = picture.shape[:2]
    factor = side / max(width, height)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    # It takes a third of the time to interpolate, and of a picture that becomes little smaller no pixel is left out.
    way = cv2.INTER_LINEAR if factor > INTERPOLATED else cv2.INTER_AREA
    return cv2.resize(picture, size, interpolation=way)  # type: ignore[return-value]
