"""A fleet's own model in a camera shard: loaded, again when its file changes, and run for each camera at a rate."""

import asyncio
import logging
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from embereye.camera.decode.process import UndecodableError, decode
from embereye.camera.model.threads import Work, Workers
from embereye.camera.scheduling.mailbox import Frame
from embereye.detect.vision.model import Detection, ModelError, Network, Picture
from embereye.detect.vision.observation import Observation
from embereye.detect.vision.persistence import EVERY_NS, ModelWatch
from embereye.detect.vision.working import SCALES
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Model
from embereye.v1.types_pb2 import Mask

logger = logging.getLogger(__name__)

IDLE_NS = 10 * SECOND  # between runs while nothing moves, where the settings leave it at 0
BUDGET_NS = SECOND  # for a run, likewise
MOVES = 0.005  # share of the picture that has to differ from the background for the model to look at it sooner
LOOK_SECONDS = 1.0  # between looks at the model's file
LOADING_NS = 10 * SECOND  # for the first load, before it is called missing
MOST_BYTES = 1 << 30
RUNS = 5  # over which the time of a run is judged
LATE_RUNS = 3  # usual intervals without one, until the model is called late
LATE_NS = 5 * SECOND  # at least: a machine may stop for a moment
LOST_MOST = 0.3  # of a picture, or the model is not asked
BUSY_SECONDS = 30.0  # that a run waits for another one that hangs


class ModelHost:
    """Holds the network that all cameras of a shard share, and the threads it runs on."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self.settings: Model | None = None
        self.workers = Workers(1)  # a model takes a hundred times what a frame does: it must not hold frames up
        self._clock = clock
        self._network: Network | None = None
        self._lock = threading.Lock()  # one thread at a time; a spare one takes the place of one that hangs
        self._reason = ""
        self._mark: tuple[int, int, int] | None = None  # of the file that was read last
        self._wanted_ns = 0

    def configure(self, settings: Model | None) -> None:
        """Use what `settings` declare from now on; None: there is no model."""
        if settings == self.settings:
            return
        self.settings = settings
        self._network, self._mark, self._reason = None, None, ""
        self._wanted_ns = self._clock()

    @property
    def ready(self) -> bool:
        """Whether it can be asked."""
        return self._network is not None

    def reason(self, now: int) -> str:
        """Why the model cannot be used, or ''."""
        if self.settings is None or self._network is not None:
            return ""
        if self._reason:
            return self._reason
        return "it is still being loaded" if now - self._wanted_ns > LOADING_NS else ""

    async def run(self) -> None:
        """Load the model, and again whenever its file changes."""
        started = False
        while True:
            if self.settings is not None:
                if not started:
                    started = True
                    self.workers.start()
                await self._refresh(self.settings)
                self.workers.watch()
            await asyncio.sleep(LOOK_SECONDS)

    async def _refresh(self, settings: Model) -> None:
        path = path_of(settings)
        try:
            stat = path.stat()
            mark = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        except OSError as error:
            self._mark = None
            if self._network is None:
                self._fail(f"{path} cannot be read: {error.strerror}; {_remedy(settings)}")
            return  # what was loaded goes on: a mounted file is away for a moment while it is replaced
        if mark == self._mark:
            return
        self._mark = mark
        try:
            network = await asyncio.to_thread(_load, path, settings)
        except ModelError as error:
            if settings is self.settings:
                self._network = None  # the file in force is not usable: what it replaced is not what was asked for
                self._fail(str(error))
            return
        if settings is self.settings:
            self._network, self._reason = network, ""
            logger.info("model %s loaded", path)

    def _fail(self, reason: str) -> None:
        if reason != self._reason:
            logger.error("detection.model: %s", reason)
        self._reason = reason

    def look(self, picture: Picture) -> list[Detection]:
        """What the model sees; on a worker thread."""
        network = self._network
        if network is None:
            raise ModelError("it is not loaded")
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise ModelError("another picture has held it up for too long")
        try:
            return network.look(picture)
        finally:
            self._lock.release()


def path_of(settings: Model) -> Path:
    """Where the model's file is."""
    if settings.mounted:
        return Path(os.environ.get("EMBEREYE_MODEL", "/etc/embereye/model")) / settings.mounted
    return Path(settings.path)


def _remedy(settings: Model) -> str:
    if settings.mounted:
        return "is the ConfigMap or the volume that detection.model names there, with this file in it?"
    return "detection.model.path is where the shard sees the file"


def _load(path: Path, settings: Model) -> Network:
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ModelError(f"{path} has {size} bytes, more than {MOST_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return Network(data, settings)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


@dataclass(frozen=True)
class _Run:
    detections: list[Detection]
    seconds: float
    cpu_seconds: float


@dataclass(eq=False)
class CameraModel:
    """The model's view of one camera: a customer of the model's threads."""

    camera: str
    host: ModelHost
    settings: Model
    masks: tuple[Mask, ...] = ()
    clock: Callable[[], int] = time.time_ns
    urgent: bool = field(default=False, init=False)  # no run goes before another camera's
    cpu_seconds: float = field(default=0.0, init=False)
    runs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.watch = ModelWatch(self.settings, self.masks)
        self._every_ns = self.settings.every_ns or EVERY_NS
        self._idle_ns = max(self.settings.idle_ns or IDLE_NS, self._every_ns)
        self._budget_ns = self.settings.budget_ns or BUDGET_NS
        self._waiting: Frame | None = None
        self._asked_ns = 0  # when a frame was last given to it
        self._answered_ns = 0  # when it last said something, or could first have been asked
        self._offered_ns = 0  # when a frame was last there to be looked at
        self._seconds: deque[float] = deque(maxlen=RUNS)
        self._failing = ""
        self._hanging = ""

    def offer(self, frame: Frame, seen: Observation) -> None:
        """Take a frame that the built-in detectors looked at, where it is time for the model to look, too."""
        now = self.clock()
        self._asked_ns = self._asked_ns or now - self._idle_ns
        self._offered_ns = now
        if not self.host.ready or not self._answered_ns:
            self._answered_ns = now
        hurries = seen.suspected or seen.motion > MOVES or any(each.held_ns for each in self.watch.findings)
        due_ns = self._every_ns if hurries else self._idle_ns
        if not self.host.ready or now - self._asked_ns < due_ns:
            return
        if sum(w * h for _, _, w, h in frame.lost) > LOST_MOST:
            return
        if self._waiting is None:
            self._asked_ns = now
        self._waiting = frame  # the newest
        self.host.workers.submit(self)

    def next_frame(self) -> Frame | None:
        """Take the waiting frame."""
        frame, self._waiting = self._waiting, None
        return frame

    def work(self, frame: Frame) -> object:
        """Look at `frame`; on a thread of the model's."""
        began, cpu = time.monotonic(), time.thread_time()
        header = frame.header
        wide, high = header.width // self.settings.width, header.height // self.settings.height
        # As far reduced as the model's input still is.
        scale = next((scale for scale in SCALES if scale <= max(wide, high)), 1)
        detections = self.host.look(decode(frame.data, scale, (header.width, header.height)))
        return _Run(detections, time.monotonic() - began, time.thread_time() - cpu)

    @property
    def pause(self) -> float:
        """Seconds between two runs beyond which it looks less often than it is to."""
        return self._idle_ns / SECOND

    def done(self, work: Work) -> None:
        """Take what became of a frame."""
        frame, result = work.frame, work.result
        self._hanging = ""
        if isinstance(result, _Run):
            self._failing = ""
            self._answered_ns = self.clock()
            self._seconds.append(result.seconds)
            self.cpu_seconds += result.cpu_seconds
            self.runs += 1
            self.watch.observe(result.detections, frame.time_ns, frame.lost)
            return
        if isinstance(result, UndecodableError):
            return  # the frame's fault; where all are, the camera itself is dark
        reason = str(result) if isinstance(result, ModelError) else f"{type(result).__name__}: {result}"
        if reason != self._failing:
            logger.error("camera %s: detection.model: %s", self.camera, reason)
        self._failing = reason
        self.watch.forget()

    def hangs(self, seconds: float) -> None:
        """Learn that a run does not end."""
        self._hanging = f"its run on one picture has been going on for {seconds:.0f} s"
        self.watch.forget()

    @property
    def seconds(self) -> float:
        """That a run takes; 0 before the first."""
        return statistics.median(self._seconds) if self._seconds else 0.0

    def degraded(self, now: int) -> str:
        """Why the model does not watch this camera as it should, or ''."""
        reason = self.host.reason(now) or self._hanging or self._failing or self._slow()
        return f"detection.model: {reason}" if reason else ""

    def _slow(self) -> str:
        if len(self._seconds) == RUNS and self.seconds * SECOND > self._budget_ns:
            return f"a run takes {self.seconds * 1000:.0f} ms, its budget is {self._budget_ns / 1e6:.0f} ms"
        late_ns = self._offered_ns - self._answered_ns
        if late_ns > max(LATE_RUNS * self._idle_ns, LATE_NS):
            return (
                f"it last looked {late_ns / SECOND:.0f} s ago instead of every {self._idle_ns / SECOND:g} s: "
                "use a smaller model, more shards, or a longer detection.model.idle"
            )
        return ""
