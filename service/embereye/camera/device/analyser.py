"""What is analysed of one camera: its detectors and its model, renewed where what they depend on changes."""

import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from embereye.camera.decode.image import Decoded, DecodeOrder
from embereye.camera.device.picture_analyst import AnalysedFrame, PictureAnalyst
from embereye.camera.device.setup import MODEL, Setup
from embereye.camera.device.thermal_analyst import ThermalAnalyst
from embereye.camera.model.camera_model import CameraModel
from embereye.camera.model.host import ModelHost
from embereye.camera.scheduling.close_ups import CloseUpBudget
from embereye.camera.scheduling.mailbox import Frame
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.flame.familiar import Familiar
from embereye.detect.vision.health.health import PictureHealth
from embereye.detect.vision.networks.persistence import merged
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.thresholds import FlameThresholds, SmokeThresholds
from embereye.detect.vision.working import WORKING_SIDE
from embereye.process.timing.clock import now_ns
from embereye.units import SECOND
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.jpeg.header import read_header

logger = logging.getLogger(__name__)

UNSMOOTHED = 4  # times the working size: of such videos the edges of blocks need not be smoothed, …
UNSMOOTHED_AFTER_NS = 10 * SECOND  # … once nothing has been suspected for as long as this
COST_SHARE = 0.1  # weight of a frame in the mean of what frames cost


@dataclass
class Cost:
    """What the analysis of one camera takes."""

    cpu_seconds: float = 0.0  # in all
    frame_seconds: float = 0.0  # CPU time per frame, smoothed; 0: not known yet
    failures: int = 0  # frames on which the analysis failed

    def record_frame(self, cpu_seconds: float) -> None:
        """Record a frame. CPU time, not elapsed time: that grows with the load, for which cameras would be refused."""
        self.frame_seconds += (cpu_seconds - self.frame_seconds) * (COST_SHARE if self.frame_seconds else 1.0)
        self.cpu_seconds += cpu_seconds


class Analyser:
    """The detectors of one camera and what they found last.

    Belongs to the event loop, but for `analyse_temperatures`, which runs on a thread, one frame at a time.
    """

    def __init__(
        self, host: ModelHost | None = None, clock: Callable[[], int] = now_ns, close_ups: CloseUpBudget | None = None
    ) -> None:
        self.observation: Observation | None = None  # of the latest frame
        self.urgent = False  # fire is suspected: flicker is measured on every frame
        self.cost = Cost()
        self.model: CameraModel | None = None
        self._past_models: tuple[int, float] | None = None  # what those before it took; None: there was none
        self.setup = Setup.of(Device(), CameraSettings())
        self.health = PictureHealth()
        self.familiar = Familiar()  # what resembles a flame in this view; it outlives the detectors
        self._host = host
        self._clock = clock
        self._close_ups = close_ups or CloseUpBudget()
        self._device = Device()
        self._settings = CameraSettings()
        self._view: tuple[str, ...] | None = (
            None  # its stream, and a mark that people change with the view; None: unknown
        )
        self._deadline_ns = 0
        self._pictures: PictureAnalyst
        self._thermal: ThermalAnalyst
        self._radiometric = False  # whether the latest frame held temperatures
        self._suspected_ns = -UNSMOOTHED_AFTER_NS  # when fire was suspected last
        self._fault = ""  # why no fire could be seen in the latest picture
        self._failing = ""  # why the analysis of the latest frame failed

    def configure(self, device: Device, settings: CameraSettings, deadline_ns: int) -> None:
        """Apply new settings; detectors forget what they saw only if what they depend on has changed."""
        self._device, self._settings, self._deadline_ns = device, settings, deadline_ns
        past, past_view = self.setup, self._view
        self.setup, self._view = Setup.of(device, settings), (device.source, device.detect_stream, device.view)
        if self._view != past_view:
            if past_view is not None:
                self.familiar = Familiar()
            self._renew_detectors(health=PictureHealth())
        elif replace(self.setup, model=past.model) != past:
            self._renew_detectors(health=self.health)
        self.health.patience_ns = deadline_ns
        if (self.setup.model, self.setup.masks) != (past.model, past.masks):
            self._renew_model()

    def recall(self, familiar: Familiar) -> None:
        """Go on with what is known of the view from before a restart."""
        self.familiar = familiar
        self._renew_detectors(health=self.health)

    def _renew_detectors(self, health: PictureHealth) -> None:
        self.health = health
        health.patience_ns = self._deadline_ns
        device, setup = self._device, self.setup
        phase = zlib.crc32(device.id.encode()) / 2**32
        flame = FlameThresholds(score_min=setup.flame_threshold)
        smoke = SmokeThresholds(score_min=setup.smoke_threshold)
        detector = Detector(
            flame if "flame" in setup.detectors else None,
            smoke if "smoke" in setup.detectors else None,
            device.masks,
            self.familiar,
            phase,
        )
        self._pictures = PictureAnalyst(detector, health, phase, self._close_ups)
        self._thermal = ThermalAnalyst(self._settings.heat, device.radiometry, device.masks)

    def _renew_model(self) -> None:
        self.withdraw_model()
        self._past_models = self.model_cost
        self.model = None
        if self.setup.model and self._host:
            device = self._device
            self.model = CameraModel(device.id, self._host, self._settings.model, tuple(device.masks), self._clock)

    @property
    def model_cost(self) -> tuple[int, float] | None:
        """Runs, and CPU seconds of them, of all models that it has had; None: it has had none."""
        if self.model is None:
            return self._past_models
        runs, seconds = self._past_models or (0, 0.0)
        return runs + self.model.runs, seconds + self.model.cpu_seconds

    def withdraw_model(self) -> None:
        """Remove the camera from the queue of the model's threads."""
        if self.model and self._host:
            self._host.threads.withdraw(self.model)

    # A frame's way

    def decode_order(self, frame: Frame) -> DecodeOrder | None:
        """How `frame` is to be decoded; None where it holds temperatures."""
        if frame.radiometric:
            return None
        large = max(frame.header.width, frame.header.height) >= UNSMOOTHED * WORKING_SIDE
        calm = frame.received_ns - self._suspected_ns > UNSMOOTHED_AFTER_NS
        # Who looks at more than the working size, a model or people once there is something to see, sees all blocks.
        order = self._pictures.decode_order(frame, smoothed=not (large and calm and self.model is None))
        if frame.units and self.model and self.model.wants_picture(self.observation):
            order = replace(order, picture_side=self.model.side)
        return order

    def repeats(self, frame: Frame) -> bool:
        """Whether nothing looks at the picture of `frame`: it will be said to show what the one before did."""
        return not frame.radiometric and self._pictures.repeats(frame)

    def analyse_temperatures(self, frame: Frame) -> AnalysedFrame:
        """Analyse a `frame` of temperatures; on a thread."""
        return self._thermal.analyse_temperatures(frame)

    def inspect_pixels(self, frame: Frame, decoded: Decoded) -> AnalysedFrame | Exception:
        """Analyse the `decoded` picture of `frame`; an exception, whatever it is, is this camera's alone."""
        try:
            return self._pictures.inspect_pixels(frame, decoded)
        except Exception as error:
            return error

    def conclude(self, frame: Frame, analysed: AnalysedFrame) -> Observation:
        """What is known after `frame`, with what the model has found; the model gets the frame where a run is due."""
        self._failing = ""
        self._fault = analysed.fault
        self._radiometric = frame.radiometric
        seen = analysed.observation
        if self.model and not frame.radiometric:
            self.model.offer_frame(_for_model(frame, analysed), seen)
            seen = replace(seen, findings=merged(seen.findings, self.model.watch.findings))
        self.observation, self.urgent = seen, seen.urgent
        if seen.suspected:
            self._suspected_ns = frame.received_ns
        return seen

    def record_failure(self, error: object) -> str:
        """Note that the analysis of a frame failed by `error`, and begin anew: the detectors' memory may be the cause.

        Returns what failed, for the ledger; it is logged once, until another failure or a success.
        """
        self.cost.failures += 1
        detail = f"{type(error).__name__}: {error}"
        reason = f"analysis failed: {detail}"
        if reason != self._failing and isinstance(error, BaseException):
            logger.error("camera %s: %s", self._device.id, reason, exc_info=error)
        self._failing = reason
        self._renew_detectors(health=PictureHealth())
        return detail

    # What can be said of it

    @property
    def idle_detectors(self) -> str:
        """Why nothing can be detected here at all, or ''."""
        if self.model or self.setup.builtin:
            return ""
        if self.setup.detectors == (MODEL,):
            return "model is its only detector, and its fleet declares no detection.model"
        return f"this version has none of its detectors: {', '.join(self.setup.detectors)}"

    @property
    def watches_flicker(self) -> bool:
        """Whether flames are looked for by how they flicker."""
        return "flame" in self.setup.detectors and not self._radiometric

    @property
    def fault(self) -> str:
        """Why the latest frame says nothing of a fire, or ''."""
        return self.idle_detectors or self._failing or self._fault or self._unsuited

    @property
    def _unsuited(self) -> str:
        """Why the detectors that there are can make nothing of such frames, or ''."""
        if self._radiometric or not self.observation or self.model or self.setup.watches_pictures:
            return ""
        return "its frames are pictures: heat, its only detector, needs 16-bit frames of temperatures"

    def degraded(self, now_ns: int) -> str:
        """Why less is detected here than was asked for, or ''."""
        return (self.model.degraded(now_ns) if self.model else "") or self.health.unseen


def _for_model(frame: Frame, analysed: AnalysedFrame) -> Frame | None:
    """`frame` as the model can decode it: of a video the picture that was made for it, None: none was."""
    if not frame.units:
        return frame
    kept = analysed.kept
    return replace(frame, data=kept.jpeg, header=read_header(kept.jpeg), units=()) if kept else None
