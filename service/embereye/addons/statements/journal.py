"""The journal of the days without a statement: when the hub was there, what it knew of devices, canaries and routes.

`note` is called at each beat, within a transaction. It stores the time of the beat, so that the next process knows how
long there was none, and what changed since the previous beat. A day begins with the counts of all messages so far; the
difference of two days is what was counted on the first one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import tzinfo
from typing import Any

from embereye.addons.statements.days import Away, Canaries, Day, Declared, Route
from embereye.addons.statements.tables import JOURNAL, JournalKey
from embereye.hub.hub import RouteProof
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.units import SECOND
from embereye.zone.timeline import ZoneKey

BEAT_SECONDS = 30.0
AWAY_NS = 100 * SECOND  # between two beats of one process: a longer time is a gap
NOT_RUNNING = "the hub was not running"
STALLED = "the hub stalled, or its clock was set"
NO_RECORD = "nothing was recorded before"
BEAT, AWAY, DEVICES, CANARIES, ROUTES, LEDGERS = "beat", "away", "devices", "canaries", "routes", "ledgers"
DeviceKey = tuple[str, str]  # fleet, device
Counts = Sequence[int]  # by outcome, as in `days.OUTCOMES`


@dataclass(frozen=True)
class Seen:
    """The hub's state at one beat. Canaries are counted since the start of the process."""

    wall_ns: int
    devices: Mapping[DeviceKey, ZoneKey]
    canaries: Canaries
    routes: Mapping[str, RouteProof]


@dataclass
class _RouteRow:
    sent: int = 0
    confirmed: int = 0
    state: str = ""
    sent_ns: int = 0
    confirmed_ns: int = 0


@dataclass
class Journal:
    """All rows, and what follows from them for the present day."""

    zone: tzinfo | None = None
    rows: dict[JournalKey, Any] = field(default_factory=dict)
    _day: str = ""  # of the previous beat of this process; empty: there was none
    _before: Canaries = field(default_factory=Canaries)  # at the previous beat

    # A part of the hub

    def restore(self, stored: StoredState) -> None:
        """Restore the rows."""
        for key, document in stored[JOURNAL].items():
            self.rows[key] = json.loads(document)

    def add_state(self, state: Transaction) -> None:
        """Add all rows to `state`."""
        state[JOURNAL].update({key: json.dumps(value) for key, value in self.rows.items()})

    # Beats

    def is_new_day(self, wall_ns: int) -> bool:
        """True if a beat at `wall_ns` begins a day, which needs `begin_day` first."""
        return (LEDGERS, Day.of(wall_ns, self.zone).name) not in self.rows

    def begin_day(self, transaction: Transaction, wall_ns: int, ledgers: Mapping[DeviceKey, Counts]) -> None:
        """Begin the day of `wall_ns` with the counts of all messages so far."""
        counts = [[*key, list(numbers)] for key, numbers in sorted(ledgers.items())]
        self._put(transaction, LEDGERS, Day.of(wall_ns, self.zone).name, {"ns": wall_ns, "counts": counts})

    def note(self, transaction: Transaction, seen: Seen) -> None:
        """Note a beat."""
        day = Day.of(seen.wall_ns, self.zone)
        self._note_away(transaction, seen.wall_ns, day)
        self._note_devices(transaction, seen, day)
        self._note_canaries(transaction, seen.canaries, day)
        self._note_routes(transaction, seen.routes, day)
        self._put(transaction, BEAT, "", seen.wall_ns)
        self._day, self._before = day.name, seen.canaries

    @property
    def beat_ns(self) -> int:
        """The time of the latest beat; 0: there was none."""
        return int(self.rows.get((BEAT, ""), 0))

    @property
    def first_day(self) -> str:
        """The earliest day with any record; empty: none."""
        return min((name for kind, name in self.rows if kind == DEVICES), default="")

    def _note_away(self, transaction: Transaction, now_ns: int, day: Day) -> None:
        last_ns = self.beat_ns
        if not last_ns:
            since_ns, why = day.span[0], NO_RECORD
        elif not self._day:
            since_ns, why = last_ns, NOT_RUNNING
        elif now_ns - last_ns > AWAY_NS:
            since_ns, why = last_ns, STALLED
        else:
            return
        if since_ns < now_ns:
            self._put(transaction, AWAY, str(since_ns), {"untilNs": now_ns, "why": why})

    def _note_devices(self, transaction: Transaction, seen: Seen, day: Day) -> None:
        known = self.rows.get((DEVICES, day.name))
        rows: list[list[Any]] = [list(row) for row in known or ()]
        present = {(fleet, device, *zone) for (fleet, device), zone in seen.devices.items()}
        left_ns = max(self.beat_ns, day.span[0])
        for row in rows:
            identity = tuple(row[:4])
            if not row[5] and identity in present:
                present.remove(identity)
            elif not row[5]:
                row[5] = seen.wall_ns if self._day else left_ns
        # A device that was there at the previous beat was there since, also over midnight.
        since_ns = seen.wall_ns if known is not None else day.span[0]
        rows += [[*identity, since_ns, 0] for identity in sorted(present)]
        if rows != known:
            self._put(transaction, DEVICES, day.name, rows)

    def _note_canaries(self, transaction: Transaction, now: Canaries, day: Day) -> None:
        before, sums = self._before, Canaries(**self.rows.get((CANARIES, day.name), {}))
        added = {name: value + getattr(now, name) - getattr(before, name) for name, value in asdict(sums).items()}
        if added != self.rows.get((CANARIES, day.name)):
            self._put(transaction, CANARIES, day.name, added)

    def _note_routes(self, transaction: Transaction, routes: Mapping[str, RouteProof], day: Day) -> None:
        known, begin_ns = self.rows.get((ROUTES, day.name), {}), day.span[0]
        rows = dict(known)
        for name, seen in routes.items():
            row = _RouteRow(**rows.get(name, {}))
            row.sent += seen.sent_ns != row.sent_ns and seen.sent_ns >= begin_ns
            row.confirmed += seen.confirmed_ns != row.confirmed_ns and seen.confirmed_ns >= begin_ns
            row.sent_ns, row.confirmed_ns, row.state = seen.sent_ns, seen.confirmed_ns, seen.state
            rows[name] = asdict(row)
        if rows != known:
            self._put(transaction, ROUTES, day.name, rows)

    # Reading a day

    def declared(self, day: Day) -> list[Declared]:
        """The devices that were declared on `day`; if the hub was away all day, those of the next one."""
        days = sorted(name for kind, name in self.rows if kind == DEVICES and name >= day.name)
        rows = self.rows[DEVICES, days[0]] if days else ()
        return [
            Declared(fleet, device, (namespace, zone), min(begin, day.span[0]) if days[0] > day.name else begin, end)
            for fleet, device, namespace, zone, begin, end in rows
        ]

    def away(self, day: Day) -> list[Away]:
        """The times within `day` in which there was no hub."""
        begin, end = day.span
        spans = [
            Away(int(since), row["untilNs"], row["why"]) for (kind, since), row in self.rows.items() if kind == AWAY
        ]
        return [span for span in spans if span.from_ns < end and span.until_ns > begin]

    def canaries(self, day: Day) -> Canaries:
        """The test fires of `day`."""
        return Canaries(**self.rows.get((CANARIES, day.name), {}))

    def routes(self, day: Day) -> list[Route]:
        """The routes of `day`."""
        rows: Mapping[str, Mapping[str, Any]] = self.rows.get((ROUTES, day.name), {})
        return [Route(name, row["sent"], row["confirmed"], row["state"]) for name, row in rows.items()]

    def messages(self, day: Day) -> tuple[dict[ZoneKey, list[int]], int]:
        """The messages by zone and outcome, and the time until which they are counted; ({}, 0): they are not known.

        After a time without a hub, they include what shards counted meanwhile.
        """
        first = self.rows.get((LEDGERS, day.name))
        later = sorted(name for kind, name in self.rows if kind == LEDGERS and name > day.name)
        if first is None or not later:
            return {}, 0
        last, sums = self.rows[LEDGERS, later[0]], dict[ZoneKey, list[int]]()
        before = {(fleet, device): counts for fleet, device, counts in first["counts"]}
        zones = {(each.fleet, each.device): each.zone for each in self.declared(day)}
        for fleet, device, counts in last["counts"]:
            if zone := zones.get((fleet, device)):
                earlier = before.get((fleet, device), [0] * len(counts))
                total = sums.setdefault(zone, [0] * len(counts))
                for index, (now, then) in enumerate(zip(counts, earlier, strict=True)):
                    total[index] += max(0, now - then)
        return sums, int(last["ns"])

    def forget(self, transaction: Transaction, day: Day) -> None:
        """Remove the rows that only the statement of `day` and earlier ones need."""
        for key in list(self.rows):
            kind, name = key
            ended = kind == AWAY and self.rows[key]["untilNs"] <= day.span[1]
            if ended or (kind in {DEVICES, CANARIES, ROUTES, LEDGERS} and name <= day.name):
                del self.rows[key]
                transaction[JOURNAL][key] = None

    def _put(self, transaction: Transaction, kind: str, name: str, value: Any) -> None:
        self.rows[kind, name] = value
        transaction[JOURNAL][kind, name] = json.dumps(value)


def count(ledgers: Iterable[tuple[DeviceKey, bytes]]) -> dict[DeviceKey, list[int]]:
    """Add up serialised ledgers by device and outcome. It may take 0.1 s for 10,000 devices: run it in a thread."""
    from embereye.hub.coverage.ledgers import outcomes
    from embereye.v1.evidence_pb2 import Ledger

    sums: dict[DeviceKey, list[int]] = {}
    for key, data in ledgers:
        counts = outcomes(Ledger.FromString(data))
        known = sums.get(key)
        sums[key] = [a + b for a, b in zip(known, counts, strict=True)] if known else list(counts)
    return sums
