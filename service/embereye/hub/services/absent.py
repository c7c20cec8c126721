"""The services of a replica while no hub owns the database: evidence goes into the stream.

While no owner answers, a standby that has a bus passes connections of its control port to them. The bus acknowledges
reports, and the next owner consumes them from its stream. Coverage is ignored, and calls about clips and rosters are
refused, so that their callers dial again.
"""

import logging
from typing import Any

import grpc

from embereye.hub.evidence_bus import EvidenceBus, Outgoing
from embereye.hub.services.reports import ReportServicer, Stream
from embereye.hub.timeline import put_on_timeline
from embereye.process.grpc_server import Service
from embereye.process.timing.clock import now_ns
from embereye.v1.clips_pb2_grpc import ClipsServicer, add_ClipsServicer_to_server
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.evidence_pb2_grpc import add_EvidenceServicer_to_server
from embereye.v1.roster_pb2_grpc import RosterServicer, add_RosterServicer_to_server

logger = logging.getLogger(__name__)
ABSENT = "no hub owns the database at the moment. Dial again."
REDIAL = "evidence is accepted again. Dial again, and send unacknowledged evidence."


class EvidenceInAbsence(ReportServicer):
    """Accepts evidence for the replica that owns the database next. Coverage waits for that replica."""

    def __init__(self, bus: EvidenceBus) -> None:
        super().__init__()
        self._bus = bus

    @property
    def failing(self) -> str:
        """The reason why reports cannot be stored; see `ReportServicer.failing`."""
        return f"no hub owns the database at the moment; {self._bus.failing}" if self._bus.failing else ""

    @property
    def redial_reason(self) -> str:
        """The message for shards that have to dial again; see `ReportServicer.redial_reason`."""
        return REDIAL

    async def admit_report(self, stream: Stream, item: EvidenceItem, sent_ns: int) -> None:
        """Offer the report to the stream; see `ReportServicer.admit_report`."""
        if not item.id:
            logger.warning("shard %s sent evidence without an id: ignored", stream.hello.shard)
            return
        put_on_timeline(item, sent_ns, now := now_ns())

        def turn_away(_: EvidenceItem) -> None:
            stream.resend_due = True

        if not await self._bus.offer(Outgoing(item, stream.acknowledge, turn_away, stream.shard), now):
            stream.resend_due = True


async def _refuse(_self: object, _request: object, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, ABSENT)


def _absent(servicer: type) -> Any:
    """Make a servicer that refuses every call, to be made again later."""
    calls = {name: _refuse for name in vars(servicer) if not name.startswith("_")}
    return type(f"Absent{servicer.__name__}", (servicer,), calls)()


def services(evidence: EvidenceInAbsence) -> list[Service]:
    """The services of the control port in this time."""
    return [
        Service(add_EvidenceServicer_to_server, evidence, "embereye.v1.Evidence"),
        Service(add_ClipsServicer_to_server, _absent(ClipsServicer), "embereye.v1.Clips"),
        Service(add_RosterServicer_to_server, _absent(RosterServicer), "embereye.v1.Roster"),
    ]
