"""Small steps on single-channel 8-bit pictures, each one fast OpenCV call with a type."""

import math
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Window = tuple[slice, slice]  # rows and columns


def at_least(picture: Picture, limit: float) -> Picture:
    """255 where `picture` is `limit` or more, 0 elsewhere."""
    return cv2.threshold(picture, math.ceil(limit) - 1, 255, cv2.THRESH_BINARY)[1]  # type: ignore[return-value]


def both(one: Picture, other: Picture) -> Picture:
    """255 where both are."""
    return cv2.bitwise_and(one, other)  # type: ignore[return-value]


def less(one: Picture, other: Picture) -> Picture:
    """`one` - `other`, 0 where that is negative."""
    return cv2.subtract(one, other)  # type: ignore[return-value]


def at_most(picture: Picture, limit: int) -> Picture:
    """255 where `picture` is `limit` or less, 0 elsewhere."""
    return cv2.threshold(picture, limit, 255, cv2.THRESH_BINARY_INV)[1]  # type: ignore[return-value]


def either(one: Picture, other: Picture) -> Picture:
    """255 where one of them is."""
    return cv2.bitwise_or(one, other)  # type: ignore[return-value]


class Planes(NamedTuple):
    """A picture as one array (height x width) for each colour."""

    blue: Picture
    green: Picture
    red: Picture

    @classmethod
    def of(cls, frame: Picture) -> "Planes":
        """The planes of a BGR picture (height x width x 3)."""
        return cls(*cv2.split(frame))  # type: ignore[arg-type]


def window_of(mask: Picture) -> Window:
    """The rows and columns that hold everything of `mask` that is not 0."""
    x, y, width, height = cv2.boundingRect(mask)
    return slice(y, y + height), slice(x, x + width)


def together(one: Window, other: Window) -> Window:
    """The smallest window around two; one without any rows adds nothing."""
    if one[0].start == one[0].stop:
        return other
    if other[0].start == other[0].stop:
        return one
    rows = slice(min(one[0].start, other[0].start), max(one[0].stop, other[0].stop))
    return rows, slice(min(one[1].start, other[1].start), max(one[1].stop, other[1].stop))


def median(values: Picture) -> float:
    """The median of a few hundred values, as numpy's own, which takes three times as long to get there."""
    flat = values.ravel()
    middle = len(flat) // 2
    if len(flat) % 2:
        return float(np.partition(flat, middle)[middle])
    parted = np.partition(flat, (middle - 1, middle))
    return 0.5 * (float(parted[middle - 1]) + float(parted[middle]))
