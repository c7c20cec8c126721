"""The matrix of faults: each alone and in pairs while it burns, judged by the witness and the probers, and its page."""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

from harness.matrix.fault import NOTHING, B, Building, Fault, together
from harness.matrix.rules import CALM
from harness.records.probers import EvidenceProber
from harness.records.witness import Lit

ALONE_SECONDS, PAIR_SECONDS = 30.0, 60.0  # within which a site has recovered from a fault, from two
AGAIN_SECONDS = 60.0  # within which everything has to be well again, or the run ends
ALARM_SECONDS = 20.0  # for the alarm of a fire after everything is mended
SETTLE_SECONDS = 1.5  # for what might come twice
TOLD_SECONDS, TOLD_SHARE = 1.0, 0.95  # beyond a fault's gaps, in which so many of all fires are to be told
RESOLVE_SECONDS = 120.0  # for all alerts, after everything is well again


BUSY = 0.4  # pressure, beyond which a machine is slow by itself, and is right to say so
SLOW = frozenset({"EventLoopSlow"})
LISTS = ("faults", "alerts", "alerts_missing", "alerts_foreign", "alerts_left", "told")  # fields of an Outcome


@dataclass(frozen=True)
class Outcome:
    """What one fault, or a pair, did."""

    faults: tuple[str, ...]
    gap: float  # seconds that a sensor that was well went without acknowledgement
    gap_limit: float
    recovery: float  # seconds from mending, or from harm that is over at once, until all is acknowledged and told
    recovery_limit: float
    evidence: int  # items acknowledged so far
    evidence_lost: int
    evidence_doubled: int
    fires: int
    alarms_lost: int
    alarms_doubled: int
    taken_back: int  # acknowledged readings that were asked for again
    slowest: float  # the longest of `told`
    problem: str = ""  # why the run ended here
    pressure: float = 0.0  # share of the time for which some process of the machine waited for a processor
    alerts: tuple[str, ...] = ()  # that began to fire meanwhile, where a Prometheus looked on
    alerts_missing: tuple[str, ...] = ()  # that had to
    alerts_foreign: tuple[str, ...] = ()  # that should not have
    alerts_left: tuple[str, ...] = ()  # with their labels: that still fired RESOLVE_SECONDS after all was well again
    resolved: float = 0.0  # seconds from then until none fired any more
    tries: int = 1  # runs of this row; it tells of the last
    moved: float = 0.0  # the longest time between acknowledgements where a sensor was sent from one shard to another
    told: tuple[float, ...] = ()  # seconds from each fire's first line until the witness was told
    feed_gap: float = 0.0  # the longest time that the witness had no feed

    @property
    def ok(self) -> bool:
        """Whether nothing was lost or doubled, all came back in time, and exactly its own alerts fired."""
        lost = self.evidence_lost + self.evidence_doubled + self.alarms_lost + self.alarms_doubled + self.taken_back
        in_time = self.gap <= self.gap_limit and self.recovery <= self.recovery_limit
        return not self.problem and not lost and in_time and not self.alerts_wrong

    @property
    def late(self) -> list[float]:
        """Of `told` what took longer than the gaps before and behind the detectors explain."""
        return [seconds for seconds in self.told if seconds > max(self.gap, self.feed_gap) + TOLD_SECONDS]

    @property
    def alerts_wrong(self) -> str:
        """What is wrong with the alerts that fired."""
        wrong = {"missing": self.alerts_missing, "foreign": self.alerts_foreign, "do not resolve": self.alerts_left}
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in wrong.items() if names)

    def text(self) -> str:
        """For the progress line."""
        lost, doubled = self.evidence_lost + self.alarms_lost, self.evidence_doubled + self.alarms_doubled
        alerts = f"; alerts {self.alerts_wrong}" if self.alerts_wrong else ""
        return f"gap {self.gap:g} s, recovery {self.recovery:g} s, {lost} lost, {doubled} doubled{alerts}"


def choose_pairs(faults: Sequence[Fault[Any]], count: int, seed: int) -> list[tuple[str, str]]:
    """`count` different pairs of `faults` that can be made together, by the seed; their names."""
    pairs = [
        (one.name, other.name) for one, other in combinations(faults, 2) if not one.takes or one.takes != other.takes
    ]
    return sorted(random.Random(seed).sample(pairs, min(count, len(pairs))))


class AlertsWatched(Protocol):
    """A Prometheus."""

    async def alerts(self) -> Mapping[str, str]:
        """The state, "pending" or "firing", of every alert that is not inactive; none where it does not answer."""

    async def labelled(self) -> Mapping[str, Sequence[str]]:
        """Of every alert that is not inactive, by name, the labels of each, as PromQL writes them."""


class Alerts:
    """The alerts that begin to fire between two moments, against those that should."""

    def __init__(self, watch: AlertsWatched | None) -> None:
        self._watch = watch
        self._before: frozenset[str] = frozenset()
        self._seen: set[str] = set()
        self._looking: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """From now on; first what came before has its time to end."""
        if self._watch:
            await self._calm(self._watch)
            self._before = await self._active(self._watch)
            self._looking = asyncio.get_running_loop().create_task(self._look(self._watch), name="alerts")

    async def _look(self, watch: AlertsWatched) -> None:
        while True:
            self._seen |= await self._active(watch, "firing")
            await asyncio.sleep(0.5)

    @staticmethod
    async def _active(watch: AlertsWatched, *states: str) -> frozenset[str]:
        alerts = await watch.alerts()
        return frozenset(
            name.removeprefix("EmberEye") for name, state in alerts.items() if state in states or not states
        )

    async def _calm(self, watch: AlertsWatched) -> frozenset[str]:
        """Wait until for a while no alert fires or is about to that did not before; those that still do."""
        deadline, since = time.monotonic() + RESOLVE_SECONDS, time.monotonic()
        while True:
            left, now = await self._active(watch) - self._before, time.monotonic()
            since = now if left else since
            if now > deadline or now - since >= CALM:
                return left
            await asyncio.sleep(0.5)

    async def end(self, faults: Sequence[Fault[Any]], pressure: float = 0.0) -> dict[str, Any]:
        """Wait until all is calm again; what became of them, as fields of an Outcome.

        `pressure` is the share of the time for which some process of this machine waited for a processor.
        """
        if not (self._watch and self._looking):
            return {}
        well = time.monotonic()
        left = await self._calm(self._watch)
        labelled = await self._watch.labelled() if left else {}
        self._looking.cancel()
        await asyncio.wait([self._looking])
        seen = self._seen - self._before
        own = frozenset[str]().union(*(fault.alerts for fault in faults))
        besides = frozenset[str]().union(*(fault.besides for fault in faults), SLOW if pressure > BUSY else ())
        # Of a pair one fault may hide the other: who does not run is not scraped.
        missing = own - seen - self._before if len(faults) == 1 else frozenset[str]()
        return {
            "alerts": tuple(sorted(seen)),
            "alerts_missing": tuple(sorted(missing)),
            "alerts_foreign": tuple(sorted(seen - own - besides)),
            "alerts_left": tuple(
                sorted(name + labels for name in left for labels in labelled.get(f"EmberEye{name}", ("",)))
            ),
            "resolved": round(max(0.0, time.monotonic() - well - CALM), 1),
        }


async def try_faults(
    site: B, prober: EvidenceProber, faults: Sequence[Fault[B]], watch: AlertsWatched | None = None
) -> Outcome:
    """Do harm while it burns, mend it, and look at the books."""
    limit = ALONE_SECONDS if len(faults) == 1 else PAIR_SECONDS
    hold, lit = max(fault.hold for fault in faults), max(fault.fires for fault in faults)
    began, back_before = time.monotonic(), site.taken_back()
    burning: list[tuple[str, float]] = []
    fires: list[asyncio.Task[None]] = []
    problem, recovery = "", float("inf")

    async def burn(after: float) -> None:
        await asyncio.sleep(after)
        burning.append(await site.ignite())

    async def recovered(since: float) -> float:
        """Seconds from `since` until all is acknowledged, and all fires and a new one are told."""
        async with asyncio.timeout(AGAIN_SECONDS):
            await site.well(AGAIN_SECONDS)
            burning.append(await site.ignite())
            for zone, began in burning:
                await site.witness.alarmed(zone, ALARM_SECONDS, wall_ns(began))
        return time.monotonic() - since

    alerts, waited = Alerts(watch), waited_seconds()
    try:
        for fault in faults:
            if fault.before:
                await fault.before(site)
        await alerts.begin()
        began, waited = time.monotonic(), waited_seconds()
        fires += [asyncio.get_running_loop().create_task(burn(after), name="fire") for after in spread(lit, hold)]
        async with together(site, faults):
            harmed, first = time.monotonic(), 0.0
            if all(fault.at_once for fault in faults):
                first = await recovered(site.struck)
            else:  # the worst that can be: as soon as nobody has made up for it yet
                fires.append(asyncio.get_running_loop().create_task(burn(0.0), name="fire"))
            await asyncio.sleep(max(0.0, harmed + hold - time.monotonic()))
        mended = time.monotonic()
        async with asyncio.timeout(AGAIN_SECONDS):
            await asyncio.gather(*fires)
        recovery = max(first, await recovered(mended))
    except Exception as error:  # a fault that could not be made is a row as well, and what was found so far is kept
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        for fire in fires:
            fire.cancel()
    ended = time.monotonic()
    # Who acknowledges by a bus may tell a moment later.
    acknowledged = list(prober.acknowledged)
    await asyncio.sleep(SETTLE_SECONDS)
    busy = (waited_seconds() - waited) / max(time.monotonic() - began, 1e-9)
    fired = await alerts.end(faults, busy)
    outcome = _judge(site, prober.lit(acknowledged), faults, problem=problem, recovery=recovery, recovery_limit=limit,
                  burning=burning, gap=site.gap(began, ended), moved=site.moved(began, ended),
                  back=site.taken_back() - back_before)  # fmt: skip
    site.put_out()  # each that burns is told again every second, which would fill the disk by and by
    feed_gap = round(site.witness.gap(began, ended), 2)
    return replace(outcome, **fired, feed_gap=feed_gap, pressure=round(min(busy, 1.0), 2))


def spread(count: int, seconds: float) -> list[float]:
    """When each of `count` fires is lit, in seconds after the beginning, so that they share out `seconds`."""
    return [0.2 + seconds * number / count for number in range(count)]


def wall_ns(moment: float) -> int:
    """When it was `moment`, monotonic seconds, in nanoseconds since the Unix epoch."""
    return time.time_ns() - int((time.monotonic() - moment) * 1e9)


def waited_seconds() -> float:
    """For how long some process of this machine had to wait for a processor so far; 0: the kernel does not say."""
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except (OSError, IndexError):
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6


def _judge(  # noqa: PLR0913 -- what was seen, all by name
    site: Building, acknowledged: Sequence[Lit], faults: Sequence[Fault[B]], *, problem: str, recovery: float,
    recovery_limit: float, burning: Sequence[tuple[str, float]], gap: float, moved: float,
    back: int,
) -> Outcome:  # fmt: skip
    lost, doubled = site.witness.miscounted_lit(acknowledged)
    lit = [Lit(zone, wall_ns(began)) for zone, began in burning]
    alarms_lost, alarms_doubled = site.witness.miscounted_lit(lit)
    took = [
        (heard.time_ns - one.since_ns) / 1e9 for one in lit if (heard := site.witness.first(one.zone, one.since_ns))
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
        slowest=round(max(took, default=0.0), 2),
        told=tuple(round(seconds, 4) for seconds in took),
        problem=problem,
    )


def told_in_time(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Of all fires that were told during faults, (those in time, all); `TOLD_SHARE` of them is asked for."""
    during = [one for one in outcomes if one.faults != (NOTHING.name,)]
    told = sum(len(one.told) for one in during)
    return told - sum(len(one.late) for one in during), told


def keep_outcome(outcomes: list[Outcome], outcome: Outcome) -> None:
    """Add one to `outcomes`; that of a row that is there already takes its place, and says so."""
    for number, before in enumerate(outcomes):
        if before.faults == outcome.faults:
            outcomes[number] = replace(outcome, tries=before.tries + 1)
            return
    outcomes.append(outcome)


def write_outcomes(path: Path, about: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Keep a run as JSON."""
    rows = [asdict(outcome) | {"ok": outcome.ok} for outcome in outcomes]
    path.write_text(json.dumps({**about, "outcomes": rows}, indent=1, ensure_ascii=False) + "\n")


def read_outcomes(path: Path) -> tuple[dict[str, Any], list[Outcome]]:
    """What `write_outcomes` wrote: about the run, and its rows."""
    about = json.loads(path.read_text())
    return about, list(map(outcome_of, about.pop("outcomes")))


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """One from its JSON; what it does not know is left out."""
    known = {field.name: row[field.name] for field in fields(Outcome) if field.name in row}
    return Outcome(**known | {name: tuple(row.get(name, ())) for name in LISTS})
