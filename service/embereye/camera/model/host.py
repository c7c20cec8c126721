"""The network that all cameras of a shard share: loaded, and loaded again when its file changes."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from embereye.camera.model.threads import ModelThreads
from embereye.detect.vision.networks.model import Detection, ModelError, Network
from embereye.detect.vision.pixels import Picture
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.process.timing.clock import now_ns
from embereye.units import SECOND
from embereye.v1.shard_pb2 import Model

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0  # between two checks of the model's file
LOADING_NS = 10 * SECOND  # for the first load, before the model is called missing
MAX_BYTES = 1 << 30  # of the model's file
BUSY_SECONDS = 30.0  # that a run waits for another one that hangs, before it fails


class ModelHost:
    """Holds the network, and the threads it runs on.

    `configure` and `run` belong to the event loop; `run_network` may be called on any thread.
    """

    def __init__(self, clock: Callable[[], int] = now_ns) -> None:
        self.settings: Model | None = None
        self.threads = ModelThreads(1)  # a run takes a hundred times what a frame does: it must not hold frames up
        self._clock = clock
        self._network: Network | None = None
        self._lock = threading.Lock()  # one run at a time; a spare thread may wait behind one that hangs
        self._reason = ""
        self._mark: tuple[int, int, int] | None = None  # mtime, inode and size of the file that was read last
        self._wanted_ns = 0

    def configure(self, settings: Model | None) -> None:
        """Use the model that `settings` declare from now on; None: there is none."""
        if settings == self.settings:
            return
        self.settings = settings
        self._network, self._mark, self._reason = None, None, ""
        self._wanted_ns = self._clock()

    @property
    def ready(self) -> bool:
        """Whether it is loaded."""
        return self._network is not None

    def reason(self, now: int) -> str:
        """Why the model cannot be used, or ''."""
        if self.settings is None or self._network is not None:
            return ""
        if self._reason:
            return self._reason
        return "it is still being loaded" if now - self._wanted_ns > LOADING_NS else ""

    async def run(self) -> None:
        """Load the model, and load it again whenever its file changes; runs until cancelled."""
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
                self._fail(f"{path} cannot be read: {error.strerror}; {_remedy(settings)}")
            return  # the loaded model stays: a mounted file disappears for a moment while it is replaced
        if mark == self._mark:
            return
        self._mark = mark
        try:
            network = await asyncio.to_thread(_load, path, settings)
        except ModelError as error:
            if settings is self.settings:
                self._network = None  # the declared file is unusable, and what it replaced is not what was declared
                self._fail(str(error))
            return
        if settings is self.settings:
            self._network, self._reason = network, ""
            logger.info("model %s loaded", path)

    def _fail(self, reason: str) -> None:
        if reason != self._reason:
            logger.error("detection.model: %s", reason)
        self._reason = reason

    def run_network(self, image: Picture) -> list[Detection]:
        """What the network detects in `image` (BGR); ModelError where it cannot run. Called on the model's threads."""
        network = self._network
        if network is None:
            raise ModelError("it is not loaded")
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            raise ModelError("another picture has held it up for too long")
        try:
            return network.detect_objects(image)
        finally:
            self._lock.release()


def path_of(settings: Model) -> Path:
    """Where the model's file is: under EMBEREYE_MODEL where it is mounted, else at the declared path."""
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
        if size > MAX_BYTES:
            raise ModelError(f"{path} has {size} bytes, more than {MAX_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return Network(data, settings)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
