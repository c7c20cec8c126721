"""Run the measured side: a sensor shard that reads a broker, or bare aiomqtt that parses the same messages."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiomqtt

from embereye.addons.mqtt_sensors.bench import TOPIC
from embereye.addons.mqtt_sensors.sensors import MqttSensors, open_source
from embereye.process import lifecycle
from embereye.process.tasks import Tasks, beside, first_of
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.wire.readings.source import SensorSource, encode_source
from embereye_bench.sensors.server import answer, assignment, sums

DEADLINE_NS = 70 * 60 * 1_000_000_000


async def serve_shard(port: int, devices: int) -> None:
    """Own `devices` detectors of the broker at `port`."""
    made: list[MqttSensors] = []

    def make() -> Any:
        made.append(open_source())  # type: ignore[arg-type]
        return made[-1]

    async with Tasks() as tasks:
        shard = SensorShard(sources={"mqtt": make})
        options = ShardOptions("bench-0", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
        await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
        wanted = assignment(devices)
        for number, device in enumerate(wanted.devices):
            source = SensorSource(f"mqtt://127.0.0.1:{port}", TOPIC.format(number), "zigbee2mqtt", {}, DEADLINE_NS)
            device.source = encode_source(source)
        shard.apply(wanted)
        while devices and not (made and made[0].is_connected):
            await asyncio.sleep(0.05)
        await _answer(lambda: sums(shard))


async def serve_bare(port: int, devices: int) -> None:
    """Receive the same messages, parse and acknowledge each: the least that a reader does."""
    received = 0
    async with aiomqtt.Client("127.0.0.1", port, clean_session=False, identifier="bare") as client:
        client._client.manual_ack_set(True)
        for start in range(0, devices, 200):
            await client.subscribe([(TOPIC.format(number), 1) for number in range(start, min(start + 200, devices))])

        async def listen() -> None:
            nonlocal received
            async for message in client.messages:
                json.loads(message.payload)
                received += 1
                client._client.ack(message.mid, message.qos)

        async with beside(listen(), name="listen"):
            await _answer(lambda: {"offered": received})


async def _answer(numbers: Callable[[], dict[str, Any]]) -> None:
    await answer(asyncio.get_running_loop(), {}, numbers)


def main() -> int:
    """Serve until standard input is closed."""
    kind, port, devices = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    lifecycle.configure_logging("ERROR")

    async def serve(stop: asyncio.Event) -> int:
        await first_of({"shard": serve_shard, "bare": serve_bare}[kind](port, devices), stop.wait())
        return 0

    return lifecycle.run(serve)


if __name__ == "__main__":
    sys.exit(main())
