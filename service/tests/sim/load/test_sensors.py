"""Sensors as a load, with servers in trouble."""

import asyncio
import socket

import pytest

from embereye.process.addresses import LOOPBACK
from embereye.process.tasks import beside
from embereye.sim.load.figures import ClientFigures
from embereye.sim.load.sensors import SensorLoad, send_sensors

PATIENCE = 30.0  # seconds; only a broken load test needs them


async def test_a_client_counts_a_server_that_accepts_nothing_and_redials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("embereye.sim.load.sensors.STALLED_SECONDS", 0.05)
    figure = ClientFigures("a")
    with socket.create_server((LOOPBACK, 0)) as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        load = SensorLoad(f"{LOOPBACK}:{silent.getsockname()[1]}", rate=50_000, frames=True)
        async with beside(send_sensors([figure], load), name="load"), asyncio.timeout(PATIENCE):
            while figure.connections < 2:
                await asyncio.sleep(0.01)
    assert figure.errors["timed out"] >= 1
