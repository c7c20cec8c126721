"""Analysis of pictures: how a frame is decoded, what the detectors find in it, and when it becomes a still.

`decode_order` is called before a frame is decoded, `analyse_picture` after it. The order names only the parts that are
due: the image, close-ups for the appearance network, a detail, a still. The result of one frame decides about the next
one: an observation that is to be shown as a still waits in `_wanted` until the next frame is decoded. A frame that
needs no analysis repeats the previous observation.
"""

import time
from dataclasses import dataclass, field, replace

from embereye.camera.clips.ring import ClipFrame
from embereye.camera.decode.image import NO_IMAGE, Decoded, DecodeOrder
from embereye.camera.scheduling.close_ups import CloseUpBudget
from embereye.camera.scheduling.mailbox import Frame
from embereye.detect.vision.detector import Detector, without
from embereye.detect.vision.health.health import PictureHealth
from embereye.detect.vision.networks.appearance import FOR_SMOKE, Inspection, has_close_up
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.working import CLOSER_SIDE, SCALES, reduction, working_scale
from embereye.levels import Level
from embereye.units import Box
from embereye.wire.jpeg.header import read_header

CLEAR = Level.CLEAR  # looked up once, because the attribute access costs more than the comparison
STILL_EVERY_NS = 2_000_000_000  # between two stills of a scene with motion
STILL_SUSPECTED_NS = 700_000_000  # between two stills while fire is suspected: an alarm shows the latest one
STILL_STALE_NS = 10_000_000_000  # between two stills of a scene without motion
STILL_MOTION = 0.005  # share of the picture that has to change for a new still
MEASURE_EVERY = 8  # one of so many detections is timed: reading a thread's clock costs a tenth of a detection


@dataclass(frozen=True)
class AnalysedFrame:
    """The result of analysing one frame."""

    observation: Observation
    still: bytes  # JPEG; empty: no new one
    cpu_seconds: float
    fault: str = ""  # why the picture could not show a fire; empty: it could
    clip_frame: ClipFrame | None = None  # the picture for clips if the frame itself is no JPEG


@dataclass
class PictureAnalyst:
    """One camera's detector and the state between frames.

    `phase` (0..1) shifts periodic work. Without it, cameras that a shard starts together would always do it together.
    """

    detector: Detector
    health: PictureHealth = field(default_factory=PictureHealth)
    phase: float = 0.0
    close_ups: CloseUpBudget = field(default_factory=CloseUpBudget)
    _began_ns: int = field(default=0, init=False)
    _still_ns: int = field(default=0, init=False)  # when a still was last ordered
    _still_level: Level = field(default=Level.CLEAR, init=False)
    _detections: int = field(default=0, init=False)
    _detection_seconds: float = field(default=0.0, init=False)  # CPU time of the detection that was timed last
    judged_close_ups: tuple[Box, ...] | None = field(default=None, init=False)  # of the latest decoded frame
    _wanted: Observation | None = field(default=None, init=False)  # findings to mark in the still of the next frame
    _seen: Observation = field(default=Observation(0), init=False)  # in the latest picture
    # a frame that was decoded and will be again, after earlier ones: its close-ups, and what was made of it
    _postponed: tuple[Frame, tuple[Box, ...] | None, Decoded] | None = field(default=None, init=False)

    def is_repeat(self, frame: Frame) -> bool:
        """True if `frame` needs no analysis and counts as showing the same as the previous one."""
        return self._wanted is None and self.detector.is_repeat(frame.time_ns) and not self._is_health_due(frame)

    def decode_order(self, frame: Frame, *, smoothed: bool = True) -> DecodeOrder:
        """Return how to decode `frame` for `analyse_picture`."""
        is_repeat = self.is_repeat(frame)
        scale = working_scale(frame.header.width, frame.header.height)
        judged = self._postponed is not None and self._postponed[0] is frame
        self.judged_close_ups = None if frame.lost or judged else self.detector.due_inspection(frame.time_ns)
        if has_close_up(self.judged_close_ups) and not self.close_ups.allow(frame.received_ns):
            self.judged_close_ups = tuple(box for box in self.judged_close_ups or () if box == FOR_SMOKE)
        if is_repeat and self.judged_close_ups is None:
            return DecodeOrder(SCALES[0], smoothed=smoothed, image=False)
        still: list[Box] | None = None
        if shown := self._wanted:
            self._wanted = None
            still = [finding.box for finding in shown.findings if finding.box and finding.level > Level.CLEAR]
        return DecodeOrder(
            scale,
            still,
            smoothed=smoothed,
            close_ups=self.judged_close_ups,
            detail=self._wanted_detail(frame, scale),
            masked=self.detector.masked if self.judged_close_ups is not None else (),
        )

    def postpone(self, frame: Frame, decoded: Decoded) -> None:
        """Keep what was made of `frame` until it has been `decoded` again: earlier frames are analysed first."""
        self._postponed = frame, self.judged_close_ups, replace(decoded, image=NO_IMAGE, detail=None)

    def resume(self, frame: Frame, decoded: Decoded) -> Decoded:
        """Return `decoded` with what was made of `frame` when it was postponed, if it was."""
        if self._postponed is None or self._postponed[0] is not frame:
            return decoded
        _, self.judged_close_ups, before = self._postponed
        self._postponed = None
        return replace(
            decoded,
            logits=before.logits,
            still=before.still or decoded.still,
            picture=decoded.picture or before.picture,
        )

    def _wanted_detail(self, frame: Frame, scale: int) -> Box | None:
        """The part of `frame` to decode with more pixels than `scale` gives; None if there is none."""
        if frame.lost or reduction(frame.header.width, frame.header.height, CLOSER_SIDE) >= scale:
            return None
        part = self.detector.wanted_detail(frame.time_ns)
        return part if part and self.close_ups.details.allow(id(self), frame.received_ns) else None

    def analyse_picture(self, frame: Frame, decoded: Decoded) -> AnalysedFrame:
        """Analyse `frame`, decoded, given all frames before it."""
        analysed = decoded.image.size > 0
        timed = analysed and self._detections % MEASURE_EVERY == 0
        self._detections += analysed
        began = time.thread_time() if timed else 0.0
        now = frame.received_ns
        self._began_ns = self._began_ns or now
        if decoded.logits and self.judged_close_ups is not None:
            self.detector.add_inspection(Inspection.of(frame.time_ns, self.judged_close_ups, decoded.logits))
        if analysed:
            self._seen = self.detector.detect(decoded.image, frame.time_ns, frame.lost, decoded.detail)
            if self._is_health_due(frame):
                lost = without(None, frame.lost, decoded.image.shape[1], decoded.image.shape[0])
                if lost is None:
                    self.health.observe(decoded.image, now, suspected=self._seen.suspected)
                else:
                    self.health.glance(decoded.image, lost, now)
        observation = self._seen if analysed else replace(self._seen, time_ns=frame.time_ns)
        if self._is_still_due(observation, frame):
            # The first still is made at once, later ones in the camera's phase.
            ahead = 0 if self._still_ns else int(self.phase * STILL_STALE_NS)
            self._still_ns, self._still_level, self._wanted = now - ahead, observation.level, observation
        if timed:
            self._detection_seconds = time.thread_time() - began
        clip_frame = None
        if decoded.picture:
            header = read_header(decoded.picture)
            clip_frame = ClipFrame(frame.time_ns, decoded.picture, header.width, header.height)
        cpu_seconds = decoded.cpu_seconds + analysed * self._detection_seconds
        return AnalysedFrame(observation, decoded.still, cpu_seconds, self.health.fault, clip_frame)

    def _is_health_due(self, frame: Frame) -> bool:
        now, first_ns = frame.received_ns, self._began_ns + int(self.phase * self.health.limits.period_ns)
        return self.health.is_due(now, damaged=bool(frame.lost)) and now >= first_ns

    def _is_still_due(self, observation: Observation, frame: Frame) -> bool:
        if observation.level > self._still_level:
            return True
        age = frame.received_ns - self._still_ns
        if observation.level > CLEAR:
            return age > STILL_SUSPECTED_NS
        changed = observation.motion > STILL_MOTION or observation.level != self._still_level
        return age > STILL_STALE_NS or (age > STILL_EVERY_NS and changed and not frame.hurried)
