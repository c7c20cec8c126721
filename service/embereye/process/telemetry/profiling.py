"""Profile the time and memory of a process, and pin it to processors.

The command line runs every command inside `profiled`, which does nothing unless a file is named. It checks at once that
the files can be written, and writes them when the command ends, even by an error.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from embereye.process.files import system_errors
from embereye.process.lifecycle import UserError

LINES = 50  # number of lines listed, those with most memory
FRAMES = 1  # recorded frames of each allocation's stack; more would need more memory than the program


@contextlib.contextmanager
def profiled(profile: Path | None, allocations: Path | None) -> Iterator[None]:
    """Write a profile of the block's thread to `profile`, and its remaining allocations to `allocations`.

    A profile makes Python's calls about twice as slow; recording makes each allocation several times as slow. Threads
    and processes that the block starts are not in a profile. Without either file, do nothing.
    """
    for option, path in (("--profile", profile), ("--allocations", allocations)):
        if path is not None:
            _check(option, path)
    with contextlib.ExitStack() as stack:
        if allocations is not None:
            stack.enter_context(_allocations(allocations))
        if profile is not None:
            stack.enter_context(_profile(profile))
        yield


def _check(option: str, path: Path) -> None:
    """Raise UserError now if `path` cannot be written at the end."""
    with system_errors(f"{option} {path} cannot be written"):
        path.open("ab").close()


@contextlib.contextmanager
def _profile(path: Path) -> Iterator[None]:
    import cProfile

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
        profiler.dump_stats(path)
        print(f"embereye: profile in {path}: python -m pstats {path}, or snakeviz {path}", file=sys.stderr)


@contextlib.contextmanager
def _allocations(path: Path) -> Iterator[None]:
    import tracemalloc

    tracemalloc.start(FRAMES)
    blocks = sys.getallocatedblocks()
    try:
        yield
    finally:
        grown = sys.getallocatedblocks() - blocks
        current, peak = tracemalloc.get_traced_memory()
        statistics = tracemalloc.take_snapshot().statistics("lineno")
        tracemalloc.stop()
        lines = [f"{grown:+} blocks, {current} bytes in use, {peak} at most", "bytes  blocks  line"]
        lines += [f"{entry.size}  {entry.count}  {entry.traceback[0]}" for entry in statistics[:LINES]]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"embereye: allocations in {path}", file=sys.stderr)


def pin(cpus: str | None) -> None:
    """Run only on processors such as "0,2-3", also new threads and processes; UserError if there are none."""
    if cpus is None:
        return
    wanted: set[int] = set()
    for part in cpus.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if not match:
            raise UserError(f'--cpus "{cpus}": "{part}" is neither a processor, such as 0, nor a range, such as 2-3')
        wanted.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    there = os.sched_getaffinity(0)
    if not wanted or not wanted <= there:
        absent = ", ".join(map(str, sorted(wanted - there))) or cpus
        raise UserError(
            f"--cpus {cpus}: processor {absent} is not available to this process, which may use {_ranges(there)}"
        )
    os.sched_setaffinity(0, wanted)


def _ranges(numbers: set[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
