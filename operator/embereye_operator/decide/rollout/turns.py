"""Whose turn it is, of all fleets that take the operator's image: one alone first, then several at once."""

from collections.abc import Collection
from typing import Literal

from embereye.units import SECOND, counted

GRACE = 15 * SECOND  # after an operator starts, until it has seen which fleets are in the middle of it
Question = Literal["Ready", "Covered"]
QUESTIONS: tuple[Question, ...] = ("Ready", "Covered")


class Turns:
    """Of one operator. Losing it makes roll-outs later."""

    def __init__(self, max_fleets: int = 5, delay: int = 0, halt_on: Collection[Question] = QUESTIONS) -> None:
        """`delay` is in nanoseconds, from the end of one fleet to the beginning of the next.

        A fleet that fails halts all others; without `halt_on`, its questions, none does.
        """
        self.max_fleets, self.delay, self.halt_on = max_fleets, delay, tuple(halt_on)
        self._image = ""
        self._began: int | None = None
        self._rolling: set[str] = set()
        self._ended: dict[str, int] = {}
        self._halted: dict[str, str] = {}

    def look(self, image: str, now: int) -> None:
        """Note what is rolled out, before anything else is asked."""
        self._began = now if self._began is None else self._began
        if image != self._image:
            self._image = image
            self._forget_fleets()

    def forget(self) -> None:
        """Begin anew, as an operator that has just started: another one leads meanwhile."""
        self._began = None
        self._forget_fleets()

    def _forget_fleets(self) -> None:
        self._rolling.clear()
        self._ended.clear()
        self._halted.clear()

    def why_not(self, fleet: str, now: int) -> str:
        """Why the fleet may not begin; empty: it has begun."""
        if fleet in self._rolling:
            return ""
        if others := sorted(set(self._halted) - {fleet}):
            return f"the roll-out is halted: {self._halted[others[0]]}"
        if now - (self._began or now) < GRACE:
            return "the operator has just started, and looks which fleets are in the middle of it"
        if self._rolling and not self._ended:
            return f"{min(self._rolling)} goes first, alone"
        if len(self._rolling) >= self.max_fleets:
            return f"{counted(len(self._rolling), 'other is', 'others are')} rolled at the moment, as many as may be"
        if self._ended and now - max(self._ended.values()) < self.delay:
            return f"the fleet before has {self.delay // SECOND} s to prove itself"
        self._rolling.add(fleet)
        return ""

    def is_on(self, fleet: str) -> None:
        """Note that the fleet is in the middle of it."""
        self._rolling.add(fleet)

    def ended(self, fleet: str, now: int, *, proven: bool) -> None:
        """Note that all of the fleet's shards have taken it, and are well where it is `proven`."""
        self._halted.pop(fleet, None)
        if not proven:  # what is wrong with it was so before
            self._rolling.discard(fleet)
        elif fleet in self._rolling:
            self._rolling.discard(fleet)
            self._ended[fleet] = now
        else:
            self._ended.setdefault(fleet, now - self.delay)

    def halts(self, fleet: str, why: str) -> None:
        """Note that the fleet has failed."""
        self._halted[fleet] = why

    def release(self, fleet: str) -> None:
        """Wait for the fleet no more: it is gone, or left as it is."""
        self._rolling.discard(fleet)
        self._halted.pop(fleet, None)
