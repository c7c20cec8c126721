"""A lamp behind a real broker, Modbus server or actuator, seen by the camera of a real shard, tested by a real hub."""

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import cv2
import numpy as np
import pytest
from google.protobuf import json_format
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.need import MOSQUITTO
from harness.servers.mosquitto import Mosquitto
from harness.settings import camera_settings
from harness.stored import Stored

from embereye.process.addresses import free_ports
from embereye.process.tasks import beside
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device

from .coils import modbus_coils

FLEET, TOPIC = "default/cameras/yard", "lamp/set"
pytestmark = pytest.mark.slow
REGION = {"x": 0.62, "y": 0.15, "width": 0.14, "height": 0.2}


class LitYard:
    """A camera that serves MJPEG: grey noise, and a lamp that follows its switch."""

    def __init__(self) -> None:
        self.on = self.dirty = False
        self.switched: list[bytes] = []

    async def follow(self, broker: Mosquitto) -> None:
        async with aiomqtt.Client("127.0.0.1", broker.port) as client:
            await client.subscribe(TOPIC, 1)
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                self.switched.append(message.payload)
                self.on = message.payload == b"ON"

    def note_coil(self, address: int, value: bool) -> None:
        if address == 3:
            self.on = value

    async def follow_commands(self, hub: HubProcess) -> None:
        """Connect as the actuator of the lamp, and do what the hub commands."""
        pb = pytest.importorskip("embereye.v1.control_pb2")
        stub = pytest.importorskip("embereye.v1.control_pb2_grpc").ControlStub
        lamp = pb.Actuator(period_ns=10**8, outputs=[pb.Output(name="lamp", kind=pb.Output.KIND_SWITCH)])
        async with hub.channel() as link:
            call = stub(link).Session()
            await call.write(pb.ControlRequest(handshake=pb.Handshake(version=2, name="relays", actuator=lamp)))
            await call.read()
            for tick in itertools.count(1):
                await call.write(pb.ControlRequest(state=pb.State(tick=tick, measured=[self.on])))
                self.on = list((await call.read()).command.values) == [1.0]
                await asyncio.sleep(0.1)

    async def serve(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        random = np.random.default_rng(1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                picture = np.clip(random.normal(80, 6, (240, 320, 3)), 0, 255).astype(np.uint8)
                picture[40:80, 200:240] = 250 if self.on and not self.dirty else 60
                data = cv2.imencode(".jpg", picture)[1].tobytes()
                writer.write(b"--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(data), data))
                await writer.drain()
                await asyncio.sleep(0.1)


@contextlib.contextmanager
def camera_shard(hub: HubProcess, source: str, folder: Path) -> Iterator[None]:
    grpc, control, metrics = map(str, free_ports(3))
    device = Device(id="gate", zone="yard", source=source, fps_target=10, fps_min=2)
    assignment = Assignment(
        fleet=FLEET, shard="yard-0", epoch=1, camera=camera_settings(deadline="5s"), devices=[device]
    )
    (folder / "yard-0.json").write_text(json_format.MessageToJson(assignment))
    with (folder / "yard-0.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "embereye_cli", "shard", "camera", "--shard", "yard-0", "--host", "127.0.0.1",
             "--hub", hub.control, "--grpc-port", grpc, "--control-port", control, "--metrics-port", metrics,
             "--data", str(folder / "yard-0"), "--assignment", str(folder / "yard-0.json")],
            stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


@contextlib.asynccontextmanager
async def lit_yard(broker: Mosquitto | None = None) -> AsyncIterator[tuple[LitYard, str]]:
    yard = LitYard()
    server = await asyncio.start_server(yard.serve, "127.0.0.1", 0)
    async with beside(yard.follow(broker) if broker else asyncio.Event().wait(), name="lamp"):
        yield yard, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/gate.mjpg"
    server.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    mosquitto = Mosquitto(tmp_path / "mosquitto")
    mosquitto.start()
    yield mosquitto
    mosquitto.stop()


async def embereye(*words: str) -> tuple[int, str]:
    """Run a command; its exit code and what it printed."""
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await command.communicate()
    return command.returncode or 0, output.decode()


def place(hub: HubProcess) -> tuple[str, ...]:
    return "--console", f"http://127.0.0.1:{hub.http_port}", "--token", hub.token


async def run_test(hub: HubProcess) -> tuple[int, str]:
    """Run the test, as soon as the camera is covered and no other run of it is waiting."""
    while True:
        code, text = await embereye("selftest", "run", "gate-lamp", *place(hub))
        if "not run" not in text and "waits already" not in text:
            return code, text
        await asyncio.sleep(0.5)


def declared(tmp_path: Path, **changes: Any) -> str:
    """Write the file with a test; returns its path."""
    lamp = {"name": "gate-lamp", "fleet": FLEET, "device": "gate", "brightness": 20, "within": "5s", "cooldown": "1s",
            "region": REGION}  # fmt: skip
    mqtt = changes.pop("broker", {})
    (tmp_path / "selftest.yaml").write_text(json.dumps({**mqtt, "tests": [lamp | changes]}))
    (tmp_path / "hub").mkdir()
    return str(tmp_path / "selftest.yaml")


@pytest.mark.parametrize("way", ["modbus", "actuator"])
async def test_a_lamp_behind_a_coil_or_an_actuator_is_seen(
    tmp_path: Path, make_hub: Callable[..., HubProcess], way: str
) -> None:
    async with lit_yard() as (yard, source), modbus_coils(yard.note_coil) as port:
        switches = {
            "modbus": {"host": "127.0.0.1", "port": port, "coil": 3}, "actuator": {"name": "relays", "output": "lamp"},
        }  # fmt: skip
        file = declared(tmp_path, **{way: switches[way]})
        hub = make_hub(Stored(tmp_path / "hub"), "--selftest", file)
        hub.start()
        await hub.ready()
        relays = yard.follow_commands(hub) if way == "actuator" else asyncio.Event().wait()
        async with beside(relays, name="relays"):
            with camera_shard(hub, source, tmp_path):
                code, text = await run_test(hub)
                assert (code, "gate-lamp: gate: seen after " in text) == (0, True), text
                await eventually(lambda: not yard.on)


@pytest.mark.needs(MOSQUITTO)
async def test_a_lamp_that_is_not_seen_degrades_its_camera_until_it_is_seen(
    tmp_path: Path, make_hub: Callable[..., HubProcess], broker: Mosquitto
) -> None:
    mqtt = {"mqtt": {"broker": f"mqtt://127.0.0.1:{broker.port}"}}
    hub = make_hub(Stored(tmp_path / "hub"), "--selftest", declared(tmp_path, broker=mqtt, mqtt={"topic": TOPIC}))
    hub.start()
    await hub.ready()

    def degraded() -> str:
        answer: Any = hub.get("/v1/devices")
        return next((str(device.get("degraded")) for device in answer["devices"] if device["id"] == "gate"), "?")

    async with lit_yard(broker) as (yard, source):
        with camera_shard(hub, source, tmp_path):
            code, text = await run_test(hub)
            assert (code, "gate-lamp: gate: seen after " in text) == (0, True), text
            assert yard.switched[-2:] == [b"ON", b"OFF"]
            yard.dirty = True
            code, text = await run_test(hub)
            assert (code, "not seen within 5 s: a rise of 0 % instead of 20 %" in text) == (1, True), text
            await eventually(lambda: "self-test: gate-lamp not seen within 5 s" in degraded())
            assert 'embereye_hub_selftest_passed{test="gate-lamp"} 0.0' in str(hub.get("/metrics"))
            hub.terminate()
            hub.start()
            await hub.ready()
            await eventually(lambda: "gate-lamp not seen within 5 s" in degraded(), goal="it is stored")
            broker.stop()
            code, text = await embereye("selftest", "run", "gate-lamp", *place(hub))
            assert (code, "its actuator was not switched on: " in text) == (1, True), text
            assert "gate-lamp not seen" in degraded(), "a test that was not run changes nothing"
            broker.start()
            yard.dirty = False
    async with lit_yard(broker) as (yard, source):
        with camera_shard(hub, source, tmp_path):
            code, text = await run_test(hub)
            assert (code, yard.switched[-2:]) == (0, [b"ON", b"OFF"]), text
            await eventually(lambda: "self-test" not in degraded())
            code, text = await embereye("selftest", "list", *place(hub))
            assert (code, "gate-lamp" in text, "seen after" in text) == (0, True, True), text
            zones: Any = hub.get("/v1/zones")
            assert not [zone for zone in zones["zones"] if zone["state"] != "ZONE_STATE_NORMAL"]
            assert "gate-lamp: not seen within 5 s" in str(hub.get("/v1/audit"))
