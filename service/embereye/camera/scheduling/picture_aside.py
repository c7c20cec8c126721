"""The pictures of a calm camera that are not decoded, as `VideoMailbox` has them of a video.

While the camera is calm, a picture waits for a turn only every `check_ns`. Those between two are set aside.
"""

from dataclasses import dataclass, field

from embereye.camera.scheduling.mailbox import Frame, Mailbox, Picture
from embereye.camera.scheduling.set_aside import RELEASED_SLOTS, SetAside
from embereye.units import SECOND

CHECK_NS = SECOND // 2  # between two decoded pictures of a calm camera, at most


@dataclass
class PictureAside:
    """Puts the pictures of a camera into the slot of `mailbox`, or sets them aside."""

    mailbox: Mailbox
    calms_down: bool = False  # from the next picture on, set pictures aside
    check_ns: int = CHECK_NS
    checked_ns: int = 0  # arrival of the latest check
    aside: "SetAside[Picture]" = field(default_factory=SetAside)

    def put(self, picture: Picture) -> None:
        """Let `picture` wait for its turn, or set it aside."""
        mailbox, aside = self.mailbox, self.aside
        slots = RELEASED_SLOTS if mailbox.count > 1 else 1
        if picture.radiometric or not (self.calms_down or aside.is_active):
            mailbox.put(picture, slots)
            return
        if aside.is_active and 0 <= picture.received_ns - self.checked_ns < self.check_ns - self.check_ns // 10:
            aside.add(picture)
            return
        aside.begin()
        self.checked_ns = picture.received_ns
        aside.add_check(picture, mailbox)
        if mailbox.count >= slots and aside.is_check(oldest := mailbox.waiting):
            assert isinstance(oldest, Picture)
            aside.note_result(oldest)  # it is superseded
        mailbox.put(picture, slots)

    def note_taken(self, frame: Frame) -> None:
        """Note that `frame` gets its turn."""
        if self.aside.is_check(frame):
            assert isinstance(frame, Picture)
            self.aside.in_work = frame

    def accept_check(self, picture: Picture) -> None:
        """Note that the check `picture` shows no change: the pictures before it are never decoded."""
        self.aside.discard_before(picture, self.mailbox)

    def release(self) -> bool:
        """Let all pictures that are set aside wait for their turns; False if the result of a check comes first."""
        self.calms_down = False
        if self.aside.in_work is not None:
            return False
        self.aside.release(self.mailbox)
        return True
