"""Measure events that reach many subscribers: delay and cost, against the `websockets` library's broadcast.

A server (`feed_server.py`) and its subscribers (`crowd.py`) are two processes. In a round, the server publishes at
a given rate and answers with the time of each event; then the crowd answers with the time of each arrival. Cursors in
the events match the two. Servers of different kinds are measured in alternating rounds.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from embereye.hub.feeds.feed import Entry
from embereye.v1.alarms_pb2 import AlarmEvent
from embereye_bench.hub.feed_server import event
from embereye_bench.plot import plot
from embereye_bench.report import Result, Scale, median
from embereye_bench.sensors.load import end

SUBSCRIBERS = 425
DELIVERIES = 18_000  # per second
LADDER = (1, 10, 100, 250, 300, 350, 400, SUBSCRIBERS, 1_000, 5_000)
MOST_EVENTS = 100.0  # per second, if there are few subscribers
QUICK_LADDER = (250, SUBSCRIBERS, 1_000, 5_000)
BOUNDS = {0.90: 200.0, 0.95: 500.0, 0.99: 1_000.0}  # milliseconds, at each step of the ladder
SHARES = (0.50, *BOUNDS)
HIGHEST_MS = 200.0  # p99 at the highest rate
EVENTS_LEAST = 10  # in a round that searches the highest rate
FLOOD = 300  # events per second at which costs are measured


class Worker:
    """A process that reads commands as lines of JSON and answers with JSON."""

    def __init__(self, module: str, *options: str) -> None:
        command = [sys.executable, "-m", f"embereye_bench.hub.{module}", *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first: dict[str, Any] = self._line()  # its introduction

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the benchmark ended early. Its output is above.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **command: float) -> dict[str, Any]:
        """Send `command`; return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._line()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)


@dataclass(frozen=True)
class Round:
    """The results of one round of publishing."""

    latencies: list[float]  # milliseconds from publishing to arrival, ascending
    missing: int  # deliveries that did not arrive
    cpu: float  # seconds
    elapsed: float  # seconds
    memory: float  # MB at most

    def late(self, share: float) -> float:
        """Milliseconds within which `share` of the deliveries arrived."""
        return self.latencies[min(int(len(self.latencies) * share), len(self.latencies) - 1)] if self.latencies else 0.0

    @property
    def core(self) -> float:
        """Share of a core that the server used."""
        return self.cpu / self.elapsed

    @property
    def per_core(self) -> float:
        """Deliveries per second of a core."""
        return len(self.latencies) / self.cpu


@contextlib.contextmanager
def _site(kind: str, count: int, form: str) -> Iterator[tuple[Worker, Worker]]:
    """Run a server and its subscribers."""
    path = f"/v1/alarms/ws?format={form}"
    with (
        Worker("feed_server", kind, "--format", form) as server,
        Worker("crowd", "--port", str(server.first["port"]), "--count", str(count), "--path", path) as crowd,
    ):
        opened = sum(number for status, number in crowd.first["opened"].items() if " 101 " in status)
        if opened != count:
            raise RuntimeError(f"{opened} of {count} subscribers were accepted: {crowd.first['opened']}")
        yield server, crowd


def _round(server: Worker, crowd: Worker, count: int, rate: float, seconds: float, form: str) -> Round:
    report = server.ask(rate=rate, seconds=seconds)
    seen = crowd.ask(report=1)
    if seen["ended"]:
        raise RuntimeError(f"subscribers were disconnected: {seen['ended']}")
    arrivals = seen["arrivals"]
    published = dict(enumerate(report["published"], report["first"]))
    latencies: list[float] = []
    for payload, times in arrivals.items():
        data = bytes.fromhex(payload)
        cursor = AlarmEvent.FromString(data).cursor if form == "binary" else int(json.loads(data)["cursor"])
        latencies += [(time - published[cursor]) / 1e6 for time in times if cursor in published]
    latencies.sort()
    missing = len(published) * count - len(latencies)
    return Round(latencies, missing, report["cpu"], report["elapsed"], report["memory"])


def _in_turns(kinds: Sequence[str], count: int, rate: float, scale: Scale, form: str) -> dict[str, list[Round]]:
    """Measure rounds of each kind of server in turn, because the machine's speed varies. The first events warm up."""
    rounds: dict[str, list[Round]] = {kind: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        sites = {kind: stack.enter_context(_site(kind, count, form)) for kind in kinds}
        for server, crowd in sites.values():
            _round(server, crowd, count, rate, 0.3, form)
        for _ in range(scale.rounds):
            for kind, (server, crowd) in sites.items():
                rounds[kind].append(_round(server, crowd, count, rate, scale.seconds, form))
    return rounds


def fanout_425(scale: Scale) -> Result:
    """Measure 425 subscribers, 18,000 deliveries a second of 150-byte events. Baseline: the websockets library."""
    rounds = _in_turns(("embereye", "websockets"), SUBSCRIBERS, DELIVERIES / SUBSCRIBERS, scale, "binary")
    ours, peers = rounds["embereye"], rounds["websockets"]
    late, baseline = (
        median([measured.late(0.99) for measured in ours]),
        median([measured.late(0.99) for measured in peers]),
    )
    core, theirs = median([measured.core for measured in ours]), median([measured.core for measured in peers])
    lost = sum(measured.missing for measured in ours)
    unit = f"ms p99, {core:.0%} of a core (websockets {theirs:.0%}), {lost} lost"
    ok = late <= 30 and core <= 0.3 and not lost
    return Result("fanout-425", late, unit, baseline, late / baseline, "≤ 30 ms, ≤ 30 %", ok)


@dataclass(frozen=True)
class Step:
    """One step of the ladder: medians over its rounds."""

    count: int  # subscribers
    late: dict[float, float]  # milliseconds, by share
    bare: dict[float, float]  # of bare sockets, by share
    core: float
    memory: float  # MB
    missing: int
    highest: float  # deliveries per second


def _step(count: int, scale: Scale) -> Step:
    # A short round with few events has too few deliveries for a percentile.
    rounds = Scale(max(1, scale.rounds // 2), max(1.5, scale.seconds))
    by_kind = _in_turns(("embereye", "sockets"), count, min(DELIVERIES / count, MOST_EVENTS), rounds, "binary")
    ours, bare = (
        {share: median([measured.late(share) for measured in by_kind[kind]]) for share in SHARES}
        for kind in ("embereye", "sockets")
    )
    with _site("embereye", count, "binary") as (server, crowd):
        highest = _highest(server, crowd, count)
    measured = by_kind["embereye"]
    core, memory = median([shown.core for shown in measured]), max(shown.memory for shown in measured)
    missing = sum(shown.missing for shown in measured)
    return Step(count, ours, bare, core, memory, missing, highest)


def fanout_ladder(scale: Scale) -> Result:
    """Measure 1 to 5,000 subscribers, and the highest rate with p99 within 200 ms, in a table and a plot.

    Baseline: bare sockets, which receive the same bytes one after the other.
    """
    steps = [_step(count, scale) for count in (QUICK_LADDER if scale.rounds < 5 else LADDER)]
    table = Table(title="fanout-ladder, 18,000 deliveries/s; bare: p99 of bare sockets", box=None)
    for heading in ("subscribers", "p50 ms", "p90", "p95", "p99", "bare", "core", "MB", "highest rate/s"):
        table.add_column(heading, justify="right")
    for step in steps:
        late = (f"{value:.1f}" for value in (*step.late.values(), step.bare[0.99]))
        table.add_row(f"{step.count:,}", *late, f"{step.core:.0%}", f"{step.memory:.0f}", f"{step.highest:,.0f}")
    console = Console(stderr=True)
    console.print(table)
    lines = {f"p{share * 100:.0f}": [step.late[share] for step in steps] for share in SHARES}
    console.print(plot([step.count for step in steps], lines, "subscribers", "ms"), highlight=False)
    worst = max(steps, key=lambda step: step.late[0.99])
    fine = all(not step.missing and step.late[share] <= bound for step in steps for share, bound in BOUNDS.items())
    highest = [step.highest for step in steps]
    value, baseline = worst.late[0.99], worst.bare[0.99]
    unit = f"ms p99 at worst, of {worst.count:,}; {min(highest):,.0f} to {max(highest):,.0f} deliveries/s within 200 ms"
    return Result("fanout-ladder", value, unit, baseline, value / baseline, "≤ 200/500/1,000 p90/95/99", fine)


def _highest(server: Worker, crowd: Worker, count: int) -> float:
    """The highest rate of deliveries per second with a p99 within 200 ms, of rates that grow by half."""
    rate = float(DELIVERIES)
    reached = 0.0
    while rate < 2_000_000:
        seconds = max(0.5, EVENTS_LEAST * count / rate)
        measured = _round(server, crowd, count, rate / count, seconds, "binary")
        if measured.missing or measured.late(0.99) > HIGHEST_MS:
            break
        reached = len(measured.latencies) / seconds
        if reached < rate * 0.8:  # publishing itself is too slow
            break
        rate *= 1.5
    return reached


def fanout_ws(scale: Scale) -> Result:
    """Measure deliveries per second of a core, as JSON. Baseline: the websockets library's broadcast."""
    by_kind: dict[str, list[float]] = {"embereye": [], "websockets": []}
    with contextlib.ExitStack() as stack:
        sites = {kind: stack.enter_context(_site(kind, SUBSCRIBERS, "json")) for kind in by_kind}
        for number in range(scale.rounds + 1):
            for kind, (server, crowd) in sites.items():  # in turn, because the machine's speed varies
                measured = _round(server, crowd, SUBSCRIBERS, FLOOD, scale.seconds, "json")
                if number:
                    by_kind[kind].append(measured.per_core)
    value, baseline = median(by_kind["embereye"]), median(by_kind["websockets"])
    return Result(
        "fanout-ws", value, "deliveries/s per core", baseline, value / baseline, "≥ 1.3", value >= 1.3 * baseline
    )


def fanout_binary(scale: Scale) -> Result:
    """Compare the bytes of an event on the wire as protobuf. Baseline: as JSON."""
    entry = Entry(event(123_456))
    value, baseline = len(entry.binary_frame), len(entry.text_frame)
    return Result("fanout-binary", value, "bytes/event", baseline, value / baseline, "≤ 0.6", value <= 0.6 * baseline)
