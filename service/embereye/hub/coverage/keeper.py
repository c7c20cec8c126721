"""What ought to be watched and what is, kept and judged: rosters and shards' reports in, zone faults out."""

import hashlib
from collections.abc import Callable, Iterable

from embereye.hub.coverage.book import NOBODY, CoverageBook, Fleet, Watched
from embereye.hub.coverage.ledgers import LedgerBook
from embereye.hub.storage.committer import Committer, Draft, Step, ZoneKey
from embereye.hub.storage.store import StoredState
from embereye.hub.zones import Zones
from embereye.process.timing.clock import Timeline
from embereye.v1.evidence_pb2 import Coverage
from embereye.v1.roster_pb2 import FleetRoster

# More changes at once than ever happen. An epoch near the end of its range would leave none for whoever comes next.
EPOCH_STEP = 2**32


class OutdatedError(Exception):
    """A roster is older than the one known, or of an epoch that nobody can have counted up to."""


class CoverageKeeper:
    """The one owner of the books of coverage and ledgers."""

    def __init__(
        self, committer: Committer, zones: Zones, book: CoverageBook, *, retention_ns: int, timeline: Timeline,
        steady: Callable[[], int], work: Callable[[], int],
    ) -> None:  # fmt: skip
        """`steady` is monotonic, `work` what this thread has worked, both in nanoseconds."""
        self._committer = committer
        self._zones = zones
        self._retention_ns = retention_ns
        self._timeline = timeline
        self._monotonic = steady
        self._work = work
        self._worked = work()
        self._listening = True
        self._durable: dict[str, bytes] = {}  # fleet → digest of its roster, where that is stored and in force
        self.book = book
        self.ledgers = LedgerBook()

    def restore(self, stored: StoredState) -> None:
        """Go on from what was stored."""
        for derived, roster in stored.rosters:
            self.book.restore(roster, derived=derived)
        self.book.forgotten.update(stored.forgotten)
        self.ledgers.restore(stored.ledgers)

    # What arrives

    async def set_roster(self, roster: FleetRoster) -> None:
        """Replace what ought to be watched of one fleet. Raises OutdatedError, StoreFailingError."""
        known = self.book.fleets.get(roster.fleet)
        if known and not known.derived and roster.epoch < known.epoch:
            raise OutdatedError(
                f"roster of {roster.fleet}: epoch {roster.epoch} is older than {known.epoch}, which is in force"
            )
        if roster.epoch - (known.epoch if known else 0) > EPOCH_STEP:
            raise OutdatedError(
                f"roster of {roster.fleet}: epoch {roster.epoch} is further from the one in force than anybody counts"
            )
        digest = hashlib.blake2b(roster.SerializeToString(deterministic=True)).digest()
        if self._durable.get(roster.fleet) == digest and not self._committer.failing:
            return  # the operator tells it with every pass, and it may be of thousands of devices
        self._durable.pop(roster.fleet, None)
        self.book.set_roster(roster, self._steady())
        fleet = self.book.fleets[roster.fleet]

        def step(draft: Draft) -> None:
            draft.transaction.forgotten[roster.fleet] = False
            if known := self.book.fleets.get(roster.fleet):
                _store_roster(draft, known)
            self._judge(draft)

        await self._committer.commit(step)
        if self.book.fleets.get(roster.fleet) is fleet:  # and no other one was told meanwhile
            self._durable[roster.fleet] = digest

    async def retain(self, fleets: Iterable[str]) -> None:
        """Forget every fleet that is not named. Raises StoreFailingError."""
        gone = set(self.book.fleets) - set(fleets)
        for name in gone:
            self._durable.pop(name, None)
            self.book.forget(name)
            self.ledgers.forget(name)

        def step(draft: Draft) -> None:
            for name in gone - set(self.book.fleets):
                draft.transaction.rosters[name] = None
                draft.transaction.forgotten[name] = True
            self._store_ledgers(draft)
            self._judge(draft)

        await self._committer.commit(step)

    def report(self, coverage: Coverage, on_durable: Callable[[int], None] | None = None) -> None:
        """Learn what a shard says of its devices.

        `on_durable(time_ns)` is called once the ledgers that it closes are durable, where it closes any.
        """
        now_ns = self._timeline.now_ns()
        if coverage.fleet and coverage.fleet not in self.book.forgotten:
            self.ledgers.report(coverage, now_ns)
        if on_durable is not None and not coverage.more and (coverage.closed or coverage.final):
            time_ns, told = coverage.time_ns, on_durable
            self._committer.enqueue(Step(self._store_ledgers, on_durable=lambda: told(time_ns)))
        fleet = self.book.report(coverage, self._steady(), now_ns)
        if fleet is not None:
            self._committer.enqueue(Step(lambda draft: _store_roster(draft, fleet)))

    # What follows

    def darkness(self, fleet: Fleet, watched: Watched) -> str:
        """Why a device is not covered right now; '' where it is."""
        return self.book.reason(fleet, watched, self._steady())

    def note_listening(self) -> None:
        """Note whether the hub itself listens, so that its own absence is not taken for its shards' silence.

        To be called often, whatever the disk does: it delays transactions, but keeps nobody from being heard. And at
        the beginning of each transaction: what came to be done before an absence may be done right after it.
        """
        worked, unheard = self._work(), self.book.unheard
        self._listening = self.book.check_listening(self._monotonic(), worked - self._worked)
        self._worked = worked
        if self.book.unheard > unheard:
            self._zones.note_unheard(self.book.unheard - unheard)

    def pass_time(self, draft: Draft) -> None:
        """Let signs end and devices go dark or come back, unless the hub did not listen."""
        if self._listening:
            self._zones.pass_time(draft)
            self._judge(draft)

    def keep_ledgers(self) -> None:
        """Store what is known of ledgers now: a shard's last word may have been its last."""
        self._committer.enqueue(Step(self._store_ledgers))

    def _steady(self) -> int:
        return self._monotonic() - self.book.unheard

    def tidy(self) -> None:
        """Drop what vanished shards said long ago, and ledgers that are past their retention."""
        self.book.tidy(self._steady())
        self._committer.enqueue(Step(self._expire_ledgers))

    def _judge(self, draft: Draft) -> None:
        """Open the faults of dark devices, clear those of devices that are watched or need not be."""
        now = self._steady()
        for fleet, watched in self.book.devices():
            if self.book.is_dark(fleet, watched, now):
                key = fleet.namespace, watched.device.zone
                reason = self.book.reason(fleet, watched, now) or NOBODY
                self._zones.open_fault(draft, key, fleet.name, watched.device.id, reason)
        for key, fleet_name, device in self._zones.faults():
            if why := self._watched_again(key, fleet_name, device, now):
                self._zones.clear_fault(draft, key, fleet_name, device, why)

    def _watched_again(self, key: ZoneKey, fleet_name: str, device: str, now: int) -> str:
        """Why a known fault is over, or '' where it is not."""
        found = self.book.find(fleet_name, device)
        if found is None:
            return "is no longer declared"
        fleet, watched = found
        if (fleet.namespace, watched.device.zone) != key:
            return f"belongs to zone {watched.device.zone} now"
        return "is watched again" if self.book.is_covered(fleet, watched, now) else ""

    def _store_ledgers(self, draft: Draft) -> None:
        draft.transaction.ledgers.update(self.ledgers.changes())

    def _expire_ledgers(self, draft: Draft) -> None:
        self.ledgers.expire(draft.now_ns - self._retention_ns)
        self._store_ledgers(draft)


def _store_roster(draft: Draft, fleet: Fleet) -> None:
    draft.transaction.rosters[fleet.name] = (fleet.derived, fleet.roster())
