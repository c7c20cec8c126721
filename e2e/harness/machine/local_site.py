"""A building on this machine: `embereye up` with real processes, devices, probers and a witness.

`running_site` starts everything and ends it. `embereye up` and its children are processes, and apply a manifest that
faults rewrite; devices, probers and the witness are tasks here. A sensor burns once, and again only after its zone was
reset. The processes see a clock that `set_clock` can step, and if possible a small disk that can be filled.

Verdicts rely on the witness, the probers' acknowledgements and /proc, never on the product's own statements.
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
from harness.eventually import eventually
from harness.machine.disk import Disk, can_mount, mounted_disk
from harness.machine.fill import fill_hub
from harness.machine.people import reset_zones
from harness.machine.phones import Phones
from harness.matrix.edits import VERSION, merge
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
# Text devices come from loopback and have no tokens.
ACCESS = {"networks": ["127.0.0.0/8"], "tokensRef": {"name": TOKENS}}
CLOCK = Path(__file__).with_name("stepped_clock")


@dataclass(frozen=True)
class Layout:
    """The devices and processes of a building."""

    fires: int = 40  # text sensors that burn once, and again after their zone was reset
    probed: int = 9  # sensors whose readings are all accounted for
    cameras: int = 1  # pushing cameras
    sensors: dict[str, str] = field(default_factory=dict)  # further declared sensors: id → zone
    pulled: dict[str, str] = field(default_factory=dict)  # cameras that shards dial: id → source
    shards: int = 2  # sensor shards
    clips: str = "5G"  # space for clips at the hub
    phones: bool = False  # the hub notifies two phones of alarms
    small_disk: bool = True  # history and spools are on a separate disk that can be filled, if one can be mounted


class LocalSite:
    """Owns everything of a run: processes, devices, books. `async with running_site(…)` starts and ends it."""

    def __init__(
        self, folder: Path, diary: Diary, layout: Layout, disk: Disk | None = None, phones: Phones | None = None
    ) -> None:
        """`disk` is a separate disk for history and spools; None: they are in `folder`."""
        self.folder, self.diary, self.layout = folder, diary, layout
        self.phones = phones
        self.disk = disk
        self.data = folder / "data"  # the path that its processes see
        self.manifest = folder / "fleets.yaml"
        self.step = folder / "clock-step"
        self.device_token = secrets.token_urlsafe()  # used by devices that can authenticate
        self.ports = dict(zip(("tcp", "grpc", "push", "console", "hub"), free_ports(5), strict=True))
        self.shards = layout.shards
        self.edited: dict[str, dict[str, Any]] = {}  # kind of fleet → edited fields of its spec
        self.process: asyncio.subprocess.Process | None = None
        self.endpoints: dict[str, Any] = {}
        self.witness: Witness
        self.evidence: EvidenceProber
        self.ingest: list[IngestProber] = []
        self.texts: dict[str, TextDevice] = {}
        self.cameras: list[PushCamera] = []
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self.struck = 0.0  # monotonic seconds of the latest instantaneous harm
        self._quiet = deque(map(fire_id, range(layout.fires)))  # sensors that can burn, in order
        self._burnt: list[str] = []
        self._hub_control = f"{HOST}:1"  # a closed port until the real one is known

    @property
    def data_outside(self) -> Path:
        """The path of the data that this process sees."""
        return self.disk.outside if self.disk else self.data

    # --- processes ---

    async def start(self) -> None:
        """Start `embereye up`, possibly on earlier data. Returns when everything is ready."""
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
                *(("--notify", str(self.phones.config)) if self.phones else ()),
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
        """Stop `embereye up` as Ctrl-C does, and kill what does not stop."""
        process = self.process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
        if process.returncode is None:
            self.diary.note("harness", "embereye up did not stop and was killed", "bad")
            for number in reversed(self.tree()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            await process.wait()

    def usages(self) -> list[Usage]:
        """The current resource usage of the product's processes."""
        assert self.process
        return usage_of_trees([self.process.pid])

    def tree(self) -> list[int]:
        """The ids of the product's processes, the operator's first."""
        return [usage.pid for usage in self.usages()]

    def pids(self, *words: str) -> list[int]:
        """The ids of processes whose command line contains all `words`."""
        return [usage.pid for usage in self.usages() if all(word in usage.command.split() for word in words)]

    @property
    def operator(self) -> int:
        """The process id of `embereye up` itself."""
        return next(usage.pid for usage in self.usages() if "up" in usage.command.split())

    def hub_control(self) -> str:
        """The hub's address for shards, which changes with each `embereye up`."""
        for usage in self.usages():
            words = usage.command.split()
            if "hub" in words and "--control-port" in words:
                self._hub_control = f"{HOST}:{words[words.index('--control-port') + 1]}"
        return self._hub_control

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock of the product's processes `seconds` ahead of the real one."""
        with self.step.open("r+b") as file:  # in place: processes map this file, and truncating it would kill them
            file.write(int(seconds * 1e9).to_bytes(8, sys.byteorder, signed=True))

    # --- declared objects ---

    def write_manifest(self, shards: int) -> None:
        """Declare everything, with `shards` sensor shards. A running `embereye up` applies it."""
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
            document["spec"] = merge(document["spec"], self.edited.get(document["kind"], {}))
        write_whole(self.manifest, yaml.safe_dump_all(documents).encode(), durable=False)

    def write_tokens(self, *tokens: str) -> None:
        """Write these tokens to the devices' Secret, atomically as a mounted Secret changes."""
        folder = self.folder / "credentials" / TOKENS
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "token", "\n".join(tokens).encode(), private=True)

    def change_admin_token(self) -> None:
        """Replace the first administrator's token."""
        write_whole(self.data_outside / "hub" / "admin-token", secrets.token_urlsafe().encode(), private=True)

    # --- devices and books ---

    def show_token(self, token: str) -> None:
        """Make devices authenticate with `token` from now on."""
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
        """Start devices, probers and the witness. Returns when all of them work."""
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
            assert film is not None, "cameras need a film"
            name, home = f"camera-{number}", f"{HOST}:{self.ports['push']}"
            camera = PushCamera(name, name, home, film, self.diary, token=self.device_token)
            self.cameras.append(camera)
            self.begin(camera.run(), camera.id)
        await self.well(START_SECONDS)

    async def well(self, limit: float) -> None:
        """Wait until the witness listens and every probed sensor is acknowledged. AssertionError after `limit`."""
        await eventually(lambda: self.witness.connections, limit, "a connection of the witness")
        await asyncio.gather(*(prober.well(limit) for prober in self.ingest))

    async def ignite(self) -> tuple[str, float]:
        """Set one more sensor on fire. Returns its zone and the monotonic seconds of its first line."""
        if not self._quiet:
            raise RuntimeError(f"all {self.layout.fires} sensors have burnt; none of their zones was reset")
        device = self.texts[self._quiet.popleft()]
        self._burnt.append(device.id)
        await device.fire(ADC1=3600)
        return device.zone, time.monotonic()

    async def notified(self, zone: str, limit: float) -> None:
        """Wait until a phone has the alarm of `zone`. AssertionError after `limit` seconds."""
        if self.phones:
            await self.phones.wait(zone, limit)

    def put_out(self) -> None:
        """Put all fires out. Their alarms stay until they are reset."""
        for zone in self.burnt:
            self.texts[zone].rest()

    @property
    def burnt(self) -> list[str]:
        """The zones that have burnt and were not reset."""
        return list(self._burnt)

    async def reset(self) -> None:
        """Let the staff acknowledge alarms, and reset acknowledged ones whose fire is out."""
        for zone in await reset_zones(f"{HOST}:{self.ports['hub']}", self.token()):
            if zone in self._burnt:
                self._burnt.remove(zone)
                self._quiet.append(zone)

    def token(self) -> str:
        """Read the first administrator's token."""
        return (self.data_outside / "hub" / "admin-token").read_text().strip()

    async def fill(self) -> None:
        """Fill the hub's memory of the past up to its bound."""
        started, credentials = time.monotonic(), self.prober_credentials()
        await fill_hub(self.hub_control(), f"{HOST}:{self.ports['hub']}", self.token(), NAMESPACE, credentials)
        self.diary.note("harness", f"the hub's memory of the past was filled in {time.monotonic() - started:.0f} s")

    def prober_credentials(self) -> Credentials:
        """Issue the evidence prober a shard's certificate from the site's authority."""
        folder = self.data_outside / "identity" / "authority"
        authority = Authority.load((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
        return Credentials(Issuer(self.folder / "prober", authority).folder(EvidenceProber.identity(NAMESPACE)))

    def gap(self, since: float, until: float) -> float:
        """The longest time, in seconds, that any probed sensor had no acknowledgement."""
        return max((prober.gap(since, until) for prober in self.ingest), default=0.0)

    def moved(self, since: float, until: float) -> float:
        """The longest move of a probed sensor between shards, in seconds; 0 if none moved."""
        return max((prober.moved(since, until) for prober in self.ingest), default=0.0)

    def taken_back(self) -> int:
        """The number of acknowledged readings that a shard requested again."""
        return sum(len(prober.taken_back) for prober in self.ingest)

    async def close(self) -> None:
        """Stop the devices, then the product."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.stop()


@asynccontextmanager
async def running_site(
    folder: Path, diary: Diary, layout: Layout, film: Film | None = None
) -> AsyncIterator[LocalSite]:
    """Run a site with working devices, on a separate disk if this user is allowed to mount one."""
    # gRPC ends its thread when the last device is gone, and sometimes waits for that for ever. This keeps it running.
    grpc.aio.init_grpc_aio()
    async with AsyncExitStack() as stack:
        has_disk = layout.small_disk and can_mount()
        phones = await stack.enter_async_context(Phones(folder, is_named=has_disk)) if layout.phones else None
        files = {Path("/etc/hosts"): phones.hosts, Path("/etc/resolv.conf"): phones.resolver} if phones else {}
        disk = await stack.enter_async_context(mounted_disk(folder / "data", files=files)) if has_disk else None
        site = LocalSite(folder, diary, layout, disk, phones)
        stack.push_async_callback(site.close)
        await site.start()
        await site.occupy(film)
        yield site


def _fleet(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"embereye.dev/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}
