"""The intake: passes reports from the stream to the hub's inbox, and tracks how far the stream was read.

The consumer calls `accept` for each message in order. The report goes to the inbox with its position in the stream, and
one transaction stores both. After a restart, reading therefore continues after the last durable report. Copies are
recognised by their key.
"""

import logging
from functools import partial

from google.protobuf.message import DecodeError

from embereye.addons.nats.consumer import Delivered
from embereye.hub.hub import Hub
from embereye.hub.tables.consumed import Position
from embereye.hub.timeline import put_on_timeline
from embereye.v1.evidence_pb2 import ReportRequest

logger = logging.getLogger(__name__)


class StreamIntake:
    """A `Reader` for the database's owner: treats a report from the stream like one that a shard sent.

    The transaction that stores a report also stores its position in the stream.
    """

    def __init__(self, hub: Hub, stream: str) -> None:
        self._hub = hub
        self._stream = stream
        self.admitted: Position | None = next(
            (position for position in hub.inbox.consumed if position.stream == stream), None
        )
        self.committed = self.admitted

    async def wait_for_room(self) -> None:
        """Wait until the inbox has room."""
        while not self._hub.inbox.has_room():
            await self._hub.inbox.wait_for_room()

    def accept(self, delivered: Delivered, age_ns: int | None) -> None:
        """Queue a report together with its position; `age_ns` as in `Reader`."""
        position = self.admitted = Position(self._stream, delivered.sequence, delivered.message)
        try:
            request = ReportRequest.FromString(delivered.payload)
        except DecodeError:
            request = ReportRequest()
        item = request.evidence
        if not item.id:
            self._hub.inbox.counters.unusable += 1
            logger.error(
                "message %d of the stream %s: is not a report, it is skipped", delivered.sequence, self._stream
            )
            return
        if age_ns is not None:
            put_on_timeline(item, request.sent_ns, self._hub.timeline.now_ns() - age_ns)
        self._hub.inbox.admit(item, partial(self._durable, position), position, delivered.message)

    def _durable(self, position: Position, _: str) -> None:
        self.committed = position
