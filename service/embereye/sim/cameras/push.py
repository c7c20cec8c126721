"""Simulate cameras that push frames over gRPC and follow a shard's redirections."""

import asyncio
import contextlib
import logging
import time

import grpc

from embereye.process.http.bearer import bearer
from embereye.process.reason import reason_of
from embereye.process.tasks import Tasks, first_of
from embereye.process.timing.backoff import Backoff
from embereye.process.tls.client import ClientTls, dial
from embereye.sim.scenes.films import Cameras
from embereye.units import split_address
from embereye.v1.frames_pb2 import PushRequest
from embereye.v1.frames_pb2_grpc import FramesStub

logger = logging.getLogger(__name__)


async def push_cameras(
    cameras: Cameras, target: str, stop: asyncio.Event, token: str = "", tls: ClientTls | None = None
) -> None:
    """Push every camera's frames to `target` (host:port), and follow redirections, until `stop`."""
    async with Tasks() as tasks:
        for spec in cameras.specs:
            tasks.start(_push(cameras, spec.id, target, token, tls), name=f"push-{spec.id}")
        await first_of(stop.wait(), tasks.failed.wait())


async def _push(cameras: Cameras, camera: str, home: str, token: str, tls: ClientTls | None) -> None:
    backoff, target, logged = Backoff(floor=0.1, cap=5.0), home, ""
    while True:
        link = dial(target, tls, server_name=split_address(home)[0])
        try:
            drained = await _push_once(cameras, camera, link, backoff, token)
            reason = f"redirected to {drained or 'the fleet'}"
            target = drained or home
        except grpc.aio.AioRpcError as error:
            reason, target = reason_of(error), home
        finally:
            await link.close(None)
        if reason != logged:
            logger.info("camera %s: %s", camera, reason)
            logged = reason
        await asyncio.sleep(backoff.next())


async def _push_once(cameras: Cameras, camera: str, link: grpc.aio.Channel, backoff: Backoff, token: str) -> str:
    """Push until the shard drains; return the address that it names. AioRpcError if the stream breaks."""
    call = FramesStub(link).Push(metadata=bearer(token))

    async def send() -> None:
        sequence, raw = 0, cameras.films[camera].raw
        # The responses state why the stream ended.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async for frame in cameras.frames(camera):
                sequence += 1
                request = PushRequest(camera=camera, sequence=sequence, time_ns=time.time_ns(), image=frame, raw=raw)
                await call.write(request)

    try:
        async with Tasks() as tasks:
            tasks.start(send(), name=f"push-send-{camera}")
            async for response in call:
                if response.HasField("drain"):
                    return response.drain.target
                if response.HasField("rejected"):
                    logger.warning("camera %s: rejected: %s", camera, response.rejected.reason)
                else:
                    backoff.reset()
            return ""
    finally:
        call.cancel()
