"""The calm of a camera, while only some of its pictures are decoded. The fleet's `decoding.whileCalm` enables it.

A camera becomes calm once nothing has happened for some seconds; a video, at a key frame. From then on only its checks
are decoded: the key frames of a video, two a second of other pictures. `judge_check` compares each with the previous
one before the detectors get it. A change, a failed or late check, anything that the detectors find, or `note_busy` ends
the calm; then the frames that were set aside are decoded at last, in order, and so are all later ones until the camera
is calm again.

Checks come as often as `fps.min` and the deadline require. Key frames have to come every two seconds as well.
"""

from collections import deque
from typing import Any, Protocol

from embereye.camera.scheduling.mailbox import Frame
from embereye.camera.scheduling.picture_aside import CHECK_NS, PictureAside
from embereye.camera.scheduling.video_mailbox import VideoMailbox
from embereye.detect.vision.calm import SceneChange
from embereye.detect.vision.pixels import Mask, Picture
from embereye.detect.vision.thresholds import CALM
from embereye.units import SECOND
from embereye.wire.video.access_unit import AccessUnit

INTERVAL_MAX_NS = 2 * SECOND  # between two key frames
TOLERANCE = 1.1  # of an interval: cameras and networks jitter
LATE = 1.25  # times the interval without a key frame, after which the next one is late …
LATE_NS = SECOND // 4  # … and this longer
INTERVALS = 3  # of key frames that have to be short enough
DELAYED = 3  # pictures that the decoder showed late …
DELAYED_NS = 60 * SECOND  # … within this time; then no calm begins


class Spared(Protocol):
    """The frames of a camera that can be set aside: `VideoMailbox` or `PictureAside`."""

    calms_down: bool
    aside: Any  # SetAside of its frames

    def accept_check(self, frame: Any) -> None:
        """Note that the check `frame` shows no change."""

    def release(self) -> bool:
        """Let all frames that are set aside wait for their turns; False if the result of a check has to come first."""


class CalmMode:
    """The calm of one camera. Times are nanoseconds since the Unix epoch. Use it on the event loop only."""

    def __init__(self, video: VideoMailbox, pictures: PictureAside) -> None:
        self.is_wanted = False  # by the fleet
        self.least_rate = 0.0  # checks per second that fps.min and the deadline require
        self._spared: Spared = video
        self._video, self._pictures = video, pictures
        self._scene = SceneChange()
        self._intervals: deque[int] = deque(maxlen=INTERVALS)  # between the latest key frames
        self._key_ns = 0  # arrival of the latest key frame
        self._busy_ns = 0  # when something last happened; 0: unknown
        self._delayed: deque[int] = deque(maxlen=DELAYED)  # when the decoder showed pictures late
        self._is_weak = False  # its key frames may refer to earlier pictures
        self._wakes = False  # the calm ends as soon as the check in work has a result

    @property
    def is_calm(self) -> bool:
        """True if only some frames are decoded."""
        return bool(self._spared.aside.is_active)

    @property
    def check_rate(self) -> float:
        """Frames per second that are decoded while it is calm; 0: unknown."""
        return self.key_rate if self._spared is self._video else SECOND / self._pictures.check_ns

    @property
    def words(self) -> str:
        """The calm in words for people."""
        return "key frames" if self._spared is self._video else f"{self.check_rate:g} pictures/s"

    @property
    def key_rate(self) -> float:
        """Key frames per second; 0: unknown."""
        return len(self._intervals) * SECOND / max(1, sum(self._intervals)) if self._intervals else 0.0

    def hindrance(self, now_ns: int) -> str:
        """Return why this camera is never calm although that is wanted, or ''."""
        if not self.is_wanted or len(self._intervals) < INTERVALS or self._spared is not self._video:
            return ""
        interval = sum(self._intervals) / len(self._intervals)
        if interval > TOLERANCE * INTERVAL_MAX_NS:
            return f"a key frame every {interval / SECOND:.1f} s; {INTERVAL_MAX_NS // SECOND} s at most are needed"
        if interval * self.least_rate > TOLERANCE * SECOND:
            return f"{self.key_rate:.1f} key frames/s; fps.min and the deadline need {self.least_rate:g}/s"
        if self._is_weak:
            return "its key frames are not marked as such (no IDR pictures)"
        if len(self._delayed) == DELAYED and now_ns - self._delayed[0] < DELAYED_NS:
            return "its pictures are decoded late. Turn B frames off in the camera"
        return ""

    def note_unit(self, unit: AccessUnit, now_ns: int) -> None:
        """Note that `unit` arrives; call it before the mailbox gets it."""
        self._spare(self._video)
        if not unit.key or unit.damaged:
            return
        if self._key_ns and now_ns > self._key_ns:
            self._intervals.append(now_ns - self._key_ns)
        self._key_ns, self._is_weak = now_ns, unit.weak_key
        self._video.calms_down = self._can_begin(now_ns)
        if self.is_calm and self._is_weak:
            self.note_busy(now_ns)

    def note_picture(self, now_ns: int) -> None:
        """Note that a picture of no video arrives; call it before the mailbox gets it."""
        self._spare(self._pictures)
        self._pictures.check_ns = min(CHECK_NS, int(SECOND / max(self.least_rate, 0.1)))
        self._pictures.calms_down = self._can_begin(now_ns)

    def _spare(self, spared: Spared) -> None:
        if spared is not self._spared:  # the camera sends another kind of pictures now
            self._spared.aside.in_work = None
            self._spared.release()
            self._spared, self._busy_ns, self._wakes = spared, 0, False

    def _can_begin(self, now_ns: int) -> bool:
        quiet_ns = now_ns - self._busy_ns
        known = self._busy_ns > 0 and (self._spared is not self._video or len(self._intervals) == INTERVALS)
        return self.is_wanted and known and quiet_ns >= CALM.quiet_ns and not self.hindrance(now_ns)

    def note_busy(self, now_ns: int) -> None:
        """Note that something happens: decode everything until the camera has been quiet for a while."""
        self._busy_ns = now_ns
        if not self.is_calm:
            self._spared.calms_down = False
            return
        self._wakes = True
        self.wake_if_due()

    def wake_if_due(self) -> None:
        """End the calm if it has to end and no check is in work."""
        if self._wakes and self._spared.release():
            self._wakes = False

    def note_delayed(self, now_ns: int) -> None:
        """Note that the decoder shows pictures late: a key frame alone would not be shown in time."""
        self._delayed.append(now_ns)
        self.note_busy(now_ns)

    def is_check(self, frame: Frame) -> bool:
        """True if `frame` is a check of the calm camera."""
        return self.is_calm and bool(self._spared.aside.is_check(frame))

    def judge_check(self, frame: Frame, picture: Picture | None, ignored: Mask | None, now_ns: int) -> bool:
        """Decide by the decoded `picture` of a check; None if it could not be decoded.

        True if frames before it are analysed first; it gets another turn after them. Call `wake_if_due` when the check
        has been analysed.
        """
        aside = self._spared.aside
        changed = self._wakes or picture is None or self._scene.has_changed(picture, ignored)
        if not changed:
            self._spared.accept_check(frame)
            return False
        self._busy_ns, self._wakes = now_ns, True
        if picture is not None and aside.has_before(frame):
            aside.in_work = None
            self.wake_if_due()
            return True
        aside.note_result(frame)
        return False

    def note_analysed(
        self, picture: Picture, time_ns: int, ignored: Mask | None, now_ns: int, *, is_quiet: bool
    ) -> None:
        """Note the analysis of a `picture` of `time_ns`; `is_quiet`: the detectors need no further pictures."""
        if not self.is_wanted or not picture.size:
            return
        if not is_quiet or not self._busy_ns:
            self.note_busy(now_ns)
        if self._scene.is_due(time_ns):
            if not self.is_calm and self._scene.has_changed(picture, ignored):
                self.note_busy(now_ns)
            self._scene.learn(picture, time_ns)

    def follow(self, now_ns: int, *, is_busy: bool) -> None:
        """End the calm if the next check is late, or if the camera `is_busy`. Call it several times a second."""
        if is_busy or (self.is_calm and not self.is_wanted):
            self.note_busy(now_ns)
        elif self.is_calm:
            latest_ns = self._key_ns if self._spared is self._video else self._pictures.checked_ns
            # a check that waits for a decoder is not late
            if now_ns - latest_ns > LATE * SECOND / max(self.check_rate, 0.1) + LATE_NS:
                self.note_busy(now_ns)
