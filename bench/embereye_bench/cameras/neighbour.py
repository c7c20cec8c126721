"""Share the machine with a measured process: compute half of the time, for some seconds.

`python -m embereye_bench.cameras.neighbour SECONDS NICENESS`
"""

import os
import sys
import time

SLICE = 0.01  # seconds of computing and of rest, in turn


def main() -> None:
    """Take half a core, as far as the kernel grants it."""
    seconds, niceness = float(sys.argv[1]), int(sys.argv[2])
    os.nice(niceness)
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        while time.monotonic() - began < SLICE:
            pass
        time.sleep(SLICE)


if __name__ == "__main__":
    main()
