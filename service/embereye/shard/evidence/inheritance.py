"""The reports of a shard that has to go while the hub is away: another shard of its fleet takes them over."""

import logging
from collections.abc import Callable, Sequence

import grpc

from embereye.shard.evidence.spool import CAPACITY, Spool
from embereye.shard.links import PeerAddress
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.shard_pb2 import InheritRequest
from embereye.v1.shard_pb2_grpc import ShardStub

logger = logging.getLogger(__name__)
BATCH = 100  # reports
BATCH_BYTES = 2 << 20  # of one request; a single report with its picture is less than the 4 MB that gRPC takes
ANSWER_SECONDS = 5.0
ROOM = CAPACITY // 2  # reports of its own and of others that a shard holds before it takes no more of others


async def hand_over(spool: Spool, peers: Sequence[PeerAddress], dial: Callable[[PeerAddress], grpc.aio.Channel]) -> str:
    """Have one of `peers` take what waits in `spool`; the name of who took the last of it, '' where nobody did.

    What is taken is forgotten here. The hub may be sent some of it twice, which counts once.
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
            logger.info("%s does not take our reports over: %s: %s", peer.shard, error.code().name, error.details())
        finally:
            await link.close(None)
        if not len(spool):
            return peer.shard
    return ""


def _batch(spool: Spool) -> list[EvidenceItem]:
    found: list[EvidenceItem] = []
    size = 0
    for _, report in spool.after(0, BATCH):
        size += report.ByteSize()
        if found and size > BATCH_BYTES:
            break
        found.append(report)
    return found


def refusal(reports: Sequence[EvidenceItem], fleet: str, held: int) -> str:
    """Why a shard of `fleet` that holds `held` reports takes none of `reports` over; '' where it does."""
    if foreign := next((report for report in reports if report.fleet != fleet or not report.id), None):
        return f'a report of "{foreign.fleet[:200]}" with id "{foreign.id[:80]}": this is a shard of {fleet}'
    if len(reports) > BATCH:
        return f"{len(reports)} reports at once: at most {BATCH}"
    return f"{held} reports wait here already" if held + len(reports) > ROOM else ""
