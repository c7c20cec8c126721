"""Canaries: test fires that shards send regularly, to prove that a fire would become an alarm in time.

A shard announces its plan (interval and time limit) in its coverage reports, and then sends canaries as evidence. A
canary passes through the same inbox, state machine and transactions as devices' evidence. Its zone, though, is hidden,
and its events are not published. A shard whose canaries fail to alarm in time is overdue, which metrics show.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from embereye.hub.committer import Draft
from embereye.hub.tables.canaries import CANARIES, ShardKey, Success
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.levels import ZoneState
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.units import DAY, MINUTE, SECOND
from embereye.v1.evidence_pb2 import CanaryFire, CanaryPlan, Coverage, EvidenceItem
from embereye.zone.canary import ZONE
from embereye.zone.state import ZoneMachine

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 30.0, 60.0)  # seconds
CAPACITY = 4_096  # most shard processes from which canaries are expected; further ones are only counted
REPLACED_NS = 30 * SECOND  # silence after which a process has ended, if another one reports as the same shard
GONE_NS = 10 * MINUTE  # silence after which a shard is gone; other alerts report that it is down
KINDS = ("sensors", "cameras")


@dataclass
class _Expected:
    """The canaries expected from one process of a shard. Times are nanoseconds of the steady clock."""

    plan: CanaryPlan
    since_ns: int
    heard_ns: int
    succeeded_ns: int | None = None
    fire: str = ""  # id of the canary that `machine` currently follows
    machine: ZoneMachine | None = None

    def overdue_ns(self, now_ns: int) -> int:
        """The time by which its next success is overdue; 0 or less if it is not."""
        latest = self.since_ns if self.succeeded_ns is None else self.succeeded_ns
        return now_ns - latest - self.plan.interval_ns - self.plan.within_ns


@dataclass(frozen=True)
class Heartbeat:
    """The state of one shard's canaries."""

    key: ShardKey
    interval_ns: int
    within_ns: int
    latest: Success | None  # by the wall clock
    overdue: bool


class Canaries:
    """The canaries expected from every shard, and their latest successes."""

    def __init__(self, *, clock: Callable[[], int], steady: Callable[[], int]) -> None:
        """`clock` labels successes; `steady` times them and is never set by a time server."""
        self._clock = clock
        self._steady = steady
        self._expected: dict[tuple[ShardKey, str], _Expected] = {}  # by shard and process
        self._latest: dict[ShardKey, Success] = {}
        # Reports that raised an alarm and are not durable yet, by their keys: shard, process, canary.
        self._alarms: dict[str, tuple[ShardKey, str, CanaryFire]] = {}
        self.delays = {kind: LatencyHistogram(BOUNDS) for kind in KINDS}
        self.received = 0  # reports
        self.fires = 0  # canaries; each may take several reports
        self.in_time = 0  # alarms within their time limit
        self.late = 0  # alarms past their time limit

    def restore(self, stored: StoredState) -> None:
        """Restore the latest successes."""
        self._latest.update(stored[CANARIES])

    def add_state(self, state: Transaction) -> None:
        """Add the latest successes to `state`."""
        state[CANARIES].update(self._latest)

    def expect(self, coverage: Coverage) -> None:
        """Update the canaries expected from a shard, from its own coverage report."""
        process, now = (ShardKey(coverage.fleet, coverage.shard), coverage.canary.process), self._steady()
        if not coverage.canary.interval_ns or coverage.final:
            self._expected.pop(process, None)
            return
        expected = self._expected.get(process)
        if expected is None:
            if len(self._expected) >= CAPACITY:
                return
            expected = self._expected[process] = _Expected(CanaryPlan(), now, now)
        if expected.plan != coverage.canary:
            plan = CanaryPlan()  # a copy: a reference to a part would retain the whole report, with its pictures
            plan.CopyFrom(coverage.canary)
            expected.plan, expected.since_ns, expected.succeeded_ns = plan, now, None
        expected.heard_ns = now

    def step(self, item: EvidenceItem, draft: Draft, report: str = "") -> None:
        """Step the hidden zone of a canary's shard; an alarm becomes part of the transaction.

        `report` is the key of its report.
        """
        self.received += 1
        fire = item.canary
        key = ShardKey(item.fleet, fire.shard)
        expected = self._expected.get((key, fire.process))
        if expected is None:
            return  # its shard has gone
        if expected.machine is None or expected.fire != item.device:
            self.fires += 1
            expected.fire, expected.machine = item.device, ZoneMachine(item.fleet.partition("/")[0], ZONE)
        before = expected.machine.state
        expected.machine.add_evidence(item, draft.now_ns)
        if expected.machine.state == ZoneState.ALARM and before != ZoneState.ALARM:
            self._alarms[report] = key, fire.process, fire
            if (delay := max(0, draft.now_ns - fire.lit_ns)) <= fire.within_ns:
                draft.transaction[CANARIES][key] = Success(draft.now_ns, delay)

    def note_durable(self, report: str = "") -> None:
        """Record a success if the report of key `report` raised an alarm: its transaction is durable."""
        alarm = self._alarms.pop(report, None)
        if alarm is None:
            return
        key, process, fire = alarm
        now = self._clock()
        delay = max(0, now - fire.lit_ns)
        kind = key.fleet.split("/")[1] if key.fleet.count("/") == 2 else ""
        if kind in self.delays:
            self.delays[kind].observe(delay / SECOND)
        if delay > fire.within_ns:
            self.late += 1
            return
        self.in_time += 1
        self._latest[key] = Success(now, delay)
        if expected := self._expected.get((key, process)):
            expected.succeeded_ns = self._steady()

    def heartbeats(self, stepped_ns: int = 0) -> list[Heartbeat]:
        """The state of every shard from which canaries are expected, sorted by name.

        If a shard has two processes, the more overdue one counts. Times are on the wall clock, `stepped_ns` ahead.
        """
        now = self._steady()
        worst: dict[ShardKey, _Expected] = {}
        ended = self._ended_processes(now)
        for process, expected in self._expected.items():
            key = process[0]
            if process not in ended and (key not in worst or expected.overdue_ns(now) > worst[key].overdue_ns(now)):
                worst[key] = expected
        latest = {
            key: replace(success, alarmed_ns=success.alarmed_ns + stepped_ns) for key, success in self._latest.items()
        }
        return [
            Heartbeat(
                key,
                expected.plan.interval_ns,
                expected.plan.within_ns,
                latest.get(key),
                expected.overdue_ns(now) > 0,
            )
            for key, expected in sorted(worst.items())
        ]

    def tidy(self, draft: Draft, forgotten: Iterable[str]) -> None:
        """Drop shards that are gone or of `forgotten` fleets; remove their latest successes after a day."""
        fleets = set(forgotten)
        dropped = [process for process in self._expected if process[0].fleet in fleets]
        for process in dropped + self._ended_processes(self._steady()):
            self._expected.pop(process, None)
        remaining = {key for key, _ in self._expected}
        for key, latest in list(self._latest.items()):
            if key not in remaining and draft.now_ns - latest.alarmed_ns > DAY:
                del self._latest[key]
                draft.transaction[CANARIES][key] = None

    def _ended_processes(self, now: int) -> list[tuple[ShardKey, str]]:
        """The processes that ended without a final report: another one replaced them, or their shard is gone."""
        heard: dict[ShardKey, int] = {}
        for (key, _), expected in self._expected.items():
            heard[key] = max(heard.get(key, 0), expected.heard_ns)
        return [
            process
            for process, expected in self._expected.items()
            if now - expected.heard_ns > (REPLACED_NS if heard[process[0]] > expected.heard_ns else GONE_NS)
        ]
