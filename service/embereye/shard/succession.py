"""Continue after a stop request until another process answers under this shard's name.

If a pod is deleted, preempted, or on a node that shuts down, its successor starts seconds later. Without the wait, its
devices would be dark until then. A planned change of placement moves the devices first, so it needs no wait.
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
PROPAGATION_SECONDS = 1.0  # after a successor answers here, because other nodes learn of it later
OTHER_VERSION = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED}


async def await_successor(
    address: PeerAddress, me: IdentifyResponse, dial: Callable[[PeerAddress], grpc.aio.Channel], seconds: float
) -> bool:
    """Wait until another process, ready with the epoch of `me` or later, answers at the shard's `address`.

    False if `seconds` passed first.
    """
    deadline = time.monotonic() + seconds
    asked = 0
    while time.monotonic() < deadline:
        if await _has_successor(address, me, dial):
            await asyncio.sleep(PROPAGATION_SECONDS if asked else 0)
            return True
        asked += 1
        await asyncio.sleep(POLL_SECONDS)
    return False


async def _has_successor(
    address: PeerAddress, me: IdentifyResponse, dial: Callable[[PeerAddress], grpc.aio.Channel]
) -> bool:
    try:
        async with dial(address) as link:
            answer = await ShardStub(link).Identify(IdentifyRequest(), timeout=ANSWER_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code() in OTHER_VERSION  # another process: this one would have answered
    except (grpc.aio.BaseError, OSError):
        logger.exception("%s: asking for a successor failed", address.control)
        return False
    return answer.started_ns != me.started_ns and answer.ready and answer.epoch >= me.epoch
