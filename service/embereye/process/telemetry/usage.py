"""What processes of this machine use, from /proc: processor time, memory, threads; and who listens where."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.units import SECOND

PROC = Path("/proc")
GONE = (FileNotFoundError, ProcessLookupError)  # it has ended meanwhile
TCP_LISTEN = "0A"  # state of a socket in /proc/net/tcp


def tree(pid: int) -> list[int]:
    """Process `pid` and all that it has started, and they have."""
    children: list[str] = []
    with contextlib.suppress(*GONE):
        for thread in (PROC / f"{pid}/task").iterdir():  # each of which knows those that it has started itself
            with contextlib.suppress(*GONE):
                children += (thread / "children").read_text().split()
    return [pid, *(found for child in children for found in tree(int(child)))]


def cpu_seconds(pid: int) -> float:
    """CPU seconds that process `pid`, all its threads and all that it has started have used, to the microsecond."""
    return sum(own_cpu_seconds(each) for each in tree(pid))


def own_cpu_seconds(pid: int) -> float:
    """CPU seconds that the living threads of process `pid` have used, to the microsecond."""
    total = 0
    with contextlib.suppress(*GONE):
        for thread in (PROC / f"{pid}/task").iterdir():
            with contextlib.suppress(*GONE):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / SECOND


def resident_mb(pid: int) -> float:
    """Memory in MB that process `pid` has, and what those that it has started have besides."""
    text = (PROC / f"{pid}/status").read_text()
    besides = 0
    for child in tree(pid)[1:]:
        with contextlib.suppress(*GONE):
            rollup = (PROC / f"{child}/smaps_rollup").read_text()
            fields = dict(line.split()[:2] for line in rollup.splitlines()[1:])
            # Of a library that both have loaded the pages are the parent's; of what only children share each has its
            # part.
            besides += int(fields["Private_Clean:"]) + int(fields["Pss_Anon:"])
    return (_kb(text, "VmRSS:") + besides) / 1024


def _kb(status: str, name: str) -> int:
    return int(status.partition(name)[2].split()[0])


@dataclass(frozen=True)
class Usage:
    """What one process uses at a moment, without those that it has started."""

    pid: int
    command: str
    cpu: float  # seconds since it was started
    memory_mb: float  # resident
    files_mb: float  # of these: pages of files, programs for the most part, that the kernel may drop at any time
    threads: int
    descriptors: int


def usage_of(pid: int) -> Usage | None:
    """What process `pid` uses now; None where it has ended, or is not ours to look at."""
    try:
        status = (PROC / f"{pid}/status").read_text()
        command = (PROC / f"{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        descriptors = sum(1 for _ in (PROC / f"{pid}/fd").iterdir())
    except (*GONE, PermissionError):
        return None
    if "VmRSS:" not in status:  # it has ended, and nobody has asked how
        return None
    return Usage(
        pid=pid,
        command=command,
        cpu=own_cpu_seconds(pid),
        memory_mb=_kb(status, "VmRSS:") / 1024,
        files_mb=_kb(status, "RssFile:") / 1024,
        threads=int(status.partition("Threads:")[2].split()[0]),
        descriptors=descriptors,
    )


def usage_of_trees(pids: Iterable[int]) -> list[Usage]:
    """What each of `pids` and all that they have started use now."""
    everyone = dict.fromkeys(each for pid in pids for each in tree(pid))
    return [usage for each in everyone if (usage := usage_of(each))]


def listeners(port: int) -> Sequence[int]:
    """The processes of this machine that listen on TCP `port`, as far as they are ours to look at.

    Some of Linux' own: none where there is no /proc, or where they listen in another network namespace.
    """
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    found = []
    for folder in PROC.glob("[0-9]*") if sockets else ():
        with contextlib.suppress(OSError):
            if any(str(entry.readlink()) in sockets for entry in (folder / "fd").iterdir()):
                found.append(int(folder.name))
    return sorted(found)
