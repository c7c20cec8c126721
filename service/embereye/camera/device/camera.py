"""One camera of a shard: joins what arrives, what is analysed and what is reported."""

import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from embereye.camera.clips.ring import VIDEO_RING_BYTES, Budget, KeptFrame, KeptUnit, Ring, VideoRing
from embereye.camera.decode.image import Decoded, DecodeOrder, UndecodableError
from embereye.camera.decode.pool import ContextLostError, PictureDelayedError
from embereye.camera.device.analyser import Analyser
from embereye.camera.device.arrivals import Arrivals
from embereye.camera.device.picture_analyst import AnalysedFrame
from embereye.camera.device.status import CameraStatus
from embereye.camera.model.host import ModelHost
from embereye.camera.scheduling.close_ups import CloseUpBudget
from embereye.camera.scheduling.mailbox import Frame, Tally
from embereye.camera.scheduling.turn import Turn
from embereye.detect.vision.observation import Observation
from embereye.levels import Level
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.timing.clock import now_ns
from embereye.shard.coverage import Watch
from embereye.units import SECOND, Box
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.video.access_unit import AccessUnit

logger = logging.getLogger(__name__)

RECORD_NS = 2 * SECOND  # without anything of the stream that is recorded, after which clips are of the one looked at
JOINED_BYTES = 1024 * 1024  # of frames of a video that nobody looks at, up to which they are decoded with the next one
OVERDUE_NS = SECOND // 10  # that such a frame waits for the next one at least
PICTURE_SIDE = 1280  # pixels of the long side of an alarm's still, at most, where it is made of a video


@dataclass(frozen=True)
class ShardLinks:
    """What a shard lends to each of its cameras."""

    submit: Callable[["CameraDevice"], None]  # queues a camera that has a frame waiting for its turn
    report: Callable[["CameraDevice", Observation], None]  # gets what was seen in every analysed frame
    ring_budget: Budget = field(default_factory=Budget)
    video_budget: Budget = field(default_factory=lambda: Budget(VIDEO_RING_BYTES))
    record: Callable[["CameraDevice", KeptUnit], None] = lambda *_: None  # gets every access unit of a video
    model_host: ModelHost | None = None
    close_ups: CloseUpBudget = field(default_factory=CloseUpBudget)  # that all cameras share
    delays: LatencyHistogram = field(default_factory=LatencyHistogram)  # from arrival to analysis
    ages: LatencyHistogram = field(default_factory=LatencyHistogram)  # from capture to analysis
    clock: Callable[[], int] = now_ns  # nanoseconds since the Unix epoch


class CameraDevice:
    """A `DecodedCamera`; see `embereye.camera.decode.pool`.

    Belongs to the event loop, but for `analyse_on_thread`, which runs on a thread, one frame at a time. A frame comes
    in by `push_frame` or `offer_frame`, waits for its turn in the pool, and ends in `finish_turn`.
    """

    def __init__(self, device: Device, settings: CameraSettings, links: ShardLinks) -> None:
        watch = Watch()
        self.device = device
        self.arrivals = Arrivals(watch)
        self.analyser = Analyser(links.model_host, links.clock, links.close_ups)
        self.status = CameraStatus(watch, self.arrivals, self.analyser)
        self.ring = Ring(links.ring_budget)
        self.latest: KeptFrame | None = None  # the picture of the frame that was analysed last
        self.video: VideoRing | None = None  # of a video
        self.picture: KeptFrame | None = None  # of a video, while a frame is finished: a whole picture, as was wanted
        self.picture_wanted = False
        self._recorded_ns = 0  # when something of the stream to record came last; 0: clips are of the one looked at
        self.clip_ns = 0, 0  # kept before and after an alarm
        self.received_ns = 0  # when the frame that was analysed last arrived
        self.waited = 0.0  # seconds that it waited for its turn
        self._closed = False
        self._watch = watch
        self._links = links
        self._clock = links.clock
        self._submit = links.submit
        self.configure(device, settings)

    def configure(self, device: Device, settings: CameraSettings) -> None:
        """Apply new settings; the detectors forget what they saw only if what they depend on has changed."""
        self.device = device
        self.clip_ns = settings.evidence_before_ns, settings.evidence_after_ns
        self.arrivals.configure(target=device.fps_target, least=device.fps_min, deadline_ns=settings.deadline_ns)
        self.analyser.configure(device, settings, settings.deadline_ns)

    # A frame's way

    def push_frame(self, data: bytes, time_ns: int, tally: Tally) -> str:
        """Take in a frame that a sender captured at `time_ns`; returns why it is unusable, or ''."""
        self.status.source_state = "streaming"
        now = self._clock()
        reason = self.arrivals.admit_pushed(data, time_ns, now, tally, urgent=self.urgent)
        if self.arrivals.mailbox.waiting:
            self._submit(self)
        return reason

    def offer_frame(self, data: bytes | AccessUnit, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        """Take in a frame of a source of ours; without a time it was captured now. The boxes `lost` did not arrive."""
        if self._closed:  # its source is being closed
            return
        now = self._clock()
        if isinstance(data, AccessUnit):
            self.arrivals.admit_unit(data, time_ns or now, now, urgent=self.urgent)
            if not self._records_apart(now, ends=data.key):
                self._keep_unit(KeptUnit(time_ns or now, data))
        else:
            self.arrivals.admit_pulled(data, time_ns, now, lost, urgent=self.urgent)
            if not self._records_apart(now, ends=True):
                self._forget_video()  # it may have sent one before
        self._submit_ready()

    def _submit_ready(self) -> None:
        """Queue it where a frame waits, unless that is to be decoded with the next one."""
        mailbox = self.arrivals.mailbox
        waiting = mailbox.waiting
        if waiting and not (mailbox.may_wait and self._passes(waiting)):
            self._submit(self)

    def submit_overdue(self, now: int) -> None:
        """Have a frame that waits for the next one decoded without that; to be called now and then: none may come."""
        waiting = self.arrivals.mailbox.waiting
        if waiting and now - waiting.received_ns > OVERDUE_NS:
            self._submit(self)

    def _passes(self, frame: Frame) -> bool:
        """Whether nobody looks at `frame`, of a video: decoded with the next one it wakes two processes less often."""
        return not self.picture_wanted and self.analyser.repeats(frame)

    def record_frame(self, data: bytes | AccessUnit, time_ns: int = 0, _: tuple[Box, ...] = ()) -> None:
        """Keep a picture of the stream that is recorded apart from the one that is looked at; nothing decodes it."""
        if self._closed or not isinstance(data, AccessUnit):
            return
        now = self._clock()
        if not self._recorded_ns:
            if not data.key:
                return
            self._forget_video()  # the pictures of another stream: a clip has but one size
        self._recorded_ns = now
        self._keep_unit(KeptUnit(time_ns or now, data))

    def _records_apart(self, now: int, *, ends: bool) -> bool:
        """Whether clips are of the stream to record, which, once it is silent, `ends` with a picture to begin at."""
        if self._recorded_ns and now - self._recorded_ns > RECORD_NS and ends:
            self._recorded_ns = 0
            self._forget_video()
        return self._recorded_ns > 0

    def _forget_video(self) -> None:
        if self.video:
            self.video.close()
        self.video = None

    @property
    def pause(self) -> float:
        """Seconds between two frames after which it breaks its `fps.min` or its deadline."""
        return 1.0 / self.arrivals.least_rate

    @property
    def urgent(self) -> bool:
        """Whether fire is suspected, so that its frames go ahead of others."""
        return self.analyser.urgent

    def next_frame(self) -> Frame | None:
        """Remove the oldest waiting frame that can be decoded from the mailbox and return it.

        Of a video it comes with those that nobody looks at: they are `passed` by the one behind them.
        """
        mailbox = self.arrivals.mailbox
        joined: list[Frame] = []
        while frame := mailbox.take_frame():
            if ready := mailbox.with_units(frame):
                joined.append(ready)
                if not self._passed_by(mailbox.waiting, joined):
                    break
        if len(joined) > 1:
            joined[-1].units = [unit for each in joined for unit in each.units]
            joined[-1].passed = joined[:-1]
        return joined[-1] if joined else None

    def _passed_by(self, following: Frame | None, frames: Sequence[Frame]) -> bool:
        """Whether `frames`, the last of which comes before `following`, are to be decoded with that."""
        latest = frames[-1]
        # Only within a group: what cannot be decoded must cost no picture behind the next key frame.
        if following is None or latest.group is None or following.group is not latest.group:
            return False
        small = sum(len(unit.data) for each in frames for unit in each.units) <= JOINED_BYTES
        return small and self._passes(latest)

    @property
    def phase(self) -> float:
        """0..1, another one for each camera: what is done in turn is done at another time."""
        return zlib.crc32(self.device.id.encode()) / 2**32

    @property
    def encoding(self) -> str:
        """Of a video H264 or H265, else ''."""
        return self.arrivals.mailbox.encoding

    def lose_context(self) -> None:
        """Begin a video anew with its latest key frame: the decoder that had its context has ended."""
        self.arrivals.mailbox.restart_decoding(replay=True)

    def decode_order(self, frame: Frame) -> DecodeOrder | None:
        """How `frame` is to be decoded; None where it holds temperatures."""
        order = self.analyser.decode_order(frame)
        if order and frame.units and self.picture_wanted:
            return replace(order, picture_side=max(order.picture_side, PICTURE_SIDE))
        return order

    def analyse_on_thread(self, frame: Frame) -> object:
        """Analyse a `frame` of temperatures; on a thread."""
        return self.analyser.analyse_temperatures(frame)

    def finish_turn(self, turn: Turn) -> None:
        """Inspect the decoded picture, count the frame and report what was seen in it; once it is closed, nothing."""
        if self._closed:
            return
        try:
            self._use_result(turn)
        finally:
            self._submit_ready()

    def _use_result(self, turn: Turn) -> None:
        frame, result, decoding = turn.frame, turn.result, 0.0
        self.received_ns, self.waited = frame.received_ns, turn.waited
        if isinstance(result, Decoded):
            decoding = result.cpu_seconds
            if frame.units:  # the picture may be that of an earlier unit
                time_ns = self.arrivals.mailbox.time_of(result.unit) or frame.time_ns
                frame.time_ns = self.arrivals.shown_time(result.unit, time_ns, self._clock())
            result = self.analyser.inspect_pixels(frame, result)
        now = self._clock()
        if isinstance(result, AnalysedFrame):
            self._finish_analysed(frame, result, now, decoding)
        elif isinstance(result, PictureDelayedError):
            self._count_shed(frame, "delayed by the decoder")
        elif isinstance(result, ContextLostError):
            self._count_shed(frame, "decoder lost")
        elif isinstance(result, UndecodableError):
            if frame.units:
                self._note_undecodable(result)
            for each in frame.passed:
                self.arrivals.mailbox.count_failed(each, "undecodable", str(result), now)
            self.arrivals.count_undecodable(frame, str(result), now)
        else:
            detail = self.analyser.record_failure(result)
            for each in (*frame.passed, frame):
                self.arrivals.mailbox.count_failed(each, "analysis failed", detail, now)

    def _count_shed(self, frame: Frame, reason: str) -> None:
        for each in (*frame.passed, frame):
            self.arrivals.mailbox.count_shed(each.tally, reason)

    def _note_undecodable(self, error: UndecodableError) -> None:
        """Begin a video anew with its next key frame: what is decoded of it until then cannot be trusted."""
        self.arrivals.mailbox.restart_decoding(replay=False)
        if error.crashed:
            logger.error("camera %s: a frame of its ended a decoder; it is decoded apart from others", self.device.id)

    def _finish_analysed(self, frame: Frame, analysed: AnalysedFrame, now: int, decoding: float) -> None:
        seen = self.analyser.conclude(frame, analysed)
        count = 1 + len(frame.passed)
        if frame.units:
            self.arrivals.mailbox.flow.record_turn(frame.units, decoding, (analysed.cpu_seconds - decoding) / count)
        for each in (*frame.passed, frame):
            self.analyser.cost.record_frame(analysed.cpu_seconds / count)
            self.arrivals.count_analysed(each, urgent=seen.urgent)
            self._links.delays.observe((now - each.received_ns) / SECOND)
            self._links.ages.observe((now - each.time_ns) / SECOND)
        self._watch.analysed_ns = now
        self._keep_picture(frame, analysed, suspected=seen.suspected)
        self.picture = analysed.kept if frame.units else None
        if self.picture:
            self.picture_wanted = False
        self.status.show_still(analysed.still, now)
        if self.status.blindness(now):
            # A camera that cannot see may still raise an alarm, but must not say that a fire is out.
            seen = replace(seen, findings=tuple(of for of in seen.findings if of.level > Level.CLEAR))
        self._links.report(self, seen)

    def _keep_unit(self, kept: KeptUnit) -> None:
        """Keep an access unit of a video for a clip."""
        if self.video is None:
            self.video = VideoRing(self._links.video_budget)
        self.video.add(kept, self.clip_ns[0])
        self._links.record(self, kept)

    def _keep_picture(self, frame: Frame, analysed: AnalysedFrame, *, suspected: bool) -> None:
        """Keep the picture for a clip: the frame itself, or the false colours of temperatures where they were drawn."""
        kept = analysed.kept
        if frame.units:
            self.latest = None
            return
        if not frame.radiometric:
            kept = KeptFrame(frame.time_ns, frame.data, frame.header.width, frame.header.height)
        if kept:
            self.latest = kept
            self.ring.add(kept, self.clip_ns[0], suspected=suspected)

    # What the shard asks

    def reason(self, now: int) -> str:
        """One sentence why this camera is not covered, or '' where it is."""
        return self.status.reason(now)

    def message(self, now: int) -> DeviceStatus:
        """Its status, as it travels."""
        return self.status.message(self.device, now)

    def close(self) -> None:
        """Give back what it holds of the shard's, and take no more of it; its waiting frame counts as handed over."""
        self._closed = True
        self.ring.close()
        self._forget_video()
        self.analyser.withdraw_model()
        self.arrivals.mailbox.discard_waiting("handed over")
