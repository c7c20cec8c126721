"""What arrives from one camera: which frames are admitted to its mailbox, and how well they come."""

from collections import deque

from embereye.camera.device.arrival_quality import ArrivalQuality
from embereye.camera.scheduling.backpressure import FLUSH_NS, REJECTED_NS, PushBackpressure
from embereye.camera.scheduling.mailbox import Frame, Mailbox, Tally
from embereye.camera.scheduling.rate_controller import least_rate
from embereye.camera.scheduling.shortfall import Shortfall
from embereye.camera.scheduling.video import Depth
from embereye.shard.coverage import Watch
from embereye.units import SECOND, Box
from embereye.wire.video.access_unit import AccessUnit

CLOCK_SKEW_NS = 60 * SECOND  # a sender whose clock is further off is timed by our own
PROBE_NS = 10 * SECOND  # between two frames analysed of a refused camera: it may have become cheaper
RATE_FRAMES = 32  # over which the frame rate is measured


class Arrivals:
    """The frames of one camera up to its mailbox. Times are nanoseconds since the Unix epoch.

    `watch` is told when the camera was heard.
    """

    def __init__(self, watch: Watch) -> None:
        self.mailbox = Mailbox()
        self.quality = ArrivalQuality()
        self.backpressure = PushBackpressure()
        self.shortfall = Shortfall()
        self.refused = ""  # why this shard cannot serve the camera; empty: it can
        self.deadline_ns = 0
        self.least_rate = 0.0  # frames/s
        self._watch = watch
        self._latest_ns = 0  # capture time of the latest frame
        self._times: deque[int] = deque(maxlen=RATE_FRAMES)  # of arrival
        self._shown = 0, 0, 0  # of a video's latest picture: its unit, when that says it was taken, and when it was

    def configure(self, *, target: float, least: float, deadline_ns: int) -> None:
        """Set the frame rates that are analysed, in frames/s, and the deadline that the least rate has to keep."""
        self.deadline_ns = deadline_ns
        self.least_rate = least_rate(least, deadline_ns)
        self.mailbox.rate_controller.configure(target, self.least_rate)

    def admit_pushed(self, data: bytes, time_ns: int, now_ns: int, tally: Tally, *, urgent: bool) -> str:
        """Admit a frame that a sender pushed, and tell its `tally` when to read the next one; '' or why it is unusable.

        `time_ns` is the sender's capture time, `urgent` whether every frame is wanted.
        """
        capture_ns = self._capture_time(time_ns, now_ns)
        fresh = capture_ns == time_ns and self.quality.late_ns < FLUSH_NS
        early_ns = FLUSH_NS if fresh else 0
        reason = self._admit(data, capture_ns, now_ns, tally=tally, early_ns=early_ns, urgent=urgent)
        tally.heard_ns = now_ns
        tally.wanted_ns = now_ns + REJECTED_NS if reason else self._next_read_ns(now_ns, urgent=urgent)
        return reason

    def admit_pulled(self, data: bytes, time_ns: int, now_ns: int, lost: tuple[Box, ...], *, urgent: bool) -> None:
        """Admit a frame of a source of ours; `time_ns` 0: it was captured now. The boxes `lost` did not arrive."""
        self._admit(data, self._capture_time(time_ns, now_ns), now_ns, lost=lost, urgent=urgent)

    def admit_unit(self, unit: AccessUnit, time_ns: int, now_ns: int, *, urgent: bool) -> None:
        """Admit an access unit of a source of ours, captured at `time_ns`."""
        if self._latest_ns < time_ns:  # pictures are sent before others that are shown earlier
            capture_ns = self._capture_time(time_ns, now_ns)
        else:
            capture_ns = time_ns if abs(time_ns - now_ns) < CLOCK_SKEW_NS else now_ns
        self._note_heard(capture_ns, now_ns)
        reason = self.mailbox.offer_unit(unit, capture_ns, now_ns, boosted=urgent, refused=self._unserved(now_ns))
        self.quality.record_frame(1.0 if reason else 0.0, now_ns)

    def shown_time(self, number: int, time_ns: int, now_ns: int) -> int:
        """When the picture of the unit `number`, the next one of a video that is shown at `now_ns`, was taken.

        That is `time_ns`, unless it is not after the picture before: the clock of its sender stepped back, or stamps
        pictures as they are sent, not as they are shown.
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

    def _unserved(self, now_ns: int) -> bool:
        """Whether this shard cannot serve the camera, nor tries it once more."""
        return bool(self.refused) and now_ns - self._watch.analysed_ns < PROBE_NS

    def _capture_time(self, time_ns: int, now_ns: int) -> int:
        if time_ns:
            self.quality.record_stamp(time_ns, now_ns)
        else:
            self.quality.forget_stamps()
        # A clock that stands still or is far off must not blind a detector that works with time.
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
        if self._unserved(now_ns):
            self.mailbox.refuse_frame(tally)
            return ""
        reason = self.mailbox.offer_frame(
            data, capture_ns, now_ns, tally=tally, boosted=urgent, lost=lost, early_ns=early_ns
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
            flush_ns=FLUSH_NS if rate.limited else 0,
            late_ns=self.quality.late_ns,
            frame_rate=min(rate.target, self.frame_rate(now_ns)),  # what comes in a burst comes faster
        )

    def count_analysed(self, frame: Frame, *, urgent: bool) -> None:
        """Count `frame` as analysed; where it made the camera `urgent`, its sender is read without a pause."""
        self.mailbox.count_analysed(frame)
        if urgent and frame.tally:
            frame.tally.wanted_ns = 0

    def count_undecodable(self, frame: Frame, detail: str, now_ns: int) -> None:
        """Count `frame`, the latest one, as rejected by the decoder."""
        self.mailbox.count_failed(frame, "undecodable", detail, now_ns)
        self.quality.spoil_latest()

    def frame_rate(self, now_ns: int) -> float:
        """Frames per second that arrive, or would if none were left with their sender; 0 while the camera is silent."""
        times = self._times
        if len(times) < 2 or now_ns - times[-1] > self.deadline_ns:
            return 0.0
        if self.backpressure.frame_rate:
            return self.backpressure.frame_rate
        return (len(times) - 1) * SECOND / max(1, times[-1] - times[0])

    def wanted_rate(self, now_ns: int) -> float:
        """Frames per second that come and are asked for; 0: all of them are, however many."""
        target = self.mailbox.rate_controller.target
        return min(target, self.frame_rate(now_ns) or target)

    @property
    def shortage(self) -> str:
        """Why fewer pictures of a video are looked at than its fps.min or its deadline wants, or ''."""
        mailbox = self.mailbox
        rate = mailbox.flow.key_rate
        if not mailbox.encoding or mailbox.depth is not Depth.KEYS or rate >= self.least_rate:
            return ""
        return (
            f"the shard is overloaded: only key frames are decoded, {rate:.2g}/s instead of {self.least_rate:g}/s:"
            " add shards, use a smaller stream, or have key frames come more often"
        )

    def judge_rate(self, now_ns: int) -> None:
        """Judge whether the camera gets its least rate; to be called about twice a second."""
        if self.refused:
            self.shortfall = Shortfall()  # it is named as refused
            return
        ledger = self.mailbox.ledger
        self.shortfall.judge(
            now_ns,
            analysed=ledger.analysed,
            superseded=ledger.shed["superseded"],
            least=self.least_rate,
            arriving=self.frame_rate(now_ns),
        )

    def fault(self, now_ns: int) -> str:
        """What is wrong with what arrives, or ''."""
        fault = self.quality.fault(now_ns)
        if fault and self.rejecting(now_ns):
            return f"{fault}; at last: {self.mailbox.rejected_reason}"
        return fault or self._lateness(now_ns)

    def rejecting(self, now_ns: int) -> bool:
        """Whether a frame was rejected within the deadline."""
        return now_ns - self.mailbox.rejected_ns <= self.deadline_ns

    def _lateness(self, now_ns: int) -> str:
        late = self.quality.late_ns
        if late <= self.deadline_ns or now_ns - self._watch.heard_ns > self.deadline_ns:
            return ""
        return f"its pictures arrive {late / SECOND:.1f} s late: they wait in the network, or the shard is overloaded"
