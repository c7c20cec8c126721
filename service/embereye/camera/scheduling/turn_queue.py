"""The order of turns in a pool: every camera has at most one turn at a time, and its share of the pool's time.

The decoder pool and the model's threads use it. A camera is submitted when a frame waits, begins a turn when it is
picked, and finishes with the seconds that it is charged for. Therefore its frames are analysed in order. `Turn` carries
the frame and its result between these steps.
"""

from typing import Generic, TypeVar

from embereye.camera.scheduling.fair_queue import FairQueue
from embereye.camera.scheduling.turn import QueuedCamera, Turn

Camera = TypeVar("Camera", bound=QueuedCamera)


class TurnQueue(Generic[Camera]):
    """Cameras that wait for a turn, and the turns that run. Not thread-safe.

    Cameras wait in the `common` queue, or in the one that `assign` chose for them. If another frame arrives while a
    camera's turn runs, the camera queues at the end of that turn, but its wait counts from the arrival.
    """

    def __init__(self) -> None:
        self.common: FairQueue[Camera] = FairQueue()
        self.running: dict[Camera, Turn] = {}
        self._assigned: dict[Camera, FairQueue[Camera]] = {}
        self._waiting_since: dict[Camera, float] = {}  # seconds: when a running camera's next frame arrived

    def assign(self, camera: Camera, queue: FairQueue[Camera] | None) -> None:
        """Let `camera` wait in `queue` from now on; None: in the common one. It leaves the queue it waits in."""
        self._queue_of(camera).forget(camera)
        if queue is None:
            self._assigned.pop(camera, None)
        else:
            self._assigned[camera] = queue

    def withdraw(self, camera: Camera) -> None:
        """Remove `camera`; its running turn is still finished."""
        self.assign(camera, None)
        self._waiting_since.pop(camera, None)
        if turn := self.running.get(camera):
            turn.withdrawn = True

    def submit(self, camera: Camera, now: float) -> bool:
        """Queue `camera` at `now` (seconds) because a frame waits; return True if it was not queued and can be now."""
        if camera in self.running:
            self._waiting_since.setdefault(camera, now)
            return False
        return self._enter(camera, now)

    def begin(self, now: float, queue: FairQueue[Camera] | None = None) -> tuple[Camera, Turn] | None:
        """Begin the next turn of `queue`, or of the common one; None if no frame waits there."""
        queue = self.common if queue is None else queue
        while picked := queue.pick(now):
            camera, waited = picked
            if frame := camera.next_frame():
                turn = self.running[camera] = Turn(frame, waited, now)
                return camera, turn
        return None

    def finish(self, camera: Camera, seconds: float) -> bool:
        """End the turn of `camera`, which took `seconds`; return True if it is queued for another."""
        del self.running[camera]
        self.charge(camera, seconds)
        since = self._waiting_since.pop(camera, None)
        return since is not None and self._enter(camera, since)

    def charge(self, camera: Camera, seconds: float) -> None:
        """Count `seconds` of the pool's time as used by `camera`."""
        self._queue_of(camera).charge(camera, seconds)

    def _queue_of(self, camera: Camera) -> FairQueue[Camera]:
        return self._assigned.get(camera, self.common)

    def _enter(self, camera: Camera, since: float) -> bool:
        return self._queue_of(camera).enter(camera, since, pause=camera.pause, urgent=camera.urgent)
