"""The resources that processes of this machine use, and their listening ports, from /proc.

Every function reads /proc at each call and stores nothing. Descendants are found by the children that each thread
lists, and count with their ancestor unless a function is about a single process. Those that end meanwhile are left out.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.units import SECOND

PROC = Path("/proc")
GONE = (FileNotFoundError, ProcessLookupError)  # errors if a process has ended
TCP_LISTEN = "0A"  # state of a socket in /proc/net/tcp


def tree(pid: int) -> list[int]:
    """Process `pid` and all its descendants."""
    children: list[str] = []
    with contextlib.suppress(*GONE):
        for thread in (PROC / f"{pid}/task").iterdir():  # each thread lists its own children
            with contextlib.suppress(*GONE):
                children += (thread / "children").read_text().split()
    return [pid, *(descendant for child in children for descendant in tree(int(child)))]


def cpu_seconds(pid: int) -> float:
    """CPU seconds that process `pid` and all its descendants have used, to the microsecond."""
    return sum(own_cpu_seconds(process) for process in tree(pid))


def own_cpu_seconds(pid: int) -> float:
    """CPU seconds that the living threads of process `pid` have used, to the microsecond."""
    total = 0
    with contextlib.suppress(*GONE):
        for thread in (PROC / f"{pid}/task").iterdir():
            with contextlib.suppress(*GONE):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / SECOND


def resident_mb(pid: int) -> float:
    """Memory in MB of process `pid`, and the additional memory of its descendants."""
    text = (PROC / f"{pid}/status").read_text()
    besides = 0
    for child in tree(pid)[1:]:
        with contextlib.suppress(*GONE):
            rollup = (PROC / f"{child}/smaps_rollup").read_text()
            fields = dict(line.split()[:2] for line in rollup.splitlines()[1:])
            # Pages of a shared library count for the parent; memory that only children share counts in parts.
            besides += int(fields["Private_Clean:"]) + int(fields["Pss_Anon:"])
    return (_kb(text, "VmRSS:") + besides) / 1024


def _kb(status: str, name: str) -> int:
    return int(status.partition(name)[2].split()[0])


@dataclass(frozen=True)
class Usage:
    """The resources that one process uses, without its descendants."""

    pid: int
    command: str
    cpu: float  # CPU seconds since its start
    memory_mb: float  # resident
    files_mb: float  # part of it: pages of files, mostly programs, that the kernel may drop
    threads: int
    descriptors: int


def usage_of(pid: int) -> Usage | None:
    """The present usage of process `pid`; None if it has ended or belongs to another user."""
    try:
        status = (PROC / f"{pid}/status").read_text()
        command = (PROC / f"{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        descriptors = sum(1 for _ in (PROC / f"{pid}/fd").iterdir())
    except (*GONE, PermissionError):
        return None
    if "VmRSS:" not in status:  # a zombie
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
    """The present usage of each of `pids` and their descendants."""
    processes = dict.fromkeys(process for pid in pids for process in tree(pid))
    return [usage for process in processes if (usage := usage_of(process))]


def listeners(port: int) -> Sequence[int]:
    """The processes of this user that listen on TCP `port`.

    Empty without /proc, which only Linux has, and for listeners in another network namespace.
    """
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    processes = []
    for folder in PROC.glob("[0-9]*") if sockets else ():
        with contextlib.suppress(OSError):
            if any(str(entry.readlink()) in sockets for entry in (folder / "fd").iterdir()):
                processes.append(int(folder.name))
    return sorted(processes)
