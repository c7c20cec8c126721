"""The frames of a calm camera that are not decoded yet.

While a camera is calm, only some frames are decoded: its checks, which are the key frames of a video. The frames after
each are set aside, compressed. A check that shows no change makes the frames before it unnecessary (`discard_before`).
Otherwise all frames without a result are decoded at last, in order (`release`): those before the check, the check
again, and those after it. No frame gets two results.

| | checks | frames between them |
| --- | --- | --- |
| inactive | none | none: every frame waits for its own turn |
| active | wait for a turn or are in work; then they have a result | set aside for MAX_ASIDE_NS at most |
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from embereye.camera.scheduling.mailbox import Frame, Mailbox
from embereye.units import SECOND

MAX_ASIDE_NS = 4 * SECOND  # how long a frame is set aside, at most
RELEASED_SLOTS = 128  # frames that may wait while those that were set aside get their turns
CALM = "calm"  # the ledger's reason for frames that are never decoded because nothing happened

F = TypeVar("F", bound=Frame)


@dataclass(eq=False)
class _Check(Generic[F]):
    frame: F
    pending: bool = True  # it has no result yet
    following: list[F] = field(default_factory=list)  # the frames set aside after it


class SetAside(Generic[F]):
    """The checks of a calm camera since the latest one without a change, and the frames set aside after them."""

    def __init__(self) -> None:
        self.is_active = False
        self.in_work: F | None = None  # the check that is being decoded
        self._checks: deque[_Check[F]] = deque()

    def begin(self) -> None:
        """Set frames aside from the next check on."""
        self.is_active = True

    def add_check(self, frame: F, mailbox: Mailbox) -> None:
        """Add a check; shed the frames of `mailbox` that have been set aside for too long."""
        self._checks.append(_Check(frame))
        while frame.received_ns - self._checks[0].frame.received_ns > MAX_ASIDE_NS and not self._checks[0].pending:
            self._shed_oldest(mailbox)

    def _shed_oldest(self, mailbox: Mailbox) -> None:
        for frame in self._checks.popleft().following:
            mailbox.count_shed(frame.tally, CALM)

    def add(self, frame: F) -> None:
        """Set a frame aside that follows the latest check."""
        self._checks[-1].following.append(frame)

    def is_check(self, frame: Frame | None) -> bool:
        """True if `frame` is a check without a result."""
        return any(check.frame is frame and check.pending for check in self._checks)

    @property
    def checks(self) -> list[F]:
        """The checks since the latest one without a change, oldest first."""
        return [check.frame for check in self._checks]

    @property
    def count(self) -> int:
        """The number of frames that are set aside."""
        return sum(len(check.following) for check in self._checks)

    def has_before(self, frame: F) -> bool:
        """True if frames before the check `frame` are set aside."""
        for check in self._checks:
            if check.frame is frame:
                return False
            if check.following:
                return True
        return False

    def note_result(self, frame: F) -> None:
        """Note that the check `frame` has a result, or never gets one."""
        for check in self._checks:
            if check.frame is frame:
                check.pending = False
        if self.in_work is frame:
            self.in_work = None

    def discard_before(self, frame: F, mailbox: Mailbox) -> None:
        """Note that the check `frame` shows no change; shed the frames before it, which are never decoded."""
        self.note_result(frame)
        while self._checks[0].frame is not frame:
            self._shed_oldest(mailbox)

    def release(self, mailbox: Mailbox) -> None:
        """Let all frames without a result wait in `mailbox`, in the order of their arrival, and become inactive."""
        earlier = [frame for frame in mailbox.frames if not self.is_check(frame)]
        frames: list[F] = []
        for check in self._checks:
            frames += [check.frame, *check.following] if check.pending else check.following
        self._checks.clear()
        self.is_active, self.in_work = False, None
        for frame in frames:
            frame.is_late = True
        mailbox.replace_waiting([*earlier, *frames])
