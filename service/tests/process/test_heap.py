import asyncio
import gc
import mmap
import subprocess
import sys
import weakref

import pytest

from embereye.process import heap
from embereye.process.tasks import beside

SIZE = 32 * 1024 * 1024  # bytes
LARGE = 2 * 1024 * 1024
# A process that has touched one half of a mapping, and one page in eight of the other half.
PROCESS = f"""
import mmap
from embereye.process.heap import fold_heap

def resident():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

mapping = mmap.mmap(-1, {SIZE}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
pages = {SIZE} // mmap.PAGESIZE
touched = [page for page in range(pages) if page < pages // 2 or page % 8 == 0]
for page in touched:
    mapping[page * mmap.PAGESIZE] = page % 251
before = resident()
print(fold_heap(), resident() - before)
assert all(mapping[page * mmap.PAGESIZE] == page % 251 for page in touched)
"""


# A process whose heap was full once, and has one object in use at its end.
ONCE_FULL = """
from embereye.process.heap import return_freed_memory, share_heap

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

share_heap()
before = resident()
blocks = [bytes(2_000) for _ in range(50_000)]
last = bytes(2_000)
full = resident()
del blocks
return_freed_memory()
print(full - before, resident() - before)
"""


def test_free_pages_below_the_end_of_the_heap_are_returned():
    run = subprocess.run([sys.executable, "-c", ONCE_FULL], capture_output=True, text=True, check=True)
    full, afterwards = map(int, run.stdout.split())
    assert afterwards < full / 3


@pytest.mark.skipif(mmap.PAGESIZE != 4096, reason="large pages have another size here")
def test_memory_in_use_moves_to_large_pages_and_hardly_grows():
    if not (heap.SETTINGS / "enabled").exists() or "[never]" in (heap.SETTINGS / "enabled").read_text():
        pytest.skip("this kernel has no large pages, or is to give none")
    run = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True)
    folded, taken_kb = map(int, run.stdout.split())
    if not folded:
        pytest.skip("this kernel does not collapse memory into large pages when it is asked to: Linux 6.1 does")
    assert folded >= SIZE // 4 // LARGE
    assert taken_kb * 1024 < SIZE // 8


def test_large_pages_are_not_used_if_the_machine_forbids_them(monkeypatch, tmp_path):
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    monkeypatch.setattr(heap, "SETTINGS", tmp_path)
    assert heap.fold_heap() == 0


def test_freezing_the_heap_works_without_large_pages(monkeypatch):
    def refuse():
        raise FileNotFoundError("hpage_pmd_size")

    thresholds = gc.get_threshold()
    monkeypatch.setattr(heap, "fold_heap", refuse)
    try:
        heap.freeze_heap()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_frozen_garbage_is_freed_when_the_heap_is_frozen_again(monkeypatch):
    class Hub:
        def __init__(self):
            self.zones = {"hub": self}

    thresholds = gc.get_threshold()
    monkeypatch.setattr(heap, "fold_heap", lambda: 0)
    try:
        hub = Hub()
        heap.freeze_heap()
        former = weakref.ref(hub)
        del hub
        heap.freeze_heap()
        assert former() is None
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@pytest.mark.parametrize("old", [False, True], ids=["lately", "long ago"])
async def test_cyclic_garbage_is_freed_although_few_objects_are_made(monkeypatch, old):
    class Knot:
        def __init__(self):
            self.itself = self

    thresholds = gc.get_threshold()
    monkeypatch.setattr(heap, "COLLECT_SECONDS", 0.0)
    gc.set_threshold(heap.COLLECT_AFTER, 20, 100)
    try:
        made = [Knot() for _ in range(100)]
        if old:
            gc.collect()
        knots = [weakref.ref(knot) for knot in made]
        made.clear()
        assert all(knot() for knot in knots)
        async with beside(heap.collect_garbage(), name="collect"):
            for _ in range(heap.COLLECT_ALL + 5):
                await asyncio.sleep(0)
        assert not any(knot() for knot in knots)
    finally:
        gc.set_threshold(*thresholds)


FREED = """
import resource, sys
from embereye.process.heap import keep_freed_memory

if sys.argv[1:]:
    keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    pictures = [bytearray(100_000) for _ in range(4)]  # at the end of the heap, which glibc gives back
    del pictures
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


# A process in which threads take memory, all at once; how many heaps there are for them besides the first.
THREADS = """
import asyncio, threading
from pathlib import Path
from embereye.process.lifecycle import run

async def main(_):
    ready = threading.Barrier(17)
    taken = []

    def take():
        taken.append([bytearray(50_000) for _ in range(20)])
        ready.wait()

    threads = [threading.Thread(target=take) for _ in range(16)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(ready.wait)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [([int(end, 16) for end in line[0].split("-")], line[1]) for line in maps if len(line) == 5]
    whole = 64 * 1024 * 1024  # of a heap: aligned, the rest of it not yet accessible
    print(sum(
        begin % whole == 0 and (used, rights, free) == ("rw-p", "---p", [end, begin + whole])
        for ((begin, end), used), (free, rights) in zip(ranges, ranges[1:])
    ))

run(main)
"""


def test_threads_allocate_from_one_heap():
    run = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert int(run.stdout) == 0


def test_freed_memory_is_reused_without_the_kernel():
    def faults(*keep):
        run = subprocess.run([sys.executable, "-c", FREED, *keep], capture_output=True, text=True, check=True)
        return int(run.stdout)

    if faults() < 2_000:
        pytest.skip("this C library keeps it in any case")
    assert faults("keep") < 1_000
