"""A process that shares the machine with what is measured: it computes for half of the time, for some seconds.

`python -m embereye_bench.cameras.neighbour SECONDS NICENESS`
"""

import os
import sys
import time

SLICE = 0.01  # seconds of computing, and of rest, in turn


def main() -> None:
    """Take half a core, as far as the kernel gives it."""
    seconds, niceness = float(sys.argv[1]), int(sys.argv[2])
    os.nice(niceness)
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        while time.monotonic() - began < SLICE:
            pass
        time.sleep(SLICE)


if __name__ == "__main__":
    main()
