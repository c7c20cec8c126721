"""Measure how much CPU time other machines of the host took, and how long tasks of this one waited for a CPU."""

import time
from dataclasses import dataclass
from pathlib import Path


def waited_seconds() -> float:
    """The seconds that processes of this machine have waited for a CPU so far; 0 if the kernel does not report it."""
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except (OSError, IndexError):
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6


@dataclass(frozen=True)
class MachineLoad:
    """The counters of the machine at one moment."""

    ticks: tuple[int, ...]  # of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal …
    waited: float  # seconds in which some task waited for a CPU
    at: float  # monotonic seconds

    @staticmethod
    def now() -> "MachineLoad":
        """Read them."""
        ticks = tuple(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]))
        return MachineLoad(ticks, waited_seconds(), time.monotonic())

    def since(self) -> str:
        """A sentence about the time since then."""
        now = MachineLoad.now()
        spent = [after - before for before, after in zip(self.ticks, now.ticks, strict=True)]
        steal = 100 * spent[7] / max(1, sum(spent[:8])) if len(spent) > 7 else 0.0
        waited = 100 * (now.waited - self.waited) / max(1e-9, now.at - self.at)
        return f"the host took {steal:.1f} % of the CPU time; some task waited for a CPU {waited:.0f} % of the time"
