"""Processes beside the hub that is measured: peers, devices and floors, and which processor each of them is on."""

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
    """`python -m name`, ended with the block; its first line is read by whoever enters."""
    process = subprocess.Popen([sys.executable, "-m", name, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line_of(process: "subprocess.Popen[str]") -> str:
    """The next line that `process` prints; RuntimeError where it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a process of the benchmark ended early; its last words are above")
    return line.strip()


def place(pid: int, processor: int) -> None:
    """Keep all threads of a process on one processor."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(task.name), {processor})


def placements() -> dict[str, tuple[int, int]]:
    """Where both ends of a connection can be: processors of this one and of the other."""
    processors = sorted(os.sched_getaffinity(0))
    apart = {"two processors": (processors[0], processors[1])} if len(processors) > 1 else {}
    return {**apart, "one processor": (processors[0], processors[0])}


@contextlib.contextmanager
def staying() -> Iterator[None]:
    """Let this process' own threads go back to where they may run now when the block ends."""
    allowed = os.sched_getaffinity(0)
    try:
        yield
    finally:
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), allowed)


def rate_of(clients: int, seconds: float, begin: Begin) -> float:
    """What so many threads do a second, each by the step that `begin` makes for its number; begun when all are ready.

    What `begin` opens on its stack is closed afterwards. A step returns how many were done; when the time is over it is
    told so, begins nothing more, and is called until what was under way is done as well.
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
