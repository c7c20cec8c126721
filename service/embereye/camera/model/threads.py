"""Threads that run the model on the waiting frames of many cameras, in the order of a fair queue."""

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from typing import Protocol

from embereye.camera.scheduling.fair_queue import FairQueue
from embereye.camera.scheduling.turn import QueuedCamera, Turn

HANG_SECONDS = 5.0  # for one run; a model that takes a tenth of it is slow already
LOOK_SECONDS = 2.0  # of a run, at most, between two looks at it: whoever stood still is no proof that it hangs
SPARE_THREADS = 4  # started in place of threads that hang


class ModelledCamera(QueuedCamera, Protocol):
    """A camera as the model's threads see it."""

    def report_hang(self, seconds: float) -> None:
        """Note, on the event loop, that `analyse_on_thread` has been running for `seconds`."""
        ...


class ModelThreads:
    """Runs cameras' turns in the order of a `FairQueue`, at most one turn of each camera at a time.

    Threads pick their next camera themselves and hand results over in batches: threads that had to ask the event loop
    for every frame would wait for it with a core to spare.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._lock = threading.Lock()  # over the queue and the four below it
        self._queue: FairQueue[ModelledCamera] = FairQueue()
        self._running: dict[ModelledCamera, Turn] = {}
        self._again: dict[ModelledCamera, float] = {}  # since when a frame waits behind the one in work, by camera
        self._spares = 0
        self._hung = 0
        self._looked = 0.0  # when `check_hangs` was called last, monotonic seconds
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True: a camera is queued; False: end
        self._results: deque[tuple[ModelledCamera, Turn]] = deque()
        self._notified = False  # the event loop knows that there are results
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def hung(self) -> int:
        """Threads that hang in a frame now."""
        return self._hung

    def start(self) -> None:
        """Start the threads; call it on the event loop that results are to come back to."""
        self._loop = asyncio.get_running_loop()
        for _ in range(self.count):
            self._start_thread()

    def submit(self, camera: ModelledCamera) -> None:
        """Note that `camera` has a frame waiting; a no-op while it is queued already."""
        if self._closed:
            return
        now = time.monotonic()
        with self._lock:
            if camera in self._running:
                self._again.setdefault(camera, now)
            elif self._queue.enter(camera, now, pause=camera.pause, urgent=camera.urgent):
                self._turns.put(True)

    def withdraw(self, camera: ModelledCamera) -> None:
        """Remove `camera` from the queue; a frame of its that is in work is still finished."""
        with self._lock:
            self._queue.forget(camera)
            self._again.pop(camera, None)

    def check_hangs(self) -> None:
        """Report frames that take too long and start spare threads; call it every second or so."""
        now = time.monotonic()
        with self._lock:
            looked, self._looked = self._looked, now
            for turn in self._running.values():
                turn.looked_at += min(now - max(turn.began, looked), LOOK_SECONDS)
            late = [(camera, turn) for camera, turn in self._running.items() if turn.looked_at > HANG_SECONDS]
        for camera, turn in late:
            camera.report_hang(now - turn.began)
            with self._lock:
                if turn.hung or camera not in self._running:
                    continue
                turn.hung = True
                self._hung += 1
                if self._spares == SPARE_THREADS:
                    continue
                turn.replaced = True
                self._spares += 1
            self._start_thread()

    def stop(self) -> None:
        """End the threads; one that hangs is left behind, and as a daemon does not keep the process alive."""
        self._closed = True
        for _ in range(self.count + self._spares):
            self._turns.put(False)

    def _start_thread(self) -> None:
        threading.Thread(target=self._run_turns, name="camera-model", daemon=True).start()

    # On the threads, but for the last

    def _run_turns(self) -> None:
        while self._turns.get() and not self._closed:
            if (begun := self._begin_turn()) and self._run_turn(*begun):
                return

    def _begin_turn(self) -> tuple[ModelledCamera, Turn] | None:
        now = time.monotonic()
        with self._lock:
            picked = self._queue.pick(now)
            if picked is None:
                return None  # it was withdrawn
            camera, waited = picked
            frame = camera.next_frame()
            if frame is None:
                return None
            turn = self._running[camera] = Turn(frame, waited, now)
        return camera, turn

    def _run_turn(self, camera: ModelledCamera, turn: Turn) -> bool:
        """Let `camera` analyse its frame; returns whether another thread has replaced this one meanwhile."""
        try:
            turn.result = camera.analyse_on_thread(turn.frame)
        except BaseException as error:  # whatever it is, it is this camera's alone
            turn.result = error
        now = time.monotonic()
        turn.seconds = now - turn.began
        with self._lock:
            del self._running[camera]
            self._hung -= turn.hung
            self._spares -= turn.replaced
            self._queue.charge(camera, turn.seconds)
            since = self._again.pop(camera, None)
            if since is not None and self._queue.enter(camera, since, pause=camera.pause, urgent=camera.urgent):
                self._turns.put(True)
        self._results.append((camera, turn))
        if not self._notified:
            self._notified = True
            assert self._loop
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish_turns)
        return turn.replaced

    def _finish_turns(self) -> None:
        self._notified = False
        while self._results:
            camera, turn = self._results.popleft()
            camera.finish_turn(turn)
