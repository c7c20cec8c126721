"""Run companions of the measured hub: peers, devices and floors, each on a given processor.

A companion is a process that prints a first line when it is ready, and is killed at the end of its block. `rate_of`
measures operations per second: threads prepare, start together, stop after the given time, and finish what is pending.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

Step = Callable[[bool], int]
Begin = Callable[[contextlib.ExitStack, int], Step]


@contextlib.contextmanager
def module(name: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `python -m name` during the block; the caller reads its first line."""
    process = subprocess.Popen([sys.executable, "-m", name, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line_of(process: "subprocess.Popen[str]") -> str:
    """The next line that `process` prints; RuntimeError if it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a process of the benchmark ended early. Its output is above.")
    return line.strip()


def place(pid: int, processor: int) -> None:
    """Pin all threads of a process to one processor."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(task.name), {processor})


def placements() -> dict[str, tuple[int, int]]:
    """The processors for both ends of a connection: this process's and the other's, by name."""
    processors = sorted(os.sched_getaffinity(0))
    separate = {"two processors": (processors[0], processors[1])} if len(processors) > 1 else {}
    return {**separate, "one processor": (processors[0], processors[0])}


@contextlib.contextmanager
def restoring_affinity() -> Iterator[None]:
    """Restore the processors that this process' threads may use when the block ends."""
    allowed = os.sched_getaffinity(0)
    try:
        yield
    finally:
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), allowed)


def rate_of(clients: int, seconds: float, begin: Begin) -> float:
    """Measure the operations per second of `clients` threads, started together once all are ready.

    `begin` makes the step of a thread from its number; what it opens on its stack is closed afterwards. A step returns
    the number of operations done. When the time is over it is called with True: it starts no more, and is called until
    pending operations are done too.
    """
    gate = threading.Barrier(clients)

    def run(number: int) -> tuple[int, float, float]:
        with contextlib.ExitStack() as stack:
            try:
                step = begin(stack, number)
            except BaseException:
                gate.abort()
                raise
            gate.wait()
            count, began = 0, time.perf_counter()
            while time.perf_counter() - began < seconds:
                count += step(False)
            while done := step(True):
                count += done
            return count, began, time.perf_counter()

    with ThreadPoolExecutor(clients) as threads:
        done = list(threads.map(run, range(clients)))
    elapsed = max(ended for _, _, ended in done) - min(began for _, began, _ in done)
    return sum(count for count, _, _ in done) / elapsed
