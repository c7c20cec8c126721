"""The publisher: sends reports to the stream without waiting, and matches the server's acknowledgements to them.

Each message names a separate subject for its answer, by which the acknowledgement finds its report. A report leaves the
publisher once, by one callback: `done` if the stream stored it, `failed` if not or if that is unknown. At most
MAX_REPORTS and MAX_BYTES are pending.

If a server leaves the oldest report unanswered for longer than its `Patience`, `watch` raises BusError. The bus then
ends the connection, and the callbacks of failed reports choose another way.
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from nats.aio.msg import Msg

from embereye.addons.nats.connection import BusError, Connection, parse_answer
from embereye.addons.nats.options import BusOptions
from embereye.addons.nats.stream import MESSAGE_ID
from embereye.hub.evidence_bus import Outgoing
from embereye.hub.report_key import report_key
from embereye.process.reason import reason_of
from embereye.process.timing.silence import LATE_SECONDS
from embereye.units import MIB
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest

MAX_REPORTS = 4_000  # sent and not acknowledged yet
MAX_BYTES = 32 * MIB  # of those reports
HEADER_BYTES = 1_024  # a message's most overhead besides its payload
ORIGIN = "Embereye-Origin"  # header that names the timeline of a report's times


@dataclass(frozen=True)
class Patience:
    """The time for which a server may be silent, in seconds."""

    answer: float = 2.0  # until it acknowledges a report, before alarms bypass it
    check: float = 0.25  # between two checks of that
    late: float = LATE_SECONDS  # of a check: this process was stopped


@dataclass(frozen=True)
class _Sent:
    report: Outgoing
    size: int
    deadline: float  # monotonic seconds


class Publisher:
    """Publishes reports on one connection. For the event loop's thread."""

    def __init__(
        self, connection: Connection, options: BusOptions, origin: str, patience: Patience = Patience()
    ) -> None:
        """`origin` names the timeline of the reports' times."""
        self._connection = connection
        self._patience = patience
        self._options = options
        self._origin = origin
        self._inbox = connection.new_inbox()
        self._sent: OrderedDict[str, _Sent] = OrderedDict()  # by the last part of the answer's subject
        self._bytes = 0
        self._number = 0
        self._freed = asyncio.Event()
        self.published = 0  # reports that the stream acknowledged
        self.refused = ""  # why the stream refused the latest report; '' if it did not

    async def open(self) -> None:
        """Subscribe to answers."""
        await self._connection.subscribe(f"{self._inbox}.*", self._answered)

    async def wait_for_room(self) -> None:
        """Wait until another report may be sent."""
        while len(self._sent) >= MAX_REPORTS or self._bytes >= MAX_BYTES:
            self._freed.clear()
            await self._freed.wait()

    async def send(self, report: Outgoing, now_ns: int) -> None:
        """Publish `report`; `now_ns` is the current time on the timeline of its times.

        Unless this raises BusError, exactly one of the report's callbacks is called once.
        """
        payload = self._payload(report.item, now_ns)
        self._number += 1
        number = str(self._number)
        self._sent[number] = _Sent(report, len(payload), time.monotonic() + self._patience.answer)
        self._bytes += len(payload)
        headers = {MESSAGE_ID: report_key(report.item, report.shard), ORIGIN: self._origin}
        try:
            await self._connection.publish(
                self._options.subject, payload, reply=f"{self._inbox}.{number}", headers=headers
            )
        except BusError:
            if self._remove(number) is not None:
                raise

    def _payload(self, item: EvidenceItem, now_ns: int) -> bytes:
        payload = ReportRequest(evidence=item, sent_ns=now_ns).SerializeToString()
        if len(payload) + HEADER_BYTES > self._connection.max_message_bytes and item.snapshot:
            # An alarm without its picture is better than no alarm.
            item = EvidenceItem.FromString(item.SerializeToString())
            item.ClearField("snapshot")
            payload = ReportRequest(evidence=item, sent_ns=now_ns).SerializeToString()
        return payload

    def _remove(self, number: str) -> _Sent | None:
        sent = self._sent.pop(number, None)
        if sent is not None:
            self._bytes -= sent.size
            self._freed.set()
        return sent

    async def _answered(self, message: Msg) -> None:
        sent = self._remove(message.subject.rpartition(".")[2])
        if sent is None:
            return
        try:
            if not message.data:
                raise BusError("the stream does not exist: nothing accepts the published reports")
            parse_answer(message.data, "publishing")
        except BusError as error:
            self.refused = reason_of(error)
            sent.report.failed(sent.report.item)
            return
        self.refused = ""
        self.published += 1
        sent.report.done(sent.report.item.id)

    async def watch(self) -> None:
        """Raise BusError once the server has left a report unanswered for too long."""
        patience, checked, excused_until = self._patience, time.monotonic(), float("-inf")
        while True:
            await asyncio.sleep(patience.check)
            now = time.monotonic()
            if now - checked > patience.check + patience.late and now - excused_until >= patience.answer:
                # This process was stopped and has not read the answers yet. Excuse it only once: alarms are waiting.
                excused_until = now + patience.answer
            checked, oldest = now, next(iter(self._sent.values()), None)
            if oldest is not None and now > max(oldest.deadline, excused_until):
                raise BusError(f"{self._connection.server} did not acknowledge a report in {patience.answer:g} s")

    def fail_pending(self) -> None:
        """Report every unacknowledged report as failed, so that it takes another way."""
        while self._sent:
            _, sent = self._sent.popitem(last=False)
            sent.report.failed(sent.report.item)
        self._bytes = 0
        self._freed.set()
