"""Reports on their way into the stream: sent one after another, acknowledged as the server has them."""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from nats.aio.msg import Msg

from embereye.hub.bus.connection import BusError, Connection, checked, sentence
from embereye.hub.bus.options import BusOptions
from embereye.hub.bus.outgoing import Outgoing
from embereye.hub.bus.stream import MESSAGE_ID, message_id
from embereye.process.timing.silence import LATE_SECONDS
from embereye.units import MIB
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest

MOST = 4_000  # reports that are not acknowledged yet
MOST_BYTES = 32 * MIB
PATIENCE_SECONDS = 2.0  # with a server that does not acknowledge, before alarms go on without it
WATCH_SECONDS = 0.25
HEADER_BYTES = 1_024  # that a message takes beside its payload, at the most
ORIGIN = "Embereye-Origin"  # whose timeline a report's times are on


@dataclass(frozen=True)
class _Sent:
    report: Outgoing
    size: int
    deadline: float  # monotonic seconds


class Publisher:
    """Of one connection. Everything happens on the event loop's thread."""

    def __init__(self, connection: Connection, options: BusOptions, origin: str) -> None:
        """`origin` names the timeline of the reports."""
        self._connection = connection
        self._options = options
        self._origin = origin
        self._inbox = connection.new_inbox()
        self._sent: OrderedDict[str, _Sent] = OrderedDict()  # by the last part of the subject of the answer
        self._bytes = 0
        self._number = 0
        self._freed = asyncio.Event()
        self.published = 0  # reports that the stream has
        self.refused = ""  # why it took none of late; '': it does

    async def open(self) -> None:
        """Be ready for answers."""
        await self._connection.subscribe(f"{self._inbox}.*", self._answered)

    async def room(self) -> None:
        """Wait until another report may be sent."""
        while len(self._sent) >= MOST or self._bytes >= MOST_BYTES:
            self._freed.clear()
            await self._freed.wait()

    async def send(self, report: Outgoing, now_ns: int) -> None:
        """Publish `report`, whose times are on the timeline on which it is `now_ns`.

        Whatever happens, one of its callbacks is called once, unless this raises BusError.
        """
        payload = self._payload(report.item, now_ns)
        self._number += 1
        number = str(self._number)
        self._sent[number] = _Sent(report, len(payload), time.monotonic() + PATIENCE_SECONDS)
        self._bytes += len(payload)
        headers = {MESSAGE_ID: message_id(report.item.id), ORIGIN: self._origin}
        try:
            await self._connection.publish(
                self._options.subject, payload, reply=f"{self._inbox}.{number}", headers=headers
            )
        except BusError:
            if self._settle(number) is not None:
                raise

    def _payload(self, item: EvidenceItem, now_ns: int) -> bytes:
        payload = ReportRequest(evidence=item, sent_ns=now_ns).SerializeToString()
        if len(payload) + HEADER_BYTES > self._connection.max_message_bytes and item.snapshot:
            # An alarm without its picture is better than none.
            item = EvidenceItem.FromString(item.SerializeToString())
            item.ClearField("snapshot")
            payload = ReportRequest(evidence=item, sent_ns=now_ns).SerializeToString()
        return payload

    def _settle(self, number: str) -> _Sent | None:
        sent = self._sent.pop(number, None)
        if sent is not None:
            self._bytes -= sent.size
            self._freed.set()
        return sent

    async def _answered(self, message: Msg) -> None:
        sent = self._settle(message.subject.rpartition(".")[2])
        if sent is None:
            return
        try:
            if not message.data:
                raise BusError("nobody takes what is published: the stream is not there")
            checked(message.data, "publishing")
        except BusError as error:
            self.refused = sentence(error)
            sent.report.failed(sent.report.item)
            return
        self.refused = ""
        self.published += 1
        sent.report.done(sent.report.item.id)

    async def watch(self) -> None:
        """Wait until the server leaves a report without an answer; raises BusError then."""
        looked, excused = time.monotonic(), float("-inf")
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            if now - looked > WATCH_SECONDS + LATE_SECONDS and now - excused >= PATIENCE_SECONDS:
                # This process stood still, and has not read any answer since. Not for ever: alarms wait meanwhile.
                excused = now + PATIENCE_SECONDS
            looked, oldest = now, next(iter(self._sent.values()), None)
            if oldest is not None and now > max(oldest.deadline, excused):
                raise BusError(f"{self._connection.server} did not acknowledge a report in {PATIENCE_SECONDS:g} s")

    def give_back(self) -> None:
        """Nothing is waited for any more: what was not acknowledged goes another way."""
        while self._sent:
            _, sent = self._sent.popitem(last=False)
            sent.report.failed(sent.report.item)
        self._bytes = 0
        self._freed.set()
