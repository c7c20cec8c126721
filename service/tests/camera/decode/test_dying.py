"""Cameras that stop, die and come back, one per transport, in separate processes."""

import asyncio
import contextlib
import signal
import socket
import sys
from typing import Any

import pytest
from harness.eventually import eventually

from embereye.camera.scheduling.mailbox import Tally
from embereye.process.addresses import free_port, free_ports
from embereye.process.grpc_server import GrpcServer

from ..conftest import assignment, device, noisy_jpeg, status_of

SIMULATE = (sys.executable, "-m", "embereye_cli", "simulate", "cameras", "--count", "1", "--fps", "10")
DEAD_SECONDS = 10  # longer than any source waits for a packet


class Cameras:
    """A source and its sending process per transport."""

    def __init__(self, shard_address):
        tcp, udp, web = (f"127.0.0.1:{port}" for port in free_ports(3))
        rtp = f"127.0.0.1:{free_port(socket.SOCK_DGRAM)}"
        self.sources = {
            "rtsp-tcp": (f"rtsp://{tcp}/camera-1", "--rtsp", tcp),
            "rtsp-udp": (f"rtsp://{udp}/camera-1?transport=udp", "--rtsp", udp),
            "http": (f"http://{web}/camera-1.mjpg", "--listen", web),
            "rtp": (f"rtp://{rtp}", "--rtp", rtp),
            "camera-1": ("push:", "--push", shard_address),
        }
        self.processes = []

    async def start(self):
        quiet: dict[str, Any] = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
        self.processes = [
            await asyncio.create_subprocess_exec(*SIMULATE, *arguments, **quiet)
            for _, *arguments in self.sources.values()
        ]

    def send(self, number):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


async def offered(shard, count):
    """Push a frame to the calm camera every tenth of a second; `count[0]` counts them."""
    while True:
        shard.admit_pushed_frame("calm", noisy_jpeg(count[0]), 0, Tally())
        count[0] += 1
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_cameras_that_stop_or_die_become_dark_and_return_without_side_effects(running):
    shard, count = running.shard, [0]
    server = GrpcServer(shard.services())
    cameras = Cameras(f"127.0.0.1:{server.listen('127.0.0.1:0')}")
    await server.start()
    shard.apply(assignment(1, device("calm"), *(device(name, of[0]) for name, of in cameras.sources.items())))

    def covered():
        return {name for name in cameras.sources if status_of(shard, name).covered}

    calm = asyncio.ensure_future(offered(shard, count))
    try:
        await cameras.start()
        await eventually(lambda: covered() == set(cameras.sources), 60)
        cameras.send(signal.SIGSTOP)
        await eventually(lambda: not covered(), 60)
        await asyncio.sleep(DEAD_SECONDS)
        states = {name: status_of(shard, name).state for name in cameras.sources}
        assert all("no answer" in states[name] for name in ("rtsp-tcp", "rtsp-udp", "http"))
        assert "no packets" in states["rtp"]
        assert states["camera-1"] == "waiting for a sender"
        cameras.send(signal.SIGCONT)
        await eventually(lambda: covered() == set(cameras.sources), 60)
        cameras.send(signal.SIGKILL)
        await eventually(lambda: not covered(), 60)
        await cameras.start()
        await eventually(lambda: covered() == set(cameras.sources), 60)
        ledger = status_of(shard, "calm").ledger
        assert ledger.analysed >= 0.95 * count[0]
    finally:
        calm.cancel()
        cameras.send(signal.SIGKILL)
        await asyncio.gather(*(process.wait() for process in cameras.processes))
        await server.stop(0.1)
