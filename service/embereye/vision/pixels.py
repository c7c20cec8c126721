"""Small steps on single-channel 8-bit pictures, each one fast OpenCV call with a type."""

import math

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]


def at_least(picture: Picture, limit: float) -> Picture:
    """255 where `picture` is `limit` or more, 0 elsewhere."""
    return cv2.threshold(picture, math.ceil(limit) - 1, 255, cv2.THRESH_BINARY)[1]  # type: ignore[return-value]


def both(one: Picture, other: Picture) -> Picture:
    """255 where both are."""
    return cv2.bitwise_and(one, other)  # type: ignore[return-value]


def less(one: Picture, other: Picture) -> Picture:
    """`one` - `other`, 0 where that is negative."""
    return cv2.subtract(one, other)  # type: ignore[return-value]


def planes(frame: Picture) -> tuple[Picture, Picture, Picture]:
    """The blue, green and red planes of a BGR picture (height x width x 3)."""
    return cv2.extractChannel(frame, 0), cv2.extractChannel(frame, 1), cv2.extractChannel(frame, 2)  # type: ignore[return-value]
