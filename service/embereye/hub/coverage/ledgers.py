"""The ledgers of all devices: counts of a device's messages by outcome, for each shard that ever owned it.

A device has up to MAX_OWNERS ledgers; older ones are merged into one, under the name EARLIER. Within one ledger, the
offered count only grows; a report with a smaller one is outdated and ignored. Totals for each fleet are updated when
they are read.

The module is pure: reports and times go in, and `collect_changes` returns the ledgers to store. `CoverageKeeper` owns
the book.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from embereye.hub.tables.ledgers import LedgerKey, OwnerLedger
from embereye.v1.evidence_pb2 import Coverage, Ledger
from embereye.v1.roster_pb2 import FleetLedger

MAX_OWNERS = 8  # separate ledgers of one device; older ones are merged
EARLIER = "earlier"  # the shard's name in a merged ledger
OUTCOMES = ("offered", "analysed", "shed", "duplicate", "rejected")
MAX_COUNT = 2**64 - 1  # of the wire's integers
PLAUSIBLE = 2**53  # largest plausible count in one ledger


def outcomes(ledger: Ledger) -> tuple[int, ...]:
    """The count for each of OUTCOMES."""
    shed, rejected = sum(ledger.shed.values()), sum(ledger.rejected.values())
    return ledger.offered, ledger.analysed, shed, ledger.duplicate, rejected


def add_up(ledgers: Iterable[Ledger]) -> Ledger:
    """Add up ledgers; the sum starts with the earliest."""
    total = Ledger()
    for ledger in ledgers:
        for name in ("offered", "analysed", "duplicate", "waiting", "shared", "takeovers"):
            setattr(total, name, min(getattr(total, name) + getattr(ledger, name), MAX_COUNT))
        for sums, counts in ((total.shed, ledger.shed), (total.rejected, ledger.rejected)):
            for reason, count in counts.items():
                sums[reason] = min(sums[reason] + count, MAX_COUNT)
        if not total.since_ns or ledger.since_ns < total.since_ns:
            total.since_ns = ledger.since_ns
    return total


class LedgerBook:
    """The ledgers of every device. For one thread."""

    def __init__(self) -> None:
        self._fleets: dict[str, dict[str, list[OwnerLedger]]] = {}
        self._changed: dict[LedgerKey, OwnerLedger | None] = {}  # since the last `changes`; None: removed
        self._totals: dict[str, tuple[int, ...]] = {}  # by fleet; they never decrease
        self._uncounted: dict[LedgerKey, OwnerLedger] = {}  # changed since the totals were updated

    def restore(self, entries: Iterable[OwnerLedger]) -> None:
        """Restore the stored ledgers."""
        for entry in sorted(entries, key=lambda entry: entry.key.since_ns):
            self._entries_of(entry.key.fleet, entry.key.device).append(entry)
            self._uncounted[entry.key] = entry

    def report(self, coverage: Coverage, now_ns: int) -> None:
        """Apply the ledgers of a shard's report: of its devices, and closed ones of devices that it has released."""
        for status in coverage.devices:
            if status.zone and status.HasField("ledger"):
                self._note_ledger(coverage, status.id, status.ledger, now_ns, final=coverage.final)
        for closed in coverage.closed:
            self._note_ledger(coverage, closed.device, closed.ledger, now_ns, final=True)

    def owner_ledgers(self, fleet: str, device: str) -> list[OwnerLedger]:
        """The ledgers of a device's owners, oldest first."""
        return self._fleets.get(fleet, {}).get(device, [])

    def fleet_totals(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield each fleet with its totals by outcome, over all devices and owners."""
        self._count()
        for fleet, counts in self._totals.items():
            yield fleet, dict(zip(OUTCOMES, counts, strict=True))

    def totals(self, fleet: str, now_ns: int) -> FleetLedger | None:
        """The totals of one fleet; None if it has no ledgers."""
        self._count()
        counts = self._totals.get(fleet)
        if not counts:
            return None
        outcomes: dict[str, Any] = dict(zip(OUTCOMES, counts, strict=True))
        return FleetLedger(**outcomes, time_ns=now_ns)

    def forget(self, fleet: str) -> None:
        """Drop the ledgers of a removed fleet."""
        self._count()
        self._totals.pop(fleet, None)
        for entries in self._fleets.pop(fleet, {}).values():
            self._changed.update((entry.key, None) for entry in entries)

    def expire(self, before_ns: int) -> None:
        """Drop devices without a report since `before_ns`."""
        self._count()
        for devices in self._fleets.values():
            for name in [name for name, entries in devices.items() if max(p.until_ns for p in entries) < before_ns]:
                self._changed.update((entry.key, None) for entry in devices.pop(name))

    def collect_changes(self) -> dict[LedgerKey, OwnerLedger | None]:
        """Return the changes since the last call, to be stored; None: removed."""
        changed, self._changed = self._changed, {}
        return changed

    def _entries_of(self, fleet: str, device: str) -> list[OwnerLedger]:
        return self._fleets.setdefault(fleet, {}).setdefault(device, [])

    def _count(self) -> None:
        """Update the totals. They are read less often than shards report, so this runs only when they are read."""
        for entry in self._uncounted.values():
            now, before = outcomes(entry.ledger), outcomes(Ledger.FromString(entry.counted))
            known = self._totals.get(entry.key.fleet, (0,) * len(OUTCOMES))
            self._totals[entry.key.fleet] = tuple(
                total + new - old for total, new, old in zip(known, now, before, strict=True)
            )
            entry.counted = entry.data
        self._uncounted.clear()

    def _note_ledger(self, coverage: Coverage, device: str, ledger: Ledger, now_ns: int, *, final: bool) -> None:
        if max(*outcomes(ledger), ledger.waiting, ledger.shared, ledger.takeovers) > PLAUSIBLE or ledger.since_ns < 0:
            return  # not a real count, and its sums would overflow
        entries = self._entries_of(coverage.fleet, device)
        key = LedgerKey(coverage.fleet, device, coverage.shard, ledger.since_ns)
        entry = next((entry for entry in reversed(entries) if entry.key == key), None)
        if entry is None:
            entry = OwnerLedger.create(key, now_ns, final, ledger)
            entries.append(entry)
            entries.sort(key=lambda entry: entry.key.since_ns)
        elif entry.final or ledger.offered < entry.ledger.offered:
            return  # from an older stream: the offered count only grows
        else:
            entry.until_ns, entry.final, entry.data = now_ns, final, ledger.SerializeToString()
        self._changed[entry.key] = self._uncounted[entry.key] = entry
        if len(entries) > MAX_OWNERS:
            self._merge(entries)

    def _merge(self, entries: list[OwnerLedger]) -> None:
        """Merge the two ledgers with the oldest reports: a ledger in use may have the earliest start, by its clock."""
        self._count()
        first, second = sorted(entries, key=lambda entry: entry.until_ns)[:2]
        total = add_up((first.ledger, second.ledger))
        key = LedgerKey(first.key.fleet, first.key.device, EARLIER, total.since_ns)
        merged = OwnerLedger.create(key, max(first.until_ns, second.until_ns), first.final and second.final, total)
        merged.counted = merged.data
        entries[:] = sorted(
            (merged, *(entry for entry in entries if entry not in (first, second))),
            key=lambda entry: entry.key.since_ns,
        )
        self._changed.update({first.key: None, second.key: None})
        self._changed[key] = merged
