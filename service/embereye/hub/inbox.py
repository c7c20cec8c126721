"""The inbox for evidence: queues shards' reports, steps their zones, and acknowledges each once it is durable.

A report has a key, made of its fleet, shard and id. It steps its zone once, however often it is sent. The committer
applies a batch of reports, writes them in one transaction, and only then calls their `on_durable`. If too much waits
(`max_pending`, `max_pending_bytes`), a report is not acknowledged, so its shard sends it again later. Its zone is
stepped all the same (`show_unstored`), so that people see the alarm while the database is down.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embereye.hub.canaries import Canaries
from embereye.hub.committer import Committer, Draft
from embereye.hub.coverage.book import CoverageBook, namespace_of
from embereye.hub.report_key import earlier_keys, report_key
from embereye.hub.tables.consumed import CONSUMED, Position
from embereye.hub.tables.episodes import EPISODES
from embereye.hub.tables.evidence import EVIDENCE
from embereye.hub.tables.pictures import PICTURES
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.tracing import EvidenceTraces
from embereye.hub.zones import Zones
from embereye.units import MIB
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.canary import is_canary
from embereye.zone.state import key_of

MAX_PENDING = 20_000  # reports that wait to be written
MAX_PENDING_BYTES = 64 * MIB
MAX_SHOWN = 200_000  # reports in the open transaction; beyond it, reports that find no room are not shown either
NO_ZONE = "unassigned"  # zone of evidence that names none and comes from an undeclared device


@dataclass
class InboxCounters:
    """Numbers of reports since the start, read when metrics are scraped."""

    received: int = 0
    duplicate: int = 0
    unusable: int = 0
    refused: int = 0  # for lack of room, while the store could not write


@dataclass
class _Report:
    """A shard's report on its way to the store."""

    inbox: "EvidenceInbox"
    item: EvidenceItem
    report_keys: Sequence[str]
    size: int  # bytes
    on_durable: Callable[[str], None]
    position: Position | None = None  # of its message in NATS; None: its shard called the hub
    is_awaited: bool = True

    def apply(self, draft: Draft) -> None:
        if self.position is not None:  # even if applying it fails below: it would fail again
            draft.transaction[CONSUMED][self.position.stream] = self.position
        if is_canary(self.item.device):
            self.inbox.canaries.step(self.item, draft, self.report_keys[0])
        else:
            self.inbox.step_zone(self.item, draft, self.report_keys)

    def finish(self, error: Exception | None) -> None:
        self.inbox.release(self.size)
        if error is None:
            self.inbox.canaries.note_durable(self.report_keys[0])
            if self.inbox.traces:
                self.inbox.traces.finish(self.report_keys[0])
            self.on_durable(self.item.id)


@dataclass
class _UnstoredReport:
    """A report that found no room: it steps its zone, but its shard has to send it again.

    If the step makes events, the report's key is stored, so that the copy counts as a duplicate. Otherwise the report
    is dropped: applying it again changes nothing, and there may be any number of such reports.
    """

    inbox: "EvidenceInbox"
    item: EvidenceItem
    report_keys: Sequence[str]
    is_awaited: bool = False

    def apply(self, draft: Draft) -> None:
        self.inbox.step_zone(self.item, draft, self.report_keys, unstored=True)

    def finish(self, error: Exception | None) -> None:
        pass


class EvidenceInbox:
    """Bounds the evidence that waits, and steps each report's zone once, however often the report is sent."""

    def __init__(self, committer: Committer, zones: Zones, book: CoverageBook, canaries: Canaries) -> None:
        self.canaries = canaries
        self.traces: EvidenceTraces | None = None  # None: alarms are not traced
        self._committer = committer
        self._zones = zones
        self._book = book
        self.max_pending = MAX_PENDING
        self.max_pending_bytes = MAX_PENDING_BYTES
        self._pending = 0
        self._pending_bytes = 0
        self.counters = InboxCounters()
        self.consumed: list[Position] = []  # how far each stream of reports had been read when the hub was opened

    def restore(self, stored: StoredState) -> None:
        """Restore the positions in the streams of reports."""
        self.consumed = list(stored[CONSUMED].values())

    def add_state(self, state: Transaction) -> None:
        """Add nothing: reports past a lost position are read again, and count once."""

    def has_room(self) -> bool:
        """True if another report may wait to be written."""
        return self._pending < self.max_pending and self._pending_bytes < self.max_pending_bytes

    async def wait_for_room(self) -> None:
        """Wait until a batch is durable, or cannot be written: there may be room then."""
        await self._committer.wait_for_batch()

    def admit(
        self, item: EvidenceItem, on_durable: Callable[[str], None], position: Position | None = None, key: str = ""
    ) -> None:
        """Queue `item` to be stored and to step its zone; `on_durable(id)` is called once it is committed.

        `key` is its `report_key`; '': of no particular shard.

        A duplicate is acknowledged the same way. The same transaction records that the stream was read up to
        `position`.
        """
        self.counters.received += not is_canary(item.device)
        size = item.ByteSize()
        keys = _keys(item, key)
        if item.snapshot and not is_canary(item.device):
            self._book.store_picture(item.fleet, item.device, item.snapshot, item.until_ns)
        if self.traces:
            self.traces.admit(item, keys[0])
        self._pending += 1
        self._pending_bytes += size
        self._committer.enqueue(_Report(self, item, keys, size, on_durable, position))

    def show_unstored(self, item: EvidenceItem, key: str = "") -> None:
        """Step the zone of `item`, for which there is no room, without its picture; its shard sends it again later.

        Without this, pictures that fill the inbox would hide every new alarm until the database works again. `key` is
        as in `admit`.
        """
        self.counters.refused += 1
        if not is_canary(item.device) and self._committer.open_reports < MAX_SHOWN:
            item.ClearField("snapshot")
            self._committer.enqueue(_UnstoredReport(self, item, _keys(item, key)))

    def release(self, size: int) -> None:
        """Free the room of a report of `size` bytes."""
        self._pending -= 1
        self._pending_bytes -= size

    def step_zone(self, item: EvidenceItem, draft: Draft, keys: Sequence[str], *, unstored: bool = False) -> None:
        """Step the zone of `item`, unless one of its `keys` was committed before; the first one is stored.

        `unstored` is as in `_UnstoredReport`.
        """
        if not draft.known.isdisjoint(keys):
            self.counters.duplicate += 1
            return
        machine = self._zones.touch(draft, (namespace_of(item.fleet), self._zone_of(item)))
        announced = machine.announced_levels.get(key_of(item), 0)
        events = machine.add_evidence(item, draft.now_ns)
        self._zones.add_events(draft, events)
        if unstored and not events:
            return
        draft.known.add(keys[0])
        draft.transaction[EVIDENCE][keys[0]] = draft.now_ns
        if machine.alarm and item.episode:
            draft.transaction[EPISODES][machine.alarm, item.episode] = draft.now_ns
        if item.snapshot and machine.alarm and machine.announced_levels.get(key_of(item), 0) > announced:
            draft.transaction[PICTURES][machine.alarm, item.device, item.kind] = draft.now_ns, item.snapshot

    def _zone_of(self, item: EvidenceItem) -> str:
        if item.zone:
            return item.zone
        declared = self._book.find(item.fleet, item.device)
        return declared[1].device.zone if declared and declared[1].device.zone else NO_ZONE


def _keys(item: EvidenceItem, key: str) -> Sequence[str]:
    return key or report_key(item), *earlier_keys(item)
