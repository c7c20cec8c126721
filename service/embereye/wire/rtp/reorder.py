"""Put packets that overtook each other back in order, and report which ones are lost."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")

WINDOW = 32  # packets behind a gap, after which the missing ones are lost


@dataclass(eq=False)
class ReorderBuffer(Generic[Item]):
    """Accepts items by extended sequence number; returns them in order, each with True if something before it is lost.

    A missing item is lost after `deadline_ns`, or as soon as more than `window` items wait behind it.
    """

    deadline_ns: int
    window: int = WINDOW
    expected: int = -1  # number of the next item; -1: any
    _waiting: dict[int, tuple[Item, int]] = field(default_factory=dict)  # by number: the item, its time of arrival

    @property
    def has_waiting(self) -> bool:
        """True if items wait behind a gap."""
        return bool(self._waiting)

    def put(self, number: int, item: Item, now_ns: int) -> Iterator[tuple[Item, bool]]:
        """Accept `item`; yield the items that are in order now. Ignore duplicates and late items."""
        if self.expected < 0:
            self.expected = number
        if number == self.expected and not self._waiting:  # nearly all
            self.expected += 1
            yield item, False
            return
        if number < self.expected or number in self._waiting:
            return
        self._waiting[number] = item, now_ns
        yield from self._in_order()
        while len(self._waiting) > self.window:
            yield from self._past_gap()

    def skip_expected(self) -> None:
        """Note that the expected item was processed directly; only if nothing waits."""
        self.expected += 1

    def expire(self, now_ns: int) -> Iterator[tuple[Item, bool]]:
        """Yield the items behind gaps that are overdue at `now_ns`."""
        while self._waiting and now_ns - min(came for _, came in self._waiting.values()) >= self.deadline_ns:
            yield from self._past_gap()

    def flush(self) -> Iterator[tuple[Item, bool]]:
        """Yield all waiting items; the next item may have any number."""
        while self._waiting:
            yield from self._past_gap()
        self.expected = -1

    def _past_gap(self) -> Iterator[tuple[Item, bool]]:
        self.expected = min(self._waiting)
        lost = True
        for item, _ in self._in_order():
            yield item, lost
            lost = False

    def _in_order(self) -> Iterator[tuple[Item, bool]]:
        while (next_item := self._waiting.pop(self.expected, None)) is not None:
            self.expected += 1
            yield next_item[0], False
