"""Puts packets that overtook each other back in order, and says where one is missing for good."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")

WINDOW = 32  # packets behind a gap after which what is missing counts as lost


@dataclass(eq=False)
class ReorderBuffer(Generic[Item]):
    """Accepts items by extended sequence number; returns each with whether something before it is lost.

    After `deadline_ns` without what is missing, or as soon as `window` items wait behind it, it counts as lost.
    """

    deadline_ns: int
    window: int = WINDOW
    _next: int = -1  # -1: nothing has come
    _waiting: dict[int, tuple[Item, int]] = field(default_factory=dict)  # by number: the item, when it came

    @property
    def expected(self) -> int:
        """The number of the next item; -1: any."""
        return self._next

    @property
    def waiting(self) -> bool:
        """Whether anything is held back by a gap."""
        return bool(self._waiting)

    def put(self, number: int, item: Item, now_ns: int) -> Iterator[tuple[Item, bool]]:
        """Accept `item`; those that are in order now. What comes twice, or too late, is left out."""
        if self._next < 0:
            self._next = number
        if number == self._next and not self._waiting:  # nearly all
            self._next += 1
            yield item, False
            return
        if number < self._next or number in self._waiting:
            return
        self._waiting[number] = item, now_ns
        yield from self._in_order()
        while len(self._waiting) > self.window:
            yield from self._past_gap()

    def pass_over(self) -> None:
        """Note that the expected item came and need not be put here, as nothing waits."""
        self._next += 1

    def expire(self, now_ns: int) -> Iterator[tuple[Item, bool]]:
        """What waits behind gaps that are not waited for any longer at `now_ns`."""
        while self._waiting and now_ns - min(came for _, came in self._waiting.values()) >= self.deadline_ns:
            yield from self._past_gap()

    def flush(self) -> Iterator[tuple[Item, bool]]:
        """Everything that waits; the next item may have any number."""
        while self._waiting:
            yield from self._past_gap()
        self._next = -1

    def _past_gap(self) -> Iterator[tuple[Item, bool]]:
        self._next = min(self._waiting)
        lost = True
        for item, _ in self._in_order():
            yield item, lost
            lost = False

    def _in_order(self) -> Iterator[tuple[Item, bool]]:
        while (found := self._waiting.pop(self._next, None)) is not None:
            self._next += 1
            yield found[0], False
