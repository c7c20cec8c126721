"""The benchmark of a hand-over: detectors move from one shard to another while they publish.

Each detector publishes the number of the round as its humidity. So it is known of each message which shards have
analysed it, and a message that both have read hides no lost one.
"""

import asyncio
import contextlib
import importlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiomqtt

from embereye.addons.mqtt_sensors.sensors import MqttSensors
from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks
from embereye.sensor.shard import SensorShard
from embereye.sensor.source import Owner
from embereye.shard.service import ShardContext, ShardOptions
from embereye.units import MINUTE
from embereye.wire.readings.quantity import Report
from embereye.wire.readings.source import SensorSource, encode_source
from embereye_bench.hub.alarm_path import missing
from embereye_bench.report import Result, Scale
from embereye_bench.sensors.server import assignment, sums

NAME, NEEDED = "mqtt-hand-over", ("MOSQUITTO",)
DEVICES = 1000
TOPIC = "zigbee2mqtt/device-{}"
DEADLINE_NS = 70 * MINUTE
JOINS, LEAVES, ROUNDS = 2, 4, 6  # rounds in which the new shard begins and the old one drains; all rounds
ANSWER_SECONDS = 60.0  # for shards to subscribe, and for the last messages


class Witness(MqttSensors):
    """A source that notes what its shard has analysed: the device, and the round in which it was published."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: Counter[tuple[str, int]] = Counter()
        self._receiver: Owner

    def start(self, owner: Owner, tasks: Tasks, name: str) -> None:
        """Begin: reports come here first."""
        self._receiver = owner
        super().start(self, tasks, name)

    def receive(self, device: str, report: Report, heard_ns: int) -> None:
        """Have the shard analyse the report, then note it."""
        self._receiver.receive(device, report, heard_ns)
        rounds = [int(reading.value) for reading in report.readings if reading.quantity == "humidity"]
        self.heard.update((device, number) for number in rounds)

    def refuse(self, device: str, reason: str) -> None:
        """Pass it on."""
        self._receiver.refuse(device, reason)

    def note_link(self, device: str, problem: str) -> None:
        """Pass it on."""
        self._receiver.note_link(device, problem)


@dataclass(frozen=True)
class HandOver:
    """One hand-over of many detectors."""

    published: int  # messages
    lost: int  # messages that no shard has analysed
    both: int  # messages that both have analysed
    rejected: int  # in the ledgers of both
    joined: float  # seconds until the new shard had all subscriptions
    left: float  # seconds until the old one had none


async def measure(port: int, devices: int = DEVICES) -> HandOver:
    """Move `devices` detectors of the broker at `port` from one shard to another while each publishes in turn."""
    async with (
        Tasks() as tasks,
        aiomqtt.Client("127.0.0.1", port) as client,
        _owner(tasks, "bench-0", port, devices) as (old, heard_by_old),
    ):
        await _connected(heard_by_old)
        for number in range(JOINS):
            await _publish(client, devices, number)
        async with _owner(tasks, "bench-1", port, devices) as (new, heard_by_new):
            joining = tasks.start(_timed(_connected(heard_by_new)), name="join")
            for number in range(JOINS, LEAVES):
                await _publish(client, devices, number)
            joined = await joining
            leaving = tasks.start(_timed(old.drain()), name="leave")
            for number in range(LEAVES, ROUNDS):
                await _publish(client, devices, number)
            left = await leaving
            wanted = {(f"device-{device}", number) for device in range(devices) for number in range(ROUNDS)}
            end = time.monotonic() + ANSWER_SECONDS
            while wanted - heard_by_old.heard.keys() - heard_by_new.heard.keys() and time.monotonic() < end:
                await asyncio.sleep(0.05)
            known = heard_by_old.heard.keys(), heard_by_new.heard.keys()
            return HandOver(
                len(wanted), len(wanted - known[0] - known[1]), len(known[0] & known[1]),
                sum(sums(shard)["rejected"] for shard in (old, new)), joined, left,
            )  # fmt: skip


@contextlib.asynccontextmanager
async def _owner(tasks: Tasks, name: str, port: int, devices: int) -> AsyncIterator[tuple[SensorShard, Witness]]:
    """Run a shard that owns `devices` detectors of the broker at `port`."""
    witness = Witness()
    shard = SensorShard(sources={"mqtt": lambda: witness})
    options = ShardOptions(name, Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
    await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
    owned = assignment(devices, name)
    for number, device in enumerate(owned.devices):
        source = SensorSource(f"mqtt://127.0.0.1:{port}", TOPIC.format(number), "zigbee2mqtt", {}, DEADLINE_NS)
        device.source = encode_source(source)
    shard.apply(owned)
    try:
        yield shard, witness
    finally:
        await shard.stop()


async def _connected(source: MqttSensors) -> None:
    async with asyncio.timeout(ANSWER_SECONDS):
        while not source.is_connected:
            await asyncio.sleep(0.01)


async def _timed(work: Any) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def _publish(client: aiomqtt.Client, devices: int, number: int) -> None:
    payload = json.dumps({"smoke": False, "battery": 90, "humidity": number})
    for device in range(devices):
        await client.publish(TOPIC.format(device), payload, qos=1)


def hand_over(_: Scale) -> Result:
    """Measure the messages that are lost while 1,000 detectors move between two shards: there shall be none."""
    if why := missing(*NEEDED):
        raise UserError(f"{NAME}: {why}")
    mosquitto = importlib.import_module("harness.servers.mosquitto")
    with tempfile.TemporaryDirectory() as folder:
        broker = mosquitto.Mosquitto(Path(folder) / "mosquitto")
        broker.start()
        try:
            seen = asyncio.run(measure(broker.port))
        finally:
            broker.stop()
    unit = (
        f"of {seen.published:,} readings lost, {seen.both:,} read by both; {seen.rejected} rejected; the new shard "
        f"subscribed within {seen.joined:.1f} s, the old one left within {seen.left:.1f} s"
    )
    return Result(NAME, float(seen.lost), unit, 0.0, 0.0, "0", not seen.lost and not seen.rejected)
