"""One camera's analysis: its detectors and its model, renewed when the settings they depend on change.

Pictures pass through a `PictureAnalyst`, frames of temperatures through a `ThermalAnalyst`. `conclude` combines their
result with the detections of the fleet's own model. New settings replace only the parts that they affect; a failed
analysis replaces the detectors, because their state may be the cause. The usual level of the view outlives both.
"""

import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from embereye.camera.decode.image import Decoded, DecodeOrder
from embereye.camera.device.picture_analyst import AnalysedFrame, PictureAnalyst
from embereye.camera.device.privacy import hidden_parts
from embereye.camera.device.setup import MODEL, Setup
from embereye.camera.device.thermal_analyst import ThermalAnalyst
from embereye.camera.model.camera_model import CameraModel
from embereye.camera.model.host import ModelHost
from embereye.camera.scheduling.close_ups import CloseUpBudget
from embereye.camera.scheduling.mailbox import Frame, Picture
from embereye.camera.scheduling.video_mailbox import VideoFrame
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.flame.usual_levels import UsualLevels
from embereye.detect.vision.health.health import PictureHealth
from embereye.detect.vision.networks.persistence import merged
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.thresholds import FlameThresholds, SmokeThresholds
from embereye.detect.vision.working import WORKING_SIDE
from embereye.process.condition import Condition
from embereye.process.timing.clock import now_ns
from embereye.shard.selftests import PERCENT, RunningTest
from embereye.units import SECOND
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device, Mask
from embereye.wire.jpeg.header import read_header

logger = logging.getLogger(__name__)

UNSMOOTHED = 4  # times the working size: block edges of such large videos need no smoothing …
UNSMOOTHED_AFTER_NS = 10 * SECOND  # … once no fire has been suspected for this long
COST_SHARE = 0.1  # weight of one frame in the smoothed cost


@dataclass
class Cost:
    """The cost of analysing one camera."""

    cpu_seconds: float = 0.0  # in total
    frame_seconds: float = 0.0  # CPU time per frame, smoothed; 0: not known yet
    failures: int = 0  # frames on which the analysis failed

    def record_frame(self, cpu_seconds: float) -> None:
        """Record one frame's CPU time. Wall time would grow with the load, and cameras would be refused for that."""
        self.frame_seconds += (cpu_seconds - self.frame_seconds) * (COST_SHARE if self.frame_seconds else 1.0)
        self.cpu_seconds += cpu_seconds


class Analyser:
    """The detectors of one camera and their latest result.

    Use it on the event loop only, except `analyse_temperatures`, which runs on a thread, one frame at a time.
    """

    def __init__(
        self, host: ModelHost | None = None, clock: Callable[[], int] = now_ns, close_ups: CloseUpBudget | None = None
    ) -> None:
        self.observation: Observation | None = None  # of the latest frame
        self.cost = Cost()
        self.model: CameraModel | None = None
        # runs and CPU seconds of earlier models; None: there was none
        self._past_models: tuple[int, float] | None = None
        self.setup = Setup.of(Device(), CameraSettings())
        self.health = PictureHealth()
        self.usual_levels = UsualLevels()  # scores that are usual in this view; outlives the detectors
        self._host = host
        self._clock = clock
        self._close_ups = close_ups or CloseUpBudget()
        self._device = Device()
        self._settings = CameraSettings()
        # Its stream and the mark that people change when they move the camera; None: unknown.
        self._view: tuple[str, ...] | None = None
        self.pictures: PictureAnalyst  # the detectors of pictures, and the state of the latest decoded one
        self._thermal: ThermalAnalyst
        self._radiometric = False  # the latest frame contained temperatures
        self._suspected_ns = -UNSMOOTHED_AFTER_NS  # when fire was last suspected
        self.self_test: RunningTest | None = None  # that runs now
        self._fault = ""  # why the latest picture could not show a fire
        self._failing = Condition(logger, begin=logging.ERROR)  # the analysis of the latest frame failed

    def configure(self, device: Device, settings: CameraSettings, deadline_ns: int) -> None:
        """Apply new settings. Detectors are renewed only if settings that they depend on changed."""
        self._device, self._settings = device, settings
        past, past_view = self.setup, self._view
        self.setup, self._view = Setup.of(device, settings), (device.source, device.detect_stream, device.view)
        if self._view != past_view:
            if past_view is not None:
                self.usual_levels = UsualLevels()
            self._renew_detectors(health=PictureHealth())
        elif replace(self.setup, model=past.model) != past:
            self._renew_detectors(health=self.health)
        self.health.patience_ns = deadline_ns
        if (self.setup.model, self.setup.masks) != (past.model, past.masks):
            self._renew_model()

    def recall(self, usual_levels: UsualLevels) -> None:
        """Continue with the usual level of the view, as it was saved before a restart."""
        self.usual_levels = usual_levels
        self._renew_detectors(health=self.health)

    def _renew_detectors(self, health: PictureHealth) -> None:
        health.patience_ns = self.health.patience_ns
        self.health = health
        phase = zlib.crc32(self._device.id.encode()) / 2**32
        detector = detector_of(self._device, self.setup, self.usual_levels, phase)
        self.pictures = PictureAnalyst(detector, health, phase, self._close_ups)
        self._thermal = thermal_analyst_of(self._device, self._settings)
        self.set_self_test(self.self_test)

    def _renew_model(self) -> None:
        self.withdraw_model()
        self._past_models = self.model_cost
        self.model = None
        if self.setup.model and self._host:
            device = self._device
            self.model = CameraModel(device.id, self._host, self._settings.model, ignored_parts(device), self._clock)
        self.set_self_test(self.self_test)

    @property
    def model_cost(self) -> tuple[int, float] | None:
        """Runs and CPU seconds of all its models so far; None if it has had none."""
        if self.model is None:
            return self._past_models
        runs, seconds = self._past_models or (0, 0.0)
        return runs + self.model.runs, seconds + self.model.cpu_seconds

    def withdraw_model(self) -> None:
        """Remove the camera from the queue of the model's threads."""
        if self.model and self._host:
            self._host.threads.withdraw(self.model)

    def decode_order(self, frame: Frame) -> DecodeOrder | None:
        """Return how to decode `frame`; None if it contains temperatures."""
        if is_radiometric(frame):
            return None
        large = max(frame.header.width, frame.header.height) >= UNSMOOTHED * WORKING_SIDE
        calm = frame.received_ns - self._suspected_ns > UNSMOOTHED_AFTER_NS
        # A model, and people once there is something to see, use more than the working size and would see the blocks.
        order = self.pictures.decode_order(frame, smoothed=not (large and calm and self.model is None))
        if isinstance(frame, VideoFrame) and self.model and self.model.is_run_due(self.observation):
            order = replace(order, picture_side=self.model.side)
        return order

    def is_repeat(self, frame: Frame) -> bool:
        """True if `frame` is not analysed and counts as showing the same as the previous one."""
        return not is_radiometric(frame) and self.pictures.is_repeat(frame)

    def set_self_test(self, test: RunningTest | None) -> None:
        """Ignore the region of a self-test, and measure it, until this is called with None or its limit has passed."""
        self.self_test = test
        box = test.box if test else None
        self.pictures.detector.hide(box)
        self._thermal.self_test = test
        if self.model:
            self.model.hidden = box

    @property
    def urgent(self) -> bool:
        """True if fire is suspected, so that flicker is measured on every frame."""
        return self.observation is not None and self.observation.urgent

    def analyse_temperatures(self, frame: Picture, *, shown: bool = False) -> AnalysedFrame:
        """Analyse a `frame` of temperatures; `shown`: somebody looks at it live. Called on a thread."""
        return self._thermal.analyse_temperatures(frame, shown=shown)

    def analyse_picture(self, frame: Frame, decoded: Decoded) -> AnalysedFrame | Exception:
        """Analyse the `decoded` picture of `frame`. Returns any exception, because it concerns only this camera."""
        if self.self_test is not None and decoded.image.size:
            self.self_test.observe(decoded.image, PERCENT)
        try:
            return self.pictures.analyse_picture(frame, decoded)
        except Exception as error:
            return error

    def conclude(self, frame: Frame, analysed: AnalysedFrame) -> Observation:
        """Combine the analysis of `frame` with the model's findings, and offer the frame to the model."""
        self._failing.clear()
        self._fault = analysed.fault
        self._radiometric = is_radiometric(frame)
        seen = analysed.observation
        if self.model and not self._radiometric:
            jpeg = analysed.clip_frame.jpeg if analysed.clip_frame else None
            self.model.offer_frame(for_model(frame, jpeg), seen)
            seen = replace(seen, findings=merged(seen.findings, self.model.watch.findings))
        self.observation = seen
        if seen.suspected:
            self._suspected_ns = frame.received_ns
        return seen

    def record_failure(self, error: object) -> str:
        """Renew the detectors after the analysis failed with `error`: their state may be the cause.

        Returns the failure for the ledger. It is logged once, until another failure or a success.
        """
        self.cost.failures += 1
        detail = f"{type(error).__name__}: {error}"
        reason = f"analysis failed: {detail}"
        if isinstance(error, BaseException):
            self._failing.fail(reason, "camera %s: %s", self._device.id, reason, error=error)
        else:
            self._failing.fail(reason)
        self._renew_detectors(health=PictureHealth())
        return detail

    @property
    def is_quiet(self) -> bool:
        """True if nothing is found, tested or wrong here, so that more pictures would show no more."""
        if self.fault or self.self_test is not None or (self.observation is not None and self.observation.suspected):
            return False
        return self.pictures.detector.is_quiet

    @property
    def idle_detectors(self) -> str:
        """The reason why nothing can be detected here at all, or ''."""
        if self.model or self.setup.has_builtin:
            return ""
        if self.setup.detectors == (MODEL,):
            return "model is its only detector, but its fleet declares no detection.model"
        return f"this version lacks all of its detectors: {', '.join(self.setup.detectors)}"

    @property
    def has_flame_detector(self) -> bool:
        """True if flames are detected by their flicker."""
        return "flame" in self.setup.detectors and not self._radiometric

    @property
    def fault(self) -> str:
        """The reason why the latest frame cannot show a fire, or ''."""
        return self.idle_detectors or self._failing.why or self._fault or self._unsuited

    @property
    def _unsuited(self) -> str:
        """The reason why the configured detectors cannot analyse such frames, or ''."""
        if self._radiometric or not self.observation or self.model or self.setup.has_picture_detector:
            return ""
        return "its frames are pictures, but its only detector, heat, needs 16-bit frames of temperatures"

    def degraded(self, now_ns: int) -> str:
        """The reason why detection is limited, or ''."""
        return (self.model.degraded(now_ns) if self.model else "") or self.health.unseen


def detector_of(device: Device, setup: Setup, usual_levels: UsualLevels, phase: float) -> Detector:
    """Make the detector of a camera's pictures; `phase` is that of the appearance network's inspections."""
    flame = FlameThresholds(score_min=setup.flame_threshold)
    smoke = SmokeThresholds(score_min=setup.smoke_threshold, scene=setup.smoke_scene)
    return Detector(
        flame if "flame" in setup.detectors else None,
        smoke if "smoke" in setup.detectors else None,
        ignored_parts(device),
        usual_levels,
        phase,
    )


def thermal_analyst_of(device: Device, settings: CameraSettings) -> ThermalAnalyst:
    """Make the detector of a camera's frames of temperatures."""
    return ThermalAnalyst(settings.heat, device.radiometry, ignored_parts(device), device.areas, hidden_parts(device))


def is_radiometric(frame: Frame) -> bool:
    """True if the pixels of `frame` are temperatures."""
    return isinstance(frame, Picture) and frame.radiometric


def ignored_parts(device: Device) -> tuple[Mask, ...]:
    """Return the masks of a camera, also those for privacy."""
    return (*device.masks, *device.privacy_masks)


def for_model(frame: Frame, jpeg: bytes | None) -> Picture | None:
    """Return `frame` in a form that a model can decode: of a video, the JPEG made for it, or None."""
    if isinstance(frame, Picture):
        return frame
    return Picture(read_header(jpeg), frame.time_ns, frame.received_ns, frame.hurried, data=jpeg) if jpeg else None
