"""The Evidence service of the hub that owns the database: shards report, what is durable is acknowledged."""

import asyncio
import logging
import time
from functools import partial

from embereye.hub.bus.outgoing import EvidenceBus, Outgoing
from embereye.hub.hub import Hub
from embereye.hub.services.reports import ReportServicer, Stream
from embereye.hub.timeline import put_on_timeline, put_statuses_on_timeline
from embereye.v1.evidence_pb2 import Coverage, EvidenceItem

logger = logging.getLogger(__name__)
FLUSH_SECONDS = 0.3  # to store what was taken when the hub ends
RECOVERED = "the hub can take reports again: dial again, and send what was not acknowledged"


class EvidenceService(ReportServicer):
    """Acknowledges what the database has; with a `bus`, what its stream has, while that takes reports."""

    def __init__(self, hub: Hub, bus: EvidenceBus | None = None) -> None:
        super().__init__()
        self._hub = hub
        self._bus = bus
        hub.false_alarms.subscribe(self._tell_marked)

    @property
    def clocks_wrong(self) -> int:
        """How many of their wall clocks differ from the hub's."""
        return sum(stream.skew.wrong for stream in self._streams)

    def begun(self, stream: Stream) -> None:
        """As `ReportServicer.begun`."""
        self._tell_marked_to(stream)

    async def ended(self, stream: Stream) -> None:
        """As `ReportServicer.ended`."""
        self._hub.coverage.store_ledgers()
        if self._closing.is_set() and await self._hub.committer.flush(FLUSH_SECONDS):
            # What was taken is stored by now; a shard that is told so need not send it again.
            await asyncio.sleep(0.02)

    @property
    def failing(self) -> str:
        """As `ReportServicer.failing`."""
        return self._hub.committer.failing if self._bus is None or self._bus.failing else ""

    @property
    def again(self) -> str:
        """As `ReportServicer.again`."""
        return RECOVERED

    def _tell_marked(self) -> None:
        for stream in self._streams:
            self._tell_marked_to(stream)

    def _tell_marked_to(self, stream: Stream) -> None:
        stream.tell_marked(self._hub.false_alarms.places(stream.fleet))

    def note_coverage(self, stream: Stream, coverage: Coverage) -> None:
        """As `ReportServicer.note_coverage`."""
        stream.skew.observe(coverage, time.time_ns())
        if stream.fleet != coverage.fleet:  # it had no assignment when it said hello
            stream.fleet = coverage.fleet
            self._tell_marked_to(stream)
        put_statuses_on_timeline(coverage, self._hub.timeline.now_ns())
        self._hub.coverage.report(coverage, stream.ledgers_durable)
        self._hub.canaries.expect(coverage)

    async def admit_report(self, stream: Stream, item: EvidenceItem, sent_ns: int) -> None:
        """As `ReportServicer.admit_report`."""
        inbox = self._hub.inbox
        if not item.id:
            inbox.counters.unusable += 1
            logger.warning("shard %s sent evidence without an id: ignored", stream.hello.shard)
            return
        if self._bus is not None:
            put_on_timeline(item, sent_ns, now_ns := self._hub.timeline.now_ns())
            report = Outgoing(item, stream.acknowledge, partial(self._admit_now, stream))
            if await self._bus.offer(report, now_ns):
                return
            # The times are on the timeline by now.
            sent_ns = now_ns
        while not inbox.has_room():
            if self._hub.committer.failing:
                break
            await inbox.wait_for_room()
        put_on_timeline(item, sent_ns, self._hub.timeline.now_ns())
        self._admit_now(stream, item)

    def _admit_now(self, stream: Stream, item: EvidenceItem) -> None:
        """No stream has `item`, as far as is known: an alarm does not wait for one."""
        if self._hub.inbox.has_room():
            self._hub.inbox.admit(item, stream.acknowledge)
        else:
            self._hub.inbox.show_unstored(item)
            stream.owed = True
