"""Analysis of frames of temperatures: heat, and pictures in false colours for people.

A frame is a 16-bit TIFF. `RadiometricWatch` converts its words to °C and assesses the heat, which becomes one finding.
Such frames need no decoder process: the pool calls `analyse_temperatures` on a thread, one frame at a time. Pictures
are drawn at intervals, and for every frame while heat is suspected or somebody looks.
"""

import time
from collections.abc import Iterable, Sequence

import cv2
import numpy as np
import numpy.typing as npt

from embereye.camera.clips.ring import SPACING_NS, ClipFrame
from embereye.camera.decode.image import hide
from embereye.camera.device.picture_analyst import STILL_EVERY_NS, AnalysedFrame
from embereye.camera.scheduling.mailbox import Picture
from embereye.detect.thermal.radiometric import Celsius, Heat, RadiometricWatch
from embereye.detect.vision.detector import rasterize
from embereye.detect.vision.observation import Finding, Observation
from embereye.levels import Kind, Level
from embereye.shard.selftests import KELVIN, FrozenRegion, RunningTest
from embereye.units import Polygon
from embereye.v1.shard_pb2 import HeatThresholds
from embereye.v1.types_pb2 import Area, Mask, Radiometry
from embereye.wire.radiometric import read_words

RANGE_K = 8.0  # smallest temperature span of the colours, kelvins: noise must not look like fire
SIDE = 320  # pixels; shortest long side of a picture for people
QUALITY = 80  # JPEG quality: false colours have hard edges, which lower qualities smear
UNKNOWN_COLOUR = (40, 40, 40)
FRAME_COLOUR = (255, 255, 255)
AREA_COLOUR = (255, 255, 0)  # cyan, which the false colours lack


class ThermalAnalyst:
    """One camera's heat detector and the state between frames. Use it on one thread at a time."""

    def __init__(
        self,
        thresholds: HeatThresholds,
        radiometry: Radiometry,
        masks: Iterable[Mask] = (),
        areas: Sequence[Area] = (),
        hidden: Sequence[Polygon] = (),
    ) -> None:
        self._watch = RadiometricWatch(thresholds, radiometry, areas)
        self._areas = areas
        self._hidden = hidden
        self.self_test: RunningTest | None = None
        self._frozen = FrozenRegion()
        self._masks = tuple(masks)
        self._ignored: npt.NDArray[np.bool_] | None = None
        self._shape: tuple[int, ...] = ()
        self._suspected_ns = 0  # since when; 0: not suspected
        self._drawn_ns = 0
        self._still_ns = 0
        self._still_level: Level = Level.CLEAR

    def analyse_temperatures(self, frame: Picture, *, shown: bool = False) -> AnalysedFrame:
        """Analyse `frame`, a 16-bit TIFF, given all frames before it; draw it in any case if it is `shown`.

        Raises JpegError if it is cut short.
        """
        began = time.thread_time()
        heat, finding = self._measure(frame)
        clip_frame, still = self._pictures(heat, finding, frame, shown=shown)
        seen = Observation(frame.time_ns, (finding,))
        return AnalysedFrame(seen, still, time.thread_time() - began, heat.fault, clip_frame)

    def observe(self, frame: Picture) -> Observation:
        """Analyse `frame` without a picture for people; see `analyse_temperatures`."""
        return Observation(frame.time_ns, (self._measure(frame)[1],))

    def _measure(self, frame: Picture) -> tuple[Heat, Finding]:
        words = read_words(frame.data)
        if words.shape != self._shape:
            self._shape = words.shape
            self._ignored = rasterize(self._masks, words.shape[1], words.shape[0])
        shown = self._frozen.apply(words, self.self_test)
        heat = self._watch.observe(shown, frame.received_ns, self._ignored)
        if self.self_test is not None:
            self.self_test.observe(self._watch.celsius_of(words), KELVIN)
        return heat, self._finding(heat, frame.received_ns)

    def _finding(self, heat: Heat, now_ns: int) -> Finding:
        assessment = heat.assessment
        level = max(assessment.level, Level.CLEAR)
        if level == Level.CLEAR:
            self._suspected_ns = 0
        else:
            self._suspected_ns = self._suspected_ns or now_ns
        lasted = now_ns - self._suspected_ns + 1 if self._suspected_ns else 0
        return Finding(
            Kind.HEAT, level, assessment.score, heat.box, assessment.terms, lasted, decisive=assessment.decisive
        )

    def _pictures(self, heat: Heat, finding: Finding, frame: Picture, *, shown: bool) -> tuple[ClipFrame | None, bytes]:
        """Draw the picture for the ring and the still for people, each only if it is due."""
        now = frame.received_ns
        if not shown and not finding.lasted_ns and 0 <= now - self._drawn_ns < SPACING_NS:
            return None, b""
        self._drawn_ns = now
        picture = draw(heat.celsius)
        hide(picture, self._hidden)
        draw_areas(picture, self._areas)
        height, width = picture.shape[:2]
        clip_frame = ClipFrame(frame.time_ns, encode(picture), width, height)
        if finding.level <= self._still_level and 0 <= now - self._still_ns < STILL_EVERY_NS:
            return clip_frame, b""
        self._still_ns, self._still_level = now, finding.level
        if finding.box:
            x, y, w, h = finding.box
            corners = (int(x * width), int(y * height)), (int((x + w) * width), int((y + h) * height))
            cv2.rectangle(picture, *corners, FRAME_COLOUR, 1)
        return clip_frame, encode(picture)


def draw(celsius: Celsius) -> npt.NDArray[np.uint8]:
    """Draw `celsius` in false colours (BGR): black is cold, white is hot, grey was not measured."""
    known = np.isfinite(celsius)
    least, most = (float(celsius[known].min()), float(celsius[known].max())) if known.any() else (0.0, 0.0)
    shares = (np.where(known, celsius, least) - least) * (255 / max(RANGE_K, most - least))
    picture = cv2.applyColorMap(shares.astype(np.uint8), cv2.COLORMAP_INFERNO)
    picture[~known] = UNKNOWN_COLOUR
    factor = -(-SIDE // max(celsius.shape))
    if factor > 1:
        picture = cv2.resize(picture, None, fx=factor, fy=factor, interpolation=cv2.INTER_NEAREST)
    return picture  # type: ignore[return-value]


def draw_areas(picture: npt.NDArray[np.uint8], areas: Iterable[Area]) -> None:
    """Draw the outline and the name of each area into `picture` (BGR)."""
    height, width = picture.shape[:2]
    for area in areas:
        corners = [(x * width, y * height) for x, y in zip(area.outline.x, area.outline.y, strict=False)]
        points = np.array(corners).round().astype(np.int32)
        cv2.polylines(picture, [points], isClosed=True, color=AREA_COLOUR)
        left, top = int(points[:, 0].min()) + 2, int(points[:, 1].min()) + 11
        name = area.name.encode("ascii", "replace").decode()  # OpenCV's font has no other letters
        cv2.putText(picture, name, (left, top), cv2.FONT_HERSHEY_SIMPLEX, 0.35, AREA_COLOUR)


def encode(picture: npt.NDArray[np.uint8]) -> bytes:
    """Encode `picture` (BGR) as JPEG."""
    return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
