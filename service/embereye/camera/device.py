"""One camera of a shard: its mailbox, its analysis, its coverage, what people are told about it."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from embereye.camera.analysis import Analysis, Analyst, UndecodableError
from embereye.camera.mailbox import Frame, Mailbox, Tally
from embereye.camera.sources.push import Verdict
from embereye.shard.coverage import SECOND, Watch
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device, Level, Term
from embereye.vision.detector import Detector
from embereye.vision.observation import Box, Observation
from embereye.vision.thresholds import FlameThresholds, SmokeThresholds
from embereye.zone.sentences import kind_word

logger = logging.getLogger(__name__)

DEADLINE_NS = 2 * SECOND  # where the assignment names none
FROZEN_NS = 5 * SECOND  # a still scene has noise; a picture that is the same to the last bit is a stuck camera
BLIND_NS = SECOND  # of a black or blank picture before it counts: a cut or a flash is no blindness
CLOCK_SKEW_NS = 60 * SECOND  # a sender whose clock is further off is timed by our own
STILL_TOLD_NS = 1_200_000_000  # a still is told for this long: coverage is reported every second
RATE_FRAMES = 32  # over which the frame rate is measured
AVAILABLE = ("flame", "motion", "smoke")  # detectors of this version


@dataclass(frozen=True)
class Setup:
    """What of an assignment a camera's detector depends on."""

    detectors: tuple[str, ...]
    masks: bytes  # serialised, to compare
    flame_threshold: float
    smoke_threshold: float

    @classmethod
    def of(cls, device: Device, settings: CameraSettings) -> "Setup":
        """The setup of `device` under `settings`; the device's own detectors come first, none at all means all."""
        masks = b"".join(mask.SerializeToString(deterministic=True) + b";" for mask in device.masks)
        detectors = tuple(sorted(device.detectors or settings.detectors or AVAILABLE))
        return cls(detectors, masks, settings.flame_threshold, settings.smoke_threshold)


class CameraDevice:
    """Runs on the event loop, but for `work`, which runs on a worker thread, one frame at a time."""

    def __init__(
        self,
        device: Device,
        settings: CameraSettings,
        *,
        submit: Callable[["CameraDevice"], None],
        report: Callable[["CameraDevice", Observation], None],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.device = device
        self.mailbox = Mailbox()
        self.watch = Watch()
        self.state = "waiting for a sender"
        self.unopened = ""  # why the source cannot be opened at all
        self.observation: Observation | None = None
        self.still = b""  # JPEG
        self.cpu_seconds = 0.0
        self.failures = 0  # of the analysis
        self.pushed = False
        self._submit = submit
        self._report = report
        self._clock = clock
        self._still_ns = 0
        self._time_ns = 0  # of the latest frame
        self._changed_ns = 0  # when the picture last differed from the one before
        self._sighted_ns = 0  # when the picture last showed anything
        self._failing = ""
        self._hanging = ""
        self._arrivals: deque[int] = deque(maxlen=RATE_FRAMES)
        self._setup: Setup | None = None
        self._analyst: Analyst
        self.deadline_ns = DEADLINE_NS
        self.configure(device, settings)

    def configure(self, device: Device, settings: CameraSettings) -> None:
        """Take new settings; the detector forgets what it saw only if what it depends on changed."""
        self.device = device
        self.deadline_ns = settings.deadline_ns or DEADLINE_NS
        self.mailbox.fps_target = device.fps_target
        setup = Setup.of(device, settings)
        if setup != self._setup:
            self._setup = setup
            self._renew()

    @property
    def idle_detectors(self) -> str:
        """Why nothing can be detected here at all, or ''."""
        assert self._setup
        if any(name in AVAILABLE for name in self._setup.detectors):
            return ""
        return f"this version has none of its detectors: {', '.join(self._setup.detectors)}"

    def _renew(self) -> None:
        assert self._setup
        setup = self._setup
        flame = FlameThresholds(score_min=setup.flame_threshold or FlameThresholds.score_min)
        smoke = SmokeThresholds(score_min=setup.smoke_threshold or SmokeThresholds.score_min)
        self._analyst = Analyst(
            Detector(
                flame if "flame" in setup.detectors else None,
                smoke if "smoke" in setup.detectors else None,
                self.device.masks,
            )
        )

    def offer(self, data: bytes, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        """Take a frame from a pulled source; without a time it was captured now. `lost` parts did not arrive."""
        now = self._clock()
        self._take(data, self._believed(time_ns, now), now, None, lost)

    def push(self, data: bytes, time_ns: int, tally: Tally) -> Verdict:
        """Take a frame from a sender."""
        now = self._clock()
        self.state = "streaming"
        return Verdict(taken=True, reason=self._take(data, self._believed(time_ns, now), now, tally))

    def _believed(self, time_ns: int, now: int) -> int:
        # A clock that stands still or is far off must not blind a detector that works with time.
        return time_ns if self._time_ns < time_ns and abs(time_ns - now) < CLOCK_SKEW_NS else now

    def _take(self, data: bytes, time_ns: int, now: int, tally: Tally | None, lost: tuple[Box, ...] = ()) -> str:
        self.watch.heard_ns = now
        self._arrivals.append(now)
        self._time_ns = max(time_ns, self._time_ns)
        boosted = self.observation is not None and self.observation.suspected
        reason = self.mailbox.offer(data, time_ns, now, tally=tally, boosted=boosted, lost=lost)
        if self.mailbox.waiting:
            self._submit(self)
        return reason

    def next_frame(self) -> Frame | None:
        """Take the waiting frame."""
        return self.mailbox.take()

    def work(self, frame: Frame) -> object:
        """Analyse `frame`; on a worker thread."""
        return self._analyst.analyse(frame)

    def done(self, frame: Frame, result: object) -> None:
        """Take what became of `frame`."""
        now = self._clock()
        self._hanging = ""
        if isinstance(result, Analysis):
            self._analysed(frame, result, now)
        elif isinstance(result, UndecodableError):
            self.mailbox.failed(frame, "undecodable", str(result), now)
        else:
            self.failures += 1
            self.mailbox.failed(frame, "analysis failed", f"{type(result).__name__}: {result}", now)
            reason = f"analysis failed: {type(result).__name__}: {result}"
            if reason != self._failing and isinstance(result, BaseException):
                logger.error("camera %s: %s", self.device.id, reason, exc_info=result)
            self._failing = reason
            self._renew()  # its memory may be what it fails on
        if self.mailbox.waiting:
            self._submit(self)

    def _analysed(self, frame: Frame, result: Analysis, now: int) -> None:
        self.mailbox.analysed(frame)
        self._failing = ""
        seen = result.observation
        self.cpu_seconds += result.cpu_seconds
        self.watch.analysed_ns = now
        if not seen.unchanged or not self._changed_ns:
            self._changed_ns = now
        if not seen.blind:
            self._sighted_ns = now
        elif not self._sighted_ns:
            self._sighted_ns = now - BLIND_NS
        self.observation = seen
        if result.still:
            self.still, self._still_ns = result.still, now
        if not self.blindness(now):
            self._report(self, seen)

    def hangs(self, seconds: float) -> None:
        """Learn that the analysis of one frame does not end."""
        self._hanging = f"the analysis of one frame has been running for {seconds:.0f} s"

    def blindness(self, now: int) -> str:
        """Why this camera cannot see although frames arrive, or ''."""
        if self.idle_detectors:
            return self.idle_detectors
        if self._failing or self._hanging:
            return self._failing or self._hanging
        frozen = now - self._changed_ns
        if self._changed_ns and frozen > max(self.deadline_ns, FROZEN_NS):
            return f"picture frozen: exactly the same for {frozen / SECOND:.0f} s"
        if self.observation and self.observation.blind and now - self._sighted_ns >= BLIND_NS:
            return self.observation.blind
        return ""

    def reason(self, now: int) -> str:
        """One sentence why this camera is not covered, or ''."""
        if self.unopened:
            return self.unopened
        self.watch.blind = self.blindness(now)
        reason = self.watch.reason(now, self.deadline_ns)
        if not reason or reason == self.watch.blind:
            return reason
        if self.watch.blind:
            return self.watch.blind
        if now - self.watch.heard_ns > self.deadline_ns:
            return f"{reason}; source: {self.state}"
        if now - self.mailbox.rejected_ns <= self.deadline_ns:
            return f"{reason}; frames are rejected: {self.mailbox.rejected_reason}"
        return reason

    def status(self, now: int) -> DeviceStatus:
        """What the hub and people are told."""
        reason = self.reason(now)
        return DeviceStatus(
            id=self.device.id,
            zone=self.device.zone,
            covered=not reason,
            reason=reason,
            heard_ns=self.watch.heard_ns,
            analysed_ns=self.watch.analysed_ns,
            ledger=self.mailbox.ledger.message(),
            latest=self._latest(now),
            picture=self.still if now - self._still_ns < STILL_TOLD_NS else b"",
            state=self._state(now),
        )

    def _state(self, now: int) -> str:
        if self.pushed and self.watch.heard_ns and now - self.watch.heard_ns > self.deadline_ns:
            return "waiting for a sender"
        return self.state

    def _latest(self, now: int) -> list[Term]:
        terms = [Term(name="fps", value=self.frame_rate(now), unit="1/s")]
        if seen := self.observation:
            terms += [
                Term(name="age", value=(now - seen.time_ns) / 1e6, unit="ms"),
                Term(name="motion", value=100 * seen.motion, unit="%"),
            ]
            terms += [Term(name=f"{kind_word(of.kind)}.score", value=of.score, unit="1") for of in seen.findings]
        return terms

    def frame_rate(self, now: int) -> float:
        """Frames per second that arrive."""
        if len(self._arrivals) < 2 or now - self._arrivals[-1] > self.deadline_ns:
            return 0.0
        return (len(self._arrivals) - 1) * SECOND / max(1, self._arrivals[-1] - self._arrivals[0])

    @property
    def level(self) -> Level.ValueType:
        """The level of the latest observation."""
        return self.observation.level if self.observation else Level.LEVEL_CLEAR
