"""A wall clock that a test sets: every Python process that finds this folder on its path adds what the file says.

CLOCK_STEP_FILE names a file of 8 bytes, nanoseconds to be added to `time.time` and `time.time_ns`. The monotonic clock
stays, as it does on a real machine whose clock is set. gRPC sees the clock of the system: by that it counts how much is
left until a deadline, and one that Python says by a clock an hour behind would be over already.
"""

import mmap
import os
import struct
import sys
import time

if path := os.environ.get("CLOCK_STEP_FILE"):
    with open(path, "rb") as file:  # noqa: PTH123 -- every process of a run reads this: it imports little
        _step = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    _unpack, _real = struct.Struct("=q").unpack_from, time.time_ns

    def _time_ns() -> int:
        return _real() + int(_unpack(_step)[0])

    def _time() -> float:
        asker = sys._getframe(1).f_globals.get("__name__", "")
        return (_real() if asker.startswith("grpc.") else _time_ns()) / 1e9

    time.time_ns = _time_ns
    time.time = _time
