"""Run a site of real processes on loopback: a hub, shards, and honest devices whose alarms must always arrive."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from harness.eventually import eventually
from harness.settings import sensor_settings

from embereye.levels import ZoneState
from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel
from embereye.process.tasks import Tasks
from embereye.process.tls.client import ClientTls
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import ActionRequest, AlarmEvent, HistoryRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.shard_pb2 import AccessRules, Assignment, Peer, SensorSettings
from embereye.v1.types_pb2 import Device

FLEET = "default/sensors/hall"
HOST = "127.0.0.1"
STEPPED = Path(__file__).with_name("stepped.py")
CALM = b"#Sensor:ADC1=280,ADC2=1305,ADC3=2,DIO=0!\r\n"
SMOKE = b"#Sensor:ADC1=3900,ADC2=1305,ADC3=2,DIO=0!\r\n"
TOKEN = "a-token-of-the-admin-in-hostile-tests"
ALARM_SECONDS = 30.0  # within which an honest device's alarm must arrive; generous, because it is not a measurement


@dataclass
class Speaker:
    """An honest text device: sends its reading five times a second, without end."""

    name: str
    port: int
    line: bytes = CALM
    silent: bool = False
    tls: ClientTls | None = None
    source: str = ""  # address to connect from
    opened: int = 0  # connections that were greeted by a server

    async def run(self) -> None:
        while True:
            writer: asyncio.StreamWriter | None = None
            try:
                options: dict[str, Any] = {"local_addr": (self.source, 0)} if self.source else {}
                if self.tls:
                    options |= {"ssl": self.tls.context(), "server_hostname": HOST}
                reader, writer = await asyncio.open_connection(HOST, self.port, **options)
                await reader.readexactly(1)
                self.opened += 1
                writer.write(b"#serialno:%s!\r\n" % self.name.encode())
                while True:
                    if not self.silent:
                        writer.write(self.line)
                        await writer.drain()
                    await asyncio.sleep(0.2)
            except (OSError, EOFError):
                await asyncio.sleep(0.1)
            finally:
                if writer is not None:
                    writer.transport.abort()


def with_token(url: str) -> urllib.request.Request:
    """A request with the admin's token."""
    return urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})


@dataclass
class Site:
    """Processes by name; one is `hub`. Every device of a shard has its own zone, with the device's name."""

    folder: Path
    tasks: Tasks
    prefix: Sequence[str] = ()  # put before every command: another user, a namespace
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, list[int]] = field(default_factory=dict)
    devices: dict[str, list[str]] = field(default_factory=dict)
    data: dict[str, Path] = field(default_factory=dict)

    def start(self, name: str, *arguments: str) -> None:
        """Start a process, or restart it with its ports and data after it has ended."""
        before = self.processes.get(name)
        assert before is None or before.poll() is not None, f"{name} is running"
        grpc, other, metrics, control = map(str, self.ports.setdefault(name, free_ports(4)))
        data = self.data.setdefault(name, self.folder / name)
        command = ["--host", HOST, "--grpc-port", grpc, "--control-port", control, "--data", str(data), *arguments]
        if name == "hub":
            # Not next to the data: some tests fill that disk, and inspect it from another namespace.
            (self.folder / "admin-token").write_text(TOKEN)
            command = ["hub", *command, "--http-port", other, "--admin-token-file", str(self.folder / "admin-token")]
        else:
            command = ["shard", "sensor", *command, "--tcp-port", other, "--metrics-port", metrics, "--shard", name]
            command += ["--hub", f"{HOST}:{self.ports['hub'][3]}", "--assignment", str(self.folder / f"{name}.json")]
        step = self.folder / f"{name}.step"
        if not step.exists():
            step.write_bytes(bytes(8))
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.prefix, sys.executable, str(STEPPED), str(step), *command],
                stderr=log,
                env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            )

    def launch(self, name: str, *arguments: str) -> None:
        """Start another Python process."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen([sys.executable, *arguments], stderr=log)

    def set_clock(self, name: str, seconds: float) -> None:
        """Set a process's wall clock `seconds` ahead of the real one, at once."""
        with (self.folder / f"{name}.step").open("r+b") as file:
            file.write(int(seconds * SECOND).to_bytes(8, sys.byteorder, signed=True))

    def assign(
        self,
        shard: str,
        *devices: str,
        epoch: int = 1,
        access: AccessRules | None = None,
        peers: Sequence[str] = (),
        deadline: str = "2s",
        own: Peer | None = None,
    ) -> None:
        self.devices[shard] = list(devices)
        settings = SensorSettings()
        settings.CopyFrom(sensor_settings(deadline=deadline))
        if access:
            settings.access.CopyFrom(access)
        assignment = Assignment(
            fleet=FLEET,
            shard=shard,
            epoch=epoch,
            devices=[Device(id=name, zone=name) for name in devices],
            sensor=settings,
            peers=[Peer(shard=peer, control=f"{HOST}:{self.ports[peer][3]}") for peer in peers],
            own=own,
        )
        partial = self.folder / f"{shard}.partial"
        partial.write_text(json_format.MessageToJson(assignment))
        partial.replace(self.folder / f"{shard}.json")

    def speaker(self, shard: str, device: str) -> Speaker:
        speaker = Speaker(device, self.ports[shard][1])
        self.tasks.start(speaker.run(), name=f"device-{device}")
        return speaker

    async def honest(self, *others: str) -> Speaker:
        """Start a hub, and a shard that covers the device "honest", which sends; the shard also has `others`."""
        self.start("hub")
        self.assign("shard-0", "honest", *others)
        self.start("shard-0")
        speaker = self.speaker("shard-0", "honest")
        await self.covered(["honest"])
        return speaker

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(60)

    def running(self, name: str) -> bool:
        return self.processes[name].poll() is None

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # Queries to the hub

    @property
    def hub(self) -> str:
        return f"{HOST}:{self.ports['hub'][0]}"

    @property
    def control(self) -> str:
        """The address at which the hub answers shards."""
        return f"{HOST}:{self.ports['hub'][3]}"

    def url(self, path: str) -> str:
        return f"http://{HOST}:{self.ports['hub'][1]}{path}"

    def read(self, path: str) -> str:
        with urllib.request.urlopen(with_token(self.url(path)), timeout=30) as answer:
            return str(answer.read().decode())

    async def get(self, path: str) -> Any:
        return json.loads(await asyncio.to_thread(self.read, path))

    async def metric(self, process: str, name: str) -> float:
        """The value of a metric without labels, of the hub or of a shard."""
        port = self.ports[process][1 if process == "hub" else 2]

        def read() -> str:
            with urllib.request.urlopen(with_token(f"http://{HOST}:{port}/metrics"), timeout=30) as answer:
                return str(answer.read().decode())

        for line in (await asyncio.to_thread(read)).splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"{process} has no metric {name}")

    async def history(self) -> list[AlarmEvent]:
        async with channel(self.hub, token=TOKEN) as link:
            answer = await AlarmsStub(link).History(HistoryRequest(limit=1000), wait_for_ready=True, timeout=30)
        return list(answer.events)

    async def act(self, action: str, zone: str) -> AlarmEvent:
        async with channel(self.hub, token=TOKEN) as link:
            call = getattr(AlarmsStub(link), action)
            event: AlarmEvent = await call(ActionRequest(zone=zone, who="Ada"), wait_for_ready=True, timeout=30)
            return event

    async def alarms(self, zone: str) -> list[AlarmEvent]:
        """The events of `zone` going into alarm."""
        return [event for event in await self.history() if event.zone == zone and event.state == ZoneState.ALARM
                and event.type == AlarmEvent.TYPE_STATE]  # fmt: skip

    async def alarmed(self, zone: str, times: int = 1) -> None:
        """Wait until `zone` has gone into alarm `times` times."""
        await eventually(lambda: self.has_alarmed(zone, times), goal=f"alarm {times} of {zone}", seconds=ALARM_SECONDS)

    async def has_alarmed(self, zone: str, times: int) -> bool:
        with contextlib.suppress(OSError):
            return len(await self.alarms(zone)) >= times
        return False

    async def covered(self, devices: Collection[str], seconds: float = 60) -> None:
        """Wait until exactly `devices` are covered."""

        async def all_covered() -> bool:
            with contextlib.suppress(OSError):
                listed = (await self.get("/v1/devices"))["devices"]
                return {device["id"] for device in listed if device["covered"]} == set(devices)
            return False

        await eventually(all_covered, goal=f"{sorted(devices)} covered", seconds=seconds)

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(10)
