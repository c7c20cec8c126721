"""The sensor shard: declared devices in, evidence and coverage out."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import grpc
from prometheus_client.core import Metric

from embereye.detect.sensing.bands import BandTable
from embereye.process.grpc_server import Service
from embereye.process.heap import collect_garbage, freeze_heap
from embereye.process.http.pages import all_interfaces
from embereye.process.lifecycle import UserError
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.process.timing.clock import now_ns
from embereye.process.timing.running import Running
from embereye.process.tls.listener import TlsListener
from embereye.sensor.archive import Archive, Telemetry
from embereye.sensor.canary import SensorCanary
from embereye.sensor.device.readings import ClearBands
from embereye.sensor.device.sensor import SensorDevice
from embereye.sensor.device.status import device_status
from embereye.sensor.grpc.batches import analyse_batches
from embereye.sensor.grpc.commands import CommandService
from embereye.sensor.grpc.ingest import Ingest
from embereye.sensor.metrics import ShardCounts, device_metrics, shard_metrics
from embereye.sensor.recorder import LineRecorder
from embereye.sensor.relay import Relays
from embereye.sensor.relay_service import RelayService
from embereye.sensor.sessions import Sessions
from embereye.sensor.tick import TickBatcher
from embereye.shard.access import DeviceAccess
from embereye.shard.evidence.canary import Fire
from embereye.shard.evidence.episodes import Episodes, Sign
from embereye.shard.ledger import Ledger
from embereye.shard.links import Links, PeerAddress
from embereye.shard.meter import Meter
from embereye.shard.service import ShardContext
from embereye.units import MINUTE, SECOND
from embereye.v1.evidence_pb2 import DeviceStatus, MarkedPlaces
from embereye.v1.shard_pb2 import Assignment, Commands, Load, Peer, SensorSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.device.commands import START
from embereye.zone.canary import is_canary

logger = logging.getLogger(__name__)
UNDECLARED_LIMIT = 64  # devices shown although no fleet declares them
UNDECLARED_NS = MINUTE  # nanoseconds that they stay after their last message
PICTURES = 200  # thermal pictures told at once, of 3 KB each: with more devices each has its turn
TICK_SECONDS = 0.25  # between two checks of who is silent and who is covered
INSPECTION_TICKS = 20  # ticks between two inspections of one device's sensors
RECORDINGS_SECONDS = 0.5  # for the hub to have what is recorded; the rest waits on the disk
HANDOVER_SECONDS = 0.2  # that senders have to act on DRAIN before their streams are closed


class SensorShard:
    """Implements `embereye.shard.service.ShardCore` for sensors."""

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        """`telemetry` is where raw readings are kept; None: they are not."""
        self._telemetry = telemetry
        self._unkept = ""  # why raw readings are not kept although they should be
        self.commands = Commands(start=START)  # until an assignment says: a device that streams is heard at once
        self.garbage: Counter[str] = Counter()
        self.relayed = 0
        self.relay_dropped = 0
        self.fleet = ""
        self.epoch = 0  # of the assignment in force
        self.bands = BandTable()
        self.batcher = TickBatcher(self.bands, self._observe)
        self._canary = SensorCanary(self.bands)
        self._totals = Ledger()  # of devices that left: counters never fall
        self._departed = 0  # packets of devices that are another shard's now, which needed no tick
        self._settings = SensorSettings()
        self.clear: ClearBands | None = None  # None: there is no assignment yet
        self.access = DeviceAccess()
        self.running = Running()
        self._since: dict[str, int] = {}  # device → the epoch from which on it is ours
        self._devices: dict[str, SensorDevice] = {}
        self._undeclared: dict[str, SensorDevice] = {}
        self._elsewhere: Mapping[str, str] = {}
        self._peers: dict[str, Peer] = {}
        self._episodes = Episodes("")
        self._meter = Meter()
        self._sessions = Sessions(self)
        self._relay_service = RelayService(self._sessions)
        self.relays = Relays(self._dial_peer, self._sessions.drop_relayed, self._sessions.tasks)
        self._ingest = Ingest(self)
        self._servers: list[asyncio.Server] = []
        self._tls_listeners: list[TlsListener] = []
        self._context: ShardContext | None = None
        self._covered: dict[str, bool] = {}
        self._recorder: LineRecorder | None = None  # None: there is no folder for what sensors sent
        self._pictured = 0  # the device whose thermal picture is told next

    def services(self) -> Iterable[Service]:
        """Its own services: Ingest, commands to text devices, and what other shards pass on."""
        return (self._ingest.service(), CommandService(self).service(), self._relay_service.service())

    @property
    def deadline_ns(self) -> int:
        """Nanoseconds without data after which a device is dark."""
        return self._settings.deadline_ns

    @property
    def links(self) -> Links:
        """How other shards are dialled."""
        return self._context.links if self._context else Links()

    @property
    def ports(self) -> list[int]:
        """The ports of its text listeners, its own first."""
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def start(self, context: ShardContext) -> None:
        """Open the text listeners; they serve every device of the fleet, owned here or not."""
        freeze_heap()
        self._context = context
        options = context.options
        if options.tls_port and context.tls is None:
            raise UserError("--tls-port needs --tls: the folder of the certificate that devices are shown")
        if context.tls:
            context.tls.subscribe(self._judge_anew)
        for port, shared in ((options.tcp_port, False), (options.shared_tcp_port, True)):
            if shared and not port:
                continue
            host = (shared and options.outer_host) or options.host
            try:
                server = await asyncio.get_running_loop().create_server(
                    self._sessions.protocol, all_interfaces(host), port, reuse_port=shared, backlog=4096
                )
            except OSError as error:
                raise UserError(f"cannot listen for devices on {host}:{port}: {error.strerror or error}") from error
            self._servers.append(server)
        for port, shared in ((options.tls_port, False), (options.shared_tls_port, True)):
            if port and context.tls:
                host = (shared and options.outer_host) or options.host
                try:
                    listener = TlsListener(host, port, context.tls, self._sessions.protocol, shared=shared)
                except OSError as error:
                    raise UserError(f"cannot listen for devices on {host}:{port}: {error.strerror or error}") from error
                listener.start(context.tasks)
                self._tls_listeners.append(listener)
        if options.data:
            self._recorder = await LineRecorder.start(context)
        context.tasks.start(self._tick(), name="sensor-tick")
        context.tasks.start(collect_garbage(), name="collect-garbage")
        if self._telemetry is not None:
            self._keep(self._telemetry, context)

    def _dial_peer(self, peer: PeerAddress) -> grpc.aio.Channel:
        return self.links.peer(peer)

    def _judge_anew(self) -> None:
        """Ask every sender who it is once more: certificates have to be of other authorities than before."""
        self.access.judge_anew()
        self._sessions.recheck_certified()

    def _keep(self, telemetry: Telemetry, context: ShardContext) -> None:
        try:
            archive = Archive(telemetry.folder, context.options.shard, retention_bytes=telemetry.size)
        except UserError as error:
            self._unkept = str(error)
            logger.error("raw readings are not kept: %s", error)  # noqa: TRY400 - watching goes on without
            return
        self.batcher.archive = archive
        context.tasks.start(archive.run(), name="sensor-archive")

    def apply(self, assignment: Assignment) -> None:
        """Own the assignment's devices; those that stay keep their state."""
        if self.fleet:
            self.batcher.flush()  # what waits was sent under the assignment before
        self.fleet, self.epoch = assignment.fleet, assignment.epoch
        # Into a new one: what is copied into an old one adds to its memory. And copied: whoever keeps a part of it, as
        # devices that nobody declared do, keeps not the whole assignment.
        settings = self._settings = SensorSettings()
        settings.CopyFrom(assignment.sensor)
        self.clear = ClearBands(self._settings)
        self.batcher.configure(self._settings)
        self.relays.configure(self._settings.deadline_ns / SECOND)
        self._sessions.forget()
        if self.access.configure(settings.access if settings.HasField("access") else None):
            self._sessions.recheck()
            self._ingest.judge_anew()
        self.commands = settings.commands
        if self._episodes.fleet != assignment.fleet:
            self._episodes = Episodes(assignment.fleet)
        self._episodes.configure(settings.deadline_ns)
        wanted = {device.id: device for device in assignment.devices}
        gone = set(self._devices) - set(wanted)
        self._episodes.forget(gone)
        if self._recorder:
            self._recorder.end(gone)
        left = {}
        for name in gone:
            device = self._devices[name]
            arrivals = device.arrivals
            if (mark := device.watermark()).epoch:
                left[name] = mark
            if self._context is not None:
                self._context.closed(name, arrivals.ledger.message())
            self._departed += arrivals.quiet_lines
            self._totals.add(arrivals.ledger)
            device.release()
        self._devices = {
            name: self._configured(self._devices.get(name) or self._undeclared.pop(name, None), spec)
            for name, spec in wanted.items()
        }
        if self._recorder:
            self._recorder.share_among([device.arrivals.recent for device in self._devices.values()])
        self._since = {name: self._since.get(name, assignment.epoch) for name in wanted}
        self._elsewhere = dict(assignment.elsewhere)
        self._peers = {peer.shard: peer for peer in assignment.peers}
        for name in [name for name in self._undeclared if name in self._elsewhere]:
            self._undeclared.pop(name).release()
        for device in self._undeclared.values():
            device.configure(device.spec, settings)
        self._ingest.moved(self._devices.keys() & self._elsewhere.keys(), left)

    def _configured(self, device: SensorDevice | None, spec: Device) -> SensorDevice:
        if device is None:
            return SensorDevice(spec, self._settings, self.bands)
        device.configure(spec, self._settings)
        return device

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state where this shard owns it, or burns it as its canary."""
        return self._devices.get(device) or self._canary.named(device)

    def since(self, device: str) -> int:
        """The epoch from which on this shard owns it."""
        return self._since.get(device, 0)

    def peer_of(self, device: str) -> Peer | None:
        """The shard that owns the device where it is another one."""
        owner = self._elsewhere.get(device)
        return self._peers.get(owner) if owner else None

    def is_elsewhere(self, device: str) -> bool:
        """Whether the fleet has it on another shard, known as a peer or not."""
        return device in self._elsewhere

    def peers(self) -> Iterable[Peer]:
        """The fleet's other shards."""
        return self._peers.values()

    def undeclared(self, device: str, now_ns: int) -> SensorDevice | None:
        """State of a device that no fleet declares: people see it, but it raises no alarm."""
        state = self._undeclared.get(device)
        if state is None:
            if not self.fleet:
                return None  # there is no assignment yet: nobody knows what is declared, nor how to read it
            if is_canary(device):
                self.garbage["reserved id"] += 1
                return None
            if len(self._undeclared) >= UNDECLARED_LIMIT:
                self.garbage["undeclared device"] += 1
                return None
            logger.warning("device %s is not declared in %s: it is shown, not watched", device, self.fleet or "a fleet")
            state = self._undeclared[device] = SensorDevice(Device(id=device), self._settings, self.bands)
        return state

    def analyse_batches(self, device: SensorDevice, batches: Sequence[Any], now_ns: int) -> None:
        """Analyse batches of `wire.batches.Request`; what was analysed before is a duplicate."""
        analyse_batches(device, batches, self.batcher, now_ns)

    def _observe(self, signs: list[Sign], now_ns: int) -> None:
        if self._context is None:
            return
        for sign in signs:
            if sign.zone and (evidence := self._episodes.observe(sign, now_ns)):
                if is_canary(sign.device):
                    self._canary.report(evidence)
                    continue
                if traces := self._context.traces:
                    traces.trace(evidence, now_ns - int(self.batcher.waited * SECOND), now_ns)
                self._context.report(evidence)
                if self._recorder and (device := self._devices.get(sign.device)):
                    self._recorder.note_report(evidence, device, self._settings, now_ns)

    def is_own(self, peername: tuple[str, int]) -> bool:
        """Whether a connection from `peername`, host and port, is this shard's canary's."""
        return peername == self._canary.address

    def note_marked(self, places: MarkedPlaces) -> None:
        """A sensor has no places: the hub weighs its signs."""

    async def light_canary(self, fire: Fire) -> None:
        """Have a device that nobody declared tell of smoke over the shard's own listener."""
        if self._servers:
            try:
                await self._canary.burn(fire, self._servers[0], self._settings)
            finally:
                self._episodes.forget({fire.device})

    def devices(self, now_ns: int) -> list[DeviceStatus]:
        """The status of every owned device, then of the undeclared ones that talk here; some have their picture."""
        return list(self.statuses(now_ns))

    def statuses(self, now_ns: int) -> Iterator[DeviceStatus]:
        """The same, each made when it is asked for; what was let go meanwhile is left out."""
        devices = (*self._devices.items(), *self._undeclared.items())
        first, self._pictured = self._pictured, (self._pictured + PICTURES) % max(1, len(devices))
        for number, (name, device) in enumerate(devices):
            if self._devices.get(name, self._undeclared.get(name)) is device:
                thermal = (number - first) % len(devices) < PICTURES
                yield device_status(device, now_ns, self._settings.deadline_ns, thermal=thermal)

    def covered(self, now_ns: int) -> tuple[int, int]:
        """How many devices it tells of, and how many of them are covered."""
        deadline = self._settings.deadline_ns
        covered = sum(not device.reason(now_ns, deadline) for device in self._devices.values())
        return len(self._devices) + len(self._undeclared), covered

    def load(self) -> Load:
        """Measured over the last seconds."""
        return self._meter.load(queue_depth=self.batcher.depth, oldest_age_ns=self.batcher.oldest_age_ns())

    def degraded(self) -> str:
        """Why raw readings are not kept although they should be."""
        why = self._unkept or (self.batcher.archive.failing if self.batcher.archive else "")
        return f"telemetry.archive: raw readings are not kept: {why}" if why else ""

    def _sample(self) -> None:
        quiet_lines = self._departed + sum(device.arrivals.quiet_lines for device in self._devices.values())
        self._meter.sample(
            time.monotonic(),
            offered=self.batcher.offered + quiet_lines - self._canary.packets,
            analysed=self.batcher.analysed + quiet_lines - self._canary.packets,
            cpu=time.process_time(),
        )

    def metrics(self) -> Iterator[Metric]:
        """Counters over all devices and gauges of each, read from plain slots at scrape time."""
        yield from shard_metrics(self._counts())
        yield from device_metrics(self._devices.values(), self._totals)
        if self._recorder:
            yield from self._recorder.metrics()

    def _counts(self) -> ShardCounts:
        return ShardCounts(
            connections=len(self._sessions),
            handshakes_failed=self._sessions.handshakes_failed,
            streams=len(self._ingest),
            waiting_bytes=self.batcher.waiting,
            ticks=self.batcher.ticks,
            relayed=self.relayed,
            relay_dropped=self.relay_dropped,
            garbage=self.garbage,
            archive=self.batcher.archive,
            waits=self.batcher.waits,
            works=self.batcher.works,
        )

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()
        for listener in self._tls_listeners:
            listener.close()

    async def drain(self, successor: str = "") -> None:
        """Accept no new device, send gRPC senders elsewhere, and give them a moment to go."""
        self._stop_listening()
        self.batcher.flush()
        self._sessions.close()
        await self._ingest.drain(HANDOVER_SECONDS, successor)
        if self._recorder:
            await self._recorder.drain(RECORDINGS_SECONDS)

    async def stop(self) -> None:
        """Close what is still open."""
        await self._ingest.close()
        await self._sessions.stop()
        self._stop_listening()
        if self._recorder:
            self._recorder.close()

    async def _tick(self) -> None:
        """Notice silence and recovery at once instead of with the next regular coverage report."""
        ticks = 0
        while True:
            await aligned_sleep(TICK_SECONDS)
            now, deadline = now_ns(), self._settings.deadline_ns
            self.running.since(now)
            covered = {name: device.covered(now, deadline) for name, device in self._devices.items()}
            if covered != self._covered and self._context is not None:
                self._covered = covered
                self._context.coverage_changed()
            if self._recorder:
                self._recorder.end_overdue(now)
            ticks += 1
            if ticks % 4 == 0:
                self._sample()
            # A share of them at a time: none of the others waits for long.
            for device in list(self._devices.values())[ticks % INSPECTION_TICKS :: INSPECTION_TICKS]:
                device.inspect_sensors(now)
            if ticks % INSPECTION_TICKS == 0:
                self._forget_undeclared(now - UNDECLARED_NS)
                self._sessions.drop_silent()

    def _forget_undeclared(self, since_ns: int) -> None:
        """Forget the undeclared devices that have not been heard since."""
        for name in [name for name, one in self._undeclared.items() if one.arrivals.watch.heard_ns < since_ns]:
            self._undeclared.pop(name).release()
            self._sessions.forget()
