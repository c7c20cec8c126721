"""A candidate in a camera shard: other thresholds that judge the same decoded pictures silently.

For each camera there is a second detector with the candidate's settings. It gets each picture after the settings in
force have judged it: decoded, and with the appearance network's results. Where the detector in force needs no picture,
the candidate gets none either. While the shard is busy, pictures are left out: the candidate does not see them, and
they are counted. The signs of both sides go to a `Comparison`.
"""

import copy
import logging
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from embereye.camera.clip_pipeline import ClipPipeline
from embereye.camera.decode.image import Decoded
from embereye.camera.device.analyser import detector_of, is_radiometric, thermal_analyst_of
from embereye.camera.device.camera import CameraDevice
from embereye.camera.device.setup import Setup
from embereye.camera.device.signs import signs_of
from embereye.camera.device.thermal_analyst import ThermalAnalyst
from embereye.camera.scheduling.mailbox import Frame, Picture
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.flame.usual_levels import UsualLevels
from embereye.detect.vision.networks.appearance import Inspection
from embereye.detect.vision.networks.persistence import merged
from embereye.detect.vision.observation import Observation
from embereye.levels import Level
from embereye.shard.candidate.comparison import Comparison, Difference
from embereye.shard.candidate.counts import CandidateCounts
from embereye.shard.evidence.episodes import Episodes, Sign
from embereye.units import HOUR
from embereye.v1.shard_pb2 import Assignment, CameraSettings, Candidate

logger = logging.getLogger(__name__)
CLEAR = Level.CLEAR
MAX_CLIPS_PER_HOUR = 4  # of one camera for a candidate


@dataclass
class _Shadow:
    """The candidate's detectors of one camera."""

    setup: Setup
    view: tuple[str, ...]
    detector: Detector
    thermal: ThermalAnalyst
    clips: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_CLIPS_PER_HOUR))


class CameraCandidate:
    """Judges the pictures of a shard's cameras by other settings. For one event loop."""

    def __init__(self, candidate: Candidate, fleet: str, is_busy: Callable[[], bool] = lambda: False) -> None:
        self.declared = candidate
        self.counts = CandidateCounts()
        self._settings = CameraSettings()
        self._settings.CopyFrom(candidate.camera)
        self._is_busy = is_busy
        self._shadows: dict[str, _Shadow] = {}
        self._comparison = Comparison()
        self._episodes = Episodes(fleet)
        self._episodes.configure(self._settings.deadline_ns)

    def watch(self, cameras: Mapping[str, CameraDevice], now_ns: int) -> None:
        """Judge exactly these cameras from now on."""
        for name in self._shadows.keys() - cameras.keys():
            del self._shadows[name]
            self._comparison.forget(name)
            self._episodes.forget({name})
        for name, camera in cameras.items():
            setup, view = Setup.of(camera.device, self._settings), _view(camera)
            shadow = self._shadows.get(name)
            if shadow is None or (shadow.setup, shadow.view) != (setup, view):
                usual_levels: UsualLevels = copy.deepcopy(camera.analyser.usual_levels)
                phase = zlib.crc32(name.encode()) / 2**32
                detector = detector_of(camera.device, setup, usual_levels, phase)
                self._shadows[name] = _Shadow(setup, view, detector, thermal_analyst_of(camera.device, self._settings))
                # It has learnt nothing yet, so a present fire is not compared.
                self._comparison.note_unseen(name, now_ns)

    def judge(
        self, camera: CameraDevice, frame: Frame, decoded: Decoded | None, now_ns: int,
        clips: ClipPipeline | None, assignment: Assignment,
    ) -> None:  # fmt: skip
        """Judge a frame that the settings in force have judged; its decoded picture, or None for temperatures."""
        name = camera.device.id
        shadow = self._shadows.get(name)
        if shadow is None:
            return
        if self._is_busy():
            self.counts.unseen += 1
            self._comparison.note_unseen(name, now_ns)
            return
        began = time.thread_time()
        try:
            seen = _observe(shadow, camera, frame, decoded)
        except Exception:
            logger.exception("candidate %s: camera %s: a frame could not be judged", self.declared.name, name)
            self._shadows.pop(name, None)
            return
        self.counts.seen += 1
        if seen.level > CLEAR or self._episodes.is_active(name):
            self._note(shadow, camera, seen, now_ns, clips, assignment)
        self.counts.cpu_seconds += time.thread_time() - began

    def _note(
        self, shadow: _Shadow, camera: CameraDevice, seen: Observation, now_ns: int,
        clips: ClipPipeline | None, assignment: Assignment,
    ) -> None:  # fmt: skip
        for sign, finding in zip(signs_of(camera, seen), seen.findings, strict=True):
            report = self._episodes.observe(sign, now_ns)
            self._comparison.note("candidate", sign, now_ns, report.episode if report else "")
            # A clip of the settings in force goes first: another one would end it.
            if not report or not clips or sign.level < Level.ALARM or clips.is_recording(sign.device, sign.kind):
                continue
            if len(shadow.clips) < MAX_CLIPS_PER_HOUR or now_ns - shadow.clips[0] > HOUR:
                shadow.clips.append(now_ns)
                clips.record_report(camera, report, finding.box, assignment, now_ns)

    def note_in_force(self, sign: Sign, now_ns: int, episode: str) -> None:
        """Note a sign of the settings in force; `episode` is that of its report, if it was reported."""
        if sign.device in self._shadows:
            self._comparison.note("inForce", sign, now_ns, episode)

    def differences(self, now_ns: int) -> list[Difference]:
        """Return the differences that are certain now. Call it about every second."""
        return self._comparison.due(now_ns)


def _view(camera: CameraDevice) -> tuple[str, ...]:
    return camera.device.source, camera.device.detect_stream, camera.device.view


def _observe(shadow: _Shadow, camera: CameraDevice, frame: Frame, decoded: Decoded | None) -> Observation:
    if decoded is None:
        assert isinstance(frame, Picture)
        if not is_radiometric(frame):
            return Observation(frame.time_ns)
        return shadow.thermal.observe(frame)
    pictures = camera.analyser.pictures
    close_ups = pictures.judged_close_ups
    if decoded.logits and close_ups is not None:
        shadow.detector.add_inspection(Inspection.of(frame.time_ns, close_ups, decoded.logits))
    if not decoded.image.size:
        return Observation(frame.time_ns)
    shadow.detector.follow(pictures.detector)
    shadow.detector.hide(pictures.detector.hidden)
    seen = shadow.detector.detect(decoded.image, frame.time_ns, frame.lost, decoded.detail)
    if model := camera.analyser.model:
        findings = merged(seen.findings, model.watch.findings)
        return Observation(seen.time_ns, findings, seen.motion)
    return seen
