"""What became of everything each device ever offered: the ledgers of its owners, past and present, and their sum.

Pure: reports and times go in, what is to be stored comes out.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from embereye.v1.evidence_pb2 import Coverage, Ledger
from embereye.v1.roster_pb2 import FleetLedger

KEPT = 8  # owners of a device that are told apart; older ones are added up
EARLIER = "earlier"  # the shard that stands for those
OUTCOMES = ("offered", "analysed", "shed", "duplicate", "rejected")
MOST = 2**64 - 1  # that a count can say
PLAUSIBLE = 2**53  # of anything, by one owner of one device: nobody counts that far


class LedgerKey(NamedTuple):
    """Whose ledger: a shard that gets a device back begins another one."""

    fleet: str
    device: str
    shard: str
    since_ns: int  # when the shard began it, nanoseconds since the Unix epoch


@dataclass(slots=True)
class OwnerLedger:
    """One owner's ledger of a device: there are KEPT of every device, and messages take seven times the memory."""

    key: LedgerKey
    until_ns: int  # when it was told last, on the hub's timeline
    final: bool  # its owner's last word
    data: bytes  # its ledger, serialised
    counted: bytes = b""  # the ledger that is in the fleet's totals, likewise

    @classmethod
    def create(cls, key: LedgerKey, until_ns: int, final: bool, ledger: Ledger) -> "OwnerLedger":
        """One that is in no totals yet."""
        fleet, device, shard = map(sys.intern, key[:3])  # which other parts have already
        return cls(LedgerKey(fleet, device, shard, key.since_ns), until_ns, final, ledger.SerializeToString())

    @property
    def ledger(self) -> Ledger:
        """Its ledger, made anew."""
        return Ledger.FromString(self.data)


def outcomes(ledger: Ledger) -> tuple[int, ...]:
    """How many have each of OUTCOMES."""
    shed, rejected = sum(ledger.shed.values()), sum(ledger.rejected.values())
    return ledger.offered, ledger.analysed, shed, ledger.duplicate, rejected


def add_up(ledgers: Iterable[Ledger]) -> Ledger:
    """The sum of ledgers, since the first of them."""
    total = Ledger()
    for ledger in ledgers:
        for name in ("offered", "analysed", "duplicate", "waiting", "shared", "takeovers"):
            setattr(total, name, min(getattr(total, name) + getattr(ledger, name), MOST))
        for sums, counts in ((total.shed, ledger.shed), (total.rejected, ledger.rejected)):
            for reason, count in counts.items():
                sums[reason] = min(sums[reason] + count, MOST)
        if not total.since_ns or ledger.since_ns < total.since_ns:
            total.since_ns = ledger.since_ns
    return total


class LedgerBook:
    """All parts. One owner, one thread."""

    def __init__(self) -> None:
        self._fleets: dict[str, dict[str, list[OwnerLedger]]] = {}
        self._changed: dict[LedgerKey, OwnerLedger | None] = {}  # not taken by `changes` yet; None: removed
        self._totals: dict[str, tuple[int, ...]] = {}  # by fleet; they never fall
        self._uncounted: dict[LedgerKey, OwnerLedger] = {}  # not in the totals yet

    def restore(self, parts: Iterable[OwnerLedger]) -> None:
        """Go on with what was stored."""
        for part in parts:
            self._parts(part.key.fleet, part.key.device).append(part)
            self._uncounted[part.key] = part

    def report(self, coverage: Coverage, now_ns: int) -> None:
        """Take what a shard says, at `now_ns`, of its devices, and of those that it had."""
        for status in coverage.devices:
            if status.zone and status.HasField("ledger"):
                self._note_ledger(coverage, status.id, status.ledger, now_ns, final=coverage.final)
        for closed in coverage.closed:
            self._note_ledger(coverage, closed.device, closed.ledger, now_ns, final=True)

    def parts(self, fleet: str, device: str) -> list[OwnerLedger]:
        """The ledgers of a device's owners, by when they began."""
        return self._fleets.get(fleet, {}).get(device, [])

    def fleets(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Each fleet with how much had each outcome, over all its devices and their owners."""
        self._count()
        for fleet, counts in self._totals.items():
            yield fleet, dict(zip(OUTCOMES, counts, strict=True))

    def totals(self, fleet: str, now_ns: int) -> FleetLedger | None:
        """The same of one fleet; None where nothing is known of it."""
        self._count()
        counts = self._totals.get(fleet)
        return FleetLedger(**dict(zip(OUTCOMES, counts, strict=True)), time_ns=now_ns) if counts else None

    def forget(self, fleet: str) -> None:
        """Drop a fleet that is gone."""
        self._count()
        self._totals.pop(fleet, None)
        for parts in self._fleets.pop(fleet, {}).values():
            self._changed.update((part.key, None) for part in parts)

    def expire(self, before_ns: int) -> None:
        """Drop devices of which nothing was told since `before_ns`."""
        self._count()
        for devices in self._fleets.values():
            for name in [name for name, parts in devices.items() if max(p.until_ns for p in parts) < before_ns]:
                self._changed.update((part.key, None) for part in devices.pop(name))

    def changes(self) -> dict[LedgerKey, OwnerLedger | None]:
        """What is to be stored, None: removed; it counts as stored from now on."""
        changed, self._changed = self._changed, {}
        return changed

    def _parts(self, fleet: str, device: str) -> list[OwnerLedger]:
        return self._fleets.setdefault(fleet, {}).setdefault(device, [])

    def _count(self) -> None:
        """Bring the totals up to date: when somebody asks, which is less often than shards report."""
        for part in self._uncounted.values():
            now, before = outcomes(part.ledger), outcomes(Ledger.FromString(part.counted))
            known = self._totals.get(part.key.fleet, (0,) * len(OUTCOMES))
            self._totals[part.key.fleet] = tuple(
                total + new - old for total, new, old in zip(known, now, before, strict=True)
            )
            part.counted = part.data
        self._uncounted.clear()

    def _note_ledger(self, coverage: Coverage, device: str, ledger: Ledger, now_ns: int, *, final: bool) -> None:
        if max(*outcomes(ledger), ledger.waiting, ledger.shared, ledger.takeovers) > PLAUSIBLE or ledger.since_ns < 0:
            return  # nobody counted it, and sums of it cannot be told
        parts = self._parts(coverage.fleet, device)
        key = LedgerKey(coverage.fleet, device, coverage.shard, ledger.since_ns)
        part = next((part for part in reversed(parts) if part.key == key), None)
        if part is None:
            part = OwnerLedger.create(key, now_ns, final, ledger)
            parts.append(part)
            parts.sort(key=lambda part: part.key.since_ns)
        elif part.final or ledger.offered < part.ledger.offered:
            return  # from an older stream: what was offered only grows
        else:
            part.until_ns, part.final, part.data = now_ns, final, ledger.SerializeToString()
        self._changed[part.key] = self._uncounted[part.key] = part
        if len(parts) > KEPT:
            self._merge(parts)

    def _merge(self, parts: list[OwnerLedger]) -> None:
        """Make one of the two that were told longest ago: by its own clock, one that goes on may be the oldest."""
        self._count()
        first, second = sorted(parts, key=lambda part: part.until_ns)[:2]
        total = add_up((first.ledger, second.ledger))
        key = LedgerKey(first.key.fleet, first.key.device, EARLIER, total.since_ns)
        merged = OwnerLedger.create(key, max(first.until_ns, second.until_ns), first.final and second.final, total)
        merged.counted = merged.data
        parts[:] = sorted(
            (merged, *(part for part in parts if part not in (first, second))), key=lambda part: part.key.since_ns
        )
        self._changed.update({first.key: None, second.key: None})
        self._changed[key] = merged
