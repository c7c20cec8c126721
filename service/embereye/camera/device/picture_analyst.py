"""What is done with one frame: decode it reduced, look at it, now and then make a still of it."""

import time
from dataclasses import dataclass, field

from embereye.camera.clips.ring import Kept
from embereye.camera.decode.process import Decoded, Order
from embereye.camera.scheduling.mailbox import Frame
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.health import PictureHealth
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.working import working_scale
from embereye.levels import Level

CLEAR = Level.CLEAR  # looked up once: that costs more than all the rest of a comparison
STILL_EVERY_NS = 2_000_000_000
STILL_SUSPECTED_NS = 700_000_000  # where fire is suspected: an alarm shows the latest one
STILL_STALE_NS = 10_000_000_000  # a still of a scene where nothing moves is renewed this often
STILL_MOTION = 0.005  # share of the picture that makes a new still worth sending
MEASURE_EVERY = 8  # looks, of which one is measured: the clock of a thread costs a tenth of a look


@dataclass(frozen=True)
class Analysis:
    """What came out of one frame."""

    observation: Observation
    still: bytes  # JPEG; empty: no new one
    cpu_seconds: float
    fault: str = ""  # why the picture is not fit to see a fire in; empty: it is
    kept: Kept | None = None  # what to keep as evidence where the frame itself is no JPEG


@dataclass
class Analyst:
    """One camera's detector and what it needs between frames.

    `phase` (0..1) tells when in each period it does what need not be done with every frame: cameras that a shard began
    with at the same moment would do all that at the same moment for good.
    """

    detector: Detector
    health: PictureHealth = field(default_factory=PictureHealth)
    phase: float = 0.0
    _began_ns: int = field(default=0, init=False)
    _still_ns: int = field(default=0, init=False)  # when a still was asked for last
    _still_level: Level = field(default=Level.CLEAR, init=False)
    _looks: int = field(default=0, init=False)
    _look_seconds: float = field(default=0.0, init=False)  # CPU time of the look that was measured last
    _wanted: Observation | None = field(default=None, init=False)  # what the next frame's still is to show

    def order(self, frame: Frame) -> Order:
        """How `frame` is to be decoded for `look`."""
        scale = working_scale(frame.header.width, frame.header.height)
        if (shown := self._wanted) is None:
            return Order(scale)
        self._wanted = None
        return Order(scale, [of.box for of in shown.findings if of.box and of.level > Level.CLEAR])

    def look(self, frame: Frame, decoded: Decoded) -> Analysis:
        """What `frame` shows, given all frames before it."""
        measured = self._looks % MEASURE_EVERY == 0
        self._looks += 1
        began = time.thread_time() if measured else 0.0
        now = frame.received_ns
        self._began_ns = self._began_ns or now
        observation = self.detector.detect(decoded.picture, frame.time_ns, frame.lost)
        if self.health.due(now) and now >= self._health_from_ns and not frame.lost:
            self.health.observe(decoded.picture, now, suspected=observation.suspected)
        if self._still_due(observation, frame):
            # The first one is made at once, and the second one in its phase.
            ahead = 0 if self._still_ns else int(self.phase * STILL_STALE_NS)
            self._still_ns, self._still_level, self._wanted = now - ahead, observation.level, observation
        if measured:
            self._look_seconds = time.thread_time() - began
        return Analysis(observation, decoded.still, decoded.cpu_seconds + self._look_seconds, self.health.fault)

    @property
    def _health_from_ns(self) -> int:
        return self._began_ns + int(self.phase * self.health.limits.period_ns)

    def _still_due(self, observation: Observation, frame: Frame) -> bool:
        if observation.level > self._still_level:
            return True
        age = frame.received_ns - self._still_ns
        if observation.level > CLEAR:
            return age > STILL_SUSPECTED_NS
        changed = observation.motion > STILL_MOTION or observation.level != self._still_level
        return age > STILL_STALE_NS or (age > STILL_EVERY_NS and changed and not frame.hurried)
