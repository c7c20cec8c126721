"""A pool of threads that look at the waiting frames of many cameras, each camera in its turn."""

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from embereye.camera.scheduling.fair_queue import Line
from embereye.camera.scheduling.mailbox import Frame

HANG_SECONDS = 5.0  # for one frame; the slowest honest one takes a tenth of that
SPARE_THREADS = 4  # started in place of threads that hang


@dataclass(slots=True)
class Work:
    """One turn of a camera. Seconds are monotonic ones; a thread that is kept from running counts as working."""

    frame: Frame
    waited: float  # seconds until the turn came
    began: float  # seconds
    seconds: float = 0.0  # that it took
    result: object = None  # of `work`, or the exception it raised
    hung: bool = False
    replaced: bool = False  # a spare thread was started in place of the one that hangs


class Waiting(Protocol):
    """Whoever waits for turns in a pool. `done` is called on the event loop, `work` on a thread."""

    @property
    def pause(self) -> float:
        """Seconds that it is not to be left alone for."""
        ...

    @property
    def urgent(self) -> bool:
        """Whether it goes before others."""
        ...

    def next_frame(self) -> Frame | None:
        """Take the frame that waits."""
        ...

    def work(self, frame: Frame) -> object:
        """Look at `frame`, on a thread."""
        ...

    def done(self, work: Work) -> None:
        """Take the result of `work`."""
        ...


class Customer(Waiting, Protocol):
    """One whose every frame a thread looks at."""

    def hangs(self, seconds: float) -> None:
        """Learn, on the event loop, that `work` has been running for `seconds`."""
        ...


class Workers:
    """Looks at the frames of all cameras in the order of a `Line`, at most one frame of each at a time.

    Threads pick their next camera themselves and hand results over in heaps: a pool that had to ask the event loop for
    every frame would wait for it, with a core to spare.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lock = threading.Lock()  # over the line and the four below it
        self._line: Line[Customer] = Line()
        self._running: dict[Customer, Work] = {}
        self._again: dict[Customer, float] = {}  # has a frame waiting while one is in work, since when
        self._spares = 0
        self._hung = 0
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True: somebody is in line; False: end
        self._results: deque[tuple[Customer, Work]] = deque()
        self._told = False  # the event loop knows that there are results
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def hung(self) -> int:
        """Threads that hang in a frame now."""
        return self._hung

    def start(self) -> None:
        """Start the threads; call it on the event loop that results shall come back to."""
        self._loop = asyncio.get_running_loop()
        for _ in range(self.threads):
            self._start_thread()

    def submit(self, customer: Customer) -> None:
        """Note that `customer` has a frame waiting; a no-op while it is in line already."""
        if self._closed:
            return
        now = time.monotonic()
        with self._lock:
            if customer in self._running:
                self._again.setdefault(customer, now)
            elif self._line.enter(customer, now, pause=customer.pause, urgent=customer.urgent):
                self._turns.put(True)

    def withdraw(self, customer: Customer) -> None:
        """Take `customer` out of the line; a frame of its in work is still finished."""
        with self._lock:
            self._line.forget(customer)
            self._again.pop(customer, None)

    def watch(self) -> None:
        """Look for frames that take too long; call it every second or so."""
        now = time.monotonic()
        with self._lock:
            late = [(customer, work) for customer, work in self._running.items() if now - work.began > HANG_SECONDS]
        for customer, work in late:
            customer.hangs(now - work.began)
            with self._lock:
                if work.hung or customer not in self._running:
                    continue
                work.hung = True
                self._hung += 1
                if self._spares == SPARE_THREADS:
                    continue
                work.replaced = True
                self._spares += 1
            self._start_thread()

    def stop(self) -> None:
        """End the threads; one that hangs is left behind, and as a daemon does not keep the process alive."""
        self._closed = True
        for _ in range(self.threads + self._spares):
            self._turns.put(False)

    def _start_thread(self) -> None:
        threading.Thread(target=self._run, name="camera-worker", daemon=True).start()

    def _run(self) -> None:
        while self._turns.get() and not self._closed:
            if (turn := self._begin()) and self._look(*turn):
                return

    def _begin(self) -> tuple[Customer, Work] | None:
        now = time.monotonic()
        with self._lock:
            picked = self._line.pick(now)
            if picked is None:
                return None  # it was withdrawn
            customer, waited = picked
            frame = customer.next_frame()
            if frame is None:
                return None
            work = self._running[customer] = Work(frame, waited, now)
        return customer, work

    def _look(self, customer: Customer, work: Work) -> bool:
        """Let `customer` look at its frame; returns whether another thread has taken this one's place."""
        try:
            work.result = customer.work(work.frame)
        except BaseException as error:  # whatever it is, it is this camera's alone
            work.result = error
        now = time.monotonic()
        work.seconds = now - work.began
        with self._lock:
            del self._running[customer]
            self._hung -= work.hung
            self._spares -= work.replaced
            self._line.charge(customer, work.seconds)
            since = self._again.pop(customer, None)
            if since is not None and self._line.enter(customer, since, pause=customer.pause, urgent=customer.urgent):
                self._turns.put(True)
        self._results.append((customer, work))
        if not self._told:
            self._told = True
            assert self._loop
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish)
        return work.replaced

    def _finish(self) -> None:
        self._told = False
        while self._results:
            customer, work = self._results.popleft()
            customer.done(work)
