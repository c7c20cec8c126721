"""What a worker thread does with one frame: decode it reduced, look at it, now and then make a still of it."""

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


@dataclass
class Analyst:
    """One camera's detector and what it needs between frames. One thread at a time."""

    detector: Detector
    health: PictureHealth = field(default_factory=PictureHealth)
    still_ns: int = field(default=0, init=False)
    still_level: Level.ValueType = field(default=Level.LEVEL_CLEAR, init=False)

    def analyse(self, frame: Frame) -> Analysis:
        """Decode and look at `frame`; UndecodableError where it cannot be decoded."""
        began = time.thread_time()
        picture = decode(frame.data, working_scale(frame.header.width, frame.header.height))
        observation = self.detector.detect(picture, frame.time_ns, frame.lost)
        if self.health.due(frame.received_ns) and not frame.lost:
            self.health.observe(to_working_size(picture), frame.received_ns, suspected=observation.suspected)
        still = b""
        if self._still_due(observation, frame):
            self.still_ns, self.still_level = frame.received_ns, observation.level
            still = make_still(frame, observation)
        return Analysis(observation, still, time.thread_time() - began, self.health.fault)

    def _still_due(self, observation: Observation, frame: Frame) -> bool:
        if observation.level > self.still_level:
            return True
        age = frame.received_ns - self.still_ns
        changed = observation.motion > STILL_MOTION or observation.level != self.still_level
        return age > STILL_STALE_NS or (age > STILL_EVERY_NS and changed and not frame.hurried)


def decode(data: bytes, scale: int) -> Picture:
    """`data` as BGR, reduced by `scale` (1, 2, 4 or 8)."""
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), _REDUCED[scale])
    if picture is None:
        raise UndecodableError("the decoder refused it")
    return picture  # type: ignore[return-value]


def make_still(frame: Frame, observation: Observation) -> bytes:
    """A small JPEG of `frame` for people, with a frame around what is suspected."""
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
