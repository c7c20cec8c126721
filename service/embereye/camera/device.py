"""One camera of a shard: its mailbox, its analysis, its coverage, what people are told about it."""

import logging
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from embereye.camera.analysis import Analysis, Analyst
from embereye.camera.decoding import Decoded, Order, UndecodableError
from embereye.camera.mailbox import Frame, Mailbox, Tally
from embereye.camera.model import CameraModel, ModelHost
from embereye.camera.reception import Reception
from embereye.camera.rest import FLUSH_NS, REJECTED_NS, Rest
from embereye.camera.ring import Budget, Kept, Ring
from embereye.camera.schedule import least_rate
from embereye.camera.sources.push import Verdict
from embereye.camera.thermal import ThermalAnalyst
from embereye.camera.workers import Work
from embereye.detect.vision.detector import Detector
from embereye.detect.vision.health import PictureHealth
from embereye.detect.vision.observation import Box, Observation
from embereye.detect.vision.persistence import merged
from embereye.detect.vision.thresholds import FlameThresholds, SmokeThresholds
from embereye.process.delays import Delays
from embereye.shard.coverage import SECOND, Watch
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device, Level, Term
from embereye.zone.sentences import kind_word

logger = logging.getLogger(__name__)

DEADLINE_NS = 2 * SECOND  # where the assignment names none
EVIDENCE_NS = (5 * SECOND, 10 * SECOND)  # before and after an alarm, where the assignment names none
CLOCK_SKEW_NS = 60 * SECOND  # a sender whose clock is further off is timed by our own
STILL_TOLD_NS = 1_200_000_000  # a still is told for this long: coverage is reported every second
COST_SHARE = 0.1  # of what a frame took that goes into what the next ones are expected to take
PROBE_NS = 10 * SECOND  # between two frames of a camera that is refused: it may have become cheaper
RATE_FRAMES = 32  # over which the frame rate is measured
AVAILABLE = ("flame", "heat", "motion", "smoke")  # built-in detectors of this version
MODEL = "model"  # the fleet's own


@dataclass(frozen=True)
class Setup:
    """What of an assignment a camera's detector depends on."""

    detectors: tuple[str, ...]
    masks: bytes  # serialised, to compare
    flame_threshold: float
    smoke_threshold: float
    model: bytes  # serialised, to compare; empty: none
    heat: bytes  # thresholds and what a word is worth, serialised, to compare

    @classmethod
    def of(cls, device: Device, settings: CameraSettings) -> "Setup":
        """The setup of `device` under `settings`; the device's own detectors come first, none at all means all."""
        masks = b"".join(mask.SerializeToString(deterministic=True) + b";" for mask in device.masks)
        detectors = tuple(sorted(device.detectors or {*(settings.detectors or AVAILABLE), MODEL}))
        model = settings.model.SerializeToString(deterministic=True) if MODEL in detectors else b""
        heat = settings.heat.SerializeToString(deterministic=True)
        heat += b";" + device.radiometry.SerializeToString(deterministic=True)
        return cls(detectors, masks, settings.flame_threshold, settings.smoke_threshold, model, heat)

    # Asked for with every frame.

    @cached_property
    def builtin(self) -> bool:
        """Whether any built-in detector is wanted."""
        return any(name in AVAILABLE for name in self.detectors)

    @cached_property
    def watches_pictures(self) -> bool:
        """Whether a built-in detector that makes something of pictures is wanted."""
        return any(name in AVAILABLE and name != "heat" for name in self.detectors)


class CameraDevice:
    """Runs on the event loop, but for `work`, which runs on a thread, one frame at a time."""

    def __init__(
        self,
        device: Device,
        settings: CameraSettings,
        *,
        budget: Budget,
        submit: Callable[["CameraDevice"], None],
        report: Callable[["CameraDevice", Observation], None],
        host: ModelHost | None = None,
        delays: Delays | None = None,
        ages: Delays | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.device = device
        self.model: CameraModel | None = None
        self._host = host
        self.mailbox = Mailbox()
        self.ring = Ring(budget)
        self.latest: Kept | None = None  # the frame that was analysed last
        self.watch = Watch()
        self.state = "waiting for a sender"
        self.unopened = ""  # why the source cannot be opened at all
        self.observation: Observation | None = None
        self.urgent = False  # fire is suspected: flicker is told from every frame
        self.still = b""  # JPEG
        self.cpu_seconds = 0.0
        self.cost_seconds = 0.0  # CPU time per frame, smoothed; 0: not known yet
        self.refused = ""  # why this shard cannot serve it, or ""
        self.failures = 0  # of the analysis
        self.pushed = False
        self.rest = Rest()
        self._submit = submit
        self._report = report
        self._delays = delays or Delays()
        self._ages = ages or Delays()
        self._clock = clock
        self._still_ns = 0
        self._time_ns = 0  # of the latest frame
        self._fault = ""  # what is wrong with the picture
        self._health: PictureHealth
        self._view = ("", "")
        self._reception = Reception()
        self._failing = ""
        self._arrivals: deque[int] = deque(maxlen=RATE_FRAMES)
        self._setup: Setup | None = None
        self._heat = settings.heat
        self._thermal: ThermalAnalyst
        self._radiometric = False  # whether the latest frame held temperatures
        self._analyst: Analyst
        self.deadline_ns = DEADLINE_NS
        self.least_rate = 0.0  # frames/s
        self.evidence_ns = EVIDENCE_NS
        self.configure(device, settings)

    def configure(self, device: Device, settings: CameraSettings) -> None:
        """Take new settings; the detector forgets what it saw only if what it depends on changed."""
        self.device, self._heat = device, settings.heat
        self.deadline_ns = settings.deadline_ns or DEADLINE_NS
        self.least_rate = least_rate(device.fps_min, self.deadline_ns)
        self.mailbox.pace.configure(device.fps_target, self.least_rate)
        before, after = EVIDENCE_NS
        self.evidence_ns = settings.evidence_before_ns or before, settings.evidence_after_ns or after
        view = (device.source, device.view)
        past, setup = self._setup, Setup.of(device, settings)
        self._setup = setup
        if past is None or view != self._view:
            self._health, self._view = PictureHealth(), view
            self._renew()
        elif replace(setup, model=past.model) != past:
            self._renew()
        self._health.patience_ns = self.deadline_ns
        if past is None or (setup.model, setup.masks) != (past.model, past.masks):
            self._choose_model(settings)

    @property
    def idle_detectors(self) -> str:
        """Why nothing can be detected here at all, or ''."""
        assert self._setup
        if self.model or self._builtin:
            return ""
        if self._setup.detectors == (MODEL,):
            return "model is its only detector, and its fleet declares no detection.model"
        return f"this version has none of its detectors: {', '.join(self._setup.detectors)}"

    def _renew(self) -> None:
        assert self._setup
        setup = self._setup
        flame = FlameThresholds(score_min=setup.flame_threshold or FlameThresholds.score_min)
        smoke = SmokeThresholds(score_min=setup.smoke_threshold or SmokeThresholds.score_min)
        detector = Detector(
            flame if "flame" in setup.detectors else None,
            smoke if "smoke" in setup.detectors else None,
            self.device.masks,
        )
        self._analyst = Analyst(detector, self._health, zlib.crc32(self.device.id.encode()) / 2**32)
        self._thermal = ThermalAnalyst(self._heat, self.device.radiometry, self.device.masks)

    def _choose_model(self, settings: CameraSettings) -> None:
        assert self._setup
        if self.model and self._host:
            self._host.workers.withdraw(self.model)
        self.model = None
        if self._setup.model and self._host:
            model = settings.model
            self.model = CameraModel(self.device.id, self._host, model, tuple(self.device.masks), self._clock)

    def offer(self, data: bytes, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        """Take a frame from a pulled source; without a time it was captured now. `lost` parts did not arrive."""
        now = self._clock()
        self._take(data, self._believed(time_ns, now), now, None, lost=lost)

    def push(self, data: bytes, time_ns: int, tally: Tally) -> Verdict:
        """Take a frame from a sender."""
        now = self._clock()
        self.state = "streaming"
        believed = self._believed(time_ns, now)
        fresh = believed == time_ns and self._reception.late_ns < FLUSH_NS
        reason = self._take(data, believed, now, tally, early_ns=FLUSH_NS if fresh else 0)
        tally.heard_ns, tally.wanted_ns = now, now + REJECTED_NS if reason else self._wanted_ns(now)
        return Verdict(taken=True, reason=reason)

    def _wanted_ns(self, now: int) -> int:
        pace = self.mailbox.pace
        wanted = 0 if self.urgent else now + int(SECOND / self.least_rate) if self.refused else pace.wanted_ns
        if not wanted and not self.rest.frame_rate:
            return 0
        return self.rest.after(
            now,
            wanted_ns=wanted,
            flush_ns=FLUSH_NS if pace.cut else 0,
            late_ns=self._reception.late_ns,
            frame_rate=min(pace.target, self.frame_rate(now)),  # what comes in a burst comes faster
        )

    def _believed(self, time_ns: int, now: int) -> int:
        if time_ns:
            self._reception.stamp(time_ns, now)
        # A clock that stands still or is far off must not blind a detector that works with time.
        return time_ns if self._time_ns < time_ns and abs(time_ns - now) < CLOCK_SKEW_NS else now

    def _take(
        self,
        data: bytes,
        time_ns: int,
        now: int,
        tally: Tally | None,
        *,
        lost: tuple[Box, ...] = (),
        early_ns: int = 0,
    ) -> str:
        self.watch.heard_ns = now
        self._arrivals.append(now)
        self._time_ns = max(time_ns, self._time_ns)
        if self.refused and now - self.watch.analysed_ns < PROBE_NS:
            self.mailbox.refuse(tally)
            return ""
        reason = self.mailbox.offer(data, time_ns, now, tally=tally, boosted=self.urgent, lost=lost, early_ns=early_ns)
        self._reception.frame(1.0 if reason else min(1.0, sum(w * h for _, _, w, h in lost)), now)
        if self.mailbox.waiting:
            self._submit(self)
        return reason

    def next_frame(self) -> Frame | None:
        """Take the waiting frame."""
        return self.mailbox.take()

    def order(self, frame: Frame) -> Order | None:
        """How `frame` is to be decoded; None where it holds temperatures."""
        return None if frame.radiometric else self._analyst.order(frame)

    def work(self, frame: Frame) -> object:
        """Analyse a `frame` of temperatures; on a thread."""
        return self._thermal.analyse(frame)

    def _look(self, frame: Frame, decoded: Decoded) -> Analysis | Exception:
        try:
            return self._analyst.look(frame, decoded)
        except Exception as error:  # whatever it is, it is this camera's alone
            return error

    @property
    def pause(self) -> float:
        """Seconds between two frames beyond which it breaks its `fps.min` or its deadline."""
        return 1.0 / self.least_rate

    def done(self, work: Work) -> None:
        """Take what became of a frame."""
        frame, result = work.frame, work.result
        if isinstance(result, Decoded):
            result = self._look(frame, result)
        now = self._clock()
        if isinstance(result, Analysis):
            # CPU time: what passed on the clock grows with the load itself, and cameras would be refused for that.
            cost = result.cpu_seconds
            self.cost_seconds += (cost - self.cost_seconds) * (COST_SHARE if self.cost_seconds else 1.0)
        self.mailbox.pace.learn(work.waited, now, urgent=self.urgent)
        if isinstance(result, Analysis):
            self._analysed(frame, result, now)
            if frame.tally and self.urgent:
                frame.tally.wanted_ns = 0
        elif isinstance(result, UndecodableError):
            self.mailbox.failed(frame, "undecodable", str(result), now)
            self._reception.spoilt()
        else:
            self.failures += 1
            self.mailbox.failed(frame, "analysis failed", f"{type(result).__name__}: {result}", now)
            reason = f"analysis failed: {type(result).__name__}: {result}"
            if reason != self._failing and isinstance(result, BaseException):
                logger.error("camera %s: %s", self.device.id, reason, exc_info=result)
            self._failing = reason
            self._health = PictureHealth()
            self._renew()  # its memory may be what it fails on

    def _analysed(self, frame: Frame, result: Analysis, now: int) -> None:
        self.mailbox.analysed(frame)
        self._failing = ""
        seen = result.observation
        self._radiometric = frame.radiometric
        if self.model and not frame.radiometric:
            self.model.offer(frame, seen)
            seen = replace(seen, findings=merged(seen.findings, self.model.watch.findings))
        self.cpu_seconds += result.cpu_seconds
        self.watch.analysed_ns = now
        self._delays.observe((now - frame.received_ns) / SECOND)
        self._ages.observe((now - frame.time_ns) / SECOND)
        self._fault = result.fault
        self.observation, self.urgent = seen, seen.urgent
        kept = result.kept
        if not frame.radiometric:
            kept = Kept(frame.time_ns, frame.data, frame.header.width, frame.header.height)
        if kept:
            self.latest = kept
            self.ring.add(kept, self.evidence_ns[0], suspected=seen.suspected)
        if result.still:
            self.still, self._still_ns = result.still, now
        if self.blindness(now):
            # Whoever cannot see may still raise an alarm, but must not say that a fire is out.
            seen = replace(seen, findings=tuple(of for of in seen.findings if of.level > Level.LEVEL_CLEAR))
        self._report(self, seen)

    def blindness(self, now: int) -> str:
        """Why this camera cannot see although frames arrive, or ''."""
        if self.idle_detectors:
            return self.idle_detectors
        if self._failing:
            return self._failing
        if self._fault:
            return self._fault
        if unsuited := self._unsuited:
            return unsuited
        fault = self._reception.fault(now)
        if fault and now - self.mailbox.rejected_ns <= self.deadline_ns:
            return f"{fault}; at last: {self.mailbox.rejected_reason}"
        return fault or self._lateness(now) or ("" if self._builtin else self.degraded(now))

    def _lateness(self, now: int) -> str:
        late = self._reception.late_ns
        if late <= self.deadline_ns or now - self.watch.heard_ns > self.deadline_ns:
            return ""
        return f"its pictures arrive {late / SECOND:.1f} s late: they wait in the network, or the shard is overloaded"

    @property
    def _unsuited(self) -> str:
        """Why the detectors that there are can make nothing of such frames, or ''."""
        assert self._setup
        if self._radiometric or not self.observation or self.model:
            return ""
        if self._setup.watches_pictures:
            return ""
        return "its frames are pictures: heat, its only detector, needs 16-bit frames of temperatures"

    @property
    def _builtin(self) -> bool:
        assert self._setup
        return self._setup.builtin

    def degraded(self, now: int) -> str:
        """Why less is detected here than was asked for, or ''."""
        return self.model.degraded(now) if self.model else ""

    def reason(self, now: int) -> str:
        """One sentence why this camera is not covered, or ''."""
        if self.unopened or self.refused:
            return self.unopened or self.refused
        self.watch.blind = self.blindness(now)
        reason = self.watch.reason(now, self.deadline_ns)
        if not reason or reason == self.watch.blind:
            return reason
        silent = now - self.watch.heard_ns > self.deadline_ns
        if self.watch.blind and (self.idle_detectors or not silent):
            return self.watch.blind
        if silent:
            return f"{reason}; source: {self._state(now)}"
        if self.mailbox.waiting:
            return f"{reason}; the shard is overloaded: its frames wait for their turn"
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
            degraded=self.degraded(now),
        )

    def _state(self, now: int) -> str:
        if self.pushed and self.watch.heard_ns and now - self.watch.heard_ns > self.deadline_ns:
            return "waiting for a sender"
        return self.state

    def _latest(self, now: int) -> list[Term]:
        pace = self.mailbox.pace
        terms = [
            Term(name="fps", value=self.frame_rate(now), unit="1/s"),
            Term(name="fps.target", value=pace.rate, threshold=self.least_rate, unit="1/s"),
        ]
        if seen := self.observation:
            terms += [
                Term(name="age", value=(now - seen.time_ns) / 1e6, unit="ms"),
                Term(name="motion", value=100 * seen.motion, unit="%"),
            ]
            terms += [
                Term(name=t.name, value=t.value, unit=t.unit)
                for of in seen.findings
                for t in of.terms
                if t.unit == "°C" and t.name == "temperature.max"
            ]
            terms += [Term(name=f"{kind_word(of.kind)}.score", value=of.score, unit="1") for of in seen.findings]
        if self.model and self.model.runs:
            terms.append(Term(name="model.run", value=self.model.seconds * 1e3, unit="ms"))
        return terms

    def frame_rate(self, now: int) -> float:
        """Frames per second that arrive, or would if none were left with their sender."""
        if len(self._arrivals) < 2 or now - self._arrivals[-1] > self.deadline_ns:
            return 0.0
        if self.rest.frame_rate:
            return self.rest.frame_rate
        return (len(self._arrivals) - 1) * SECOND / max(1, self._arrivals[-1] - self._arrivals[0])

    @property
    def level(self) -> Level.ValueType:
        """The level of the latest observation."""
        return self.observation.level if self.observation else Level.LEVEL_CLEAR
