"""How an event reaches many subscribers: how late, at what cost, and beside the `websockets` library's broadcast."""

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
DELIVERIES = 18_000  # a second
LADDER = (1, 10, 100, 250, 300, 350, 400, SUBSCRIBERS, 1_000, 5_000)
MOST_EVENTS = 100.0  # a second, where there are few subscribers
QUICK_LADDER = (250, SUBSCRIBERS, 1_000, 5_000)
BOUNDS = {0.90: 200.0, 0.95: 500.0, 0.99: 1_000.0}  # milliseconds at each step of the ladder
SHARES = (0.50, *BOUNDS)
HIGHEST_MS = 200.0  # p99 at the highest rate
EVENTS_LEAST = 10  # in a round that looks for the highest rate
FLOOD = 300  # events a second that costs are measured at


class Told:
    """A process that is told things line by line, and answers with JSON."""

    def __init__(self, module: str, *options: str) -> None:
        command = [sys.executable, "-m", f"embereye_bench.hub.{module}", *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first: dict[str, Any] = self._line()  # with which it introduced itself

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the benchmark ended early; its last words are above")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, **what: float) -> dict[str, Any]:
        """Have it do `what`; its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._line()

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)


@dataclass(frozen=True)
class Round:
    """What one round of publishing came to."""

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
        """Share of a core that the server took."""
        return self.cpu / self.elapsed

    @property
    def per_core(self) -> float:
        """Deliveries for a second of a core."""
        return len(self.latencies) / self.cpu


@contextlib.contextmanager
def _site(kind: str, count: int, form: str) -> Iterator[tuple[Told, Told]]:
    """A server and its subscribers."""
    path = f"/v1/alarms/ws?format={form}"
    with (
        Told("feed_server", kind, "--format", form) as server,
        Told("crowd", "--port", str(server.first["port"]), "--count", str(count), "--path", path) as crowd,
    ):
        opened = sum(number for status, number in crowd.first["opened"].items() if " 101 " in status)
        if opened != count:
            raise RuntimeError(f"of {count} subscribers {opened} were let in: {crowd.first['opened']}")
        yield server, crowd


def _round(server: Told, crowd: Told, count: int, rate: float, seconds: float, form: str) -> Round:
    told = server.ask(rate=rate, seconds=seconds)
    seen = crowd.ask(report=1)
    if seen["ended"]:
        raise RuntimeError(f"subscribers were cut off meanwhile: {seen['ended']}")
    arrivals = seen["arrivals"]
    published = dict(enumerate(told["published"], told["first"]))
    latencies: list[float] = []
    for payload, times in arrivals.items():
        data = bytes.fromhex(payload)
        cursor = AlarmEvent.FromString(data).cursor if form == "binary" else int(json.loads(data)["cursor"])
        latencies += [(time - published[cursor]) / 1e6 for time in times if cursor in published]
    latencies.sort()
    missing = len(published) * count - len(latencies)
    return Round(latencies, missing, told["cpu"], told["elapsed"], told["memory"])


def _in_turns(kinds: Sequence[str], count: int, rate: float, scale: Scale, form: str) -> dict[str, list[Round]]:
    """Rounds of each kind of server, in turns: the machine changes its mind. The first events warm each up."""
    found: dict[str, list[Round]] = {kind: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        sites = {kind: stack.enter_context(_site(kind, count, form)) for kind in kinds}
        for server, crowd in sites.values():
            _round(server, crowd, count, rate, 0.3, form)
        for _ in range(scale.rounds):
            for kind, (server, crowd) in sites.items():
                found[kind].append(_round(server, crowd, count, rate, scale.seconds, form))
    return found


def fanout_425(scale: Scale) -> Result:
    """425 subscribers, 18,000 deliveries a second of 150-byte events. Baseline: the websockets library, the same."""
    rounds = _in_turns(("embereye", "websockets"), SUBSCRIBERS, DELIVERIES / SUBSCRIBERS, scale, "binary")
    ours, peers = rounds["embereye"], rounds["websockets"]
    late, baseline = median([one.late(0.99) for one in ours]), median([one.late(0.99) for one in peers])
    core, theirs = median([one.core for one in ours]), median([one.core for one in peers])
    lost = sum(one.missing for one in ours)
    unit = f"ms p99, {core:.0%} of a core (websockets {theirs:.0%}), {lost} lost"
    ok = late <= 30 and core <= 0.3 and not lost
    return Result("fanout-425", late, unit, baseline, late / baseline, "≤ 30 ms, ≤ 30 %", ok)


@dataclass(frozen=True)
class Step:
    """One step of the ladder: medians over its rounds."""

    count: int  # subscribers
    late: dict[float, float]  # milliseconds, by share
    bare: dict[float, float]  # of bare sockets
    core: float
    memory: float  # MB
    missing: int
    highest: float  # deliveries a second


def _step(count: int, scale: Scale) -> Step:
    # Of few events a second a short round has too few to speak of a percentile.
    rounds = Scale(max(1, scale.rounds // 2), max(1.5, scale.seconds))
    found = _in_turns(("embereye", "sockets"), count, min(DELIVERIES / count, MOST_EVENTS), rounds, "binary")
    ours, bare = (
        {share: median([one.late(share) for one in found[kind]]) for share in SHARES}
        for kind in ("embereye", "sockets")
    )
    with _site("embereye", count, "binary") as (server, crowd):
        highest = _highest(server, crowd, count)
    rounds_of_ours = found["embereye"]
    return Step(
        count, ours, bare, median([one.core for one in rounds_of_ours]), max(one.memory for one in rounds_of_ours),
        sum(one.missing for one in rounds_of_ours), highest,
    )  # fmt: skip


def fanout_ladder(scale: Scale) -> Result:
    """The same for 1 to 5,000 subscribers, and the highest rate with p99 within 200 ms, in a table and a plot.

    Baseline: bare sockets, which are given the same bytes one after the other.
    """
    steps = [_step(count, scale) for count in (QUICK_LADDER if scale.rounds < 5 else LADDER)]
    table = Table(title="fanout-ladder, 18,000 deliveries/s; p99 of bare sockets beside", box=None)
    for heading in ("subscribers", "p50 ms", "p90", "p95", "p99", "bare", "core", "MB", "highest rate/s"):
        table.add_column(heading, justify="right")
    for one in steps:
        late = (f"{value:.1f}" for value in (*one.late.values(), one.bare[0.99]))
        table.add_row(f"{one.count:,}", *late, f"{one.core:.0%}", f"{one.memory:.0f}", f"{one.highest:,.0f}")
    console = Console(stderr=True)
    console.print(table)
    lines = {f"p{share * 100:.0f}": [one.late[share] for one in steps] for share in SHARES}
    console.print(plot([one.count for one in steps], lines, "subscribers", "ms"), highlight=False)
    worst = max(steps, key=lambda one: one.late[0.99])
    fine = all(not one.missing and one.late[share] <= bound for one in steps for share, bound in BOUNDS.items())
    highest = [one.highest for one in steps]
    value, baseline = worst.late[0.99], worst.bare[0.99]
    unit = f"ms p99 at worst, of {worst.count:,}; {min(highest):,.0f} to {max(highest):,.0f} deliveries/s within 200 ms"
    return Result("fanout-ladder", value, unit, baseline, value / baseline, "≤ 200/500/1,000 p90/95/99", fine)


def _highest(server: Told, crowd: Told, count: int) -> float:
    """The highest rate of deliveries a second, of those that double, whose p99 is within 200 ms."""
    rate = float(DELIVERIES)
    reached = 0.0
    while rate < 2_000_000:
        seconds = max(0.5, EVENTS_LEAST * count / rate)
        one = _round(server, crowd, count, rate / count, seconds, "binary")
        if one.missing or one.late(0.99) > HIGHEST_MS:
            break
        reached = len(one.latencies) / seconds
        if reached < rate * 0.8:  # publishing itself does not keep up
            break
        rate *= 1.5
    return reached


def fanout_ws(scale: Scale) -> Result:
    """Deliveries a second for a whole core, as JSON. Baseline: the websockets library's broadcast."""
    found: dict[str, list[float]] = {"embereye": [], "websockets": []}
    with contextlib.ExitStack() as stack:
        sites = {kind: stack.enter_context(_site(kind, SUBSCRIBERS, "json")) for kind in found}
        for number in range(scale.rounds + 1):
            for kind, (server, crowd) in sites.items():  # in turns: the machine changes its mind
                one = _round(server, crowd, SUBSCRIBERS, FLOOD, scale.seconds, "json")
                if number:
                    found[kind].append(one.per_core)
    value, baseline = median(found["embereye"]), median(found["websockets"])
    return Result(
        "fanout-ws", value, "deliveries/s per core", baseline, value / baseline, "≥ 1.3", value >= 1.3 * baseline
    )


def fanout_binary(scale: Scale) -> Result:
    """Bytes that an event takes on its way as protobuf. Baseline: as JSON."""
    entry = Entry(event(123_456))
    value, baseline = len(entry.binary_frame), len(entry.text_frame)
    return Result("fanout-binary", value, "bytes/event", baseline, value / baseline, "≤ 0.6", value <= 0.6 * baseline)
