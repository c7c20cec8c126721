"""Cameras as a load: each client a stream that pushes frames when they are due, and learns what became of them."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import grpc

from embereye.process.http.bearer import bearer
from embereye.process.tasks import beside
from embereye.process.tls.client import ClientTls, dial
from embereye.sim.load.clients import CONNECT_SECONDS, STALLED_SECONDS, Pace, keep_speaking
from embereye.sim.load.figures import ClientFigures
from embereye.sim.scenes.films import Cameras
from embereye.v1.frames_pb2 import PushRequest, PushResponse
from embereye.v1.frames_pb2_grpc import FramesStub

SETTLE_SECONDS = 1.5  # at the end, for what the shard still says of frames


@dataclass(frozen=True)
class CameraLoad:
    """What cameras are to push."""

    target: str  # host:port
    rate: float  # frames/s of each client
    packets: int = 0  # frames of each client; 0: until stopped
    token: str = ""
    tls: ClientTls | None = None
    seed: int = 1


async def push_load(cameras: Cameras, figures: Sequence[ClientFigures], load: CameraLoad) -> None:
    """Let every camera push what `load` says, counted in `figures`; over when all have pushed everything."""
    for figure in figures:  # drawn before the clock runs
        loop, _ = cameras.films[figure.id].place(0.0)
        await asyncio.to_thread(list, loop)
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for index, figure in enumerate(figures):
            pace = Pace(load.rate, load.packets, began + index / load.rate / len(figures))
            speak = partial(_push, cameras, figure, pace, load)
            group.create_task(keep_speaking(speak, figure, pace, load.seed), name=f"load-{figure.id}")


async def _push(cameras: Cameras, figure: ClientFigures, pace: Pace, load: CameraLoad) -> None:
    link = dial(load.target, load.tls, (("grpc.use_local_subchannel_pool", 1),))
    call = FramesStub(link).Push(metadata=bearer(load.token))
    film = cameras.films[figure.id]
    analysed, shed = figure.acknowledged, figure.shed
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await call.wait_for_connection()
        figure.connections += 1
        async with beside(_receive(call, figure, analysed, shed), name=f"acks-{figure.id}") as receiving:
            while not pace.over and not receiving.done():
                due = await pace.next()
                # A camera does not send its past: what has become due meanwhile is left out, and counted.
                figure.skipped += pace.skip_to(time.monotonic())
                frame = film.frame(due - pace.began)
                request = PushRequest(
                    camera=figure.id, sequence=pace.number, time_ns=time.time_ns(), image=frame, raw=film.raw
                )
                async with asyncio.timeout(STALLED_SECONDS):
                    await call.write(request)
                figure.latencies.add(time.monotonic() - due)
                figure.sent(len(frame))
            if not receiving.done():
                await call.done_writing()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SETTLE_SECONDS):
                        await asyncio.shield(receiving)
            if receiving.done():
                await receiving
    finally:
        call.cancel()
        await link.close()


async def _receive(
    call: "grpc.aio.StreamStreamCall[PushRequest, PushResponse]", figure: ClientFigures, analysed: int, shed: int
) -> None:
    """Keep what the shard says of this stream's frames, which were none before `analysed` and `shed`."""
    async for response in call:
        if response.HasField("ack"):
            figure.acknowledged = analysed + response.ack.analysed
            figure.shed = shed + response.ack.shed
        elif response.HasField("rejected"):
            raise ConnectionRefusedError(f"rejected: {response.rejected.reason}")
        elif response.HasField("drain"):
            raise ConnectionResetError(f"sent on to {response.drain.target or 'the fleet'}: {response.drain.reason}")
