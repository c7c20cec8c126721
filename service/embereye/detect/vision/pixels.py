"""Small operations on single-channel 8-bit pictures, each one fast OpenCV call with a type."""

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
    """Return 255 where `picture` is at least `limit`, else 0."""
    return cv2.threshold(picture, math.ceil(limit) - 1, 255, cv2.THRESH_BINARY)[1]  # type: ignore[return-value]


def both(first: Picture, second: Picture) -> Picture:
    """Return the bitwise intersection of two masks."""
    return cv2.bitwise_and(first, second)  # type: ignore[return-value]


def less(minuend: Picture, subtrahend: Picture) -> Picture:
    """Subtract `subtrahend` from `minuend`; negative results become 0."""
    return cv2.subtract(minuend, subtrahend)  # type: ignore[return-value]


class Planes(NamedTuple):
    """A picture as one array (height x width) per colour."""

    blue: Picture
    green: Picture
    red: Picture

    @classmethod
    def of(cls, frame: Picture) -> "Planes":
        """Split a BGR picture (height x width x 3) into planes."""
        planes = [np.empty(frame.shape[:2], np.uint8) for _ in range(3)]
        cv2.split(frame, planes)  # with arrays that it allocates, it takes five times as long
        return cls(*planes)


class Patch(NamedTuple):
    """A picture that is 0 outside a window; only the inside is stored."""

    inside: Picture
    window: Window

    @classmethod
    def of(cls, inside: Picture, window: Window) -> "Patch":
        """Create a patch of the smallest part of `inside`, the content of `window`, with all its non-zero pixels."""
        x, y, width, height = cv2.boundingRect(inside)
        if not width:
            return NOTHING
        top, left = window[0].start + y, window[1].start + x
        return cls(inside[y : y + height, x : x + width].copy(), (slice(top, top + height), slice(left, left + width)))

    @property
    def size(self) -> int:
        """Number of non-zero pixels."""
        return cv2.countNonZero(self.inside) if self.inside.size else 0


NOTHING = Patch(np.zeros((0, 0), np.uint8), NOWHERE)


def window_of(mask: Picture) -> Window:
    """Return the rows and columns with all non-zero pixels of `mask`."""
    x, y, width, height = cv2.boundingRect(mask)
    return slice(y, y + height), slice(x, x + width)


def together(first: Window, second: Window) -> Window:
    """Return the smallest window around two windows; an empty one adds nothing."""
    if first[0].start == first[0].stop:
        return second
    if second[0].start == second[0].stop:
        return first
    rows = slice(min(first[0].start, second[0].start), max(first[0].stop, second[0].stop))
    return rows, slice(min(first[1].start, second[1].start), max(first[1].stop, second[1].stop))


def overlaid(window: Window, *patches: Patch) -> Picture:
    """Return a picture of `window` that combines all `patches`."""
    rows, columns = window
    seen = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.uint8)
    overlay(seen, window, *patches)
    return seen


def overlay(seen: Picture, window: Window, *patches: Patch) -> None:
    """Combine all `patches` into `seen`, which shows `window`."""
    rows, columns = window
    for inside, (patch_rows, patch_columns) in patches:
        top, bottom = max(rows.start, patch_rows.start), min(rows.stop, patch_rows.stop)
        left, right = max(columns.start, patch_columns.start), min(columns.stop, patch_columns.stop)
        if top < bottom and left < right:
            part = seen[top - rows.start : bottom - rows.start, left - columns.start : right - columns.start]
            part |= inside[
                top - patch_rows.start : bottom - patch_rows.start,
                left - patch_columns.start : right - patch_columns.start,
            ]


def around(window: Window, margin: int, shape: tuple[int, ...]) -> Window:
    """Extend `window` by `margin` pixels on each side, within a picture of `shape`."""
    rows, columns = window
    return (
        slice(max(0, rows.start - margin), min(shape[0], rows.stop + margin)),
        slice(max(0, columns.start - margin), min(shape[1], columns.stop + margin)),
    )


def put(small: Plane, small_window: Window, large: Plane, window: Window, step: int = 1) -> Plane:
    """Copy `small`, every `step`-th pixel of `small_window`, into `large`, the same of `window` around it.

    Both may have several planes.
    """
    top, left = (small_window[0].start - window[0].start) // step, (small_window[1].start - window[1].start) // step
    large[..., top : top + small.shape[-2], left : left + small.shape[-1]] = small
    return large


def even(window: Window) -> Window:
    """Extend `window` to even starts, so that it begins at a pixel at half the resolution."""
    rows, columns = window
    return slice(rows.start & ~1, rows.stop), slice(columns.start & ~1, columns.stop)


def regions(mask: Picture) -> tuple[npt.NDArray[np.uint16], list[list[int]]]:
    """Find connected regions of `mask`, also across corners: each pixel's label; x, y, width, height, area by label.

    Most of a mask is empty, and OpenCV would take nine times as long to measure all of it with longer labels.
    """
    labels = np.zeros(mask.shape, np.uint16)
    window = even(window_of(mask))  # an odd start would find the regions in another order
    part = mask[window]
    if not part.size:
        return labels, [[0, 0, 0, 0, 0]]
    _, part_labels, measured, _ = cv2.connectedComponentsWithStats(part, connectivity=8, ltype=cv2.CV_16U)
    labels[window] = part_labels
    measured[:, :2] += window[1].start, window[0].start
    return labels, measured.tolist()


def median(values: npt.NDArray[Any]) -> float:
    """Return the median of a few hundred values; numpy's takes three times as long."""
    flat = values.ravel()
    middle = len(flat) // 2
    if len(flat) % 2:
        return float(np.partition(flat, middle)[middle])
    parted = np.partition(flat, (middle - 1, middle))
    return 0.5 * (float(parted[middle - 1]) + float(parted[middle]))
