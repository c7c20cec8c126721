"""Measure the camera path: cores for a fleet, delay from arrival to analysis, memory, overload.

Every number stands beside a baseline that runs in the same command, in rounds that alternate with the measured ones;
values are medians over the rounds. The senders run on the same machine; their cores are told, and are not the shard's.
"""

import argparse

from embereye_bench import report
from embereye_bench.cameras import combined, video
from embereye_bench.cameras import jpeg as cameras
from embereye_bench.report import Scale

BENCHMARKS: dict[str, report.Benchmark] = {**cameras.BENCHMARKS, **video.BENCHMARKS, "combined": combined.combined}
FULL, QUICK = Scale(6, 10.0), Scale(2, 1.3)  # rounds, and seconds of each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    report.add_arguments(parser, list(BENCHMARKS))


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmarks; 1 where one of them falls short."""
    return report.run(arguments, "camera path", BENCHMARKS, full=FULL, quick=QUICK)
