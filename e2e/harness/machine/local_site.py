"""A building on this machine: `embereye up` with its real processes, devices outside, and who keeps books on both.

What is believed is what the witness was told, what the probers had acknowledged, and /proc; never the product's word.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml

from embereye.process.addresses import free_ports
from embereye.process.files import write_whole
from embereye.process.identity.authority import Authority
from embereye.process.identity.credentials import Credentials
from embereye.process.telemetry.usage import Usage, usage_of_trees
from harness.devices import Film, PushCamera, TextDevice, fire_id
from harness.machine.disk import Disk, can_mount, own_disk
from harness.machine.fill import fill_hub
from harness.machine.people import reset_zones
from harness.matrix.edits import VERSION, merged
from harness.records.diary import Diary
from harness.records.probers import EvidenceProber, IngestProber
from harness.records.witness import Witness
from harness.servers.identity import Issuer

HOST = "127.0.0.1"
NAMESPACE = "default"
SENSORS, CAMERAS = "hall", "yard"
START_SECONDS = 90.0
STOP_SECONDS = 30.0
TOKENS = "devices"  # the Secret of the devices' tokens
# Text devices come from loopback, and can show nothing.
ACCESS = {"networks": ["127.0.0.0/8"], "tokensRef": {"name": TOKENS}}
CLOCK = Path(__file__).with_name("stepped_clock")


@dataclass(frozen=True)
class Layout:
    """What stands in the building."""

    fires: int = 40  # text sensors that stay quiet until they burn: once each, and again once their zone was reset
    probed: int = 9  # sensors whose every reading is accounted for
    cameras: int = 1  # that push
    sensors: dict[str, str] = field(default_factory=dict)  # others that are declared: id → zone
    pulled: dict[str, str] = field(default_factory=dict)  # cameras that are dialled: id → source
    shards: int = 2  # of sensors
    clips: str = "5G"  # room for them at the hub
    small_disk: bool = (
        True  # history and spools are on a disk of their own that can be filled, where one can be mounted
    )


class LocalSite:
    """Owns everything of a run: processes, devices, books. `async with running_site(…)` starts and ends it."""

    def __init__(self, folder: Path, diary: Diary, layout: Layout, disk: Disk | None = None) -> None:
        """`disk` is one that has history and spools alone; None: they are on whatever disk `folder` is."""
        self.folder, self.diary, self.layout = folder, diary, layout
        self.disk = disk
        self.data = folder / "data"  # as its processes see it
        self.manifest = folder / "fleets.yaml"
        self.step = folder / "clock-step"
        self.device_token = secrets.token_urlsafe()  # that devices show which can
        self.ports = dict(zip(("tcp", "grpc", "push", "console", "hub"), free_ports(5), strict=True))
        self.shards = layout.shards
        self.edited: dict[str, dict[str, Any]] = {}  # kind of fleet → what somebody has changed of its spec
        self.process: asyncio.subprocess.Process | None = None
        self.endpoints: dict[str, Any] = {}
        self.witness: Witness
        self.evidence: EvidenceProber
        self.ingest: list[IngestProber] = []
        self.texts: dict[str, TextDevice] = {}
        self.cameras: list[PushCamera] = []
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self.struck = 0.0  # monotonic seconds: when the latest harm was done that is over at once
        self._quiet = deque(map(fire_id, range(layout.fires)))  # the sensors that can burn, the next one first
        self._burnt: list[str] = []
        self._hub_control = f"{HOST}:1"  # nobody is there

    @property
    def seen(self) -> Path:
        """The data as this process sees them."""
        return self.disk.outside if self.disk else self.data

    # --- processes ---

    async def start(self) -> None:
        """Start `embereye up`, or start it again on what it left; returns once everything is ready."""
        environment = {
            **os.environ,
            "GRPC_VERBOSITY": "NONE",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(CLOCK), os.environ.get("PYTHONPATH", "")))),
            "CLOCK_STEP_FILE": str(self.step),
            "EMBEREYE_CLIPS": self.layout.clips,
            "EMBEREYE_CREDENTIALS": str(self.folder / "credentials"),
        }
        if not self.step.exists():
            self.step.write_bytes(bytes(8))
        self.write_tokens(self.device_token)
        self.write_manifest(self.shards)
        with (self.folder / "up.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(self.disk.prefix if self.disk else ()), sys.executable, "-m", "embereye_cli", "up",
                str(self.manifest), "--json",
                "--data", str(self.data), "--hub-port", str(self.ports["hub"]),
                "--console-port", str(self.ports["console"]),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout
        async with asyncio.timeout(START_SECONDS):
            line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"embereye up ended early: {(self.folder / 'up.log').read_text()[-2000:]}")
        self.endpoints = json.loads(line)

    async def stop(self) -> None:
        """Stop it as Ctrl-C does, and kill what does not stop."""
        process = self.process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
        if process.returncode is None:
            self.diary.note("harness", "embereye up did not stop: killed", "bad")
            for number in reversed(self.tree()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            await process.wait()

    def usages(self) -> list[Usage]:
        """What every process of the product uses now."""
        assert self.process
        return usage_of_trees([self.process.pid])

    def tree(self) -> list[int]:
        """The ids of all processes of the product, the operator's first."""
        return [usage.pid for usage in self.usages()]

    def pids(self, *words: str) -> list[int]:
        """The processes whose command says all of `words`; decoders are not among them unless they say so."""
        return [usage.pid for usage in self.usages() if all(word in usage.command.split() for word in words)]

    @property
    def operator(self) -> int:
        """The process id of `embereye up` itself."""
        return next(usage.pid for usage in self.usages() if "up" in usage.command.split())

    def hub_control(self) -> str:
        """Where the hub answers shards: a port that each `embereye up` chooses anew."""
        for usage in self.usages():
            words = usage.command.split()
            if "hub" in words and "--control-port" in words:
                self._hub_control = f"{HOST}:{words[words.index('--control-port') + 1]}"
        return self._hub_control

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock of all processes of the product so many seconds ahead of the real one."""
        with self.step.open("r+b") as file:  # in place: processes have it mapped, and one that is cut short kills them
            file.write(int(seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))

    # --- what is declared ---

    def write_manifest(self, shards: int) -> None:
        """Declare everything, sensors on so many shards; a running `embereye up` applies it."""
        self.shards = shards
        layout = self.layout
        sensors = {fire_id(number): fire_id(number) for number in range(layout.fires)}
        sensors |= {f"probed-{number}": f"probed-{number}" for number in range(layout.probed)}
        sensors |= {"victim": "victim", **layout.sensors}
        cameras = {f"camera-{number}": "push" for number in range(layout.cameras)} | layout.pulled
        documents = [
            _fleet("SensorFleet", SENSORS, sensors=[{"id": id_, "zone": zone} for id_, zone in sensors.items()],
                   listen={"tcp": self.ports["tcp"], "grpc": self.ports["grpc"]}, shards=shards,
                   autoscaling={"mode": "none"}, access=ACCESS),
        ]  # fmt: skip
        if cameras:
            listed = [{"id": id_, "zone": id_, "source": source} for id_, source in cameras.items()]
            documents.append(
                _fleet("CameraFleet", CAMERAS, cameras=listed, listen={"grpc": self.ports["push"]}, shards=1,
                       autoscaling={"mode": "none"}, fps={"target": 10, "min": 3}, access=ACCESS)
            )  # fmt: skip
        for document in documents:
            document["spec"] = merged(document["spec"], self.edited.get(document["kind"], {}))
        write_whole(self.manifest, yaml.safe_dump_all(documents).encode(), durable=False)

    def write_tokens(self, *tokens: str) -> None:
        """Have the Secret of the devices' tokens hold these, as a mounted one changes: all at once."""
        folder = self.folder / "credentials" / TOKENS
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "token", "\n".join(tokens).encode(), private=True)

    def change_admin_token(self) -> None:
        """Have the first administrator's token be another one."""
        write_whole(self.seen / "hub" / "admin-token", secrets.token_urlsafe().encode(), private=True)

    # --- devices and books ---

    def show_token(self, token: str) -> None:
        """Have devices show `token` from now on."""
        self.device_token = token
        for prober in self.ingest:
            prober.token = token
        for camera in self.cameras:
            camera.token = token

    def begin(self, work: Any, name: str) -> None:
        """Run `work` until the run ends."""
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self.diary.note("harness", f"{task.get_name()} failed: {error!r}", "bad")

    async def occupy(self, film: Film | None) -> None:
        """Start devices, probers and the witness; returns once all of them are well."""
        self.witness = Witness(f"{HOST}:{self.ports['hub']}", self.diary, token=self.token)
        self.begin(self.witness.run(), "witness")
        for number in range(self.layout.fires):
            device = TextDevice(fire_id(number), fire_id(number), HOST, self.ports["tcp"], period=0.5)
            self.texts[device.id] = device
            self.begin(device.run(), device.id)
        victim = self.texts["victim"] = TextDevice("victim", "victim", HOST, self.ports["tcp"])
        self.begin(victim.run(), victim.id)
        for number in range(self.layout.probed):
            prober = IngestProber(
                f"probed-{number}", f"{HOST}:{self.ports['grpc']}", self.diary, token=self.device_token
            )
            self.ingest.append(prober)
            self.begin(prober.run(), prober.device)
        for number in range(self.layout.cameras):
            assert film is not None, "cameras have to show something"
            name, home = f"camera-{number}", f"{HOST}:{self.ports['push']}"
            camera = PushCamera(name, name, home, film, self.diary, token=self.device_token)
            self.cameras.append(camera)
            self.begin(camera.run(), camera.id)
        await self.well(START_SECONDS)

    async def well(self, limit: float) -> None:
        """Wait until the witness listens and every probed sensor is acknowledged; AssertionError after `limit`."""
        deadline = time.monotonic() + limit
        connections = -1
        while connections <= 0:
            connections = await self.witness.connected()
            if time.monotonic() > deadline:
                raise AssertionError(f"the witness has no connection after {limit:g} s")
            await asyncio.sleep(0.05)
        await asyncio.gather(*(prober.well(limit) for prober in self.ingest))

    async def ignite(self) -> tuple[str, float]:
        """Let one more sensor burn; its zone, and when its first line was written, monotonic seconds."""
        if not self._quiet:
            raise RuntimeError(f"it has burnt at all {self.layout.fires} sensors, and nobody has reset their zones")
        device = self.texts[self._quiet.popleft()]
        self._burnt.append(device.id)
        await device.fire(ADC1=3600)
        return device.zone, time.monotonic()

    def put_out(self) -> None:
        """Have all that burns say that it is quiet again; its alarm stays until somebody resets it."""
        for zone in self.burnt:
            self.texts[zone].rest()

    @property
    def burnt(self) -> list[str]:
        """The zones in which it has burnt, as far as they are not reset."""
        return list(self._burnt)

    async def reset(self) -> None:
        """Have people acknowledge what is in alarm, and reset what they have acknowledged before and is over."""
        for zone in await reset_zones(f"{HOST}:{self.ports['hub']}", self.token()):
            if zone in self._burnt:
                self._burnt.remove(zone)
                self._quiet.append(zone)

    def token(self) -> str:
        """The first administrator's."""
        return (self.seen / "hub" / "admin-token").read_text().strip()

    async def fill(self) -> None:
        """Have the hub hold as much of the past as it ever keeps in memory."""
        began, credentials = time.monotonic(), self.prober_credentials()
        await fill_hub(self.hub_control(), f"{HOST}:{self.ports['hub']}", self.token(), NAMESPACE, credentials)
        self.diary.note("harness", f"the hub's memory of the past was filled in {time.monotonic() - began:.0f} s")

    def prober_credentials(self) -> Credentials:
        """By which the evidence prober proves to be a shard, from the site's own authority."""
        folder = self.seen / "identity" / "authority"
        authority = Authority.load((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
        return Credentials(Issuer(self.folder / "prober", authority).folder(EvidenceProber.identity(NAMESPACE)))

    def gap(self, since: float, until: float) -> float:
        """The longest time that any probed sensor was without an acknowledgement, in seconds."""
        return max((prober.gap(since, until) for prober in self.ingest), default=0.0)

    def moved(self, since: float, until: float) -> float:
        """The longest time that a probed sensor's way from one shard to another took; 0: none moved."""
        return max((prober.moved(since, until) for prober in self.ingest), default=0.0)

    def taken_back(self) -> int:
        """Acknowledged readings that were asked for again."""
        return sum(len(prober.taken_back) for prober in self.ingest)

    async def close(self) -> None:
        """End the devices, then the product."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.stop()


@asynccontextmanager
async def running_site(
    folder: Path, diary: Diary, layout: Layout, film: Film | None = None
) -> AsyncIterator[LocalSite]:
    """A site whose devices are all well, on a disk of its own where this user may mount one."""
    # With the last device gone nothing here uses gRPC, which then ends its thread: now and then it waits for that for
    # ever, and the site stays.
    grpc.aio.init_grpc_aio()
    async with AsyncExitStack() as stack:
        disk = await stack.enter_async_context(own_disk(folder / "data")) if layout.small_disk and can_mount() else None
        site = LocalSite(folder, diary, layout, disk)
        stack.push_async_callback(site.close)
        await site.start()
        await site.occupy(film)
        yield site


def _fleet(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"embereye.dev/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}
