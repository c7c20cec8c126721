"""The Evidence service of the hub that owns the database: shards report, and durable reports are acknowledged.

With a bus, a report is offered to the bus, from which it reaches the inbox later. Without one, or if the bus fails, it
goes directly to the inbox. Either acknowledges it once it is durable. Before that, its times are put on the hub's
timeline.

While the inbox is full, the stream is not read. If the database cannot be written, a report still steps its zone, so
that people see the alarm, and the shard has to send it again.
"""

import asyncio
import logging
import time
from functools import partial

from embereye.hub.evidence_bus import EvidenceBus, Outgoing
from embereye.hub.hub import Hub
from embereye.hub.report_key import report_key
from embereye.hub.services.reports import ReportServicer, Stream
from embereye.hub.timeline import put_on_timeline, put_statuses_on_timeline
from embereye.v1.evidence_pb2 import Coverage, EvidenceItem

logger = logging.getLogger(__name__)
FLUSH_SECONDS = 0.3  # to store accepted reports when the hub stops
RECOVERED = "the hub accepts reports again. Dial again, and send unacknowledged evidence."


class EvidenceService(ReportServicer):
    """Acknowledges what the database has stored; with a `bus`, what its stream has stored while that works."""

    def __init__(self, hub: Hub, bus: EvidenceBus | None = None) -> None:
        super().__init__()
        self._hub = hub
        self._bus = bus
        hub.false_alarms.subscribe(self._send_marked)
        hub.coverage.self_tests.subscribe(self._send_tests)

    @property
    def clocks_wrong(self) -> int:
        """The number of shards whose wall clock differs from the hub's."""
        return sum(stream.skew.wrong for stream in self._streams)

    async def on_end(self, stream: Stream) -> None:
        """Store the ledgers; see `ReportServicer.on_end`."""
        self._hub.coverage.store_ledgers()
        if self._closing.is_set() and await self._hub.committer.flush(FLUSH_SECONDS):
            # Everything accepted is stored now; a shard that learns this need not send it again.
            await asyncio.sleep(0.02)

    @property
    def failing(self) -> str:
        """The reason why reports cannot be stored; see `ReportServicer.failing`."""
        return self._hub.committer.failing if self._bus is None or self._bus.failing else ""

    @property
    def redial_reason(self) -> str:
        """The message for shards that have to dial again; see `ReportServicer.redial_reason`."""
        return RECOVERED

    def _send_marked(self) -> None:
        for stream in self._streams:
            self.on_begin(stream)

    def _send_tests(self) -> None:
        for stream in self._streams:
            stream.send("tests", self._hub.coverage.self_tests.of(stream.fleet))

    def on_begin(self, stream: Stream) -> None:
        """Send the marked places and the self-tests; see `ReportServicer.on_begin`."""
        stream.send("marked", self._hub.false_alarms.places(stream.fleet))
        stream.send("tests", self._hub.coverage.self_tests.of(stream.fleet))

    def note_coverage(self, stream: Stream, coverage: Coverage) -> None:
        """Record a shard's coverage; see `ReportServicer.note_coverage`."""
        stream.skew.observe(coverage, time.time_ns())
        if stream.fleet != coverage.fleet:  # it had no assignment at its hello
            stream.fleet = coverage.fleet
            self.on_begin(stream)
        put_statuses_on_timeline(coverage, self._hub.timeline.now_ns())
        self._hub.coverage.report(coverage, stream.ledgers_durable)
        self._hub.canaries.expect(coverage)

    async def admit_report(self, stream: Stream, item: EvidenceItem, sent_ns: int) -> None:
        """Accept a report; see `ReportServicer.admit_report`."""
        inbox = self._hub.inbox
        if not item.id:
            inbox.counters.unusable += 1
            logger.warning("shard %s sent evidence without an id: ignored", stream.hello.shard)
            return
        if self._bus is not None:
            put_on_timeline(item, sent_ns, now_ns := self._hub.timeline.now_ns())
            report = Outgoing(item, stream.acknowledge, partial(self._admit_now, stream), stream.shard)
            if await self._bus.offer(report, now_ns):
                return
            # The report's times are on the timeline now.
            sent_ns = now_ns
        while not inbox.has_room():
            if self._hub.committer.failing:
                break
            await inbox.wait_for_room()
        put_on_timeline(item, sent_ns, self._hub.timeline.now_ns())
        self._admit_now(stream, item)

    def _admit_now(self, stream: Stream, item: EvidenceItem) -> None:
        """Accept `item` without a stream: an alarm does not wait for one."""
        key = report_key(item, stream.shard)
        if self._hub.inbox.has_room():
            self._hub.inbox.admit(item, stream.acknowledge, key=key)
        else:
            self._hub.inbox.show_unstored(item, key)
            stream.resend_due = True
