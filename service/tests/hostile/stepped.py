"""Run `embereye` on a wall clock set by a test: `python stepped.py FILE ARGUMENTS…`; FILE has the nanoseconds to add.

Every reading of Python's wall clock in the process is shifted, those of libraries too. The monotonic clock is not. A
hub forgets expired events all the time, not once a minute, so that the effect of a step shows at once.
"""

import importlib
import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

STEP = struct.Struct("=q")  # nanoseconds
FORGETFUL = ("embereye.hub.history", "embereye.hub.clips.store")


def install(path: Path) -> None:
    """Add the content of `path`, which may change at any time, to `time.time` and `time.time_ns`."""
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
