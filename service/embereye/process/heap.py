"""The heap that a process keeps for good: out of the garbage collector's sight, on large pages, not given back."""

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

COLLECT_AFTER = 20_000  # objects made and not yet freed, until the garbage collector looks at the new ones
COLLECT_SECONDS = 60.0  # after which it looks at them in any case
COLLECT_ALL = 30  # of these times, one in which it looks at all that was made since `freeze_heap`
COLLAPSE = 25  # MADV_COLLAPSE of linux/mman.h, since Linux 6.1
SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
LARGEST = 512 * 1024 * 1024  # bytes: a mapping of more is reserved rather than used
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
KEPT = 32 * 1024 * 1024  # bytes: the most that glibc takes
RESIDENT = 0.75  # of a large page, so that hardly any memory is taken besides


def share_heap() -> None:
    """Have all threads take memory from one heap, instead of up to eight heaps for every processor.

    To be called before there are threads. What a thread has freed is of use to its own heap alone, and gRPC's threads
    come and go: for hours one heap after the other would grow to what the largest message took.
    """
    _set_option(M_ARENA_MAX, 1)


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next picture, instead of giving it back to the kernel each time.

    Pictures and what is made of them come and go by the thousand. By default each array of more than 128 KiB is mapped
    anew, and the end of the heap is given back as soon as as much is free: to fault the pages in again takes longer
    than to work on them (to halve a plane of 1080p, 330 µs instead of 110).
    """
    _set_option(M_TRIM_THRESHOLD, KEPT)
    _set_option(M_MMAP_THRESHOLD, KEPT)


def _set_option(parameter: int, value: int) -> None:
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        ctypes.CDLL(None).mallopt(parameter, value)


def freeze_heap() -> None:
    """Let what is loaded by now stay for good.

    Nearly all garbage is no cycle. A collector that looks at everything again and again only makes a process that is to
    answer within milliseconds stand still for tens of them. And a process that wakes up for a millisecond and sleeps
    again finds no address translation where it left it: with large pages there are few to look up.
    Called again, as by a hub that begins anew, it lets go of what was to stay and is of no use any more.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 100)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it is as well without, only slower
        logger.debug("%d large pages", fold_heap())


async def collect_garbage(give_back: Callable[[], None] = lambda: None) -> None:
    """Look at what was made lately every minute, until cancelled: what a process needs after `freeze_heap`.

    `give_back` is called then, too: it lets go of memory that is held for what has passed.

    Each call that gRPC serves leaves five objects behind that refer to one another, 600 bytes. A shard is asked every
    second how it is and makes little else: until there are COLLECT_AFTER of them it would keep those of an hour.
    What has lived for minutes, such as a camera's connection, is looked at every half an hour: of the largest shards
    that takes tens of milliseconds, of a hub with 10,000 devices 3. Only that gives back what CPython keeps of tuples
    and lists for later ones.
    """
    for turn in itertools.count(1):
        await asyncio.sleep(COLLECT_SECONDS)
        gc.collect(1 if turn % COLLECT_ALL else 2)
        give_back()


def fold_heap() -> int:
    """Have the kernel put this process' memory on large pages where nearly all of one is in use; how many it did.

    None where whoever runs the machine wants none at all.
    """
    if "[never]" in (SETTINGS / "enabled").read_text():
        return 0
    large = int((SETTINGS / "hpage_pmd_size").read_text())
    advise = ctypes.CDLL(None, use_errno=True).madvise
    # Where memory is in too many pieces the kernel tries for long: one failure is enough.
    done = itertools.takewhile(
        lambda begin: advise(ctypes.c_void_p(begin), ctypes.c_size_t(large), COLLAPSE) == 0, list(_in_use(large))
    )
    return sum(1 for _ in done)


def _in_use(large: int) -> Iterator[int]:
    """Addresses of whole large pages of private memory of which RESIDENT is there."""
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
