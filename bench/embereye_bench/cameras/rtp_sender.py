"""Measure our RTP/JPEG sender alone: `python -m embereye_bench.cameras.rtp_sender FILMS RATE PORT`."""

import asyncio
import json
import signal
import sys
import time
from functools import partial
from pathlib import Path

import uvloop

from embereye.sim.cameras.rtp import send_rtp
from embereye.sim.scenes.films import Cameras, CameraSpec, looped_film
from embereye_bench.films import load
from embereye_bench.process import peak_mb
from embereye_bench.sensors.load import HOST


def _place(loop: tuple[bytes, ...], rate: float, seconds: float) -> tuple[tuple[bytes, ...], int]:
    return loop, int(seconds * rate) % len(loop)


async def send(folder: Path, rate: float, port: int) -> dict[str, float]:
    """Send one camera's film to `port` until SIGINT; return the counts and the peak memory."""
    cameras, stop = Cameras([CameraSpec("0")], started=time.monotonic()), asyncio.Event()
    cameras.films["0"] = looped_film(rate, partial(_place, load(folder).films[0], rate))
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    await send_rtp(cameras, HOST, port, stop)
    return {"sent": cameras.sent, "unsent": cameras.unsent, "peak_mb": peak_mb()}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(send(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))))
