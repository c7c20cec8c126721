"""A shard that is told to end goes on until another process answers under its name, which nobody need have planned.

Who moves devices first, as a change of placement does, leaves nothing to wait for. Whose pod is deleted, preempted, or
on a node that is shut down has its successor seconds later, and senders would ask for it in vain until then.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import grpc

from embereye.shard.links import PeerAddress
from embereye.v1.shard_pb2 import IdentifyRequest, IdentifyResponse
from embereye.v1.shard_pb2_grpc import ShardStub

logger = logging.getLogger(__name__)
POLL_SECONDS = 0.25
ANSWER_SECONDS = 1.0
SETTLE_SECONDS = 1.0  # after a successor began to answer here: other nodes learn of it later
OTHER_VERSION = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED}


async def await_successor(
    own: PeerAddress, me: IdentifyResponse, dial: Callable[[PeerAddress], grpc.aio.Channel], seconds: float
) -> bool:
    """Wait until who answers at `own`, the shard's address, is another process that watches what `me` watches.

    False where `seconds` passed first.
    """
    deadline = time.monotonic() + seconds
    asked = 0
    while time.monotonic() < deadline:
        if await _has_successor(own, me, dial):
            await asyncio.sleep(SETTLE_SECONDS if asked else 0)
            return True
        asked += 1
        await asyncio.sleep(POLL_SECONDS)
    return False


async def _has_successor(
    own: PeerAddress, me: IdentifyResponse, dial: Callable[[PeerAddress], grpc.aio.Channel]
) -> bool:
    try:
        async with dial(own) as link:
            answer = await ShardStub(link).Identify(IdentifyRequest(), timeout=ANSWER_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code() in OTHER_VERSION  # it is not this process, which would have answered
    except (grpc.aio.BaseError, OSError):
        logger.exception("%s cannot be asked who answers there", own.control)
        return False
    return answer.started_ns != me.started_ns and answer.ready and answer.epoch >= me.epoch
