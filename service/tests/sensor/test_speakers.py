"""The choice among several connections that send as the same device."""

import asyncio
from pathlib import Path

import pytest
from harness.settings import sensor_settings

from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.sessions import TextSession
from embereye.sensor.shard import SensorShard
from embereye.sensor.speaker import SUPERSEDED
from embereye.shard.service import ShardContext, ShardOptions
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import DeviceStatus, EvidenceItem
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device

NORMAL, SMOKE = 300, 4000


class Wire(asyncio.Transport):
    """A connection without a network."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1)})

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Played:
    """A shard that owns one device, with a simulated clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shard = SensorShard()
        self.evidence: list[EvidenceItem] = []
        self.now = now_ns()
        monkeypatch.setattr("embereye.sensor.tick.now_ns", lambda: self.now)
        options = ShardOptions("s", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
        self.shard._context = ShardContext(options, Tasks(), self.evidence.append, lambda: None)
        devices = [Device(id="a", zone="hall")]
        self.shard.apply(Assignment(fleet="f", epoch=1, devices=devices, sensor=sensor_settings()))

    def connection(self) -> TextSession:
        session = self.shard._sessions.protocol()
        session.connection_made(Wire())
        return session

    def say(self, session: TextSession, smoke: int) -> None:
        session.data_received(b"#Sensora:ADC1=%d,ADC2=5,ADC3=400,DIO=0!\r\n" % smoke)
        self.shard.batcher.flush()

    def wait(self, seconds: float) -> None:
        """Let time pass, in which the shard runs."""
        for _ in range(int(4 * seconds)):
            self.now += SECOND // 4
            self.shard.running.since(self.now)

    @property
    def status(self) -> DeviceStatus:
        return self.shard.devices(self.now)[0]

    @property
    def refused(self) -> int:
        return self.status.ledger.rejected[SUPERSEDED]


@pytest.fixture
async def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


async def test_an_older_connection_takes_over_once_the_newer_one_is_silent(played: Played) -> None:
    older, newer = played.connection(), played.connection()
    played.wait(2)
    played.say(older, NORMAL)
    played.say(newer, NORMAL)
    for _ in range(5):  # the deadline
        played.wait(1)
        played.say(older, SMOKE)
    assert (len(played.evidence), played.refused) == (0, 5)
    assert "an older connection from 10.0.0.1 also sends as this device and is refused" in played.status.state
    for _ in range(10):
        played.wait(1)
        played.say(older, SMOKE)
    assert (len(played.evidence), played.refused) == (10, 5)
    assert played.status.covered


async def test_a_newer_connection_that_was_silent_takes_over_with_its_next_line(played: Played) -> None:
    older, newer = played.connection(), played.connection()
    played.wait(2)
    played.say(newer, NORMAL)
    played.wait(6)
    played.say(older, NORMAL)
    played.say(newer, SMOKE)
    played.say(older, NORMAL)
    assert (len(played.evidence), played.refused) == (1, 1)


async def test_silence_during_a_stall_of_the_shard_does_not_count(played: Played) -> None:
    older, newer = played.connection(), played.connection()
    played.wait(2)
    played.say(newer, NORMAL)
    played.now += 60 * SECOND
    played.say(older, SMOKE)
    assert (len(played.evidence), played.refused) == (0, 1)
