"""Small steps on single-channel 8-bit pictures, each one fast OpenCV call with a type."""

import math
from typing import Any, NamedTuple, TypeVar

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]  # height x width, with three channels (BGR) or one
Mask = npt.NDArray[np.bool_]  # height x width
Window = tuple[slice, slice]  # rows and columns
Plane = TypeVar("Plane", bound=npt.NDArray[Any])


NOWHERE: Window = (slice(0, 0), slice(0, 0))


def at_least(picture: Picture, limit: float) -> Picture:
    """255 where `picture` is `limit` or more, 0 elsewhere."""
    return cv2.threshold(picture, math.ceil(limit) - 1, 255, cv2.THRESH_BINARY)[1]  # type: ignore[return-value]


def both(one: Picture, other: Picture) -> Picture:
    """255 where both are."""
    return cv2.bitwise_and(one, other)  # type: ignore[return-value]


def less(one: Picture, other: Picture) -> Picture:
    """`one` - `other`, 0 where that is negative."""
    return cv2.subtract(one, other)  # type: ignore[return-value]


class Planes(NamedTuple):
    """A picture as one array (height x width) for each colour."""

    blue: Picture
    green: Picture
    red: Picture

    @classmethod
    def of(cls, frame: Picture) -> "Planes":
        """The planes of a BGR picture (height x width x 3)."""
        planes = [np.empty(frame.shape[:2], np.uint8) for _ in range(3)]
        cv2.split(frame, planes)  # left to make arrays of its own it takes five times as long
        return cls(*planes)


class Patch(NamedTuple):
    """A picture that is 0 outside of a window, kept as what is inside."""

    inside: Picture
    window: Window

    @classmethod
    def of(cls, inside: Picture, window: Window) -> "Patch":
        """`inside` a `window`, as little of it as holds everything that is not 0."""
        x, y, width, height = cv2.boundingRect(inside)
        if not width:
            return NOTHING
        top, left = window[0].start + y, window[1].start + x
        return cls(inside[y : y + height, x : x + width].copy(), (slice(top, top + height), slice(left, left + width)))

    @property
    def size(self) -> int:
        """How many pixels are not 0."""
        return cv2.countNonZero(self.inside) if self.inside.size else 0


NOTHING = Patch(np.zeros((0, 0), np.uint8), NOWHERE)


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


def overlaid(window: Window, *patches: Patch) -> Picture:
    """What is to be seen through `window` where any of `patches` is not 0."""
    rows, columns = window
    seen = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.uint8)
    overlay(seen, window, *patches)
    return seen


def overlay(seen: Picture, window: Window, *patches: Patch) -> None:
    """Add to `seen`, which shows `window`, where any of `patches` is not 0."""
    rows, columns = window
    for inside, (its_rows, its_columns) in patches:
        top, bottom = max(rows.start, its_rows.start), min(rows.stop, its_rows.stop)
        left, right = max(columns.start, its_columns.start), min(columns.stop, its_columns.stop)
        if top < bottom and left < right:
            part = seen[top - rows.start : bottom - rows.start, left - columns.start : right - columns.start]
            part |= inside[
                top - its_rows.start : bottom - its_rows.start, left - its_columns.start : right - its_columns.start
            ]


def around(window: Window, margin: int, shape: tuple[int, ...]) -> Window:
    """`window` and `margin` pixels on each side of it, as far as a picture of `shape` reaches."""
    rows, columns = window
    return (
        slice(max(0, rows.start - margin), min(shape[0], rows.stop + margin)),
        slice(max(0, columns.start - margin), min(shape[1], columns.stop + margin)),
    )


def put(small: Plane, of: Window, large: Plane, window: Window, step: int = 1) -> Plane:
    """`large`, every `step`-th pixel of `window`, with `small`, the same of the window `of` inside it, in its place.

    Both may be several planes.
    """
    top, left = (of[0].start - window[0].start) // step, (of[1].start - window[1].start) // step
    large[..., top : top + small.shape[-2], left : left + small.shape[-1]] = small
    return large


def even(window: Window) -> Window:
    """`window` with even starts, so that at half the resolution it begins at a pixel."""
    rows, columns = window
    return slice(rows.start & ~1, rows.stop), slice(columns.start & ~1, columns.stop)


def regions(mask: Picture) -> tuple[npt.NDArray[np.uint16], list[list[int]]]:
    """What hangs together in `mask`, also by corners: the label of each pixel; x, y, width, height, area by label.

    Most of a mask is empty, and OpenCV takes nine times as long to measure all of it with longer labels.
    """
    labels = np.zeros(mask.shape, np.uint16)
    window = even(window_of(mask))  # moved by a pixel, regions would be found in another order
    part = mask[window]
    if not part.size:
        return labels, [[0, 0, 0, 0, 0]]
    _, found, measured, _ = cv2.connectedComponentsWithStats(part, connectivity=8, ltype=cv2.CV_16U)
    labels[window] = found
    measured[:, :2] += window[1].start, window[0].start
    return labels, measured.tolist()


def median(values: Picture) -> float:
    """The median of a few hundred values, as numpy's own, which takes three times as long to get there."""
    flat = values.ravel()
    middle = len(flat) // 2
    if len(flat) % 2:
        return float(np.partition(flat, middle)[middle])
    parted = np.partition(flat, (middle - 1, middle))
    return 0.5 * (float(parted[middle - 1]) + float(parted[middle]))
