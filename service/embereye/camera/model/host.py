"""The network shared by all cameras of a shard: loaded, and loaded again when its file changes.

One task checks the declared file every second and loads it on a thread. Cameras run the network through `run_network`,
one at a time, guarded by a lock. A changed file that cannot be loaded removes the network. A missing file does not,
because a mounted file disappears briefly while it is replaced. New settings drop the network at once, and a load that
they overtook is discarded.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from embereye.camera.model.threads import ModelThreads
from embereye.detect.vision.networks.model import Detection, ModelError, Network
from embereye.detect.vision.pixels import Picture
from embereye.process.condition import Condition
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.process.timing.clock import now_ns
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Model

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0  # between two checks of the model's file
LOADING_NS = 10 * SECOND  # for the first load, before the model is reported as missing
FIELD = "detection.model"
MOUNTED = "EMBEREYE_MODEL", "/etc/embereye/model"  # the variable with the folder of a mounted model, and its default
MOUNTED_CANDIDATE = "EMBEREYE_CANDIDATE_MODEL", "/etc/embereye/candidate-model"
MAX_BYTES = 1 << 30  # of the model's file, at most
BUSY_SECONDS = 30.0  # how long a run waits for another one that hangs, before it fails


class ModelHost:
    """The network and its threads.

    Call `configure` and `run` on the event loop; `run_network` may be called on any thread.
    """

    def __init__(self, clock: Callable[[], int] = now_ns, field: str = FIELD, *, idle: bool = False) -> None:
        """`field` of the fleet declares the model. `idle`: its threads run when no other thread needs their core."""
        self.field = field
        self.settings: Model | None = None
        # A run takes a hundred times as long as a frame, so frames must not wait for it.
        self.threads = ModelThreads(1, idle=idle)
        self._clock = clock
        self._network: Network | None = None
        self._lock = threading.Lock()  # one run at a time; a spare thread may wait for one that hangs
        self._failing = Condition(logger, begin=logging.ERROR)
        self._mark: tuple[int, int, int] | None = None  # mtime, inode and size of the file that was last read
        self._wanted_ns = 0

    def configure(self, settings: Model | None) -> None:
        """Use the model that `settings` declare from now on; None: no model."""
        if settings == self.settings:
            return
        self.settings = settings
        self._network = self._mark = None
        self._failing.clear()
        self._wanted_ns = self._clock()

    @property
    def is_ready(self) -> bool:
        """True if the network is loaded."""
        return self._network is not None

    def reason(self, now: int) -> str:
        """Return why the model cannot be used, or ''."""
        if self.settings is None or self._network is not None:
            return ""
        if self._failing:
            return self._failing.why
        return "it is still loading" if now - self._wanted_ns > LOADING_NS else ""

    async def run(self) -> None:
        """Load the model, and load it again whenever its file changes. Runs until cancelled."""
        started = False
        while True:
            if self.settings is not None:
                if not started:
                    started = True
                    self.threads.start()
                await self._refresh(self.settings)
                self.threads.check_hangs()
            await aligned_sleep(CHECK_SECONDS)

    async def _refresh(self, settings: Model) -> None:
        path = path_of(settings)
        try:
            stat = path.stat()
            mark = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        except OSError as error:
            self._mark = None
            if self._network is None:
                self._fail(f"{path}: cannot be read: {error.strerror}. {self._remedy(settings)}")
            return  # the loaded model stays in use: a mounted file disappears briefly while it is replaced
        if mark == self._mark:
            return
        self._mark = mark
        try:
            network = await asyncio.to_thread(_load, path, settings)
        except ModelError as error:
            if settings is self.settings:
                self._network = None  # the declared file is unusable, and the model before it is no longer declared
                self._fail(str(error))
            return
        if settings is self.settings:
            self._network = network
            self._failing.clear()
            logger.info("model %s loaded", path)

    def _fail(self, reason: str) -> None:
        self._failing.fail(reason, "%s: %s", self.field, reason)

    def _remedy(self, settings: Model) -> str:
        if settings.mounted:
            return f"Check that {self.field} names a ConfigMap or volume that exists and contains this file"
        return f"Set {self.field}.path to a file that the shard can read"

    def run_network(self, image: Picture) -> list[Detection]:
        """Return the detections in `image` (BGR); raise ModelError if the network cannot run. Thread-safe."""
        network = self._network
        if network is None:
            raise ModelError("the model is not loaded")
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise ModelError("the run on another picture took too long")
        try:
            return network.detect_objects(image)
        finally:
            self._lock.release()


def path_of(settings: Model) -> Path:
    """The path of the model's file: below the folder of its variable if it is mounted, else the declared path."""
    if not settings.mounted:
        return Path(settings.path)
    variable, folder = MOUNTED_CANDIDATE if settings.of_candidate else MOUNTED
    return Path(os.environ.get(variable, folder)) / settings.mounted


def _load(path: Path, settings: Model) -> Network:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ModelError(f"{path}: {size} bytes, at most {MAX_BYTES} are allowed")
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return Network(data, settings)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
