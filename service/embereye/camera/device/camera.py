"""One camera of a shard: joins its arrivals, its analysis and its reports.

A frame arrives by `push_frame` or `offer_frame`, waits in the mailbox for its turn in the pool, is decoded as
`decode_order` says, and ends in `finish_turn`. Frames of a video that need no analysis join the next frame, so that one
turn decodes all of them.

While a camera is calm, only some frames are decoded (`CalmMode`). One that shows a change is postponed until the
frames before it have been analysed.
"""

import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from embereye.camera.clips.ring import VIDEO_RING_BYTES, Budget, ClipFrame, ClipUnit, Ring, VideoRing
from embereye.camera.decode.image import Decoded, DecodeOrder, PictureDelayedError, UndecodableError
from embereye.camera.decode.pool import ContextLostError
from embereye.camera.device.analyser import Analyser
from embereye.camera.device.arrivals import Arrivals
from embereye.camera.device.picture_analyst import AnalysedFrame
from embereye.camera.device.privacy import PRIVATE, Privacy
from embereye.camera.device.status import CameraStatus
from embereye.camera.live import LivePictures
from embereye.camera.model.host import ModelHost
from embereye.camera.scheduling.close_ups import CloseUpBudget
from embereye.camera.scheduling.mailbox import Frame, Picture, Tally
from embereye.camera.scheduling.turn import Turn
from embereye.camera.scheduling.video_mailbox import VideoFrame
from embereye.detect.vision.observation import Observation
from embereye.levels import Level
from embereye.process.condition import Condition
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.timing.clock import now_ns
from embereye.shard.coverage import Watch
from embereye.units import SECOND, Box
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.jpeg.header import finished
from embereye.wire.video.access_unit import AccessUnit

logger = logging.getLogger(__name__)

RECORD_NS = 2 * SECOND  # without frames of the separate record stream, after which clips use the detect stream
JOINED_BYTES = 1024 * 1024  # frames that need no analysis join the next one up to this size in total
OVERDUE_NS = SECOND // 10  # longest wait of such a frame for the next one
PICTURE_SIDE = 1280  # pixels; longest side of a picture that is made for people


@dataclass(frozen=True)
class ShardLinks:
    """The shard's services for each of its cameras."""

    submit: Callable[["CameraDevice"], None]  # queues a camera for a turn because a frame waits
    report: Callable[["CameraDevice", Observation], None]  # receives the observation of every analysed frame
    analysed: Callable[["CameraDevice", Frame, Decoded | None], None] = lambda *_: None  # receives it after that
    ring_budget: Budget = field(default_factory=Budget)
    video_budget: Budget = field(default_factory=lambda: Budget(VIDEO_RING_BYTES))
    record: Callable[["CameraDevice", ClipUnit], None] = lambda *_: None  # receives every access unit of a video
    model_host: ModelHost | None = None
    # the long side of the picture that a candidate's model needs now, in pixels; 0: none
    candidate_side: Callable[["CameraDevice"], int] = lambda _: 0
    close_ups: CloseUpBudget = field(default_factory=CloseUpBudget)  # shared by all cameras
    delays: LatencyHistogram = field(default_factory=LatencyHistogram)  # from arrival to analysis
    ages: LatencyHistogram = field(default_factory=LatencyHistogram)  # from capture to analysis
    live: LivePictures = field(default_factory=LivePictures)
    clock: Callable[[], int] = now_ns  # nanoseconds since the Unix epoch


class CameraDevice:
    """A camera; see `DecodedCamera` in `embereye.camera.decode.pool`.

    Use it on the event loop only, except `analyse_on_thread`, which runs on a thread, one frame at a time.
    """

    def __init__(self, device: Device, settings: CameraSettings, links: ShardLinks) -> None:
        watch = Watch()
        self.device = device
        self.arrivals = Arrivals(watch)
        self.analyser = Analyser(links.model_host, links.clock, links.close_ups)
        self.status = CameraStatus(watch, self.arrivals, self.analyser)
        self.ring = Ring(links.ring_budget)
        self.latest: ClipFrame | None = None  # the picture of the latest analysed frame
        self.video: VideoRing | None = None  # of a video
        self.picture: ClipFrame | None = None  # video: while a frame is finished, the whole picture that was wanted
        self.picture_wanted = False
        self._privacy = Privacy()
        self._recorded_ns = 0  # latest arrival on the separate record stream; 0: clips use the detect stream
        self.clip_ns = 0, 0  # clip length before and after an alarm
        self.received_ns = 0  # when the latest analysed frame arrived
        self.waited = 0.0  # seconds that it waited for its turn
        self._closed = False
        self._crashing = Condition(logger, begin=logging.ERROR, first_only=True)  # one of its frames crashed a decoder
        self._watch = watch
        self._links = links
        self._clock = links.clock
        self._submit = links.submit
        self.configure(device, settings)

    def configure(self, device: Device, settings: CameraSettings) -> None:
        """Apply new settings. Detectors are renewed only if settings that they depend on changed."""
        self.device = device
        if self._privacy.declare(device, self._clock()):
            self._forget_pictures()
        self.clip_ns = settings.evidence_before_ns, settings.evidence_after_ns
        self.arrivals.configure(target=device.fps_target, least=device.fps_min, deadline_ns=settings.deadline_ns)
        self.arrivals.calm.is_wanted = settings.key_frames_while_calm
        self.analyser.configure(device, settings, settings.deadline_ns)

    def push_frame(self, data: bytes, time_ns: int, tally: Tally) -> str:
        """Admit a frame that a sender captured at `time_ns`. Returns why it is unusable, or ''."""
        self.status.source_state = "streaming"
        now = self._clock()
        reason = self.arrivals.admit_pushed(data, time_ns, now, tally, urgent=self.urgent)
        self._show_frame(data, time_ns or now, now)
        if self.arrivals.mailbox.waiting:
            self._submit(self)
        return reason

    def offer_frame(self, data: bytes | AccessUnit, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        """Admit a frame of a source that we read; `time_ns` 0: captured now. The boxes `lost` did not arrive."""
        if self._closed:  # its source is closing
            return
        now = self._clock()
        if isinstance(data, AccessUnit):
            self.arrivals.admit_unit(data, time_ns or now, now, urgent=self.urgent)
            self._want_private_picture(now)
            if not self._privacy and not self._has_separate_record_stream(now, ends=data.key):
                self._store_unit(ClipUnit(time_ns or now, data))
        else:
            self.arrivals.admit_pulled(data, time_ns, now, lost, urgent=self.urgent)
            self._show_frame(data, time_ns or now, now)
            if not self._has_separate_record_stream(now, ends=True):
                self._forget_video()  # the source may have sent a video before
        self._submit_ready()

    def _show_frame(self, data: bytes, time_ns: int, now: int) -> None:
        """Show the frame to people who look at the camera, or request a picture without the hidden parts."""
        if self._privacy:
            self._want_private_picture(now)
        else:
            self._links.live.offer(self.device.id, data, time_ns, self.live_encoding)

    def _want_private_picture(self, now: int) -> None:
        if self._privacy.is_picture_due(now):
            self.picture_wanted = True

    def _submit_ready(self) -> None:
        """Queue the camera if a frame waits that does not join the next one."""
        mailbox = self.arrivals.mailbox
        waiting = mailbox.waiting
        if waiting and not (self.arrivals.video.is_deferrable and self._is_skippable(waiting)):
            self._submit(self)

    def submit_overdue(self, now: int) -> None:
        """Queue a frame that has waited too long to join the next one, which may never come. Call it regularly.

        The calm ends here too, if people look at the camera or its next key frame is late.
        """
        if self.arrivals.calm.is_wanted or self.arrivals.calm.is_calm:
            self.arrivals.calm.follow(now, is_busy=self.device.id in self._links.live.wanted)
            self._submit_ready()
        waiting = self.arrivals.mailbox.waiting
        if waiting and now - waiting.received_ns > OVERDUE_NS:
            self._submit(self)

    def _is_skippable(self, frame: Frame) -> bool:
        """True if a video's `frame` needs no analysis. Joined to the next frame, it wakes two processes less often."""
        return not self.picture_wanted and self.analyser.is_repeat(frame)

    def record_frame(self, data: bytes | AccessUnit, time_ns: int = 0, _: tuple[Box, ...] = ()) -> None:
        """Store a unit of the separate record stream for clips; it is not decoded."""
        if self._closed or self._privacy or not isinstance(data, AccessUnit):
            return
        now = self._clock()
        if not self._recorded_ns:
            if not data.key:
                return
            self._forget_video()  # these pictures belong to another stream, and a clip has only one size
        self._recorded_ns = now
        self._store_unit(ClipUnit(time_ns or now, data))

    def _has_separate_record_stream(self, now: int, *, ends: bool) -> bool:
        """True if clips use the separate record stream. Leave it if it is silent and `ends` allows that."""
        if self._recorded_ns and now - self._recorded_ns > RECORD_NS and ends:
            self._recorded_ns = 0
            self._forget_video()
        return self._recorded_ns > 0

    def _forget_video(self) -> None:
        if self.video:
            self.video.close()
        self.video = None

    def _forget_pictures(self) -> None:
        """Drop pictures that show what is hidden now."""
        self._recorded_ns = 0
        self._forget_video()
        self.ring.close()
        self.ring = Ring(self._links.ring_budget)
        self.latest = self.picture = None
        self.status.forget_still()
        self._links.live.forget(self.device.id)

    @property
    def pause(self) -> float:
        """Seconds between two frames after which it breaks its `fps.min` or its deadline."""
        return 1.0 / self.arrivals.least_rate

    @property
    def urgent(self) -> bool:
        """True if fire is suspected; then its frames overtake others."""
        return self.analyser.urgent

    def next_frame(self) -> Frame | None:
        """Remove the oldest waiting frame that can be decoded from the mailbox and return it.

        Video frames that need no analysis join the frame after them (`joined`).
        """
        mailbox, joined = self.arrivals.mailbox, list[VideoFrame]()
        while frame := mailbox.take_frame():
            if not isinstance(frame, VideoFrame):
                self.arrivals.pictures.note_taken(frame)
                return frame
            if ready := self.arrivals.video.with_units(frame):
                joined.append(ready)
                if not self._is_joined_to(mailbox.waiting, joined):
                    break
        if len(joined) > 1:
            joined[-1].units = [unit for frame in joined for unit in frame.units]
            joined[-1].joined = joined[:-1]
        return joined[-1] if joined else None

    def _is_joined_to(self, following: Frame | None, frames: Sequence[VideoFrame]) -> bool:
        """True if `frames` are to be decoded together with `following`, the frame after them."""
        latest = frames[-1]
        # Only within a group: an undecodable group must not spoil the picture after the next key frame.
        if not isinstance(following, VideoFrame) or following.group is not latest.group:
            return False
        small = sum(len(unit.data) for frame in frames for unit in frame.units) <= JOINED_BYTES
        return small and self._is_skippable(latest)

    @property
    def phase(self) -> float:
        """A number 0..1 that spreads periodic work of the cameras over time."""
        return zlib.crc32(self.device.id.encode()) / 2**32

    @property
    def encoding(self) -> str:
        """H264 or H265 for a video, else ''."""
        return self.arrivals.mailbox.encoding

    @property
    def live_encoding(self) -> str:
        """The live video's encoding, H264 or H265; '' for pictures, PRIVATE if parts of them are hidden."""
        if self._privacy:
            return PRIVATE
        return self.video.encoding if self.video else ""

    def lose_context(self) -> None:
        """Restart the video at its latest key frame: the decoder with its context has ended."""
        self.arrivals.video.restart_decoding(replay=True)

    def decode_order(self, frame: Frame) -> DecodeOrder | None:
        """Return how to decode `frame`; None if it contains temperatures."""
        order = self.analyser.decode_order(frame)
        if order and self.picture_wanted and (self._privacy or isinstance(frame, VideoFrame)):
            order = replace(order, picture_side=max(order.picture_side, PICTURE_SIDE))
        if order and isinstance(frame, VideoFrame) and (side := self._links.candidate_side(self)) > order.picture_side:
            order = replace(order, picture_side=side)
        return replace(order, hidden=self._privacy.hidden) if order and self._privacy else order

    def analyse_on_thread(self, frame: Frame) -> object:
        """Analyse a `frame` of temperatures. Called on a thread."""
        assert isinstance(frame, Picture)
        return self.analyser.analyse_temperatures(frame, shown=self.device.id in self._links.live.wanted)

    def finish_turn(self, turn: Turn) -> None:
        """Analyse the decoded picture, count the frame and report the observation. Does nothing once closed."""
        if self._closed:
            return
        try:
            self._use_result(turn)
        finally:
            self.arrivals.calm.wake_if_due()
            self._submit_ready()

    def _is_postponed(self, frame: Frame, result: object, now: int) -> bool:
        """True if `frame`, a check of a calm camera, is analysed only after frames before it that were set aside."""
        detector = self.analyser.pictures.detector
        decoded = result if isinstance(result, Decoded) and result.image.size else None
        if decoded and isinstance(frame, VideoFrame) and decoded.unit != frame.units[-1].number:
            decoded = None
        if not self.arrivals.calm.judge_check(frame, decoded.image if decoded else None, detector.ignored, now):
            return False
        assert decoded
        self.analyser.cost.cpu_seconds += decoded.cpu_seconds
        self.analyser.pictures.postpone(frame, decoded)
        return True

    def _use_result(self, turn: Turn) -> None:
        frame, result, decoding, calm = turn.frame, turn.result, 0.0, self.arrivals.calm
        if calm.is_check(frame) and self._is_postponed(frame, result, self._clock()):
            return
        if isinstance(result, Decoded):
            result = self.analyser.pictures.resume(frame, result)
        decoded = result if isinstance(result, Decoded) else None
        self.received_ns, self.waited = frame.received_ns, turn.waited
        if isinstance(result, Decoded):
            decoding = result.cpu_seconds
            if isinstance(frame, VideoFrame):  # the picture may be that of an earlier unit
                time_ns = self.arrivals.video.time_of(result.unit) or frame.time_ns
                frame.time_ns = self.arrivals.shown_time(result.unit, time_ns, self._clock())
            result = self.analyser.analyse_picture(frame, result)
        now = self._clock()
        if isinstance(result, AnalysedFrame):
            self._finish_analysed(frame, result, now, decoding)
            self._links.analysed(self, frame, decoded)
            if decoded:
                self._follow_calm(frame, decoded, now)
        else:
            self._count_failure(frame, result, now)

    def _count_failure(self, frame: Frame, result: object, now: int) -> None:
        calm = self.arrivals.calm
        if calm.is_wanted:
            calm.note_busy(now)
        if isinstance(result, PictureDelayedError):
            calm.note_delayed(now)
            self._count_shed(frame, "delayed by the decoder")
        elif isinstance(result, ContextLostError):
            self._count_shed(frame, "decoder lost")
        elif isinstance(result, UndecodableError):
            if isinstance(frame, VideoFrame):  # pictures before the next key frame cannot be trusted
                self.arrivals.video.restart_decoding(replay=False)
            if result.crashed:
                sentence = "camera %s: a frame crashed a decoder; it gets a separate decoder process"
                self._crashing.fail(result.reason, sentence, self.device.id)
            for earlier in _joined(frame):
                self.arrivals.mailbox.count_failed(earlier, "undecodable", str(result), now)
            self.arrivals.count_undecodable(frame, result.reason, str(result), now)
        else:
            detail = self.analyser.record_failure(result)
            for counted in (*_joined(frame), frame):
                self.arrivals.mailbox.count_failed(counted, "analysis failed", detail, now)

    def _follow_calm(self, frame: Frame, decoded: Decoded, now: int) -> None:
        calm = self.arrivals.calm
        if not calm.is_wanted:
            return
        if isinstance(frame, VideoFrame) and decoded.unit != frame.units[-1].number:
            calm.note_delayed(now)
        ignored = self.analyser.pictures.detector.ignored
        calm.note_analysed(decoded.image, frame.time_ns, ignored, now, is_quiet=self.analyser.is_quiet)

    def _count_shed(self, frame: Frame, reason: str) -> None:
        for counted in (*_joined(frame), frame):
            self.arrivals.mailbox.count_shed(counted.tally, reason)

    def _finish_analysed(self, frame: Frame, analysed: AnalysedFrame, now: int, decoding: float) -> None:
        if self._privacy.is_outdated(frame.received_ns):
            analysed = replace(analysed, still=b"", clip_frame=None)
        seen = self.analyser.conclude(frame, analysed)
        self.status.peaks.note(seen.findings)
        count = 1 + len(_joined(frame))
        if isinstance(frame, VideoFrame):
            self.arrivals.video.flow.record_turn(frame.units, decoding, (analysed.cpu_seconds - decoding) / count)
        for counted in (*_joined(frame), frame):
            self.analyser.cost.record_frame(analysed.cpu_seconds / count)
            self.arrivals.count_analysed(counted, urgent=seen.urgent)
            if not counted.is_late:
                self._links.delays.observe((now - counted.received_ns) / SECOND)
                self._links.ages.observe((now - counted.time_ns) / SECOND)
        self._watch.analysed_ns = now
        self._store_picture(frame, analysed, suspected=seen.suspected)
        if analysed.clip_frame:
            self.picture_wanted = False
            self._privacy.note_picture(now)
        self.picture = analysed.clip_frame if isinstance(frame, VideoFrame) and not self._privacy else None
        if self.picture:
            self._links.live.offer(self.device.id, self.picture.jpeg, self.picture.time_ns, self.live_encoding)
        self.status.show_still(analysed.still, seen.findings, now)
        if self.status.blindness(now):
            # A camera that cannot see may still raise an alarm, but must not report that a fire is out.
            seen = replace(seen, findings=tuple(finding for finding in seen.findings if finding.level > Level.CLEAR))
        self._links.report(self, seen)

    def _store_unit(self, unit: ClipUnit) -> None:
        """Store an access unit of a video for clips."""
        if self.video is None:
            self.video = VideoRing(self._links.video_budget)
        self.video.add(unit, self.clip_ns[0])
        self._links.live.offer_video(self.device.id, unit, self.video)
        self._links.record(self, unit)

    def _store_picture(self, frame: Frame, analysed: AnalysedFrame, *, suspected: bool) -> None:
        """Store the picture for clips: the frame, a false-colour picture of temperatures, or one with hidden parts."""
        picture = analysed.clip_frame
        radiometric = isinstance(frame, Picture) and frame.radiometric
        if self._privacy and not picture and not radiometric:
            self.latest = None
            return
        if self._privacy or radiometric:
            if picture:
                self._links.live.offer(self.device.id, picture.jpeg, picture.time_ns, self.live_encoding)
        elif not isinstance(frame, Picture):
            self.latest = None
            return
        else:
            jpeg = frame.data if frame.header.complete else finished(frame.data)
            picture = ClipFrame(frame.time_ns, jpeg, frame.header.width, frame.header.height)
        if picture:
            self.latest = picture
            self.ring.add(picture, self.clip_ns[0], suspected=suspected)

    def reason(self, now: int) -> str:
        """One sentence why this camera is not covered, or ''."""
        return self.status.reason(now)

    def message(self, now: int) -> DeviceStatus:
        """The camera's status message."""
        return self.status.message(self.device, now)

    def close(self) -> None:
        """Release the shard's resources and shed waiting frames as handed over. Later frames are ignored."""
        self._closed = True
        self.ring.close()
        self._forget_video()
        self._links.live.forget(self.device.id)
        self.analyser.withdraw_model()
        self.arrivals.mailbox.discard_waiting("handed over")


def _joined(frame: Frame) -> Sequence[Frame]:
    """The frames before `frame` that are decoded with it but not analysed."""
    return frame.joined if isinstance(frame, VideoFrame) else ()
