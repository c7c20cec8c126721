"""The size at which pictures are looked at. This needs no more than OpenCV: processes that only decode use it too."""

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]

WORKING_SIDE = 160  # pixels; a flame of a hundredth of the picture's width is still a few pixels wide
WORKING_SLACK = 0.8  # nearer than this to the working size, a picture is left as it is
SCALES = (8, 4, 2, 1)  # what a JPEG decoder can reduce by without decoding everything


def working_scale(width: int, height: int) -> int:
    """By how much to reduce a picture of this size on decoding: as far as its long side stays WORKING_SIDE or more."""
    return next((scale for scale in SCALES if max(width, height) >= scale * WORKING_SIDE), 1)


def to_working_size(frame: Picture) -> Picture:
    """`frame` with a long side of WORKING_SIDE, if it is clearly longer: limits in pixels mean the same everywhere."""
    height, width = frame.shape[:2]
    factor = WORKING_SIDE / max(width, height)
    if factor > WORKING_SLACK:
        return frame
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return cv2.resize(frame, size, interpolation=cv2.INTER_AREA)  # type: ignore[return-value]
