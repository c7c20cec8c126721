"""What a camera knows of its own view: where things that look like a flame are seen, at which time of day. Pure.

A sign, a stove, the sun on a window come back at their hour; what was seen there for long enough needs more evidence
the next time. What is larger than it ever was there, or somewhere else, is new, and needs no more than anywhere.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from embereye.units import SECOND, Box

ROWS, COLUMNS = 12, 16  # cells of the picture
HOURS = 24  # of the day, in UTC: nobody has to know where a camera hangs
NEIGHBOURS = (-1, 0, 1)  # hours that count as the same time of day: the sun and people are not punctual
KNOWN_S = 600.0  # of having been seen, after which a thing is known entirely …
NOTICED_S = 120.0  # … and before which not at all: a fire is found long before
MOST_S = 3600.0  # remembered of an hour: what never comes again is forgotten in weeks
FORGOTTEN_S = 14 * 86400.0  # time constant
LARGER = 1.6  # times the area that was seen there: more is a new thing
LARGE = 0.03  # of the picture: something so large is never held to be known
MARKED_S = 2 * KNOWN_S  # that a marked false alarm counts for, in every hour
_FORMAT = np.dtype("<f4")
_SIZE = HOURS * ROWS * COLUMNS


class Familiar:
    """The memory of one view: bounded, two numbers for each cell and hour. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._seconds = np.zeros((HOURS, ROWS, COLUMNS), np.float32)  # for which something was seen
        self._area = np.zeros((HOURS, ROWS, COLUMNS), np.float32)  # share of the picture that it took, at most
        self._marked = np.zeros((ROWS, COLUMNS), np.float32)  # the same, of what people marked as no fire, …
        self._marked_area = np.zeros((ROWS, COLUMNS), np.float32)  # … at any time of day
        self._usual = np.zeros(HOURS, np.float32)  # log odds of the network of whole pictures, above 0
        self._forgot_ns = 0

    def of(self, box: Box, area: float, time_ns: int) -> float:
        """0..1: how well a thing at `box` that takes `area` (share of the picture) is known at this time of day."""
        if area >= LARGE or not (self._seconds.any() or self._marked.any()):
            return 0.0
        hours = [(_hour(time_ns) + neighbour) % HOURS for neighbour in NEIGHBOURS]
        rows, columns = _cells(box)
        seconds = np.maximum(self._seconds[hours, rows, columns].sum(axis=0), self._marked[rows, columns])
        known = np.maximum(self._area[hours, rows, columns].max(axis=0), self._marked_area[rows, columns])
        if area > LARGER * float(known.max()):
            return 0.0
        least = float(seconds.min())  # in its every cell: what reaches beyond is new
        return min(1.0, max(0.0, (least - NOTICED_S) / (KNOWN_S - NOTICED_S)))

    def learn(self, box: Box, area: float, seconds: float, time_ns: int) -> None:
        """Note that something like a flame was at `box` for `seconds` up to `time_ns`."""
        self._forget(time_ns)
        if area >= LARGE:
            return
        hour, (rows, columns) = _hour(time_ns), _cells(box, reach=1)
        cells = self._seconds[hour, rows, columns]
        np.minimum(cells + np.float32(seconds), MOST_S, out=cells)
        areas = self._area[hour, rows, columns]
        # Follows what grows slowly, so that a fire which grows within minutes is larger than anything known.
        areas += np.float32(min(1.0, seconds / KNOWN_S)) * np.maximum(0.0, area - areas)
        first = cells <= NOTICED_S
        areas[first] = np.maximum(areas[first], area)

    def usual(self, time_ns: int) -> float:
        """Natural log odds above 0 that the network usually gives this view at this time of day."""
        hour = _hour(time_ns)
        return float(self._usual[[(hour + neighbour) % HOURS for neighbour in NEIGHBOURS]].max())

    def learn_usual(self, odds: float, seconds: float, time_ns: int) -> None:
        """Note that the network gave the whole picture `odds` for `seconds` up to `time_ns`."""
        self._forget(time_ns)
        hour = _hour(time_ns)
        self._usual[hour] += min(1.0, seconds / KNOWN_S) * (max(0.0, odds) - self._usual[hour])

    def set_marks(self, places: Iterable[tuple[Box, float]]) -> None:
        """What was seen at these `places`, each a box and an area, is no fire, people say: all that they say so of.

        It is known at any time of day, for as long as they say so. It is no part of what `dump` gives.
        """
        self._marked[:] = self._marked_area[:] = 0
        for box, area in places:
            if area < LARGE:
                rows, columns = _cells(box, reach=1)
                self._marked[rows, columns] = MARKED_S
                self._marked_area[rows, columns] = np.maximum(self._marked_area[rows, columns], area)

    @property
    def known(self) -> bool:
        """Whether anything was learnt that is worth keeping."""
        return bool(self._seconds.any() or self._usual.any())

    def share(self, time_ns: int) -> float:
        """0..1: of the picture, where something is known at this time of day."""
        hours = [(_hour(time_ns) + neighbour) % HOURS for neighbour in NEIGHBOURS]
        seconds = np.maximum(self._seconds[hours].sum(axis=0), self._marked)
        return float((seconds > NOTICED_S).mean())

    def dump(self) -> bytes:
        """All that is remembered, for `load`."""
        return b"".join(array.astype(_FORMAT).tobytes() for array in (self._seconds, self._area, self._usual))

    @classmethod
    def load(cls, data: bytes) -> "Familiar":
        """What `dump` gave; ValueError where it is something else."""
        size = (2 * _SIZE + HOURS) * _FORMAT.itemsize
        if len(data) == 2 * _SIZE * _FORMAT.itemsize:
            data += bytes(HOURS * _FORMAT.itemsize)  # kept before there was anything usual
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes are no memory of a view: {size} are")
        values: npt.NDArray[np.float32] = np.frombuffer(data, _FORMAT)
        if not np.isfinite(values).all() or values.min() < 0:
            raise ValueError("numbers below 0, or none, are no memory of a view")
        familiar = cls()
        familiar._seconds[:] = np.minimum(values[:_SIZE].reshape(familiar._seconds.shape), MOST_S)
        familiar._usual[:] = values[2 * _SIZE :]
        familiar._area[:] = np.minimum(values[_SIZE : 2 * _SIZE].reshape(familiar._area.shape), LARGE)
        return familiar

    def _forget(self, time_ns: int) -> None:
        """Let go of what was not seen for weeks, once an hour; a clock that steps back forgets nothing."""
        elapsed = time_ns - self._forgot_ns
        if self._forgot_ns and elapsed < 3600 * SECOND and elapsed >= 0:
            return
        if self._forgot_ns and elapsed > 0:
            kept = np.float32(math.exp(-min(elapsed / SECOND, FORGOTTEN_S) / FORGOTTEN_S))
            self._seconds *= kept
            self._usual *= kept
        self._forgot_ns = time_ns


def _hour(time_ns: int) -> int:
    return time_ns // (3600 * SECOND) % HOURS


def _cells(box: Box, reach: int = 0) -> tuple[slice, slice]:
    """The cells that `box` touches and those `reach` around them."""
    x, y, width, height = box
    left, top = min(COLUMNS - 1, int(x * COLUMNS)), min(ROWS - 1, int(y * ROWS))
    right, bottom = min(COLUMNS, math.ceil((x + width) * COLUMNS)), min(ROWS, math.ceil((y + height) * ROWS))
    return (
        slice(max(0, top - reach), max(top + 1, bottom) + reach),
        slice(max(0, left - reach), max(left + 1, right) + reach),
    )
