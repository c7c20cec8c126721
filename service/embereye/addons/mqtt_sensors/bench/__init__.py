"""The benchmarks of sensors over MQTT: their cost, beside bare aiomqtt and the text path, and a hand-over."""

import asyncio
import contextlib
import importlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import aiomqtt

from embereye.addons.mqtt_sensors.bench import hand_over
from embereye.process.lifecycle import UserError
from embereye_bench.hub.alarm_path import missing
from embereye_bench.report import Benchmark, Result, Scale, median
from embereye_bench.sensors.load import Server, close, connect, paced, reading_line

NAME, NEEDED = "mqtt-1000x1hz", ("MOSQUITTO",)
DEVICES = 1000
TARGET = 1.5  # times bare aiomqtt
TOPIC = "zigbee2mqtt/device-{}"


def mqtt_1000(scale: Scale) -> Result:
    """Measure 1,000 detectors that publish once a second with QoS 1, each message acknowledged after its analysis."""
    if why := missing(*NEEDED):
        raise UserError(f"{NAME}: {why}")
    mosquitto = importlib.import_module("harness.servers.mosquitto")
    costs: dict[str, list[float]] = {"shard": [], "bare": [], "text": []}
    memory: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        broker = mosquitto.Mosquitto(Path(folder) / "mosquitto")
        broker.start()
        stack.callback(broker.stop)
        servers = {}
        for kind in ("shard", "bare"):
            command = [sys.executable, "-m", f"{__name__}.peer", kind, str(broker.port)]
            empty = stack.enter_context(Server(command=[*command, "0"]))
            servers[kind] = stack.enter_context(Server(command=[*command, str(DEVICES)]))
            memory[kind] = (servers[kind].ask()["memory_kb"] - empty.ask()["memory_kb"]) * 1024 / DEVICES
        servers["text"] = stack.enter_context(Server("shard", DEVICES))
        sockets = connect(servers["text"].ports["tcp"], DEVICES)
        stack.callback(close, sockets)
        dice = random.Random(NAME)
        lines = [[reading_line(f"device-{number}", dice)] for number in range(DEVICES)]
        for server in servers.values():
            server.ask()
        for _ in range(scale.rounds):
            before = {kind: server.ask() for kind, server in servers.items()}
            # Both readers of the broker get the same messages, at the same time.
            sent = asyncio.run(_publish(broker.port, max(1.0, scale.seconds)))
            for kind in ("shard", "bare"):
                _await(servers[kind], before[kind]["offered"] + sent)
                costs[kind].append((servers[kind].cpu() - before[kind]["cpu"]) / sent * 1e6)
            began = servers["text"].cpu()
            sent = paced(sockets, lines, 1, max(1.0, scale.seconds))
            servers["text"].idle_counters()
            costs["text"].append((servers["text"].cpu() - began) / sent * 1e6)
    value, baseline, text = (median(costs[kind]) for kind in ("shard", "bare", "text"))
    unit = (
        f"µs CPU/message; {memory['shard']:,.0f} bytes a device, bare aiomqtt {memory['bare']:,.0f}; "
        f"a line by TCP takes {text:.1f} µs"
    )
    ratio = value / baseline if baseline else 0.0
    return Result(NAME, value, unit, baseline, ratio, f"<= {TARGET} x bare aiomqtt", ratio <= TARGET)


async def _publish(port: int, seconds: float) -> int:
    """Publish once a second for each device; return the number of messages."""
    rounds, sent = max(1, round(seconds)), 0
    async with aiomqtt.Client("127.0.0.1", port) as client:
        for _ in range(rounds):
            began = time.monotonic()
            for number in range(DEVICES):
                payload = json.dumps({"smoke": False, "battery": 90, "linkquality": number % 255})
                await client.publish(TOPIC.format(number), payload, qos=1)
                sent += 1
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
    return sent


def _await(server: Server, offered: int) -> None:
    """Wait until the server has received so many messages."""
    end = time.monotonic() + 60
    while server.ask()["offered"] < offered:
        if time.monotonic() > end:
            raise UserError(f"{NAME}: messages are missing after 60 s")
        time.sleep(0.05)


SENSOR_BENCHMARKS: dict[str, Benchmark] = {NAME: mqtt_1000, hand_over.NAME: hand_over.hand_over}
NEEDS = {NAME: NEEDED, hand_over.NAME: hand_over.NEEDED}
