"""Slows guessing: each address may fail a few times in a row, then once every few seconds."""

from collections import OrderedDict
from collections.abc import Callable

from embereye.process.addresses import place_of
from embereye.units import SECOND

BURST = 10  # failed attempts in a row
REFILL_NS = 3 * SECOND  # until one more attempt is allowed
ADDRESSES = 4_096  # remembered addresses; the one whose last failure is oldest goes first


class Attempts:
    """Failed attempts by address. An IPv6 address counts as its /64, because one customer has all of that."""

    def __init__(self, steady: Callable[[], int], *, burst: int = BURST, refill_ns: int = REFILL_NS) -> None:
        self._steady = steady
        self._burst, self._refill_ns = float(burst), refill_ns
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()  # attempts left at a time, and that time

    def wait_seconds(self, address: str) -> float:
        """The seconds until `address` may try again; 0: it may now."""
        left = self._left(place_of(address))
        return 0.0 if left >= 1 else (1 - left) * self._refill_ns / SECOND

    def note_failure(self, address: str) -> None:
        """Count one failed attempt of `address`."""
        place = place_of(address)
        self._failed[place] = (self._left(place) - 1, self._steady())
        self._failed.move_to_end(place)
        if len(self._failed) > ADDRESSES:
            self._failed.popitem(last=False)

    def _left(self, place: str) -> float:
        left, since = self._failed.get(place, (self._burst, self._steady()))
        return min(self._burst, left + (self._steady() - since) / self._refill_ns)
