"""A fleet's model on one camera: when it runs, what it detects, and why it does not run as it should.

The camera offers each analysed frame. If a run is due, the frame waits for one of the model's threads, and a newer
frame replaces it. Runs are frequent while something moves or a sign is seen, otherwise rare. The thread decodes the
frame and runs the network of the `ModelHost`. `finish_turn` passes the detections on the event loop to a `ModelWatch`,
whose findings join the camera's next observation.
"""

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from embereye.camera.decode.image import UndecodableError, decode
from embereye.camera.model.host import ModelHost
from embereye.camera.scheduling.mailbox import Frame, Picture
from embereye.camera.scheduling.turn import Turn
from embereye.detect.vision.networks.model import Detection, ModelError
from embereye.detect.vision.networks.persistence import EVERY_NS, ModelWatch
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.working import SCALES
from embereye.process.condition import Condition
from embereye.process.timing.clock import now_ns
from embereye.units import SECOND, Box
from embereye.v1.shard_pb2 import Model
from embereye.v1.types_pb2 import Mask

logger = logging.getLogger(__name__)

IDLE_NS = 10 * SECOND  # between runs while nothing moves, if the settings say 0
BUDGET_NS = SECOND  # for one run, if the settings say 0
MOVES = 0.005  # share of the picture that has to differ from the background for the model to run sooner
RUNS = 5  # over which the median run time is judged
LATE_RUNS = 3  # idle intervals without a run after which the model is late
LATE_NS = 5 * SECOND  # shortest time without a run that is late: a machine may pause for a moment
LOST_MAX = 0.3  # of a picture; the model does not run if more is missing


@dataclass(frozen=True)
class _Run:
    detections: list[Detection]
    seconds: float
    cpu_seconds: float


@dataclass(eq=False)
class CameraModel:
    """The model's runs and detections on one camera's frames; see `ModelledCamera`."""

    camera: str
    host: ModelHost
    settings: Model
    masks: tuple[Mask, ...] = ()
    clock: Callable[[], int] = now_ns
    hidden: Box | None = field(default=None, init=False)  # a part of the picture that is ignored for some time
    urgent: bool = field(default=False, init=False)  # no run overtakes another camera's
    cpu_seconds: float = field(default=0.0, init=False)
    runs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.watch = ModelWatch(self.settings, self.masks)
        self._every_ns = self.settings.every_ns or EVERY_NS
        self._idle_ns = max(self.settings.idle_ns or IDLE_NS, self._every_ns)
        self._budget_ns = self.settings.budget_ns or BUDGET_NS
        self._waiting: Picture | None = None
        self._asked_ns = 0  # when it last got a frame
        self._answered_ns = 0  # when a run last ended, or could first have begun
        self._offered_ns = 0  # when the latest frame was offered
        self._seconds: deque[float] = deque(maxlen=RUNS)
        self._failing = Condition(logger, begin=logging.ERROR)
        self._hanging = ""

    @property
    def side(self) -> int:
        """The long side of pictures that fit the model's input, in pixels."""
        return max(self.settings.width, self.settings.height)

    def is_run_due(self, seen: Observation | None) -> bool:
        """True if a run is due; `seen` is the built-in detectors' observation of the latest frame."""
        now = self.clock()
        hurries = any(finding.lasted_ns for finding in self.watch.findings)
        hurries = hurries or (seen is not None and (seen.suspected or seen.motion > MOVES))
        due_ns = self._every_ns if hurries else self._idle_ns
        return self.host.is_ready and now - (self._asked_ns or now - self._idle_ns) >= due_ns

    def offer_frame(self, frame: Picture | None, seen: Observation) -> None:
        """Queue `frame` for a run if one is due; `seen` is the built-in detectors' observation of it.

        None: a frame was analysed, but no picture of a suitable size was requested before.
        """
        now = self.clock()
        self._asked_ns = self._asked_ns or now - self._idle_ns
        self._offered_ns = now
        if not self.host.is_ready or not self._answered_ns:
            self._answered_ns = now
        if frame is None or not self.is_run_due(seen):
            return
        if sum(w * h for _, _, w, h in frame.lost) > LOST_MAX:
            return
        if self._waiting is None:
            self._asked_ns = now
        self._waiting = frame  # replaces an older one
        self.host.threads.submit(self)

    def next_frame(self) -> Picture | None:
        """Remove the waiting frame and return it."""
        frame, self._waiting = self._waiting, None
        return frame

    def analyse_on_thread(self, frame: Frame) -> object:
        """Run the model on `frame`. Called on one of the model's threads."""
        began, cpu = time.monotonic(), time.thread_time()
        assert isinstance(frame, Picture)
        header = frame.header
        wide, high = header.width // self.settings.width, header.height // self.settings.height
        # Reduce the picture as far as the model's input allows.
        scale = next((scale for scale in SCALES if scale <= max(wide, high)), 1)
        detections = self.host.run_network(decode(frame.data, scale, (header.width, header.height)))
        return _Run(detections, time.monotonic() - began, time.thread_time() - cpu)

    @property
    def pause(self) -> float:
        """Seconds between two runs after which it overtakes all others."""
        return self._idle_ns / SECOND

    def finish_turn(self, turn: Turn) -> None:
        """Note the model's detections, or why it failed."""
        frame, result = turn.frame, turn.result
        self._hanging = ""
        if isinstance(result, _Run):
            self._failing.clear()
            self._answered_ns = self.clock()
            self._seconds.append(result.seconds)
            self.cpu_seconds += result.cpu_seconds
            self.runs += 1
            ignored = frame.lost if self.hidden is None else (*frame.lost, self.hidden)
            self.watch.observe(result.detections, frame.time_ns, ignored)
            return
        if isinstance(result, UndecodableError):
            return  # the frame is at fault; if all frames are, the camera itself is dark
        reason = str(result) if isinstance(result, ModelError) else f"{type(result).__name__}: {result}"
        self._failing.fail(reason, "camera %s: %s: %s", self.camera, self.host.field, reason)
        self.watch.forget()

    def report_hang(self, seconds: float) -> None:
        """Note that a run has not ended for `seconds`."""
        self._hanging = f"its run on one picture has not ended for {seconds:.0f} s"
        self.watch.forget()

    @property
    def seconds(self) -> float:
        """Median duration of the last runs, in seconds; 0 before the first."""
        return statistics.median(self._seconds) if self._seconds else 0.0

    def degraded(self, now: int) -> str:
        """Return why the model does not watch this camera as it should, or ''."""
        reason = self.host.reason(now) or self._hanging or self._failing.why or self._slow()
        return f"{self.host.field}: {reason}" if reason else ""

    def _slow(self) -> str:
        if len(self._seconds) == RUNS and self.seconds * SECOND > self._budget_ns:
            return f"a run takes {self.seconds * 1000:.0f} ms, its budget is {self._budget_ns / 1e6:.0f} ms"
        late_ns = self._offered_ns - self._answered_ns
        if late_ns > max(LATE_RUNS * self._idle_ns, LATE_NS):
            return (
                f"its last run was {late_ns / SECOND:.0f} s ago, it should run every {self._idle_ns / SECOND:g} s. "
                f"Use a smaller model, more shards, or a longer {self.host.field}.idle"
            )
        return ""
