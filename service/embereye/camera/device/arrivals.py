"""One camera's arrivals: frames are admitted to its mailbox, and their quality is measured.

A frame arrives by `admit_pushed`, `admit_pulled` or `admit_unit`. Each notes that the camera was heard, corrects an
implausible capture time, offers the frame to the mailbox and records the quality. A pushing sender also learns when its
next frame is worth reading. `judge_rate` and `fault` derive the problems that the status reports.
"""

from collections import deque

from embereye.camera.device.arrival_quality import WINDOW_NS, ArrivalQuality
from embereye.camera.device.calm_mode import CalmMode
from embereye.camera.scheduling.backpressure import FLUSH_NS, REJECTED_NS, PushBackpressure
from embereye.camera.scheduling.mailbox import Frame, Mailbox, Tally
from embereye.camera.scheduling.picture_aside import PictureAside
from embereye.camera.scheduling.rate_controller import least_rate
from embereye.camera.scheduling.shortfall import Shortfall
from embereye.camera.scheduling.video import Depth
from embereye.camera.scheduling.video_mailbox import VideoMailbox
from embereye.shard.coverage import Watch
from embereye.units import SECOND, Box
from embereye.wire.video.access_unit import AccessUnit

CLOCK_SKEW_NS = 60 * SECOND  # a sender's clock that differs more is ignored, and frames get our time
PROBE_NS = 10 * SECOND  # between two analysed frames of a refused camera, whose cost may have dropped
RATE_FRAMES = 32  # over which the frame rate is measured


class Arrivals:
    """The frames of one camera on their way to its mailbox. Times are nanoseconds since the Unix epoch.

    It updates the times of `watch` when a frame arrives.
    """

    def __init__(self, watch: Watch) -> None:
        self.mailbox = Mailbox()
        self.video = VideoMailbox(self.mailbox)
        self.quality = ArrivalQuality()
        self.backpressure = PushBackpressure()
        self.shortfall = Shortfall()
        self.refused = ""  # why this shard cannot serve the camera; empty: it can
        self.deadline_ns = 0
        self.least_rate = 0.0  # frames/s
        self.pictures = PictureAside(self.mailbox)
        self.calm = CalmMode(self.video, self.pictures)
        self._watch = watch
        self._latest_ns = 0  # capture time of the latest frame
        self._unfinished_ns = 0  # when the latest analysed JPEG without an end marker arrived; 0: never
        self._times: deque[int] = deque(maxlen=RATE_FRAMES)  # of arrival
        self._shown = 0, 0, 0  # latest video picture: unit number, time stamp, capture time

    def configure(self, *, target: float, least: float, deadline_ns: int) -> None:
        """Set the analysed frame rates in frames/s, and the deadline, which raises the minimum rate if needed."""
        self.deadline_ns = deadline_ns
        self.least_rate = self.calm.least_rate = least_rate(least, deadline_ns)
        self.mailbox.rate_controller.configure(target, self.least_rate)

    def admit_pushed(self, data: bytes, time_ns: int, now_ns: int, tally: Tally, *, urgent: bool) -> str:
        """Admit a pushed frame and set in its `tally` when to read the next one. Returns why it is unusable, or ''.

        `time_ns` is the sender's capture time. `urgent`: every frame is wanted.
        """
        capture_ns = self._capture_time(time_ns, now_ns)
        fresh = capture_ns == time_ns and self.quality.late_ns < FLUSH_NS
        early_ns = FLUSH_NS if fresh else 0
        reason = self._admit(data, capture_ns, now_ns, tally=tally, early_ns=early_ns, urgent=urgent)
        tally.heard_ns = now_ns
        tally.wanted_ns = now_ns + REJECTED_NS if reason else self._next_read_ns(now_ns, urgent=urgent)
        return reason

    def admit_pulled(self, data: bytes, time_ns: int, now_ns: int, lost: tuple[Box, ...], *, urgent: bool) -> None:
        """Admit a frame of a source that we read; `time_ns` 0: captured now. The boxes `lost` did not arrive."""
        self._admit(data, self._capture_time(time_ns, now_ns), now_ns, lost=lost, urgent=urgent)

    def admit_unit(self, unit: AccessUnit, time_ns: int, now_ns: int, *, urgent: bool) -> None:
        """Admit an access unit of a source that we read, captured at `time_ns`."""
        if self._latest_ns < time_ns:  # pictures are sent before others that are shown earlier
            capture_ns = self._capture_time(time_ns, now_ns)
        else:
            capture_ns = time_ns if abs(time_ns - now_ns) < CLOCK_SKEW_NS else now_ns
        self._note_heard(capture_ns, now_ns)
        self.calm.note_unit(unit, now_ns)
        reason = self.video.offer_unit(unit, capture_ns, now_ns, boosted=urgent, refused=self._is_unserved(now_ns))
        self.quality.record_frame(1.0 if reason else 0.0, now_ns)

    def shown_time(self, number: int, time_ns: int, now_ns: int) -> int:
        """Return the capture time of unit `number`, a video's next picture, shown at `now_ns`.

        That is `time_ns` if it is later than the previous picture's. Otherwise the sender's clock stepped back, or it
        stamps pictures in sending order instead of display order, and the time is estimated.
        """
        before, stamp_ns, shown_ns = self._shown
        taken_ns = time_ns
        if 0 < time_ns <= shown_ns:
            if time_ns < stamp_ns and number > before:
                self.quality.record_jump(time_ns - stamp_ns, now_ns)
            period_ns = SECOND / (self.frame_rate(now_ns) or self.least_rate)
            taken_ns = min(now_ns, shown_ns + int(period_ns * max(1, number - before)))
        self._shown = number, time_ns, taken_ns
        return taken_ns

    def _note_heard(self, capture_ns: int, now_ns: int) -> None:
        self._watch.heard_ns = now_ns
        self._times.append(now_ns)
        self._latest_ns = max(capture_ns, self._latest_ns)

    def _is_unserved(self, now_ns: int) -> bool:
        """True if this shard cannot serve the camera and does not probe it now."""
        return bool(self.refused) and now_ns - self._watch.analysed_ns < PROBE_NS

    def _capture_time(self, time_ns: int, now_ns: int) -> int:
        if time_ns:
            self.quality.record_stamp(time_ns, now_ns)
        else:
            self.quality.forget_stamps()
        # A clock that stalls or is far off must not blind a detector that works with time.
        return time_ns if self._latest_ns < time_ns and abs(time_ns - now_ns) < CLOCK_SKEW_NS else now_ns

    def _admit(
        self,
        data: bytes,
        capture_ns: int,
        now_ns: int,
        *,
        urgent: bool,
        tally: Tally | None = None,
        lost: tuple[Box, ...] = (),
        early_ns: int = 0,
    ) -> str:
        self._note_heard(capture_ns, now_ns)
        if self._is_unserved(now_ns):
            self.mailbox.refuse_frame(tally)
            return ""
        put = None
        if self.calm.is_wanted or self.calm.is_calm:
            self.calm.note_picture(now_ns)
            put = self.pictures.put
        reason = self.mailbox.offer_frame(
            data, capture_ns, now_ns, tally=tally, boosted=urgent, lost=lost, early_ns=early_ns, put=put
        )
        self.quality.record_frame(1.0 if reason else min(1.0, sum(w * h for _, _, w, h in lost)), now_ns)
        return reason

    def _next_read_ns(self, now_ns: int, *, urgent: bool) -> int:
        rate = self.mailbox.rate_controller
        if urgent:
            wanted_ns = 0
        elif self.refused:
            wanted_ns = now_ns + int(SECOND / self.least_rate)
        else:
            wanted_ns = rate.wanted_ns
        if not wanted_ns and not self.backpressure.frame_rate:
            return 0
        return self.backpressure.next_read_ns(
            now_ns,
            wanted_ns=wanted_ns,
            flush_ns=FLUSH_NS if rate.is_limited else 0,
            late_ns=self.quality.late_ns,
            frame_rate=min(rate.target, self.frame_rate(now_ns)),  # a burst comes faster
        )

    def count_analysed(self, frame: Frame, *, urgent: bool) -> None:
        """Count `frame` as analysed. If it made the camera `urgent`, its sender is read without a pause."""
        self.mailbox.count_analysed(frame)
        if not frame.header.complete:
            self._unfinished_ns = frame.received_ns
        if urgent and frame.tally:
            frame.tally.wanted_ns = 0

    def count_undecodable(self, frame: Frame, reason: str, detail: str, now_ns: int) -> None:
        """Count `frame`, the latest one, as rejected by the decoder for `reason`, the ledger's label."""
        self.mailbox.count_failed(frame, reason, detail, now_ns)
        self.quality.spoil_latest()

    def frame_rate(self, now_ns: int) -> float:
        """Frames per second that the sender makes, including unread ones; 0 while the camera is silent."""
        times = self._times
        if len(times) < 2 or now_ns - times[-1] > self.deadline_ns:
            return 0.0
        if self.backpressure.frame_rate:
            return self.backpressure.frame_rate
        return (len(times) - 1) * SECOND / max(1, times[-1] - times[0])

    def wanted_rate(self, now_ns: int) -> float:
        """Frames per second that arrive and are wanted; 0: all, without limit."""
        target = self.mailbox.rate_controller.target
        return min(target, self.frame_rate(now_ns) or target)

    @property
    def aside_count(self) -> int:
        """The number of frames that are set aside because the camera is calm."""
        return self.video.aside.count + self.pictures.aside.count

    @property
    def rate_in_force(self) -> float:
        """Frames per second that are analysed, at most; of a calm camera, its checks."""
        return self.calm.check_rate if self.calm.is_calm else self.mailbox.rate_controller.rate

    def unfinished(self, now_ns: int) -> str:
        """Return the limitation that its JPEGs lack their end marker, or ''."""
        if not self._unfinished_ns or now_ns - self._unfinished_ns > WINDOW_NS:
            return ""
        return "its pictures end without the JPEG end marker (ffd9). Update the camera's firmware"

    def judge_rate(self, now_ns: int) -> None:
        """Judge whether the camera gets its minimum rate. Call it about twice a second."""
        if self.refused:
            self.shortfall = Shortfall()  # the status already names it as refused
            return
        ledger = self.mailbox.ledger
        self.shortfall.judge(
            now_ns,
            analysed=ledger.analysed,
            superseded=ledger.shed["superseded"],
            least=self.least_rate,
            arriving=self.frame_rate(now_ns),
            key_frames_only=self._key_frames_only(),
        )

    def _key_frames_only(self) -> str:
        """Return why fewer video pictures are decoded now than fps.min or the deadline requires, or ''."""
        rate = self.video.flow.key_rate
        if (
            self.calm.is_calm
            or not self.mailbox.encoding
            or self.video.depth is not Depth.KEYS
            or rate >= self.least_rate
        ):
            return ""
        return (
            f"the shard is overloaded: only key frames are decoded, {rate:.2g}/s instead of {self.least_rate:g}/s."
            " Add shards, use a smaller stream, or set shorter key frame intervals"
        )

    def fault(self, now_ns: int) -> str:
        """Return the fault of the arrivals, or ''."""
        fault = self.quality.fault(now_ns)
        if fault and self.is_rejecting(now_ns):
            return f"{fault}; latest: {self.mailbox.rejected_reason}"
        return fault or self._lateness(now_ns)

    def is_rejecting(self, now_ns: int) -> bool:
        """True if a frame was rejected within the deadline."""
        return now_ns - self.mailbox.rejected_ns <= self.deadline_ns

    def _lateness(self, now_ns: int) -> str:
        late = self.quality.late_ns
        if late <= self.deadline_ns or now_ns - self._watch.heard_ns > self.deadline_ns:
            return ""
        return f"its pictures arrive {late / SECOND:.1f} s late: the network or the shard is overloaded"
