"""Threads that run the model on the waiting frames of many cameras, in the order of a fair queue.

Threads pick their next camera themselves and return results in batches. If they asked the event loop for every frame,
they would wait for it while a core is idle. A thread that hangs in a run is reported and replaced by a spare thread;
when the run ends after all, the surplus thread ends.
"""

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections import deque
from typing import Protocol

from embereye.camera.scheduling.turn import QueuedCamera, Turn
from embereye.camera.scheduling.turn_queue import TurnQueue

HANG_SECONDS = 5.0  # for one run; a model that takes a tenth of it is slow already
# of a run that one check may count, at most: if the process was suspended, the run does not hang
OBSERVED_SECONDS_MAX = 2.0
LOWEST = 19  # priority of threads that give way to all others
SPARE_THREADS = 4  # that may replace threads that hang


class ModelledCamera(QueuedCamera, Protocol):
    """A camera, as the model's threads see it."""

    def report_hang(self, seconds: float) -> None:
        """Note on the event loop that `analyse_on_thread` has not returned for `seconds`."""


class ModelThreads:
    """Runs cameras' turns in the order of a `TurnQueue`."""

    def __init__(self, count: int, *, idle: bool = False) -> None:
        """`idle`: run when no other thread needs their core."""
        self.count = count
        self._idle = idle
        self._lock = threading.Lock()  # guards the turns and the two attributes after them
        self._turns: TurnQueue[ModelledCamera] = TurnQueue()
        self._spares = 0
        self.hung = 0  # threads that hang in a run now
        self._checked_at = 0.0  # monotonic seconds of the latest `check_hangs`
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True: a camera is queued; False: end
        self._results: deque[tuple[ModelledCamera, Turn]] = deque()
        self._notified = False  # the event loop knows that results wait
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the threads. Call it on the event loop that is to receive the results."""
        self._loop = asyncio.get_running_loop()
        for _ in range(self.count):
            self._start_thread()

    def submit(self, camera: ModelledCamera) -> None:
        """Queue `camera` for a turn because a frame waits; do nothing if it is queued already."""
        if self._closed:
            return
        now = time.monotonic()
        with self._lock:
            if self._turns.submit(camera, now):
                self._wakes.put(True)

    def withdraw(self, camera: ModelledCamera) -> None:
        """Remove `camera` from the queue; its frame in work is still finished."""
        with self._lock:
            self._turns.withdraw(camera)

    def check_hangs(self) -> None:
        """Report runs that take too long and start spare threads. Call it about once a second."""
        now = time.monotonic()
        with self._lock:
            checked_at, self._checked_at = self._checked_at, now
            running = self._turns.running
            for turn in running.values():
                turn.observed_seconds += min(now - max(turn.began, checked_at), OBSERVED_SECONDS_MAX)
            late = [(camera, turn) for camera, turn in running.items() if turn.observed_seconds > HANG_SECONDS]
        for camera, turn in late:
            camera.report_hang(now - turn.began)
            with self._lock:
                if turn.hung or camera not in running:
                    continue
                turn.hung = True
                self.hung += 1
                if self._spares == SPARE_THREADS:
                    continue
                turn.replaced = True
                self._spares += 1
            self._start_thread()

    def stop(self) -> None:
        """End the threads. One that hangs is abandoned; as a daemon it does not prevent the process from ending."""
        self._closed = True
        for _ in range(self.count + self._spares):
            self._wakes.put(False)

    def _start_thread(self) -> None:
        threading.Thread(target=self._run_turns, name="camera-model", daemon=True).start()

    # These run on the threads, except the last.

    def _run_turns(self) -> None:
        if self._idle:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)  # of this thread, on Linux
        while self._wakes.get() and not self._closed:
            with self._lock:
                begun = self._turns.begin(time.monotonic())  # None: it was withdrawn
            if begun and self._run_turn(*begun):
                return

    def _run_turn(self, camera: ModelledCamera, turn: Turn) -> bool:
        """Let `camera` analyse its frame. Returns True if a spare thread has replaced this one meanwhile."""
        try:
            turn.result = camera.analyse_on_thread(turn.frame)
        except BaseException as error:  # any error of this camera must not stop the others
            turn.result = error
        now = time.monotonic()
        turn.seconds = now - turn.began
        with self._lock:
            self.hung -= turn.hung
            self._spares -= turn.replaced
            if self._turns.finish(camera, turn.seconds):
                self._wakes.put(True)
        self._results.append((camera, turn))
        if not self._notified:
            self._notified = True
            assert self._loop
            with contextlib.suppress(RuntimeError):  # the loop is closed, so the results are not needed
                self._loop.call_soon_threadsafe(self._finish_turns)
        return turn.replaced

    def _finish_turns(self) -> None:
        self._notified = False
        while self._results:
            camera, turn = self._results.popleft()
            camera.finish_turn(turn)
