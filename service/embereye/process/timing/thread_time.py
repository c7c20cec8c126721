"""Measure the share of time in which a thread runs or waits for a processor."""

import threading
import time
from pathlib import Path


class ThreadTime:
    """Measures the thread that creates it.

    The kernel counts for each thread how long it ran and how long it was ready while others ran
    (`/proc/self/task/TID/schedstat`). Without that file, only the time that the thread ran is known.
    """

    def __init__(self) -> None:
        self._path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._at, self._busy = time.monotonic(), self._read()

    def _read(self) -> float:
        try:
            ran_ns, ready_ns, _ = map(int, self._path.read_text().split())
        except (OSError, ValueError):
            return time.thread_time()
        return (ran_ns + ready_ns) / 1e9

    def busy_share(self) -> float:
        """The busy share (0..1) of the time since the last call. Call it on the measured thread."""
        now, busy = time.monotonic(), self._read()
        share = (busy - self._busy) / max(1e-6, now - self._at)
        self._at, self._busy = now, busy
        return min(1.0, max(0.0, share))
