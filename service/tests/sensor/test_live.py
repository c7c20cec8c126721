"""Live thermal pictures: every frame of a sensor, only while somebody looks at it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from harness.eventually import eventually
from harness.settings import sensor_settings

from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.live_call import SERVICE, add_live
from embereye.process.tasks import Tasks
from embereye.sensor.shard import SensorShard
from embereye.shard import live as limits
from embereye.shard.links import Links
from embereye.shard.service import ShardContext, ShardOptions
from embereye.sim.sensors import Chip
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device
from embereye.wire.thermal_picture import MARK, MISSING

START = 10**18


class Viewing:
    """The hub's side: asks for sensors, and notes their pictures."""

    def __init__(self) -> None:
        self.fleets: list[str] = []
        self.statuses: list[DeviceStatus] = []
        self._wanted: asyncio.Queue[list[str]] = asyncio.Queue()

    def look_at(self, *devices: str) -> None:
        self._wanted.put_nowait(list(devices))

    async def show(self, requests: AsyncIterator[Coverage], _: object) -> AsyncIterator[FleetRoster]:
        reading = asyncio.ensure_future(self._read(requests))
        try:
            while True:
                devices = await self._wanted.get()
                yield FleetRoster(devices=[Device(id=name) for name in devices])
        finally:
            reading.cancel()

    async def _read(self, requests: AsyncIterator[Coverage]) -> None:
        async for report in requests:
            self.fleets.append(report.fleet)
            self.statuses += report.devices


class Watched:
    """A shard with calibrated sensors."""

    def __init__(self, shard: SensorShard, viewing: Viewing) -> None:
        self.shard = shard
        self.viewing = viewing
        self._chip = Chip(7)
        self._frames = 0

    @property
    def live(self) -> limits.LiveSender:
        return self.shard.batcher.live

    def calibrate(self, name: str) -> None:
        self.shard.batcher.calibrate(self.shard.fleet.owned_devices[name], self._chip.eeprom, START)

    def send(self, name: str, words: bytes = b"") -> None:
        """Let a sensor send a frame."""
        self._frames += 1
        device, at_ns = self.shard.fleet.owned_devices[name], START + self._frames * SECOND // 16
        self.shard.batcher.add_frame(device, words or self._chip.frame(0.0, self._frames), at_ns)
        self.shard.batcher.analyse_collected(at_ns)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    viewing, shard = Viewing(), SensorShard()
    control = GrpcServer([Service(add_live, viewing, SERVICE)], control=True)
    port = control.listen("127.0.0.1:0")
    await control.start()
    options = ShardOptions("hall-0", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
    async with Tasks() as tasks:
        links = Links(f"127.0.0.1:{port}")
        await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None, links=links))
        devices = [Device(id=name, zone="hall") for name in ("t-1", "t-2")]
        shard.apply(Assignment(fleet="default/sensors/hall", epoch=1, devices=devices, sensor=sensor_settings()))
        yield Watched(shard, viewing)
        await shard.stop()
    await control.stop(0.2)


def celsius(status: DeviceStatus) -> np.ndarray:
    assert status.picture[:2] == MARK + b"\0"
    return np.frombuffer(status.picture[2:], ">i2") / 10


async def test_each_frame_is_sent_while_somebody_looks(watched: Watched) -> None:
    for name in ("t-1", "t-2"):
        watched.calibrate(name)
        watched.send(name)
    assert (watched.live.shown, watched.viewing.statuses) == (0, [])
    watched.viewing.look_at("t-1")
    await eventually(lambda: "t-1" in watched.live.wanted)
    for number in range(1, 6):
        for name in ("t-1", "t-2"):
            watched.send(name)
        await eventually(lambda number=number: len(watched.viewing.statuses) == number)
    assert {status.id for status in watched.viewing.statuses} == {"t-1"}
    picture = watched.shard.fleet.owned_devices["t-1"].frames.picture
    assert picture is not None
    assert celsius(watched.viewing.statuses[-1]) == pytest.approx(picture.pixels.ravel(), abs=0.06)
    assert watched.viewing.fleets[0] == "default/sensors/hall"
    watched.viewing.look_at()
    await eventually(lambda: not watched.live.wanted)
    watched.send("t-1")
    assert watched.live.shown == 0


async def test_a_slow_hub_gets_the_newest_frame(watched: Watched) -> None:
    watched.calibrate("t-1")
    watched.viewing.look_at("t-1")
    await eventually(lambda: "t-1" in watched.live.wanted)
    for _ in range(10):  # in one turn of the event loop
        watched.send("t-1")
    await eventually(lambda: watched.viewing.statuses)
    assert watched.live.dropped == 9
    assert len(watched.viewing.statuses) == 1


async def test_raw_counts_of_an_uncalibrated_sensor_are_named(watched: Watched) -> None:
    watched.viewing.look_at("t-1")
    await eventually(lambda: "t-1" in watched.live.wanted)
    watched.send("t-1")
    await eventually(lambda: watched.viewing.statuses)
    assert watched.viewing.statuses[0].picture[:2] == MARK + b"\1"
    assert MISSING not in np.frombuffer(watched.viewing.statuses[0].picture[2:], ">i2")


async def test_a_shard_shows_a_limited_number_of_sensors_and_says_so(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_DEVICES", 1)
    watched.viewing.look_at("t-1", "t-2")
    await eventually(lambda: len(watched.live.wanted) == 2)
    for name in ("t-1", "t-2"):
        watched.send(name)
    statuses = watched.viewing.statuses
    await eventually(
        lambda: {status.reason for status in statuses} == {"", "its shard shows 1 devices already. Close one."}
    )
    values = {sample.name: sample.value for metric in watched.shard.metrics() for sample in metric.samples}
    assert values["embereye_sensor_live_devices"] == 1
