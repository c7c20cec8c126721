"""Simulate cameras as a load: each client pushes frames when they are due, and counts their fates."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from functools import partial

import grpc

from embereye.sim.load.clients import STALLED_SECONDS, Load, Pace, check_welcome, open_stream, run_client
from embereye.sim.load.figures import ClientFigures
from embereye.sim.scenes.films import Cameras
from embereye.v1.frames_pb2 import PushRequest, PushResponse
from embereye.v1.frames_pb2_grpc import FramesStub

FINAL_SECONDS = 1.5  # at the end, to wait for the shard's last reports about frames


async def push_load(cameras: Cameras, figures: Sequence[ClientFigures], load: Load) -> None:
    """Let every camera push `load`, counted in `figures`; return when all have pushed everything."""
    for figure in figures:  # drawn before the clock runs
        loop, _ = cameras.films[figure.id].place(0.0)
        await asyncio.to_thread(list, loop)
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for index, figure in enumerate(figures):
            pace = Pace(load.rate, load.packets, began + index / load.rate / len(figures))
            speak = partial(_push, cameras, figure, pace, load)
            group.create_task(run_client(speak, figure, pace, load.seed), name=f"load-{figure.id}")


async def _push(cameras: Cameras, figure: ClientFigures, pace: Pace, load: Load) -> None:
    film = cameras.films[figure.id]
    analysed, shed = figure.acknowledged, figure.shed
    async with open_stream(
        load,
        figure,
        lambda link, shown: FramesStub(link).Push(metadata=shown),
        lambda call: _receive(call, figure, analysed, shed),
    ) as (call, receiving):
        while not pace.is_over and not receiving.done():
            due = await pace.next()
            # A camera does not send old frames: those that became due meanwhile are skipped and counted.
            figure.skipped += pace.skip_to(time.monotonic())
            frame = film.frame(due - pace.began)
            request = PushRequest(
                camera=figure.id, sequence=pace.number, time_ns=time.time_ns(), image=frame, raw=film.raw
            )
            async with asyncio.timeout(STALLED_SECONDS):
                await call.write(request)
            figure.latencies.add(time.monotonic() - due)
            figure.count_sent(len(frame))
        if not receiving.done():
            await call.done_writing()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINAL_SECONDS):
                    await asyncio.shield(receiving)


async def _receive(
    call: "grpc.aio.StreamStreamCall[PushRequest, PushResponse]", figure: ClientFigures, analysed: int, shed: int
) -> None:
    """Count the shard's reports about this stream's frames on top of `analysed` and `shed`, the counts before it."""
    async for response in call:
        check_welcome(response)
        if response.HasField("ack"):
            figure.acknowledged = analysed + response.ack.analysed
            figure.shed = shed + response.ack.shed
