"""The analysis of pictures: how a frame is decoded, what the detectors find in it, when a still is made of it."""

import time
from dataclasses import dataclass, field, replace

from embereye.camera.clips.ring import KeptFrame
from embereye.camera.decode.image import Decoded, DecodeOrder
from embereye.camera.scheduling.close_ups import CloseUpBudget
from embereye.camera.scheduling.mailbox import Frame
from embereye.detect.vision.detector import Detector, without
from embereye.detect.vision.health.health import PictureHealth
from embereye.detect.vision.networks.appearance import Look
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.working import CLOSER_SIDE, SCALES, reduction, working_scale
from embereye.levels import Level
from embereye.units import Box
from embereye.wire.jpeg.header import read_header

CLEAR = Level.CLEAR  # looked up once: that costs more than all the rest of a comparison
STILL_EVERY_NS = 2_000_000_000  # between two stills of a scene in which something moves
STILL_SUSPECTED_NS = 700_000_000  # between two stills where fire is suspected: an alarm shows the latest one
STILL_STALE_NS = 10_000_000_000  # a still of a scene where nothing moves is renewed this often
STILL_MOTION = 0.005  # share of the picture that makes a new still worth sending
MEASURE_EVERY = 8  # inspections, of which one is timed: reading a thread's clock costs a tenth of an inspection


@dataclass(frozen=True)
class AnalysedFrame:
    """What came out of one frame."""

    observation: Observation
    still: bytes  # JPEG; empty: there is no new one
    cpu_seconds: float
    fault: str = ""  # why no fire could be seen in the picture; empty: it could
    kept: KeptFrame | None = None  # the picture to keep for clips where the frame itself is no JPEG


@dataclass
class PictureAnalyst:
    """One camera's detector, and what it needs between frames.

    `phase` (0..1) shifts what is done once in a while within its period: cameras that a shard started together would
    otherwise do it together for good.
    """

    detector: Detector
    health: PictureHealth = field(default_factory=PictureHealth)
    phase: float = 0.0
    close_ups: CloseUpBudget = field(default_factory=CloseUpBudget)
    _began_ns: int = field(default=0, init=False)
    _still_ns: int = field(default=0, init=False)  # when a still was asked for last
    _still_level: Level = field(default=Level.CLEAR, init=False)
    _inspections: int = field(default=0, init=False)
    _inspection_seconds: float = field(default=0.0, init=False)  # CPU time of the inspection that was timed last
    _close_ups: tuple[Box, ...] | None = field(default=None, init=False)  # of the frame that is being decoded
    _wanted: Observation | None = field(default=None, init=False)  # what to mark in the still of the next frame
    _seen: Observation = field(default=Observation(0), init=False)  # in the latest picture

    def repeats(self, frame: Frame) -> bool:
        """Whether nothing looks at `frame`: it will be said to show what the one before did."""
        return self._wanted is None and self.detector.repeats(frame.time_ns) and not self._health_due(frame)

    def decode_order(self, frame: Frame, *, smoothed: bool = True) -> DecodeOrder:
        """How `frame` is to be decoded for `inspect_pixels`."""
        repeats = self.repeats(frame)
        scale = working_scale(frame.header.width, frame.header.height)
        self._close_ups = None if frame.lost else self.detector.wanted_look(frame.time_ns)
        if self._close_ups and not self.close_ups.allow(frame.received_ns):
            self._close_ups = ()
        if repeats and self._close_ups is None:
            return DecodeOrder(SCALES[0], smoothed=smoothed, image=False)
        detail = self._wanted_detail(frame, scale)
        if (shown := self._wanted) is None:
            return DecodeOrder(scale, smoothed=smoothed, close_ups=self._close_ups, detail=detail)
        self._wanted = None
        still = [of.box for of in shown.findings if of.box and of.level > Level.CLEAR]
        return DecodeOrder(scale, still, smoothed=smoothed, close_ups=self._close_ups, detail=detail)

    def _wanted_detail(self, frame: Frame, scale: int) -> Box | None:
        """Which part of `frame`, decoded reduced by `scale`, is looked at with more pixels; None: it has no more."""
        if frame.lost or reduction(frame.header.width, frame.header.height, CLOSER_SIDE) >= scale:
            return None
        place = self.detector.wanted_detail(frame.time_ns)
        return place if place and self.close_ups.details.allow(id(self), frame.received_ns) else None

    def inspect_pixels(self, frame: Frame, decoded: Decoded) -> AnalysedFrame:
        """What `frame`, decoded, shows, given all frames before it."""
        looks = decoded.image.size > 0
        timed = looks and self._inspections % MEASURE_EVERY == 0
        self._inspections += looks
        began = time.thread_time() if timed else 0.0
        now = frame.received_ns
        self._began_ns = self._began_ns or now
        if decoded.logits and self._close_ups is not None:
            self.detector.note_look(Look.of(frame.time_ns, self._close_ups, decoded.logits))
        if looks:
            self._seen = self.detector.detect(decoded.image, frame.time_ns, frame.lost, decoded.detail)
            if self._health_due(frame):
                lost = without(None, frame.lost, decoded.image.shape[1], decoded.image.shape[0])
                if lost is None:
                    self.health.observe(decoded.image, now, suspected=self._seen.suspected)
                else:
                    self.health.glance(decoded.image, lost, now)
        observation = self._seen if looks else replace(self._seen, time_ns=frame.time_ns)
        if self._still_due(observation, frame):
            # The first still is made at once, the second one in its phase.
            ahead = 0 if self._still_ns else int(self.phase * STILL_STALE_NS)
            self._still_ns, self._still_level, self._wanted = now - ahead, observation.level, observation
        if timed:
            self._inspection_seconds = time.thread_time() - began
        kept = None
        if decoded.picture:
            header = read_header(decoded.picture)
            kept = KeptFrame(frame.time_ns, decoded.picture, header.width, header.height)
        cpu_seconds = decoded.cpu_seconds + looks * self._inspection_seconds
        return AnalysedFrame(observation, decoded.still, cpu_seconds, self.health.fault, kept)

    def _health_due(self, frame: Frame) -> bool:
        now, first_ns = frame.received_ns, self._began_ns + int(self.phase * self.health.limits.period_ns)
        return self.health.due(now, damaged=bool(frame.lost)) and now >= first_ns

    def _still_due(self, observation: Observation, frame: Frame) -> bool:
        if observation.level > self._still_level:
            return True
        age = frame.received_ns - self._still_ns
        if observation.level > CLEAR:
            return age > STILL_SUSPECTED_NS
        changed = observation.motion > STILL_MOTION or observation.level != self._still_level
        return age > STILL_STALE_NS or (age > STILL_EVERY_NS and changed and not frame.hurried)
