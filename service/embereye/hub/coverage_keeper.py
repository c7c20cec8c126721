"""The coverage keeper: stores rosters and ledgers durably, and turns uncovered devices into zone faults.

Rosters come from the operator, coverage reports from shards. Both change the coverage book and the ledger book in
memory at once; this class owns the books and enqueues what has to be stored. The books decide whether a device is
covered or dark, and `Zones` owns the faults.

The hub calls `note_listening` before each tick and each batch, and `pass_time` in a transaction at each tick.
`pass_time` opens the faults of dark devices and clears those of covered ones, but only if the hub itself was listening:
its own stall must not look like silent shards.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from embereye.hub.committer import Committer, Draft, Step
from embereye.hub.coverage.book import NOBODY, CoverageBook, Fleet, Watched
from embereye.hub.coverage.ledgers import LedgerBook
from embereye.hub.coverage.measured import Series
from embereye.hub.refusals import ConflictError
from embereye.hub.scaling import Scaling
from embereye.hub.self_tests import SelfTestBoard
from embereye.hub.tables.heard import HEARD, Heard
from embereye.hub.tables.ledgers import LEDGERS
from embereye.hub.tables.rosters import FORGOTTEN, ROSTERS
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tables.zones import ZoneKey
from embereye.hub.zones import Zones
from embereye.process.timing.clock import Timeline
from embereye.shard.coverage import recalled
from embereye.v1.evidence_pb2 import Coverage
from embereye.v1.roster_pb2 import FleetRoster

EPOCH_STEP = 2**32  # largest plausible increase; an epoch near the end of its range would leave none for later rosters


class CoverageKeeper:
    """Owns the coverage book and the ledger book."""

    def __init__(
        self, committer: Committer, zones: Zones, book: CoverageBook, *, retention_ns: int, timeline: Timeline,
        steady: Callable[[], int], work: Callable[[], int],
    ) -> None:  # fmt: skip
        """`steady` is a monotonic clock, `work` the CPU time of this thread, both in nanoseconds."""
        self._committer = committer
        self._zones = zones
        self._retention_ns = retention_ns
        self._timeline = timeline
        self._monotonic = steady
        self._work = work
        self._worked = work()
        self._listening = True
        self._stored_heard: dict[str, int] = {}  # fleet → stored devices that were heard
        self._durable: dict[str, bytes] = {}  # fleet → digest of its roster, if it is stored and in force
        self.book = book
        self.ledgers = LedgerBook()
        self.scaling = Scaling(book)
        self.self_tests = SelfTestBoard()

    def restore(self, stored: StoredState) -> None:
        """Restore the stored rosters and ledgers."""
        for derived, roster in stored[ROSTERS].values():
            self.book.restore(roster, derived=derived)
        self.book.forgotten.update(stored[FORGOTTEN])
        for name, times in stored[HEARD].items():
            for device, heard in times.items():
                if declared := self.book.find(name, device):
                    declared[1].heard_ns, declared[1].analysed_ns = heard
            self._stored_heard[name] = len(times)
        self.ledgers.restore(stored[LEDGERS].values())

    def add_state(self, state: Transaction) -> None:
        """Add the rosters and the removed fleets to `state`."""
        state[ROSTERS].update({name: (fleet.derived, fleet.roster()) for name, fleet in self.book.fleets.items()})
        state[FORGOTTEN].update(dict.fromkeys(self.book.forgotten, True))

    # Rosters and reports

    async def set_roster(self, roster: FleetRoster) -> None:
        """Replace one fleet's roster, durably.

        ConflictError if it is older than the current one, or its epoch is implausibly high; StoreFailingError.
        """
        known = self.book.fleets.get(roster.fleet)
        if known and not known.derived and roster.epoch < known.epoch:
            raise ConflictError(
                f"roster of {roster.fleet}: epoch {roster.epoch} is older than the current epoch {known.epoch}"
            )
        if roster.epoch - (known.epoch if known else 0) > EPOCH_STEP:
            raise ConflictError(
                f"roster of {roster.fleet}: epoch {roster.epoch} is implausibly far ahead of the current epoch"
            )
        digest = hashlib.blake2b(roster.SerializeToString(deterministic=True)).digest()
        if self._durable.get(roster.fleet) == digest and not self._committer.failing:
            return  # the operator sends it with every pass, and it may have thousands of devices
        self._durable.pop(roster.fleet, None)
        self.book.set_roster(roster, self._steady())
        fleet = self.book.fleets[roster.fleet]

        def step(draft: Draft) -> None:
            draft.transaction[FORGOTTEN][roster.fleet] = None
            if known := self.book.fleets.get(roster.fleet):
                _store_roster(draft, known)
            self._judge(draft)

        await self._committer.commit(step)
        if self.book.fleets.get(roster.fleet) is fleet:  # no other roster arrived meanwhile
            self._durable[roster.fleet] = digest

    async def retain(self, fleets: Iterable[str]) -> None:
        """Remove every fleet that is not in `fleets`. Raises StoreFailingError."""
        removed = set(self.book.fleets) - set(fleets)
        for name in removed:
            self._durable.pop(name, None)
            self.book.forget(name)
            self.ledgers.forget(name)

        def step(draft: Draft) -> None:
            for name in removed - set(self.book.fleets):
                draft.transaction[ROSTERS][name] = None
                draft.transaction[FORGOTTEN][name] = True
                draft.transaction[HEARD][name] = None
            self._add_ledgers(draft)
            self._judge(draft)

        await self._committer.commit(step)

    def report(self, coverage: Coverage, on_durable: Callable[[int], None] | None = None) -> None:
        """Apply a shard's coverage report.

        `on_durable(time_ns)` is called once the ledgers that the report closes are durable, if it closes any.
        """
        now_ns = self._timeline.now_ns()
        if coverage.fleet and coverage.fleet not in self.book.forgotten:
            self.ledgers.report(coverage, now_ns)
        if on_durable is not None and not coverage.more and (coverage.closed or coverage.final):
            time_ns, callback = coverage.time_ns, on_durable
            self._committer.enqueue(Step(self._add_ledgers, on_durable=lambda: callback(time_ns)))
        fleet = self.book.report(coverage, self._steady(), now_ns)
        if fleet is not None:
            self._committer.enqueue(Step(lambda draft: _store_roster(draft, fleet)))

    def measured(self, watched: Watched) -> tuple[Iterable[Series], Iterable[Series]]:
        """The quantities that a device measured over the last hour, and over the last day."""
        now = self._steady()
        return watched.measured.hour.series(now), watched.measured.day.series(now)

    # Faults and time

    def darkness(self, fleet: Fleet, watched: Watched) -> str:
        """The reason why a device is not covered right now; '' if it is covered."""
        return self._reason(fleet, watched, self._steady())

    def _reason(self, fleet: Fleet, watched: Watched, now: int) -> str:
        """The reason why a device is not covered; '' if it is. A shard or hub that restarted forgets no device."""
        reason = self.book.reason(fleet, watched, now)
        return recalled(reason, self._timeline.now_ns() - watched.heard_ns) if reason and watched.heard_ns else reason

    def note_listening(self) -> None:
        """Check that the hub itself was listening, so that its own stall does not count as its shards' silence.

        Call it often, independently of the disk: a slow disk delays transactions but not reports. Call it also at the
        start of each transaction, because a step queued before a stall may run right after it.
        """
        worked, unheard = self._work(), self.book.unheard
        self._listening = self.book.check_listening(self._monotonic(), worked - self._worked)
        self._worked = worked
        if self.book.unheard > unheard:
            self._zones.note_unheard(self.book.unheard - unheard)

    def silences(self) -> tuple[Mapping[tuple[str, str], int], int]:
        """The nanoseconds since each shard's latest report, by fleet and name, and since the hub hears shards.

        Both are empty right after a stall, when reports that arrived meanwhile are still unread.
        """
        self.note_listening()
        now = self._steady()
        return (self.book.silences(now), self.book.listening(now)) if self._listening else ({}, 0)

    def pass_time(self, draft: Draft) -> None:
        """End signs, open and clear devices' faults, unless the hub itself was not listening."""
        if self._listening:
            self._zones.pass_time(draft)
            self._judge(draft)

    def store_ledgers(self) -> None:
        """Store the current ledgers: a shard may have sent its last report already."""
        self._committer.enqueue(Step(self._add_ledgers))
        self._store_heard(renew=False)

    def _store_heard(self, *, renew: bool) -> None:
        """Store when devices were heard: of all fleets to `renew` them, else of those with newly heard devices."""
        for fleet in self.book.fleets.values():
            times = {
                name: Heard(watched.heard_ns, watched.analysed_ns)
                for name, watched in fleet.devices.items()
                if watched.heard_ns
            }
            if (renew and times) or len(times) != self._stored_heard.get(fleet.name, 0):
                self._stored_heard[fleet.name] = len(times)
                self._committer.enqueue(Step(partial(_add_heard, fleet.name, times)))

    def _steady(self) -> int:
        return self._monotonic() - self.book.unheard

    def tidy(self) -> None:
        """Drop reports of shards that vanished long ago, and ledgers past their retention."""
        self.book.tidy(self._steady())
        self._store_heard(renew=True)
        self._committer.enqueue(Step(self._expire_ledgers))

    def _judge(self, draft: Draft) -> None:
        """Open the faults of dark devices; clear those of devices that are covered or no longer declared."""
        now = self._steady()
        for fleet, watched in self.book.devices():
            if self.book.is_dark(fleet, watched, now):
                key = fleet.namespace, watched.device.zone
                reason = self._reason(fleet, watched, now) or NOBODY
                self._zones.open_fault(draft, key, fleet.name, watched.device.id, reason)
        for key, fleet_name, device in self._zones.faults():
            if why := self._reason_to_clear(key, fleet_name, device, now):
                self._zones.clear_fault(draft, key, fleet_name, device, why)

    def _reason_to_clear(self, key: ZoneKey, fleet_name: str, device: str, now: int) -> str:
        """The reason to clear the fault of `device`; '' if it remains open."""
        declared = self.book.find(fleet_name, device)
        if declared is None:
            return "is no longer declared"
        fleet, watched = declared
        if (fleet.namespace, watched.device.zone) != key:
            return f"belongs to zone {watched.device.zone} now"
        return "is watched again" if self.book.is_covered(fleet, watched, now) else ""

    def _add_ledgers(self, draft: Draft) -> None:
        draft.transaction[LEDGERS].update(self.ledgers.collect_changes())

    def _expire_ledgers(self, draft: Draft) -> None:
        self.ledgers.expire(draft.now_ns - self._retention_ns)
        self._add_ledgers(draft)


def _add_heard(fleet: str, times: Mapping[str, Heard], draft: Draft) -> None:
    draft.transaction[HEARD][fleet] = times


def _store_roster(draft: Draft, fleet: Fleet) -> None:
    draft.transaction[ROSTERS][fleet.name] = (fleet.derived, fleet.roster())
