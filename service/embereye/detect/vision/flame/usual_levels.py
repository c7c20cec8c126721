"""The usual levels of a camera's view: where flame-like things are seen at each time of day. Pure.

A sign, a stove or the sun on a window return at their hour. A place where such a thing was seen long enough needs more
evidence the next time. A larger thing, or one at another place, is new and needs no additional evidence.

For each cell of the picture and hour of the day it stores how long something was seen and how large it was. For the
network it stores the usual odds of flame and smoke. The detectors ask it, and everything that it learns from them fades
within weeks. The camera's `Analyser` owns it, so it outlives the detectors.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from embereye.detect.vision.networks.appearance import PLACES, Odds
from embereye.units import SECOND, Box

ROWS, COLUMNS = 12, 16  # cells of the picture
HOURS = 24  # of the day, in UTC, so that a camera's location does not matter
NEIGHBOURS = (-1, 0, 1)  # hours that count as the same time of day: the sun and people are not punctual
KNOWN_S = 600.0  # of having been seen, after which a thing is fully known …
NO_SMOKE = -3.0  # log odds: fewer are not distinguished
NOTICED_S = 120.0  # … and before which it is not known at all: a fire is detected long before
MOST_S = 3600.0  # remembered per hour, so that a thing that never returns is forgotten in weeks
FORGOTTEN_S = 14 * 86400.0  # time constant of forgetting
LARGER = 1.6  # times the area seen there; a larger thing is new
LARGE = 0.03  # of the picture; a thing this large is never known
MARKED_S = 2 * KNOWN_S  # that a marked false alarm counts for, in every hour
SMOKE_KNOWN_S = 120.0  # time constant with which a place is learned as smoke-like: steam returns within minutes …
SMOKE_MEMORY_S = 1800.0  # … and with which it is learned as clear again
SMOKE_MARKED = 1.5  # log odds of smoke that a marked false alarm adds to its places, in every hour
SMOKE_LARGE = 0.3  # of the picture; a mark of smoke this large has no effect
_FORMAT = np.dtype("<f4")
_SIZE = HOURS * ROWS * COLUMNS
_SMOKE_SIZE = HOURS * PLACES * PLACES


class UsualLevels:
    """The usual levels of one view: bounded, two numbers per cell and hour. Not thread-safe."""

    def __init__(self) -> None:
        self._seconds = np.zeros((HOURS, ROWS, COLUMNS), np.float32)  # how long something was seen
        self._area = np.zeros((HOURS, ROWS, COLUMNS), np.float32)  # largest share of the picture that it covered
        self._marked = np.zeros((ROWS, COLUMNS), np.float32)  # the same for places that people marked as no fire, …
        self._marked_area = np.zeros((ROWS, COLUMNS), np.float32)  # … at any time of day
        self._usual = np.zeros(HOURS, np.float32)  # log odds of the network for whole pictures, above 0
        self._smoke = np.full((HOURS, PLACES, PLACES), NO_SMOKE, np.float32)  # log odds of smoke in each place
        self._smoke_seconds = np.zeros(HOURS, np.float32)  # for how long they were learned
        self._smoke_marked = np.full((PLACES, PLACES), NO_SMOKE, np.float32)  # of places marked as no fire
        self._forgot_ns = 0

    def familiarity(self, box: Box, area: float, time_ns: int) -> float:
        """Return 0..1: how well a thing at `box` with `area` (share of the picture) is known at this hour."""
        if area >= LARGE or not (self._seconds.any() or self._marked.any()):
            return 0.0
        hours = [(_hour(time_ns) + neighbour) % HOURS for neighbour in NEIGHBOURS]
        rows, columns = _cells(box)
        seconds = np.maximum(self._seconds[hours, rows, columns].sum(axis=0), self._marked[rows, columns])
        known = np.maximum(self._area[hours, rows, columns].max(axis=0), self._marked_area[rows, columns])
        if area > LARGER * float(known.max()):
            return 0.0
        least = float(seconds.min())  # of all its cells, so that a thing that extends beyond them is new
        return min(1.0, max(0.0, (least - NOTICED_S) / (KNOWN_S - NOTICED_S)))

    def learn(self, box: Box, area: float, seconds: float, time_ns: int) -> None:
        """Record that something flame-like was at `box` for `seconds` up to `time_ns`."""
        self._forget(time_ns)
        if area >= LARGE:
            return
        hour, (rows, columns) = _hour(time_ns), _cells(box, reach=1)
        cells = self._seconds[hour, rows, columns]
        np.minimum(cells + np.float32(seconds), MOST_S, out=cells)
        areas = self._area[hour, rows, columns]
        # Follow slow growth only, so that a fire that grows within minutes is larger than anything known.
        areas += np.float32(min(1.0, seconds / KNOWN_S)) * np.maximum(0.0, area - areas)
        first = cells <= NOTICED_S
        areas[first] = np.maximum(areas[first], area)

    def usual_odds(self, time_ns: int) -> float:
        """The natural log odds above 0 that the network usually gives this view at this time of day."""
        hour = _hour(time_ns)
        return float(self._usual[[(hour + neighbour) % HOURS for neighbour in NEIGHBOURS]].max())

    def learn_usual(self, odds: float, seconds: float, time_ns: int) -> None:
        """Record that the network gave the whole picture `odds` for `seconds` up to `time_ns`."""
        self._forget(time_ns)
        hour = _hour(time_ns)
        self._usual[hour] += min(1.0, seconds / KNOWN_S) * (max(0.0, odds) - self._usual[hour])

    def usual_smoke(self, time_ns: int) -> Odds:
        """The natural log odds of smoke (PLACES, PLACES) that this view usually has at this time of day."""
        hour = _hour(time_ns)
        usual: Odds = self._smoke[[(hour + neighbour) % HOURS for neighbour in NEIGHBOURS]].max(axis=0)
        return np.maximum(usual, self._smoke_marked)

    def learn_smoke(self, odds: Odds, seconds: float, time_ns: int) -> None:
        """Record that the network gave each place `odds` of smoke for `seconds` up to `time_ns`.

        A place that was never smoke-like is not learned as less than NO_SMOKE.
        """
        self._forget(time_ns)
        hour = _hour(time_ns)
        self._smoke_seconds[hour] = min(MOST_S, self._smoke_seconds[hour] + seconds)
        more = np.maximum(odds, NO_SMOKE) - self._smoke[hour]
        memory = np.where(more > 0, np.float32(SMOKE_KNOWN_S), np.float32(SMOKE_MEMORY_S))
        self._smoke[hour] += np.minimum(1.0, np.float32(seconds) / memory) * more

    def set_marks(self, places: Iterable[tuple[Box, float]]) -> None:
        """Set all `places`, each a box and an area, that people marked as no fire.

        They count at any time of day until they are unmarked. `dump` does not include them.
        """
        self._marked[:] = self._marked_area[:] = 0
        for box, area in places:
            if area < LARGE:
                rows, columns = _cells(box, reach=1)
                self._marked[rows, columns] = MARKED_S
                self._marked_area[rows, columns] = np.maximum(self._marked_area[rows, columns], area)

    def is_marked(self, box: Box) -> bool:
        """True if people marked a flame as false everywhere in `box`."""
        return bool(self._marked[_cells(box)].all())

    def set_smoke_marks(self, boxes: Iterable[Box]) -> None:
        """Set all `boxes` in which people marked smoke as no fire; otherwise as `set_marks`."""
        self._smoke_marked[:] = NO_SMOKE
        for x, y, width, height in boxes:
            if width * height < SMOKE_LARGE:
                columns = slice(int(x * PLACES), math.ceil((x + width) * PLACES))
                self._smoke_marked[int(y * PLACES) : math.ceil((y + height) * PLACES), columns] = SMOKE_MARKED

    @property
    def has_content(self) -> bool:
        """True if anything was learned that is worth saving."""
        return bool(self._seconds.any() or self._usual.any() or self._smoke_seconds.any())

    def known_share(self, time_ns: int) -> float:
        """The share of the picture, 0..1, where something is known at this time of day."""
        hours = [(_hour(time_ns) + neighbour) % HOURS for neighbour in NEIGHBOURS]
        seconds = np.maximum(self._seconds[hours].sum(axis=0), self._marked)
        return float((seconds > NOTICED_S).mean())

    def dump(self) -> bytes:
        """Serialise the learned levels for `load`."""
        arrays = (self._seconds, self._area, self._usual, self._smoke - NO_SMOKE, self._smoke_seconds)
        return b"".join(array.astype(_FORMAT).tobytes() for array in arrays)

    @classmethod
    def load(cls, data: bytes) -> "UsualLevels":
        """Restore the levels from the bytes of `dump`; raise ValueError if they are invalid."""
        size = (2 * _SIZE + HOURS + _SMOKE_SIZE + HOURS) * _FORMAT.itemsize
        if len(data) in (_FORMAT.itemsize * 2 * _SIZE, _FORMAT.itemsize * (2 * _SIZE + HOURS)):
            data += bytes(size - len(data))  # saved before the usual odds of flame, or of smoke, existed
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes are not a saved view, which has {size}")
        values: npt.NDArray[np.float32] = np.frombuffer(data, _FORMAT)
        if not np.isfinite(values).all() or values.min() < 0:
            raise ValueError("a saved view contains no negative or non-finite numbers")
        usual_levels = cls()
        usual_levels._seconds[:] = np.minimum(values[:_SIZE].reshape(usual_levels._seconds.shape), MOST_S)
        usual_levels._usual[:] = values[2 * _SIZE : 2 * _SIZE + HOURS]
        usual_levels._smoke[:] = NO_SMOKE + values[2 * _SIZE + HOURS : -HOURS].reshape(usual_levels._smoke.shape)
        usual_levels._smoke_seconds[:] = np.minimum(values[-HOURS:], MOST_S)
        usual_levels._area[:] = np.minimum(values[_SIZE : 2 * _SIZE].reshape(usual_levels._area.shape), LARGE)
        return usual_levels

    def _forget(self, time_ns: int) -> None:
        """Forget slowly, once an hour; a clock that steps back forgets nothing."""
        elapsed = time_ns - self._forgot_ns
        if self._forgot_ns and elapsed < 3600 * SECOND and elapsed >= 0:
            return
        if self._forgot_ns and elapsed > 0:
            remaining = np.float32(math.exp(-min(elapsed / SECOND, FORGOTTEN_S) / FORGOTTEN_S))
            self._seconds *= remaining
            self._usual *= remaining
            self._smoke += (1.0 - remaining) * (NO_SMOKE - self._smoke)
            self._smoke_seconds *= remaining
        self._forgot_ns = time_ns


def _hour(time_ns: int) -> int:
    return time_ns // (3600 * SECOND) % HOURS


def _cells(box: Box, reach: int = 0) -> tuple[slice, slice]:
    """Return the cells that `box` touches and those `reach` around them."""
    x, y, width, height = box
    left, top = min(COLUMNS - 1, int(x * COLUMNS)), min(ROWS - 1, int(y * ROWS))
    right, bottom = min(COLUMNS, math.ceil((x + width) * COLUMNS)), min(ROWS, math.ceil((y + height) * ROWS))
    return (
        slice(max(0, top - reach), max(top + 1, bottom) + reach),
        slice(max(0, left - reach), max(left + 1, right) + reach),
    )
