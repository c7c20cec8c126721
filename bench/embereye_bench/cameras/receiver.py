"""Measure our RTP/JPEG receiver alone: pictures are assembled, counted and dropped."""

import asyncio
import contextlib
import json
import os
import signal
import sys

import uvloop

from embereye.camera.sources.declared import parse_source
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtp.source import RtpSource
from embereye.process.tasks import start_task
from embereye.process.telemetry.usage import resident_mb
from embereye.units import Box
from embereye.wire.video.access_unit import AccessUnit
from embereye_bench.process import peak_mb
from embereye_bench.sensors.load import HOST

STEADY_PICTURES = 60  # pictures, after which memory should not grow


async def receive(port: int) -> dict[str, float]:
    """Receive until SIGINT; return the counts."""
    counts = {"pictures": 0.0, "damaged": 0.0, "memory_mb": 0.0, "blocks": 0.0}

    def offer(data: bytes | AccessUnit, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        counts["pictures"] += 1
        counts["damaged"] += bool(lost)
        if counts["pictures"] == STEADY_PICTURES:
            counts["memory_mb"], counts["blocks"] = resident_mb(os.getpid()), sys.getallocatedblocks()

    source = RtpSource(parse_source(f"rtp://{HOST}:{port}"), SocketPoller())
    playing = start_task(source.play(offer, lambda _: None), name="play")
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, playing.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await playing
    counts["blocks"] = sys.getallocatedblocks() - counts["blocks"]
    return counts | {"peak_mb": peak_mb()}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(receive(int(sys.argv[1])))))
