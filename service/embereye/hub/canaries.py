"""Shards' canaries: who is to send one, when the last one was an alarm in time, and how long it took.

A canary goes through the same inbox, the same state machine of a zone and the same transactions as evidence of devices;
only its zone is nobody's, and what the zone has to say is no event.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from embereye.hub.storage.committer import Draft
from embereye.levels import ZoneState
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.units import DAY, MINUTE, SECOND
from embereye.v1.evidence_pb2 import CanaryFire, CanaryPlan, Coverage, EvidenceItem
from embereye.zone.canary import ZONE
from embereye.zone.state import ZoneMachine

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 30.0, 60.0)  # seconds
CAPACITY = 4_096  # processes of shards that canaries are expected of; more are not asked, and counted
REPLACED_NS = 30 * SECOND  # of silence, after which a process is over once another one has its shard's name
GONE_NS = 10 * MINUTE  # of silence, after which a shard is over: others tell that it is down
KINDS = ("sensors", "cameras")


class ShardKey(NamedTuple):
    """A shard; `fleet` is "namespace/kind/name"."""

    fleet: str
    shard: str


@dataclass
class _Expected:
    """What is expected of one process of a shard, in nanoseconds of the steady clock."""

    plan: CanaryPlan
    since_ns: int
    heard_ns: int
    succeeded_ns: int | None = None
    fire: str = ""  # whose signs `machine` has
    machine: ZoneMachine | None = None

    def overdue_ns(self, now_ns: int) -> int:
        """How long it has been overdue; at most 0 where it is not."""
        latest = self.since_ns if self.succeeded_ns is None else self.succeeded_ns
        return now_ns - latest - self.plan.interval_ns - self.plan.within_ns


@dataclass(frozen=True)
class Success:
    """A canary that was an alarm within its bound."""

    alarmed_ns: int  # when it was durable, on the hub's timeline
    delay_ns: int  # since its first sign


@dataclass(frozen=True)
class Heartbeat:
    """How one shard's canaries are."""

    key: ShardKey
    interval_ns: int
    within_ns: int
    latest: Success | None  # by the wall clock
    overdue: bool


class Canaries:
    """`clock` is the wall's, `steady` is set by no time server."""

    def __init__(self, *, clock: Callable[[], int], steady: Callable[[], int]) -> None:
        self._clock = clock
        self._steady = steady
        self._expected: dict[tuple[ShardKey, str], _Expected] = {}  # by shard and process
        self._latest: dict[ShardKey, Success] = {}
        self._burning: dict[str, tuple[ShardKey, str, CanaryFire]] = {}  # reports that raised an alarm, not durable yet
        self.delays = {kind: LatencyHistogram(BOUNDS) for kind in KINDS}
        self.received = 0  # reports
        self.late = 0  # alarms past their bound
        self.unasked = 0  # processes beyond CAPACITY that told of themselves

    def restore(self, stored: Iterable[tuple[str, str, int, int]]) -> None:
        """Go on from what was stored: fleet, shard, when alarmed, delay."""
        self._latest.update({ShardKey(fleet, shard): Success(at, delay) for fleet, shard, at, delay in stored})

    def expect(self, coverage: Coverage) -> None:
        """Learn from a shard's own report what to expect of it."""
        place, now = (ShardKey(coverage.fleet, coverage.shard), coverage.canary.process), self._steady()
        if not coverage.canary.interval_ns or coverage.final:
            self._expected.pop(place, None)
            return
        expected = self._expected.get(place)
        if expected is None:
            if len(self._expected) >= CAPACITY:
                self.unasked += 1
                return
            expected = self._expected[place] = _Expected(CanaryPlan(), now, now)
        if expected.plan != coverage.canary:
            plan = CanaryPlan()  # of its own: a part of a message keeps all of it in memory, pictures too
            plan.CopyFrom(coverage.canary)
            expected.plan, expected.since_ns, expected.succeeded_ns = plan, now, None
        expected.heard_ns = now

    def step(self, item: EvidenceItem, draft: Draft) -> None:
        """Take a canary's report into the zone of its shard; an alarm becomes part of the transaction."""
        self.received += 1
        fire = item.canary
        key = ShardKey(item.fleet, fire.shard)
        expected = self._expected.get((key, fire.process))
        if expected is None:
            return  # nobody's any more
        if expected.machine is None or expected.fire != item.device:
            expected.fire, expected.machine = item.device, ZoneMachine(item.fleet.partition("/")[0], ZONE)
        before = expected.machine.state
        expected.machine.add_evidence(item, draft.now_ns)
        if expected.machine.state == ZoneState.ALARM and before != ZoneState.ALARM:
            self._burning[item.id] = key, fire.process, fire
            if (delay := max(0, draft.now_ns - fire.lit_ns)) <= fire.within_ns:
                draft.transaction.canaries[key] = draft.now_ns, delay

    def note_durable(self, item: EvidenceItem) -> None:
        """The transaction that took `item` is durable."""
        found = self._burning.pop(item.id, None)
        if found is None:
            return
        key, process, fire = found
        now = self._clock()
        delay = max(0, now - fire.lit_ns)
        kind = key.fleet.split("/")[1] if key.fleet.count("/") == 2 else ""
        if kind in self.delays:
            self.delays[kind].observe(delay / SECOND)
        if delay > fire.within_ns:
            self.late += 1
            return
        self._latest[key] = Success(now, delay)
        if expected := self._expected.get((key, process)):
            expected.succeeded_ns = self._steady()

    def heartbeats(self, stepped_ns: int = 0) -> list[Heartbeat]:
        """Of every shard that canaries are expected of, by name; of two processes the one that fares worse.

        Times are on a wall clock that is `stepped_ns` ahead.
        """
        now = self._steady()
        worst: dict[ShardKey, _Expected] = {}
        over = self._over(now)
        for place, expected in self._expected.items():
            key = place[0]
            if place not in over and (key not in worst or expected.overdue_ns(now) > worst[key].overdue_ns(now)):
                worst[key] = expected
        latest = {key: replace(one, alarmed_ns=one.alarmed_ns + stepped_ns) for key, one in self._latest.items()}
        return [
            Heartbeat(key, of.plan.interval_ns, of.plan.within_ns, latest.get(key), of.overdue_ns(now) > 0)
            for key, of in sorted(worst.items())
        ]

    def tidy(self, draft: Draft, forgotten: Iterable[str]) -> None:
        """Expect nothing of shards that are gone, or of fleets that are `forgotten`, and forget what they had."""
        fleets = set(forgotten)
        for place in [place for place in self._expected if place[0].fleet in fleets] + self._over(self._steady()):
            self._expected.pop(place, None)
        kept = {key for key, _ in self._expected}
        for key, latest in list(self._latest.items()):
            if key not in kept and draft.now_ns - latest.alarmed_ns > DAY:
                del self._latest[key]
                draft.transaction.canaries[key] = None

    def _over(self, now: int) -> list[tuple[ShardKey, str]]:
        """Processes that ended without a word: another one has their shard's name, or nobody has it any more."""
        heard: dict[ShardKey, int] = {}
        for (key, _), expected in self._expected.items():
            heard[key] = max(heard.get(key, 0), expected.heard_ns)
        return [
            place
            for place, expected in self._expected.items()
            if now - expected.heard_ns > (REPLACED_NS if heard[place[0]] > expected.heard_ns else GONE_NS)
        ]
