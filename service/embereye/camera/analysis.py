"""What is done with one frame: decode it reduced, look at it, now and then make a still of it."""

import time
from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from embereye.camera.mailbox import Frame
from embereye.camera.ring import Kept
from embereye.v1.types_pb2 import Level
from embereye.vision.detector import Detector, to_working_size, working_scale
from embereye.vision.health import PictureHealth
from embereye.vision.observation import Observation

Picture = npt.NDArray[np.uint8]

STILL_SIDE = 320  # pixels of the long side of a still
STILL_BYTES = 20_000  # at most
STILL_EVERY_NS = 2_000_000_000
STILL_SUSPECTED_NS = 700_000_000  # where fire is suspected: an alarm shows the latest one
STILL_STALE_NS = 10_000_000_000  # a still of a scene where nothing moves is renewed this often
STILL_MOTION = 0.005  # share of the picture that makes a new still worth sending
_REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


class UndecodableError(Exception):
    """A frame that passed the header check and cannot be decoded all the same."""


@dataclass(frozen=True)
class Analysis:
    """What came out of one frame."""

    observation: Observation
    still: bytes  # JPEG; empty: no new one
    cpu_seconds: float
    fault: str = ""  # why the picture is not fit to see a fire in; empty: it is
    kept: Kept | None = None  # what to keep as evidence where the frame itself is no JPEG


@dataclass(frozen=True)
class Decoded:
    """One frame, decoded."""

    picture: Picture  # BGR, of the working size or a little more
    still: bytes  # JPEG; empty: no new one
    cpu_seconds: float


@dataclass
class Analyst:
    """One camera's detector and what it needs between frames.

    `decode` is for a worker thread, one frame at a time: next to all of it is spent inside the decoder, without the
    interpreter. `look` is many small steps, and for the event loop.
    """

    detector: Detector
    health: PictureHealth = field(default_factory=PictureHealth)
    _still_ns: int = field(default=0, init=False)  # when a still was asked for last
    _still_level: Level.ValueType = field(default=Level.LEVEL_CLEAR, init=False)
    _wanted: Observation | None = field(default=None, init=False)  # what the next frame's still is to show

    def decode(self, frame: Frame) -> Decoded:
        """Decode `frame`, and make a still of it where one is due; UndecodableError where it cannot be decoded."""
        began = time.thread_time()
        picture = decode(frame.data, working_scale(frame.header.width, frame.header.height))
        still = b""
        if (shown := self._wanted) is not None:
            self._wanted = None
            still = make_still(frame, shown)
        return Decoded(picture, still, time.thread_time() - began)

    def look(self, frame: Frame, decoded: Decoded) -> Analysis:
        """What `frame` shows, given all frames before it."""
        began = time.thread_time()
        observation = self.detector.detect(decoded.picture, frame.time_ns, frame.lost)
        if self.health.due(frame.received_ns) and not frame.lost:
            picture = to_working_size(decoded.picture)
            self.health.observe(picture, frame.received_ns, suspected=observation.suspected)
        if self._still_due(observation, frame):
            self._still_ns, self._still_level, self._wanted = frame.received_ns, observation.level, observation
        cpu_seconds = decoded.cpu_seconds + time.thread_time() - began
        return Analysis(observation, decoded.still, cpu_seconds, self.health.fault)

    def _still_due(self, observation: Observation, frame: Frame) -> bool:
        if observation.level > self._still_level:
            return True
        age = frame.received_ns - self._still_ns
        if observation.level > Level.LEVEL_CLEAR:
            return age > STILL_SUSPECTED_NS
        changed = observation.motion > STILL_MOTION or observation.level != self._still_level
        return age > STILL_STALE_NS or (age > STILL_EVERY_NS and changed)


def decode(data: bytes, scale: int) -> Picture:
    """`data` as BGR, reduced by `scale` (1, 2, 4 or 8)."""
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), _REDUCED[scale])
    if picture is None:
        raise UndecodableError("the decoder refused it")
    return picture  # type: ignore[return-value]


def make_still(frame: Frame, observation: Observation) -> bytes:
    """A small JPEG of `frame` for people, with a frame around what `observation` suspects."""
    side = max(frame.header.width, frame.header.height)
    picture = decode(frame.data, next((scale for scale in (8, 4, 2) if side >= scale * STILL_SIDE), 1))
    height, width = picture.shape[:2]
    factor = STILL_SIDE / max(width, height)
    if factor < 1:
        size = (max(1, round(width * factor)), max(1, round(height * factor)))
        picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
        height, width = picture.shape[:2]
    for finding in observation.findings:
        if finding.box and finding.level > Level.LEVEL_CLEAR:
            x, y, w, h = finding.box
            corners = (int(x * width), int(y * height)), (int((x + w) * width), int((y + h) * height))
            cv2.rectangle(picture, *corners, (0, 0, 255), 1)
    for quality in (75, 55, 35, 15):
        data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= STILL_BYTES:
            return data
    return b""
