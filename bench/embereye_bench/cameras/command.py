"""Measure the camera path: cores for a fleet, delay from arrival to analysis, memory, overload.

Every number has a baseline that runs in the same command, in rounds that alternate with the measured ones. Values are
medians over the rounds. The senders run on the same machine; their cores are reported, but not counted as the shard's.
"""

from embereye_bench.cameras import candidate, combined, margins, video
from embereye_bench.cameras import jpeg as cameras
from embereye_bench.report import Benchmark, Scale, Suite

BENCHMARKS: dict[str, Benchmark] = {
    **cameras.BENCHMARKS,
    **video.BENCHMARKS,
    **margins.BENCHMARKS,
    **candidate.BENCHMARKS,
    "combined": combined.combined,
}
# Number of rounds, and seconds of each.
SUITE = Suite("camera path", BENCHMARKS, full=Scale(6, 10.0), quick=Scale(2, 1.3))
add_arguments, run = SUITE.add_arguments, SUITE.run
