"""The turns of the fleets that run the operator's image: one alone first, then several at once.

Each pass over a fleet calls `enter`, and `plan_rollout` asks `why_not` before it changes the first pod. A new image
starts with one fleet alone. Once that has ended well and `delay` is over, up to `max_fleets` roll at once. A failed
fleet halts all others until its roll-out has ended. The state is only in the operator's memory, so after a start or a
change of leaders no fleet begins before GRACE, in which running roll-outs become visible.
"""

from collections.abc import Collection
from typing import Literal

from embereye.units import SECOND, counted

GRACE = 15 * SECOND  # after the operator's start, until it has seen which roll-outs are in progress
Question = Literal["Ready", "Covered", "Detection"]
QUESTIONS: tuple[Question, ...] = ("Ready", "Covered", "Detection")
DEFAULT_QUESTIONS: tuple[Question, ...] = ("Ready", "Covered")


class Turns:
    """The roll-out turns of one operator. Losing them only delays roll-outs."""

    def __init__(self, max_fleets: int = 5, delay: int = 0, halt_on: Collection[Question] = DEFAULT_QUESTIONS) -> None:
        """Start without turns; `delay` is in nanoseconds, from the end of one fleet to the start of the next.

        A fleet that fails one of the questions `halt_on` halts all others; without questions none does.
        """
        self.max_fleets, self.delay, self.halt_on = max_fleets, delay, tuple(halt_on)
        self._image = ""
        self._began: int | None = None
        self._rolling: set[str] = set()
        self._ended: dict[str, int] = {}
        self._halted: dict[str, str] = {}

    def enter(self, fleet: str, image: str, now: int, *, takes_part: bool) -> bool:
        """Begin a pass over the fleet; return `takes_part`, which is false for a fleet with an image of its choice."""
        if takes_part:
            self.note_image(image, now)
        else:
            self.release(fleet)
        return takes_part

    def note_image(self, image: str, now: int) -> None:
        """Record the image that is rolled out; call it first in each pass."""
        self._began = now if self._began is None else self._began
        if image != self._image:
            self._image = image
            self._forget_fleets()

    def adopt(self, other: "Turns") -> None:
        """Take over the state of `other`, which `plan_rollout` derived from this one."""
        vars(self).update(vars(other))

    def forget(self) -> None:
        """Start again like a new operator, because another one leads meanwhile."""
        self._began = None
        self._forget_fleets()

    def _forget_fleets(self) -> None:
        self._rolling.clear()
        self._ended.clear()
        self._halted.clear()

    def why_not(self, fleet: str, now: int) -> str:
        """Return why the fleet cannot start; '' if it has started."""
        if fleet in self._rolling:
            return ""
        if failed := sorted(set(self._halted) - {fleet}):
            return f"the roll-out is halted: {self._halted[failed[0]]}"
        if now - (self._began or now) < GRACE:
            return "the operator has just started, and is checking which roll-outs are in progress"
        if self._rolling and not self._ended:
            return f"{min(self._rolling)} goes first, alone"
        if len(self._rolling) >= self.max_fleets:
            return (
                f"{counted(len(self._rolling), 'other fleet is', 'other fleets are')} rolling out, which is the limit"
            )
        if self._ended and now - max(self._ended.values()) < self.delay:
            return f"the previous fleet has {self.delay // SECOND} s to prove itself"
        self._rolling.add(fleet)
        return ""

    def note_rolling(self, fleet: str) -> None:
        """Record that the fleet's roll-out is in progress."""
        self._rolling.add(fleet)

    def note_ended(self, fleet: str, now: int, *, proven: bool) -> None:
        """Record that all of the fleet's shards are updated; `proven`: they are also healthy."""
        self._halted.pop(fleet, None)
        if not proven:  # its problem is older than the roll-out
            self._rolling.discard(fleet)
        elif fleet in self._rolling:
            self._rolling.discard(fleet)
            self._ended[fleet] = now
        else:
            self._ended.setdefault(fleet, now - self.delay)

    def note_failure(self, fleet: str, why: str) -> None:
        """Record that the fleet's roll-out failed."""
        self._halted[fleet] = why

    def release(self, fleet: str) -> None:
        """Forget the fleet's turn, because it was deleted or takes no part."""
        self._rolling.discard(fleet)
        self._halted.pop(fleet, None)
