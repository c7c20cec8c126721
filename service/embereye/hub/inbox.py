"""Evidence that shards report, from its arrival to its acknowledgement."""

from collections.abc import Callable
from dataclasses import dataclass

from embereye.hub.bus.records import Position
from embereye.hub.canaries import Canaries
from embereye.hub.coverage.book import CoverageBook, namespace_of
from embereye.hub.storage.committer import Committer, Draft
from embereye.hub.storage.store import StoredPicture
from embereye.hub.tracing import EvidenceTraces
from embereye.hub.zones import Zones
from embereye.units import MIB
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.zone.canary import is_canary
from embereye.zone.state import key_of

MAX_PENDING = 20_000  # reports that wait to be written
MAX_PENDING_BYTES = 64 * MIB
MAX_SHOWN = 200_000  # reports that a transaction has: beyond, none is shown that is turned away
NO_ZONE = "unassigned"  # of evidence that names no zone and comes from an undeclared device


@dataclass
class InboxCounters:
    """Plain slots, read when metrics are scraped."""

    received: int = 0
    duplicate: int = 0
    unusable: int = 0
    refused: int = 0  # kept away while the store could not write


@dataclass
class _Report:
    """A shard's report on its way to the store."""

    inbox: "EvidenceInbox"
    item: EvidenceItem
    size: int  # bytes
    on_durable: Callable[[str], None]
    position: Position | None = None  # of the message that brought it; None: its shard did
    awaited: bool = True

    @property
    def evidence_id(self) -> str:
        return self.item.id

    def apply(self, draft: Draft) -> None:
        if self.position is not None:  # also where the rest fails: it would fail again
            draft.transaction.consumed = self.position
        if is_canary(self.item.device):
            self.inbox.canaries.step(self.item, draft)
        else:
            self.inbox.step_zone(self.item, draft)

    def finish(self, error: Exception | None) -> None:
        self.inbox.release(self.size)
        if error is None:
            self.inbox.canaries.note_durable(self.item)
            if self.inbox.traces:
                self.inbox.traces.finish(self.item)
            self.on_durable(self.item.id)


@dataclass
class _Shown:
    """A report that is turned away: its zone is stepped all the same.

    Where that has a zone tell something, the report is known when it comes again. Otherwise it is forgotten: as it says
    what others said before it, it changes nothing when it comes again, and there may be any number of such reports.
    """

    inbox: "EvidenceInbox"
    item: EvidenceItem
    awaited: bool = False

    @property
    def evidence_id(self) -> str:
        return self.item.id

    def apply(self, draft: Draft) -> None:
        self.inbox.step_zone(self.item, draft, shown=True)

    def finish(self, error: Exception | None) -> None:
        pass


class EvidenceInbox:
    """Bounds how much evidence waits, and steps the zone of each report once, however often it is sent."""

    def __init__(self, committer: Committer, zones: Zones, book: CoverageBook, canaries: Canaries) -> None:
        self.canaries = canaries
        self.traces: EvidenceTraces | None = None  # None: alarms are not traced
        self._committer = committer
        self._zones = zones
        self._book = book
        self._pending = 0
        self._pending_bytes = 0
        self.counters = InboxCounters()

    def has_room(self) -> bool:
        """Whether another report may wait to be written."""
        return self._pending < MAX_PENDING and self._pending_bytes < MAX_PENDING_BYTES

    async def wait_for_room(self) -> None:
        """Wait until there may be room: a batch is durable, or nothing can be written."""
        await self._committer.batch_written()

    def admit(self, item: EvidenceItem, on_durable: Callable[[str], None], position: Position | None = None) -> None:
        """Have `item` stored and its zone stepped; `on_durable(id)` is called once it is committed, now or before.

        With the same transaction the stream is consumed up to `position`.
        """
        self.counters.received += not is_canary(item.device)
        size = item.ByteSize()
        if item.snapshot and not is_canary(item.device):
            self._book.store_picture(item.fleet, item.device, item.snapshot, item.until_ns)
        if self.traces:
            self.traces.admit(item)
        self._pending += 1
        self._pending_bytes += size
        self._committer.enqueue(_Report(self, item, size, on_durable, position))

    def show_unstored(self, item: EvidenceItem) -> None:
        """There is no room for `item`, which its sender has to keep; an alarm is told, without its picture.

        Where pictures take all the room, there would be no alarm any more until the database is mended.
        """
        self.counters.refused += 1
        if not is_canary(item.device) and self._committer.held < MAX_SHOWN:
            item.ClearField("snapshot")
            self._committer.enqueue(_Shown(self, item))

    def release(self, size: int) -> None:
        """A report of `size` bytes waits no more."""
        self._pending -= 1
        self._pending_bytes -= size

    def step_zone(self, item: EvidenceItem, draft: Draft, *, shown: bool = False) -> None:
        """Step the zone of `item`, unless it was committed before; `shown`: it is not kept, as in `_Shown`."""
        if item.id in draft.known:
            self.counters.duplicate += 1
            return
        machine = self._zones.touch(draft, (namespace_of(item.fleet), self._zone_of(item)))
        announced = machine.announced_levels.get(key_of(item), 0)
        events = machine.add_evidence(item, draft.now_ns)
        self._zones.add_events(draft, events)
        if shown and not events:
            return
        draft.known.add(item.id)
        draft.transaction.evidence.append((item.id, draft.now_ns))
        if machine.alarm and item.episode:
            draft.transaction.episodes[machine.alarm, item.episode] = draft.now_ns
        if item.snapshot and machine.alarm and machine.announced_levels.get(key_of(item), 0) > announced:
            picture = StoredPicture(machine.alarm, item.device, item.kind, draft.now_ns, item.snapshot)
            draft.transaction.pictures.append(picture)

    def _zone_of(self, item: EvidenceItem) -> str:
        if item.zone:
            return item.zone
        found = self._book.find(item.fleet, item.device)
        return found[1].device.zone if found and found[1].device.zone else NO_ZONE
