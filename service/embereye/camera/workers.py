"""The decode pool: a few threads that look at the waiting frames of many cameras, each camera in its turn."""

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from embereye.camera.mailbox import Frame

HANG_SECONDS = 5.0  # for one frame; the slowest honest one takes a tenth of that
SPARE_THREADS = 4  # started in place of threads that hang


class Customer(Protocol):
    """A camera as the pool sees it. All but `work` is called on the event loop."""

    def next_frame(self) -> Frame | None:
        """Take the frame that waits."""
        ...

    def work(self, frame: Frame) -> object:
        """Look at `frame`, on a worker thread."""
        ...

    def done(self, frame: Frame, result: object) -> None:
        """Take the result of `work`, or the exception it raised."""
        ...

    def hangs(self, seconds: float) -> None:
        """Learn that `work` has been running for `seconds`."""
        ...


@dataclass(eq=False)
class _Job:
    customer: Customer
    frame: Frame
    began: float = 0.0  # monotonic seconds; 0: no thread has it yet
    hung: bool = False
    replaced: bool = False  # a spare thread was started in place of the one that hangs


class Workers:
    """Round-robin over the cameras that have a frame waiting, at most one frame of each at a time."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ready: deque[Customer] = deque()
        self._waiting: set[Customer] = set()  # in _ready
        self._running: dict[Customer, _Job] = {}
        self._spares = 0
        self._hung = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def hung(self) -> int:
        """Threads that hang in a frame now."""
        return self._hung

    @property
    def busy(self) -> bool:
        """Whether a frame is being looked at, or waits for a thread."""
        return bool(self._running or self._ready)

    def start(self) -> None:
        """Start the threads; call it on the event loop that results shall come back to."""
        import cv2

        cv2.setNumThreads(1)  # our threads are the parallelism; OpenCV's own would fight with them
        self._loop = asyncio.get_running_loop()
        for _ in range(self._threads):
            self._start_thread()

    def submit(self, customer: Customer) -> None:
        """Note that `customer` has a frame waiting; a no-op while it is in line already."""
        if customer in self._waiting or self._closed:
            return
        self._waiting.add(customer)
        self._ready.append(customer)
        self._dispatch()

    def withdraw(self, customer: Customer) -> None:
        """Take `customer` out of the line; a frame of its in work is still finished."""
        if customer in self._waiting:
            self._waiting.discard(customer)
            self._ready.remove(customer)

    def watch(self) -> None:
        """Look for frames that take too long; call it every second or so."""
        now = time.monotonic()
        for job in list(self._running.values()):
            if job.began and now - job.began > HANG_SECONDS:
                job.customer.hangs(now - job.began)
                if not job.hung:
                    job.hung = True
                    self._hung += 1
                    if self._spares < SPARE_THREADS:
                        job.replaced = True
                        self._spares += 1
                        self._start_thread()
                        self._dispatch()

    def stop(self) -> None:
        """End the threads; one that hangs is left behind, and as a daemon does not keep the process alive."""
        self._closed = True
        self._ready.clear()
        self._waiting.clear()
        for _ in range(self._threads + self._spares):
            self._jobs.put(None)

    def _start_thread(self) -> None:
        threading.Thread(target=self._run, name="camera-worker", daemon=True).start()

    def _dispatch(self) -> None:
        # A camera whose frame is in work stays in line behind the others until that frame is done.
        for _ in range(len(self._ready)):
            if len(self._running) >= self._threads + self._spares:
                return
            customer = self._ready.popleft()
            if customer in self._running:
                self._ready.append(customer)
                continue
            self._waiting.discard(customer)
            frame = customer.next_frame()
            if frame is None:
                continue
            job = _Job(customer, frame)
            self._running[customer] = job
            self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.began = time.monotonic()
            result: object
            try:
                result = job.customer.work(job.frame)
            except BaseException as error:  # whatever it is, it is this camera's alone
                result = error
            assert self._loop
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish, job, result)
            if job.replaced:
                return

    def _finish(self, job: _Job, result: object) -> None:
        del self._running[job.customer]
        self._hung -= job.hung
        self._spares -= job.replaced
        job.customer.done(job.frame, result)
        self._dispatch()


def thread_count(cores: int | None, largest: int = 4) -> int:
    """How many decode threads suit a machine of `cores`."""
    return max(1, min(largest, cores or 1))
