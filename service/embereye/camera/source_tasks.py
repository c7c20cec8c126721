"""The tasks that play the sources of a shard's cameras: the streams to watch, and separate ones to record.

`CameraShard` opens a camera here, and closes it when its streams change or another shard owns it. Each stream is one
task that plays the stream again whenever it ends and offers the frames to the camera. A camera whose frames are pushed
has no task. All sources share one `SocketPoller`, one limit on simultaneous dials, and the `Logins` that keep a wrong
password from locking a camera's user out. The camera's status says why a
stream cannot be opened.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from embereye.camera.device.camera import CameraDevice
from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.logins import Logins
from embereye.camera.sources.open import login_of, open_recorded, open_watched
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.source import Offer, SetState, Source, keep_playing
from embereye.process.tasks import Tasks
from embereye.v1.types_pb2 import Device

DIALS = 8  # sources that connect at the same time


class SourceTasks:
    """Plays the sources of a shard's cameras from `open` until `close`. Use it on the event loop."""

    def __init__(self, dispatch: Callable[[], None]) -> None:
        """Create it; `dispatch` is called after a batch of packets has been read."""
        self._logins = Logins()
        self.watched: dict[str, asyncio.Task[Any]] = {}  # by camera
        self.recorded: dict[str, asyncio.Task[Any]] = {}  # separate record streams, by camera
        self._dials = DialLimiter(DIALS)
        self._poller = SocketPoller(dispatch)
        self._tasks: Tasks
        self._records = False
        self._draining = False

    def start(self, tasks: Tasks, *, records: bool) -> None:
        """Run in `tasks` from now on. `records`: clips are recorded, so that record streams are opened too."""
        self._tasks, self._records = tasks, records

    def open(self, camera: CameraDevice) -> None:
        """Open the streams that `camera` declares; its status says why one cannot be opened."""
        status = camera.status
        status.pushed, status.unopened, status.source_state, status.record_state = False, "", "connecting", ""
        self._open_recorded(camera)
        device = camera.device
        try:
            source = open_watched(device, self._dials, self._poller)
        except SourceError as error:
            status.unopened = str(error)
            status.source_state = f"failed: {error}"
            return
        if source is None:
            status.pushed, status.source_state = True, "waiting for a sender"
        elif not self._draining:
            set_state = partial(setattr, status, "source_state")
            playing = self._play(device.id, source, camera.offer_frame, set_state, device, device.detect_stream)
            self.watched[device.id] = self._tasks.start(playing, name=f"source-{device.id}")

    def _open_recorded(self, camera: CameraDevice) -> None:
        """Open the separate record stream of `camera`, if one is declared and clips are recorded."""
        device, status = camera.device, camera.status
        try:
            source = open_recorded(device, self._dials, self._poller) if self._records else None
        except SourceError as error:
            status.record_state = f"failed: {error}"
            return
        if source is not None and not self._draining:
            name, set_state = f"{device.id} (to record)", partial(setattr, status, "record_state")
            playing = self._play(name, source, camera.record_frame, set_state, device, device.record_stream)
            self.recorded[device.id] = self._tasks.start(playing, name=f"record-{device.id}")

    def _play(
        self, name: str, source: Source, offer: Offer, set_state: SetState, device: Device, stream: str
    ) -> Coroutine[Any, Any, None]:
        login = login_of(self._logins, device, stream)
        return keep_playing(name, source, offer, set_state, declared=(device.source, stream), login=login)

    def close(self, camera: str) -> None:
        """Close the streams of `camera`, if they are open."""
        for tasks in (self.watched, self.recorded):
            if task := tasks.pop(camera, None):
                task.cancel()

    def drain(self) -> None:
        """Close all streams and open no others."""
        self._draining = True
        for camera in {*self.watched, *self.recorded}:
            self.close(camera)
