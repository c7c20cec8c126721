"""Try faults, alone and in pairs, during fires, and judge them by the witness and the probers.

`try_faults` makes one row. It waits until no alert is active, lights fires, does the harm, lights another fire right
after it, repairs the harm, and waits until every probed sensor is acknowledged and every fire has alarmed. Then the
books are compared: what was acknowledged and lost or doubled, gaps, delays, recovery, and the alerts that fired against
the expected ones. An error is a row, too. The building is behind a protocol (`fault.py`): one machine or a cluster.
"""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

from embereye_bench.results.machine_load import waited_seconds
from harness.matrix.fault import NOTHING, B, Building, Fault, together
from harness.matrix.rules import CALM, STARVED
from harness.records.probers import EvidenceProber
from harness.records.witness import Lit

ALONE_SECONDS, PAIR_SECONDS = 30.0, 60.0  # recovery limits for one fault, for two
AGAIN_SECONDS = 60.0  # if a site has not recovered by then, the row fails
ALARM_SECONDS = 20.0  # time limit for the alarm of a fire after the repair
DUPLICATE_SECONDS = 1.5  # waiting time for late duplicates
IN_TIME_SECONDS, IN_TIME_SHARE = 1.0, 0.95  # this share of fires must alarm within the fault's gaps + 1 s
RESOLVE_SECONDS = 120.0  # time limit for all alerts to resolve after recovery


BUSY = 0.4  # CPU pressure beyond which the machine itself is slow, and may say so
LISTS = ("faults", "alerts", "alerts_missing", "alerts_foreign", "alerts_left", "delays")  # fields of an Outcome


@dataclass(frozen=True)
class Outcome:
    """The effect of a fault or a pair."""

    faults: tuple[str, ...]
    gap: float  # longest time, in seconds, that a working sensor had no acknowledgement
    gap_limit: float
    recovery: float  # seconds from the repair, or from instantaneous harm, until everything works again
    recovery_limit: float
    evidence: int  # items acknowledged so far
    evidence_lost: int
    evidence_doubled: int
    fires: int
    alarms_lost: int
    alarms_doubled: int
    taken_back: int  # acknowledged readings that a shard requested again
    slowest: float  # the longest of `delays`
    problem: str = ""  # the error that ended the row
    pressure: float = 0.0  # share of the time in which a process of the machine waited for a CPU
    alerts: tuple[str, ...] = ()  # alerts that started to fire, if a Prometheus watched
    alerts_missing: tuple[str, ...] = ()  # expected alerts that did not fire
    alerts_foreign: tuple[str, ...] = ()  # unexpected alerts that fired
    alerts_left: tuple[str, ...] = ()  # alerts, with labels, that still fired RESOLVE_SECONDS after recovery
    resolved: float = 0.0  # seconds from recovery until no alert fired
    tries: int = 1  # runs of this row; the other fields are from the last run
    moved: float = 0.0  # longest time, in seconds, between acknowledgements of two shards during a move
    delays: tuple[float, ...] = ()  # seconds from each fire's first line until the witness received its alarm
    feed_gap: float = 0.0  # longest time, in seconds, that the witness had no feed

    @property
    def ok(self) -> bool:
        """True if nothing was lost or doubled, recovery was in time, and exactly the expected alerts fired."""
        lost = self.evidence_lost + self.evidence_doubled + self.alarms_lost + self.alarms_doubled + self.taken_back
        in_time = self.gap <= self.gap_limit and self.recovery <= self.recovery_limit
        return not self.problem and not lost and in_time and not self.alerts_wrong

    @property
    def late(self) -> list[float]:
        """The `delays` that the gaps before and after the detectors do not explain."""
        return [seconds for seconds in self.delays if seconds > max(self.gap, self.feed_gap) + IN_TIME_SECONDS]

    @property
    def alerts_wrong(self) -> str:
        """The differences between expected and fired alerts."""
        wrong = {"missing": self.alerts_missing, "foreign": self.alerts_foreign, "do not resolve": self.alerts_left}
        return "; ".join(f"{problem}: {', '.join(names)}" for problem, names in wrong.items() if names)

    def text(self) -> str:
        """The outcome in one progress line."""
        lost, doubled = self.evidence_lost + self.alarms_lost, self.evidence_doubled + self.alarms_doubled
        alerts = f"; alerts {self.alerts_wrong}" if self.alerts_wrong else ""
        return f"gap {self.gap:g} s, recovery {self.recovery:g} s, {lost} lost, {doubled} doubled{alerts}"


def choose_pairs(faults: Sequence[Fault[Any]], count: int, seed: int) -> list[tuple[str, str]]:
    """Choose the names of `count` different pairs of compatible `faults`, by the seed."""
    pairs = [
        (first.name, second.name)
        for first, second in combinations(faults, 2)
        if not first.takes or first.takes != second.takes
    ]
    return sorted(random.Random(seed).sample(pairs, min(count, len(pairs))))


class AlertsWatched(Protocol):
    """A Prometheus that evaluates our rules."""

    async def alerts(self) -> Mapping[str, str]:
        """The state, "pending" or "firing", of every active alert; empty if Prometheus does not answer."""

    async def labelled(self) -> Mapping[str, Sequence[str]]:
        """Name → the labels of each active alert, in PromQL's form."""


class Alerts:
    """Compares the alerts that start to fire during a fault with the expected ones."""

    def __init__(self, watch: AlertsWatched | None) -> None:
        self._watch = watch
        self._before: frozenset[str] = frozenset()
        self._seen: set[str] = set()
        self._polling: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start to collect, once earlier alerts have had time to resolve."""
        if self._watch:
            await self._wait_until_calm(self._watch, STARVED)
            self._before = await self._active(self._watch)
            self._polling = asyncio.get_running_loop().create_task(self._poll(self._watch), name="alerts")

    async def _poll(self, watch: AlertsWatched) -> None:
        while True:
            self._seen |= await self._active(watch, "firing")
            await asyncio.sleep(0.5)

    @staticmethod
    async def _active(watch: AlertsWatched, *states: str) -> frozenset[str]:
        alerts = await watch.alerts()
        return frozenset(
            name.removeprefix("EmberEye") for name, state in alerts.items() if state in states or not states
        )

    async def _wait_until_calm(self, watch: AlertsWatched, ignored: frozenset[str]) -> frozenset[str]:
        """Wait until no new alert has been active for a while. Returns the new alerts that are still active.

        Those of a starved machine are `ignored` there: they may last as long as the run.
        """
        deadline, since = time.monotonic() + RESOLVE_SECONDS, time.monotonic()
        while True:
            left, now = await self._active(watch) - self._before - ignored, time.monotonic()
            since = now if left else since
            if now > deadline or now - since >= CALM:
                return left
            await asyncio.sleep(0.5)

    async def end(self, faults: Sequence[Fault[Any]], pressure: float = 0.0) -> dict[str, Any]:
        """Wait until no new alert is active. Returns the result as fields of an Outcome.

        `pressure` is the share of the time in which a process of this machine waited for a CPU.
        """
        if not (self._watch and self._polling):
            return {}
        recovered_at, starved = time.monotonic(), STARVED if pressure > BUSY else frozenset[str]()
        left = await self._wait_until_calm(self._watch, starved)
        labelled = await self._watch.labelled() if left else {}
        self._polling.cancel()
        await asyncio.wait([self._polling])
        seen = self._seen - self._before
        expected = frozenset[str]().union(*(fault.alerts for fault in faults))
        besides = starved.union(*(fault.besides for fault in faults))
        # In a pair, one fault may hide the other: a dead process is not scraped.
        missing = expected - seen - self._before if len(faults) == 1 else frozenset[str]()
        return {
            "alerts": tuple(sorted(seen)),
            "alerts_missing": tuple(sorted(missing)),
            "alerts_foreign": tuple(sorted(seen - expected - besides)),
            "alerts_left": tuple(
                sorted(name + labels for name in left for labels in labelled.get(f"EmberEye{name}", ("",)))
            ),
            "resolved": round(max(0.0, time.monotonic() - recovered_at - CALM), 1),
        }


async def try_faults(
    site: B, prober: EvidenceProber, faults: Sequence[Fault[B]], watch: AlertsWatched | None = None
) -> Outcome:
    """Make the faults during fires, repair them, and judge the outcome by the books."""
    limit = ALONE_SECONDS if len(faults) == 1 else PAIR_SECONDS
    duration, lit = max(fault.duration for fault in faults), max(fault.fires for fault in faults)
    started, back_before = time.monotonic(), site.taken_back()
    burning: list[tuple[str, float]] = []
    fires: list[asyncio.Task[None]] = []
    problem, recovery = "", float("inf")

    async def burn(after: float) -> None:
        await asyncio.sleep(after)
        burning.append(await site.ignite())

    async def recovered(since: float) -> float:
        """Wait until all is acknowledged and all fires have alarmed. Returns the seconds from `since`."""
        async with asyncio.timeout(AGAIN_SECONDS):
            await site.well(AGAIN_SECONDS)
            burning.append(await site.ignite())
            for zone, lit_at in burning:
                await site.witness.alarmed(zone, ALARM_SECONDS, wall_ns(lit_at))
                await site.notified(zone, ALARM_SECONDS)
        return time.monotonic() - since

    alerts, waited = Alerts(watch), waited_seconds()
    try:
        for fault in faults:
            if fault.before:
                await fault.before(site)
        await alerts.begin()
        started, waited = time.monotonic(), waited_seconds()
        fires += [asyncio.get_running_loop().create_task(burn(after), name="fire") for after in spread(lit, duration)]
        async with together(site, faults):
            harmed, first = time.monotonic(), 0.0
            if all(fault.at_once for fault in faults):
                first = await recovered(site.struck)
            else:  # the worst case: a fire right after the harm
                fires.append(asyncio.get_running_loop().create_task(burn(0.0), name="fire"))
            await asyncio.sleep(max(0.0, harmed + duration - time.monotonic()))
        mended = time.monotonic()
        async with asyncio.timeout(AGAIN_SECONDS):
            await asyncio.gather(*fires)
        recovery = max(first, await recovered(mended))
    except Exception as error:  # a failed fault is a row as well; earlier results are retained
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        for fire in fires:
            fire.cancel()
    ended = time.monotonic()
    # A hub that acknowledges by a bus may publish a moment later.
    acknowledged = list(prober.acknowledged)
    await asyncio.sleep(DUPLICATE_SECONDS)
    busy = (waited_seconds() - waited) / max(time.monotonic() - started, 1e-9)
    fired = await alerts.end(faults, busy)
    outcome = _judge(site, prober.lit(acknowledged), faults, problem=problem, recovery=recovery, recovery_limit=limit,
                  burning=burning, gap=site.gap(started, ended), moved=site.moved(started, ended),
                  back=site.taken_back() - back_before)  # fmt: skip
    site.put_out()  # a burning sensor reports every second, which would fill the disk in time
    feed_gap = round(site.witness.gap(started, ended), 2)
    return replace(outcome, **fired, feed_gap=feed_gap, pressure=round(min(busy, 1.0), 2))


def spread(count: int, seconds: float) -> list[float]:
    """The times of `count` fires, spread evenly over `seconds`, in seconds after the start."""
    return [0.2 + seconds * number / count for number in range(count)]


def wall_ns(moment: float) -> int:
    """Convert monotonic seconds to nanoseconds since the Unix epoch."""
    return time.time_ns() - int((time.monotonic() - moment) * 1e9)


def _judge(  # noqa: PLR0913 -- observations, all passed by name
    site: Building, acknowledged: Sequence[Lit], faults: Sequence[Fault[B]], *, problem: str, recovery: float,
    recovery_limit: float, burning: Sequence[tuple[str, float]], gap: float, moved: float,
    back: int,
) -> Outcome:  # fmt: skip
    lost, doubled = site.witness.miscounted_lit(acknowledged)
    lit = [Lit(zone, wall_ns(lit_at)) for zone, lit_at in burning]
    alarms_lost, alarms_doubled = site.witness.miscounted_lit(lit)
    delays = [
        (heard.time_ns - fire.since_ns) / 1e9 for fire in lit if (heard := site.witness.first(fire.zone, fire.since_ns))
    ]
    return Outcome(
        faults=tuple(fault.name for fault in faults),
        gap=round(gap, 2),
        moved=round(moved, 2),
        gap_limit=max(fault.gap for fault in faults) if len(faults) == 1 else sum(fault.gap for fault in faults),
        recovery=round(recovery, 2),
        recovery_limit=recovery_limit,
        evidence=len(acknowledged),
        evidence_lost=len(lost),
        evidence_doubled=len(doubled),
        fires=len(burning),
        alarms_lost=len(alarms_lost),
        alarms_doubled=len(alarms_doubled),
        taken_back=back,
        slowest=round(max(delays, default=0.0), 2),
        delays=tuple(round(seconds, 4) for seconds in delays),
        problem=problem,
    )


def count_in_time(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Count the alarms during faults: (in time, all). At least `IN_TIME_SHARE` must be in time."""
    during = [outcome for outcome in outcomes if outcome.faults != (NOTHING.name,)]
    alarms = sum(len(outcome.delays) for outcome in during)
    return alarms - sum(len(outcome.late) for outcome in during), alarms


def store_outcome(outcomes: list[Outcome], outcome: Outcome) -> None:
    """Add `outcome` to `outcomes`. It replaces an earlier run of the same row and counts the tries."""
    for number, before in enumerate(outcomes):
        if before.faults == outcome.faults:
            outcomes[number] = replace(outcome, tries=before.tries + 1)
            return
    outcomes.append(outcome)


def write_outcomes(path: Path, about: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write a run as JSON."""
    rows = [asdict(outcome) | {"ok": outcome.ok} for outcome in outcomes]
    path.write_text(json.dumps({**about, "outcomes": rows}, indent=1, ensure_ascii=False) + "\n")


def read_outcomes(path: Path) -> tuple[dict[str, Any], list[Outcome]]:
    """Read the file of `write_outcomes`: facts about the run, and its rows."""
    about = json.loads(path.read_text())
    return about, list(map(outcome_of, about.pop("outcomes")))


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """Build an outcome from its JSON. Unknown fields are ignored."""
    known = {field.name: row[field.name] for field in fields(Outcome) if field.name in row}
    return Outcome(**known | {name: tuple(row.get(name, ())) for name in LISTS})
