"""Tune the heap of a long-running process: garbage collection, large pages, and the C library's allocator.

`lifecycle.run` calls `share_heap` before there are threads. Shards, hub and operator call `freeze_heap` once they have
started: objects that exist then are no longer searched for garbage, and their memory moves to large pages. From then
on, the task `collect_garbage` collects newer objects every minute. Processes that handle pictures also call
`keep_freed_memory`, so that the next picture needs no new memory from the kernel.
"""

import asyncio
import contextlib
import ctypes
import gc
import itertools
import logging
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

COLLECT_AFTER = 20_000  # new objects after which the garbage collector checks the young generation
COLLECT_SECONDS = 60.0  # between two collections of younger objects
COLLECT_ALL = 30  # every how many of them all objects since `freeze_heap` are collected
COLLAPSE = 25  # MADV_COLLAPSE of linux/mman.h, since Linux 6.1
SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
LARGEST = 512 * 1024 * 1024  # bytes; a larger mapping is reserved rather than used
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
RETAINED = 32 * 1024 * 1024  # bytes of freed memory that the C library retains: the largest value of glibc
RESIDENT = 0.75  # share of a large page that has to be in use, so that hardly any memory is added


def share_heap() -> None:
    """Have all threads allocate from one heap, instead of up to eight heaps for every processor.

    Call it before there are threads. Memory that a thread frees is reused only in that thread's heap. gRPC's threads
    come and go, so one heap after another would grow to the size of the largest message.
    """
    _set_option(M_ARENA_MAX, 1)


def keep_freed_memory() -> None:
    """Have the C library retain freed memory for the next picture, instead of returning it to the kernel each time.

    By default each array of more than 128 KiB is a new mapping, and free memory at the end of the heap is returned.
    Then page faults take longer than the work on pictures (halving a plane of 1080p: 330 µs instead of 110).
    """
    _set_option(M_TRIM_THRESHOLD, RETAINED)
    _set_option(M_MMAP_THRESHOLD, RETAINED)


def _set_option(parameter: int, value: int) -> None:
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        ctypes.CDLL(None).mallopt(parameter, value)


def return_freed_memory() -> None:
    """Return free pages within the heap to the kernel: the C library itself returns only those at the heap's end.

    Strangers can fill the heap once, for example with the headers of calls. Afterwards, one small object at its end
    would retain all of it.
    """
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(RETAINED))


def freeze_heap() -> None:
    """Exclude all present objects from garbage collection, and move the heap to large pages.

    A full collection would stop the process for tens of milliseconds, although hardly any garbage is in cycles. Large
    pages need few address translations, which a process that wakes up for a millisecond has to look up again each time.
    Call it again after a reload: objects that are garbage now are collected.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 100)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # optional: the process is only slower without
        logger.debug("%d large pages", fold_heap())


async def collect_garbage(release: Callable[[], None] = lambda: None) -> None:
    """Collect garbage every minute, until cancelled. Run it after `freeze_heap`; `release` is called each time, too.

    Each gRPC call leaves a cycle of five objects (600 bytes). A shard that makes few other objects would retain those
    of an hour before COLLECT_AFTER is reached. Older objects, such as a camera's connection, are collected every half
    an hour: this takes tens of milliseconds in the largest shards, 3 ms in a hub with 10,000 devices. Only it frees
    the tuples and lists that CPython has cached for reuse.
    """
    for turn in itertools.count(1):
        await asyncio.sleep(COLLECT_SECONDS)
        gc.collect(1 if turn % COLLECT_ALL else 2)
        release()
        return_freed_memory()


def fold_heap() -> int:
    """Have the kernel replace well-used ranges of memory by large pages; return the number of large pages.

    Do nothing if the machine's settings forbid large pages.
    """
    if "[never]" in (SETTINGS / "enabled").read_text():
        return 0
    large = int((SETTINGS / "hpage_pmd_size").read_text())
    advise = ctypes.CDLL(None, use_errno=True).madvise
    # With fragmented memory each attempt takes long: stop at the first failure.
    done = itertools.takewhile(
        lambda begin: advise(ctypes.c_void_p(begin), ctypes.c_size_t(large), COLLAPSE) == 0, list(_in_use(large))
    )
    return sum(1 for _ in done)


def _in_use(large: int) -> Iterator[int]:
    """Yield the addresses of large pages in private memory of which RESIDENT is in use."""
    entries = large // mmap.PAGESIZE
    with Path("/proc/self/pagemap").open("rb") as pages:
        for line in Path("/proc/self/maps").read_text().splitlines():
            reach, rights, _, _, inode = line.split(maxsplit=5)[:5]
            first, last = (int(address, 16) for address in reach.split("-"))
            if rights != "rw-p" or inode != "0" or last - first > LARGEST:
                continue
            for begin in range(-(-first // large) * large, last - large + 1, large):
                present = os.pread(pages.fileno(), 8 * entries, begin // mmap.PAGESIZE * 8)
                if sum(byte >> 7 for byte in present[7::8]) >= RESIDENT * entries:
                    yield begin
