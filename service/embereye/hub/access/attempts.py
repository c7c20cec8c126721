"""Slows those who guess: each address has a few attempts that fail, and then one every few seconds."""

from collections import OrderedDict
from collections.abc import Callable

from embereye.process.addresses import place_of
from embereye.units import SECOND

BURST = 10  # attempts that may fail one after the other
REFILL_NS = 3 * SECOND  # for one more
ADDRESSES = 4_096  # that are remembered; the one that failed longest ago goes first


class Attempts:
    """Failed attempts by address. An IPv6 address counts as its /64, of which one customer has all."""

    def __init__(self, steady: Callable[[], int], *, burst: int = BURST, refill_ns: int = REFILL_NS) -> None:
        self._steady = steady
        self._burst, self._refill_ns = float(burst), refill_ns
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()  # attempts left, and when that was

    def wait_seconds(self, address: str) -> float:
        """How long `address` has to wait before it may try again; 0: it may."""
        left = self._left(place_of(address))
        return 0.0 if left >= 1 else (1 - left) * self._refill_ns / SECOND

    def note_failure(self, address: str) -> None:
        """Take one attempt from `address`."""
        place = place_of(address)
        self._failed[place] = (self._left(place) - 1, self._steady())
        self._failed.move_to_end(place)
        if len(self._failed) > ADDRESSES:
            self._failed.popitem(last=False)

    def _left(self, place: str) -> float:
        left, since = self._failed.get(place, (self._burst, self._steady()))
        return min(self._burst, left + (self._steady() - since) / self._refill_ns)
