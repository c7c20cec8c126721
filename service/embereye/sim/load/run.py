"""Run a load test: clients that send, a watch on the target's processes, and the report.

The caller brings `send`, which runs all clients, and the figures that they count in. `run_load_test` runs it beside
a task that samples the target's CPU and memory every second, and one that reports progress. The test ends with `send`,
on a request to stop, or long after the schedule. Then `build_report` makes JSON of everything, and judges thresholds.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from embereye.process.addresses import outward_address
from embereye.process.tasks import Tasks, first_of
from embereye.process.telemetry.usage import Usage, listeners, usage_of, usage_of_trees
from embereye.sim.load.figures import Check, ClientFigures, Thresholds, judge, rounded, total
from embereye.units import counted, split_address

SAMPLE_SECONDS = 1.0
PROGRESS_SECONDS = 2.0
GRACE_SECONDS = 20.0  # allowed beyond the scheduled time


@dataclass(frozen=True)
class LoadTest:
    """The target, schedule and thresholds of a test."""

    target: str  # host:port
    rate: float  # packets/s of each client
    packets: int  # of each client; 0: until stopped
    thresholds: Thresholds
    settings: dict[str, Any] = field(default_factory=dict)  # for the report

    @property
    def limit(self) -> float | None:
        """Seconds, after which unfinished clients are stopped; None: never."""
        return self.packets / self.rate + GRACE_SECONDS if self.packets else None


class SystemWatch:
    """Measures the processes that listen on the target's port, if they are on this machine."""

    def __init__(self, target: str) -> None:
        host, port = split_address(target)
        self.why_not = "" if is_local(host) else f"{host} is another machine"
        self._pids = [] if self.why_not else listeners(port)
        if not self._pids and not self.why_not:
            self.why_not = f"no process that this user can inspect listens on port {port}"
        self._first = {usage.pid: usage for usage in usage_of_trees(self._pids)}
        self._latest = dict(self._first)
        self._most: dict[int, float] = {}  # MB
        self._began = time.monotonic()
        self._seconds = 0.0
        self._generator_at_start = usage_of(os.getpid())

    async def run(self) -> None:
        """Sample every second until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self.sample()

    def sample(self) -> None:
        """Measure all processes now."""
        self._seconds = time.monotonic() - self._began
        for usage in usage_of_trees(self._pids):
            self._first.setdefault(usage.pid, usage)
            self._latest[usage.pid] = usage
            self._most[usage.pid] = max(self._most.get(usage.pid, 0.0), usage.memory_mb)

    @property
    def cores(self) -> float:
        """CPU cores used by all its processes, on average since the start."""
        return sum(self._spent(usage) for usage in self._latest.values()) / max(self._seconds, 1e-9)

    @property
    def memory_mb(self) -> float:
        """Resident memory of all its processes; pages that they share are counted for each."""
        return sum(usage.memory_mb for usage in self._latest.values())

    def _spent(self, usage: Usage) -> float:
        return max(0.0, usage.cpu - self._first[usage.pid].cpu)

    def to_json(self) -> dict[str, Any]:
        """Convert to the report's form."""
        usage_now = usage_of(os.getpid())
        spent = usage_now.cpu - self._generator_at_start.cpu if usage_now and self._generator_at_start else 0.0
        generator = {
            "cores": round(spent / max(self._seconds, 1e-9), 4),
            "memoryMb": round(usage_now.memory_mb if usage_now else 0),
        }
        if self.why_not:
            return {"local": False, "why": self.why_not, "generator": generator}
        processes = [
            {
                "pid": usage.pid,
                "command": usage.command[:200],
                "cores": round(self._spent(usage) / max(self._seconds, 1e-9), 4),
                "memoryMb": round(usage.memory_mb, 1),
                "peakMemoryMb": round(self._most.get(usage.pid, usage.memory_mb), 1),
                "threads": usage.threads,
            }
            for usage in self._latest.values()
        ]
        whole = {"cores": round(self.cores, 4), "memoryMb": round(self.memory_mb, 1),
                 "threads": sum(usage.threads for usage in self._latest.values())}  # fmt: skip
        return {"local": True, **whole, "processes": processes, "generator": generator}


def is_local(host: str) -> bool:
    """True if `host` is this machine, judging by its addresses."""
    with contextlib.suppress(OSError, ValueError):
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
        outward = outward_address()
        return all(ipaddress.ip_address(address).is_loopback or address == outward for address in addresses)
    return False


async def run_load_test(
    test: LoadTest,
    figures: Sequence[ClientFigures],
    send: Callable[[], Coroutine[Any, Any, None]],
    stop: asyncio.Event,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Run `send` until it ends, until it takes far too long, or until `stop`; return the report."""
    watch = SystemWatch(test.target)
    began_at, began = datetime.now(UTC), time.monotonic()

    async def progress() -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            say(describe_progress(test, figures, (began, time.monotonic()), watch))

    async with Tasks() as tasks:
        tasks.start(watch.run(), name="watch")
        tasks.start(progress(), name="progress")
        sending = tasks.start(send(), name="send")
        await first_of(asyncio.wait([sending]), stop.wait(), timeout=test.limit)
        ended = time.monotonic()
        if sending.done():
            await sending
        elif not stop.is_set():
            for figure in figures:
                if figure.packets + figure.skipped < test.packets:
                    figure.errors["did not send everything in time"] += 1
        watch.sample()
    return build_report(test, figures, began_at, (began, ended), watch)


def describe_progress(
    test: LoadTest, figures: Sequence[ClientFigures], lasted: tuple[float, float], watch: SystemWatch
) -> str:
    """One line about the progress; `lasted` has the start and the end, in monotonic seconds."""
    whole, (began, now) = total(figures), lasted
    due, rates = rates_of(test, figures, now)
    latency = (
        f"latency p95 {rounded(whole.latencies.percentile(0.95) * 1e3)} ms" if whole.latencies.count else "no latency"
    )
    system = "" if watch.why_not else f"; target {watch.cores:.2f} cores, {watch.memory_mb:.0f} MB"
    return (
        f"{now - began:.0f} s: {describe_sent(whole.packets, sum(due))}, {sum(rates):.1f}/s, "
        f"{counted(whole.errors.total(), 'error')}, "
        f"{latency}{system}"
    )


def rates_of(test: LoadTest, figures: Sequence[ClientFigures], now: float) -> tuple[list[int], list[float]]:
    """The packets due of each client by `now`, and the packets/s that it sent."""
    due = [figure.due(test.rate, test.packets, now) for figure in figures]
    return due, [figure.rate(test.rate, packets) for figure, packets in zip(figures, due, strict=True)]


def describe_sent(packets: int, due: int) -> str:
    """The number of packets sent, and of packets due if those were more."""
    return counted(packets, "packet") + (f" of {due} that were due" if due > packets else "")


def build_report(
    test: LoadTest,
    figures: Sequence[ClientFigures],
    began_at: datetime,
    lasted: tuple[float, float],
    watch: SystemWatch,
) -> dict[str, Any]:
    """All counts in JSON's form; `lasted` has the start and the end, in monotonic seconds."""
    combined, (began, ended) = total(figures), lasted
    due, rates = rates_of(test, figures, ended)
    achieved = sum(rates)
    wanted = test.rate * len(figures)
    checks: list[Check] = judge(combined, achieved=achieved, wanted=wanted, thresholds=test.thresholds)
    whole = combined.to_json(achieved, sum(due))
    del whole["id"]
    return {
        "began": began_at.isoformat(timespec="milliseconds"),
        "seconds": round(ended - began, 3),
        "target": test.target,
        "clients": len(figures),
        "ratePerClient": test.rate,
        **test.settings,
        "total": {
            **whole,
            "bytesPerSecond": round(achieved * combined.sent_bytes / max(combined.packets, 1), 1),
        },
        "perClient": [figure.to_json(rate, packets) for figure, rate, packets in zip(figures, rates, due, strict=True)],
        "system": watch.to_json(),
        "thresholds": [asdict(check) for check in checks],
        "passed": all(check.ok for check in checks),
    }


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write the report as JSON; OSError if that fails."""
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def sentences(report: dict[str, Any]) -> list[str]:
    """The lines of the report, for people."""
    whole, latency, system = report["total"], report["total"]["latencyMs"], report["system"]
    lines = [
        f"{counted(report['clients'], 'client')}, {report['seconds']:.1f} s: "
        f"{describe_sent(whole['packets'], whole['due'])}, "
        f"{whole['packetsPerSecond']:.1f}/s, {whole['bytesPerSecond'] / 1e3:.1f} kB/s, "
        f"{counted(whole['errors'], 'error')}",
        f"latency ({report['latency']}): "
        + (
            f"avg {rounded(latency['avg'])} ms, p50 {rounded(latency['p50'])}, p95 {rounded(latency['p95'])}, "
            f"p99 {rounded(latency['p99'])}, max {rounded(latency['max'])}"
            if latency["count"]
            else "none was measured"
        ),
    ]
    most = max((entry["count"] for entry in whole["histogram"]), default=1)
    lines += [
        f"  ≤ {entry['upToMs']:>8g} ms {entry['count']:>9}  {'▇' * max(1, round(40 * entry['count'] / most))}"
        for entry in whole["histogram"]
    ]
    if whole["shed"] or whole["skipped"]:
        shed = counted(whole["shed"], "frame")
        lines.append(f"{shed} shed by the shard, {whole['skipped']} not sent because it accepted none")
    lines += [f"  {counted(count, 'time')} {reason}" for reason, count in sorted(whole["errorsByReason"].items())]
    if system["local"]:
        lines.append(
            f"target: {system['cores']:.2f} cores, {system['memoryMb']:.0f} MB, "
            f"{counted(system['threads'], 'thread')} in "
            f"{counted(len(system['processes']), 'process', 'processes')}"
        )
    else:
        lines.append(f"target: not measured: {system['why']}")
    lines.append(f"this generator: {system['generator']['cores']:.2f} cores")
    lines += [
        f"{'ok   ' if check['ok'] else 'SHORT'} {check['name']} {check['value']} ({check['limit']})"
        for check in report["thresholds"]
    ]
    return lines
