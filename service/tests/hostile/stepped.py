"""`embereye` on a wall clock that a test sets: `python stepped.py FILE ARGUMENTS…`; FILE holds seconds to be added.

Every reading of Python's wall clock in the process goes through here, its libraries' too. The monotonic clock stays.
A hub forgets what is past its retention all the time, not once a minute: what a step does to that is to be seen.
"""

import importlib
import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

STEP = struct.Struct("=q")  # nanoseconds
FORGETFUL = ("embereye.hub.storage.history", "embereye.hub.storage.clip_store")


def install(path: Path) -> None:
    """Add what `path` holds, at any time, to `time.time` and `time.time_ns`."""
    with path.open("rb") as file:
        step = mmap.mmap(file.fileno(), STEP.size, access=mmap.ACCESS_READ)
    real = time.time_ns

    def time_ns() -> int:
        return real() + int(STEP.unpack_from(step)[0])

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


if __name__ == "__main__":
    install(Path(sys.argv[1]))
    if sys.argv[2] == "hub":
        for module in map(importlib.import_module, FORGETFUL):
            module.PRUNE_SECONDS = 0.2  # type: ignore[attr-defined]
    sys.argv = ["embereye", *sys.argv[2:]]
    runpy.run_module("embereye_cli", run_name="__main__", alter_sys=True)
