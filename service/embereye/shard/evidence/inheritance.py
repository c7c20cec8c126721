"""Hand a shard's unacknowledged reports over to another shard, if it has to end while the hub is down."""

import logging
from collections.abc import Callable, Sequence

import grpc

from embereye.process.reason import reason_of
from embereye.shard.evidence.spool import CAPACITY, Spool
from embereye.shard.links import PeerAddress
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.shard_pb2 import InheritRequest
from embereye.v1.shard_pb2_grpc import ShardStub

logger = logging.getLogger(__name__)
BATCH = 100  # reports
BATCH_BYTES = 2 << 20  # of one request; with a last report and its picture it is below gRPC's 4 MB
ANSWER_SECONDS = 5.0
LONGEST = 300  # characters of a name: the hub ends streams of reports with names that are too long
ROOM = CAPACITY // 2  # reports in a shard's spool from which it accepts none of other shards


async def hand_over(spool: Spool, peers: Sequence[PeerAddress], dial: Callable[[PeerAddress], grpc.aio.Channel]) -> str:
    """Hand the reports in `spool` over to `peers`; return the name of the peer that took the last one, else ''.

    Reports that a peer has taken are removed here. The hub recognizes those that it had from this shard.
    """
    for peer in peers:
        link = dial(peer)
        try:
            while batch := _batch(spool):
                answer = await ShardStub(link).Inherit(InheritRequest(reports=batch), timeout=ANSWER_SECONDS)
                spool.acknowledge(list(answer.taken))
                if not answer.taken:
                    break
        except grpc.aio.AioRpcError as error:
            logger.info("shard %s: does not take over reports: %s", peer.shard, reason_of(error))
        finally:
            await link.close(None)
        if not len(spool):
            return peer.shard
    return ""


def _batch(spool: Spool) -> list[EvidenceItem]:
    batch: list[EvidenceItem] = []
    size = 0
    for _, report in spool.after(0, BATCH):
        size += report.ByteSize()
        if batch and size > BATCH_BYTES:
            break
        batch.append(report)
    return batch


def inherited(report: EvidenceItem, shard: str) -> EvidenceItem:
    """Copy `report` of `shard` under the id "SHARD/ID", which no report of another shard has."""
    copy = EvidenceItem()
    copy.CopyFrom(report)
    copy.id = f"{shard}/{report.id}"
    return copy


def refusal(reports: Sequence[EvidenceItem], fleet: str, spooled: int) -> str:
    """The reason why a shard of `fleet` with `spooled` reports does not take over `reports`; '' if it does."""
    if foreign := next((report for report in reports if report.fleet != fleet or not report.id), None):
        return f'a report of "{foreign.fleet[:200]}" with id "{foreign.id[:80]}": this is a shard of {fleet}'
    names = (name for report in reports for name in (report.id, report.episode, report.device, report.zone))
    if overlong := next((name for name in names if len(name) > LONGEST), None):
        return f'a report with the name "{overlong[:80]}…": names of more than {LONGEST} characters are not allowed'
    if len(reports) > BATCH:
        return f"{len(reports)} reports in one request: send at most {BATCH}"
    return f"{spooled} reports already wait here" if spooled + len(reports) > ROOM else ""
