"""A candidate in a camera shard: other thresholds, or another model, that judge the same pictures silently.

For each camera there is a second detector with the candidate's settings. It gets each picture after the settings in
force have judged it: decoded, and with the appearance network's results. Where the detector in force needs no picture,
the candidate gets none either. While the shard is busy, pictures are left out: the candidate does not see them, and
they are counted. The signs of both sides go to a `Comparison`.

A model of the candidate has a separate network and thread, which runs when no other thread needs its core. While
it cannot judge, nothing is compared, and the reason is reported.
"""

import copy
import logging
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from embereye.camera.clip_pipeline import ClipPipeline
from embereye.camera.decode.image import Decoded
from embereye.camera.device.analyser import (
    detector_of,
    for_model,
    ignored_parts,
    is_radiometric,
    thermal_analyst_of,
)
from embereye.camera.device.camera import CameraDevice
from embereye.camera.device.setup import Setup
from embereye.camera.device.signs import signs_of
from embereye.camera.device.thermal_analyst import ThermalAnalyst
from embereye.camera.model.camera_model import CameraModel
from embereye.camera.model.host import ModelHost
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
    model: CameraModel | None  # None: it has the same as the settings in force, or none
    seen: Observation = field(default_factory=lambda: Observation(0))  # without a model, in the latest picture
    charged: float = 0.0  # CPU seconds of the model that are counted already
    clips: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_CLIPS_PER_HOUR))


class CameraCandidate:
    """Judges the pictures of a shard's cameras by other settings. For one event loop."""

    def __init__(
        self, candidate: Candidate, fleet: str, is_busy: Callable[[], bool] = lambda: False,
        host: ModelHost | None = None,
    ) -> None:  # fmt: skip
        """`host` runs the candidate's own model."""
        self.declared = candidate
        self.counts = CandidateCounts()
        self._settings = CameraSettings()
        self._settings.CopyFrom(candidate.camera)
        self._is_busy = is_busy
        self._host = host
        if host:
            host.configure(self._settings.model if self._settings.model.of_candidate else None)
        self._shadows: dict[str, _Shadow] = {}
        self._comparison = Comparison()
        self._episodes = Episodes(fleet)
        self._episodes.configure(self._settings.deadline_ns)

    def watch(self, cameras: Mapping[str, CameraDevice], now_ns: int) -> None:
        """Judge exactly these cameras from now on."""
        for name in self._shadows.keys() - cameras.keys():
            self._drop(name)
            self._comparison.forget(name)
            self._episodes.forget({name})
        for name, camera in cameras.items():
            setup, view = Setup.of(camera.device, self._settings), _view(camera)
            shadow = self._shadows.get(name)
            if shadow is None or (shadow.setup, shadow.view) != (setup, view):
                usual_levels: UsualLevels = copy.deepcopy(camera.analyser.usual_levels)
                phase = zlib.crc32(name.encode()) / 2**32
                detector = detector_of(camera.device, setup, usual_levels, phase)
                thermal = thermal_analyst_of(camera.device, self._settings)
                self._drop(name)
                self._shadows[name] = _Shadow(setup, view, detector, thermal, self._model_of(camera, setup))
                # It has learnt nothing yet, so a present fire is not compared.
                self._comparison.note_unseen(name, now_ns)

    def _model_of(self, camera: CameraDevice, setup: Setup) -> CameraModel | None:
        if not (self._host and setup.model and self._settings.model.of_candidate):
            return None
        return CameraModel(camera.device.id, self._host, self._settings.model, ignored_parts(camera.device))

    def _drop(self, name: str) -> None:
        shadow = self._shadows.pop(name, None)
        if shadow and shadow.model and self._host:
            self._host.threads.withdraw(shadow.model)
        self.counts.problems.pop(name, None)

    def close(self) -> None:
        """Judge nothing more."""
        for name in list(self._shadows):
            self._drop(name)
        if self._host:
            self._host.configure(None)

    def picture_side(self, camera: CameraDevice) -> int:
        """The long side of a picture of a video that the candidate's model needs now, in pixels; 0: none."""
        shadow = self._shadows.get(camera.device.id)
        if shadow is None or shadow.model is None or self._is_busy():
            return 0
        return shadow.model.side if shadow.model.is_run_due(shadow.seen) else 0

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
        except Exception as error:
            logger.exception("candidate %s: camera %s: a frame could not be judged", self.declared.name, name)
            self._drop(name)
            self.counts.problems[name] = f"a frame could not be judged: {type(error).__name__}: {error}"
            return
        self.counts.seen += 1
        if shadow.model:
            self._follow_model(shadow.model, camera, now_ns)
            self.counts.cpu_seconds += shadow.model.cpu_seconds - shadow.charged
            shadow.charged = shadow.model.cpu_seconds
        if seen.level > CLEAR or self._episodes.is_active(name):
            self._note(shadow, camera, seen, now_ns, clips, assignment)
        self.counts.cpu_seconds += time.thread_time() - began

    def _follow_model(self, model: CameraModel, camera: CameraDevice, now_ns: int) -> None:
        """Compare nothing while either model cannot judge."""
        problem = model.degraded(now_ns) or (camera.analyser.model.degraded(now_ns) if camera.analyser.model else "")
        if problem:
            self.counts.problems[camera.device.id] = problem
        else:
            self.counts.problems.pop(camera.device.id, None)
        if problem or not (model.host.is_ready and model.runs):
            self._comparison.note_unseen(camera.device.id, now_ns)

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
    if decoded.image.size:
        shadow.detector.follow(pictures.detector)
        shadow.detector.hide(pictures.detector.hidden)
        shadow.seen = shadow.detector.detect(decoded.image, frame.time_ns, frame.lost, decoded.detail)
    seen = replace(shadow.seen, time_ns=frame.time_ns)
    if shadow.model:
        shadow.model.hidden = pictures.detector.hidden
        shadow.model.offer_frame(for_model(frame, decoded.picture), seen)
    if model := shadow.model or camera.analyser.model:
        return replace(seen, findings=merged(seen.findings, model.watch.findings))
    return seen
