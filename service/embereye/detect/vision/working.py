"""The working size of pictures. Needs only OpenCV, because processes that only decode use it too."""

import cv2

from embereye.detect.vision.pixels import Picture
from embereye.units import Box

WORKING_SIDE = 160  # pixels; a flame of a hundredth of the picture's width is still a few pixels wide
CLOSER_SIDE = 640  # pixels, if the picture has as many: source of close-ups and details
WORKING_SLACK = 0.8  # a picture closer than this to the working size is not resized
INTERPOLATED = 0.66  # scale above which interpolation suffices; 1080p arrives with 240 pixels
SCALES = (8, 4, 2, 1)  # reductions that a JPEG decoder can apply while decoding


def reduction(width: int, height: int, side: int) -> int:
    """Return the largest reduction at which the long side stays at least `side`."""
    return next((scale for scale in SCALES if max(width, height) >= scale * side), 1)


def working_scale(width: int, height: int) -> int:
    """Return the reduction for decoding a picture of this size for detection."""
    return reduction(width, height, WORKING_SIDE)


def to_working_size(frame: Picture) -> Picture:
    """Shrink `frame` to a long side of WORKING_SIDE if it is clearly longer."""
    return frame if WORKING_SLACK * max(frame.shape[:2]) < WORKING_SIDE else shrunk(frame, WORKING_SIDE)


def cut(picture: Picture, place: Box) -> Picture:
    """Return the part `place` of `picture`, with a long side of about WORKING_SIDE at most."""
    return to_working_size(window(picture, place))


def window(picture: Picture, place: Box) -> Picture:
    """Return a view of the part `place` of `picture` or of one of its planes: at least a pixel."""
    height, width = picture.shape[:2]
    x, y, wide, high = place
    left, top = min(int(x * width), width - 1), min(int(y * height), height - 1)
    return picture[top : max(top + 1, round((y + high) * height)), left : max(left + 1, round((x + wide) * width))]


def shrunk(picture: Picture, side: int) -> Picture:
    """Shrink `picture` to a long side of `side` pixels."""
    height, width = picture.shape[:2]
    factor = side / max(width, height)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    # Interpolation takes a third of the time, and at this scale it leaves out no pixel.
    interpolation = cv2.INTER_LINEAR if factor > INTERPOLATED else cv2.INTER_AREA
    return cv2.resize(picture, size, interpolation=interpolation)  # type: ignore[return-value]
