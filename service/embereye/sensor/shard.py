"""The sensor shard: data of declared devices in, evidence and coverage out.

Lines arrive in `sessions` (TCP) and batches in `grpc.ingest`; both find the `SensorDevice` by name and analyse its data
through the `TickBatcher`. Its signs come back in `_observe`, become evidence reports in `Episodes`, and go to the hub.
`apply` makes the shard own exactly the devices of an assignment: it creates and releases `SensorDevice`s, and Ingest
hands over those that leave. A periodic task notices silent devices, broken sensors and finished recordings.
"""

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
UNDECLARED_NS = MINUTE  # nanoseconds that they are shown after their last message
PICTURES = 200  # thermal pictures in one status report, 3 KB each; with more devices they take turns
TICK_SECONDS = 0.25  # between two checks of silence and coverage
INSPECTION_TICKS = 20  # ticks between two inspections of one device's sensors
RECORDINGS_SECONDS = 0.5  # to deliver recordings to the hub when draining; the rest waits on the disk
HANDOVER_SECONDS = 0.2  # for senders to act on DRAIN before their streams are closed


class SensorShard:
    """Implements `embereye.shard.service.ShardCore` for sensors."""

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        """`telemetry` is the folder for raw readings; None: they are not stored."""
        self._telemetry = telemetry
        self._archive_problem = ""  # why raw readings are not stored although they should be
        self.commands = Commands(start=START)  # the default until an assignment arrives: have devices stream at once
        self.garbage: Counter[str] = Counter()
        self.relayed = 0
        self.relay_dropped = 0
        self.fleet = ""
        self.epoch = 0  # epoch of the assignment in force
        self.bands = BandTable()
        self.batcher = TickBatcher(self.bands, self._observe)
        self._canary = SensorCanary(self.bands)
        self._totals = Ledger()  # of released devices, so that counters never decrease
        self._departed = 0  # quiet lines of released devices
        self._settings = SensorSettings()
        self.clear: ClearBands | None = None  # None: no assignment yet
        self.access = DeviceAccess()
        self.running = Running()
        self._since: dict[str, int] = {}  # device → the epoch since which this shard owns it
        self._devices: dict[str, SensorDevice] = {}
        self._undeclared: dict[str, SensorDevice] = {}
        self._elsewhere: Mapping[str, str] = {}
        self._peers: dict[str, Peer] = {}
        self._episodes = Episodes("")
        self._meter = Meter()
        self._sessions = Sessions(self)
        self._relay_service = RelayService(self._sessions)
        self.relays = Relays(self._dial_peer, self._sessions.count_dropped, self._sessions.tasks)
        self._ingest = Ingest(self)
        self._servers: list[asyncio.Server] = []
        self._tls_listeners: list[TlsListener] = []
        self._context: ShardContext | None = None
        self._covered: dict[str, bool] = {}
        self._recorder: LineRecorder | None = None  # None: there is no folder for recordings
        self._next_picture = 0  # number of the device whose thermal picture is reported next

    def services(self) -> Iterable[Service]:
        """The gRPC services: Ingest, commands to text devices, and relayed lines of other shards."""
        return (self._ingest.service(), CommandService(self).service(), self._relay_service.service())

    @property
    def deadline_ns(self) -> int:
        """Nanoseconds without data after which a device is dark."""
        return self._settings.deadline_ns

    @property
    def links(self) -> Links:
        """The channels to other shards."""
        return self._context.links if self._context else Links()

    @property
    def ports(self) -> list[int]:
        """The ports of the text listeners, the shard's own first."""
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def start(self, context: ShardContext) -> None:
        """Open the text listeners; they serve every device of the fleet, owned here or not."""
        freeze_heap()
        self._context = context
        options = context.options
        if options.tls_port and context.tls is None:
            raise UserError("--tls-port needs --tls: name the folder of the certificate for devices")
        if context.tls:
            context.tls.subscribe(self._recheck_senders)
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
            self._open_archive(self._telemetry, context)

    def _dial_peer(self, peer: PeerAddress) -> grpc.aio.Channel:
        return self.links.peer(peer)

    def _recheck_senders(self) -> None:
        """Have every sender authenticate again: certificates of other authorities are required now."""
        self.access.recheck_senders()
        self._sessions.recheck_certified()

    def _open_archive(self, telemetry: Telemetry, context: ShardContext) -> None:
        try:
            archive = Archive(telemetry.folder, context.options.shard, retention_bytes=telemetry.size)
        except UserError as error:
            self._archive_problem = str(error)
            logger.error("raw readings are not stored: %s", error)  # noqa: TRY400 - the shard runs without them
            return
        self.batcher.archive = archive
        context.tasks.start(archive.run(), name="sensor-archive")

    def apply(self, assignment: Assignment) -> None:
        """Own exactly the devices of `assignment`; those that are already owned retain their state."""
        if self.fleet:
            self.batcher.flush()  # waiting data belongs to the previous assignment
        self.fleet, self.epoch = assignment.fleet, assignment.epoch
        # A copy, because a part of a message keeps the whole of it in memory; and a new one each time, because a
        # message never frees the memory of earlier values.
        settings = self._settings = SensorSettings()
        settings.CopyFrom(assignment.sensor)
        self.clear = ClearBands(self._settings)
        self.batcher.configure(self._settings)
        self.relays.configure(self._settings.deadline_ns / SECOND)
        self._sessions.forget_routes()
        if self.access.configure(settings.access if settings.HasField("access") else None):
            self._sessions.recheck()
            self._ingest.discard_pending()
        self.commands = settings.commands
        if self._episodes.fleet != assignment.fleet:
            self._episodes = Episodes(assignment.fleet)
        self._episodes.configure(settings.deadline_ns)
        wanted = {device.id: device for device in assignment.devices}
        gone = set(self._devices) - set(wanted)
        self._episodes.forget(gone)
        if self._recorder:
            self._recorder.end(gone)
        released = {}
        for name in gone:
            device = self._devices[name]
            arrivals = device.arrivals
            if (mark := device.watermark()).epoch:
                released[name] = mark
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
        self._ingest.on_reassigned(self._devices.keys() & self._elsewhere.keys(), released)

    def _configured(self, device: SensorDevice | None, spec: Device) -> SensorDevice:
        if device is None:
            return SensorDevice(spec, self._settings, self.bands)
        device.configure(spec, self._settings)
        return device

    def owned(self, device: str) -> SensorDevice | None:
        """The device's state if this shard owns it or if it is the shard's canary, else None."""
        return self._devices.get(device) or self._canary.device_named(device)

    def since(self, device: str) -> int:
        """The epoch since which this shard owns the device."""
        return self._since.get(device, 0)

    def peer_of(self, device: str) -> Peer | None:
        """The other shard that owns the device, else None."""
        owner = self._elsewhere.get(device)
        return self._peers.get(owner) if owner else None

    def is_elsewhere(self, device: str) -> bool:
        """True if the fleet assigns the device to another shard, known as a peer or not."""
        return device in self._elsewhere

    def peers(self) -> Iterable[Peer]:
        """The fleet's other shards."""
        return self._peers.values()

    def undeclared(self, device: str, now_ns: int) -> SensorDevice | None:
        """The state of an undeclared device, which people see but which raises no alarm; None if there are too many."""
        state = self._undeclared.get(device)
        if state is None:
            if not self.fleet:
                return None  # without an assignment, neither the declared devices nor their settings are known
            if is_canary(device):
                self.garbage["reserved id"] += 1
                return None
            if len(self._undeclared) >= UNDECLARED_LIMIT:
                self.garbage["undeclared device"] += 1
                return None
            logger.warning("device %s: not declared in %s: it is shown, but not watched", device, self.fleet)
            state = self._undeclared[device] = SensorDevice(Device(id=device), self._settings, self.bands)
        return state

    def analyse_batches(self, device: SensorDevice, batches: Sequence[Any], now_ns: int) -> None:
        """Analyse batches of `wire.batches.Request`; readings that were analysed before count as duplicates."""
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
        """True if the connection from `peername` (host, port) belongs to this shard's canary."""
        return peername == self._canary.address

    def note_marked(self, places: MarkedPlaces) -> None:
        """Do nothing: places exist only in cameras' pictures; the hub weighs the signs of sensors."""

    async def light_canary(self, fire: Fire) -> None:
        """Send smoke readings of an artificial device to the shard's own listener."""
        if self._servers:
            try:
                await self._canary.burn(fire, self._servers[0], self._settings)
            finally:
                self._episodes.forget({fire.device})

    def devices(self, now_ns: int) -> list[DeviceStatus]:
        """The status of every owned device, then of undeclared devices; some have their thermal picture."""
        return list(self.statuses(now_ns))

    def statuses(self, now_ns: int) -> Iterator[DeviceStatus]:
        """Yield what `devices` returns, one status at a time; devices that were released meanwhile are skipped."""
        devices = (*self._devices.items(), *self._undeclared.items())
        first, self._next_picture = self._next_picture, (self._next_picture + PICTURES) % max(1, len(devices))
        for number, (name, device) in enumerate(devices):
            if self._devices.get(name, self._undeclared.get(name)) is device:
                thermal = (number - first) % len(devices) < PICTURES
                yield device_status(device, now_ns, self._settings.deadline_ns, thermal=thermal)

    def covered(self, now_ns: int) -> tuple[int, int]:
        """The number of reported devices, and the number of them that are covered."""
        deadline = self._settings.deadline_ns
        covered = sum(not device.reason(now_ns, deadline) for device in self._devices.values())
        return len(self._devices) + len(self._undeclared), covered

    def load(self) -> Load:
        """The load over the last seconds."""
        return self._meter.load(queue_depth=self.batcher.depth, oldest_age_ns=self.batcher.oldest_age_ns())

    def degraded(self) -> str:
        """The reason why raw readings are not stored although they should be; else empty."""
        why = self._archive_problem or (self.batcher.archive.failing.why if self.batcher.archive else "")
        return f"telemetry.archive: raw readings are not stored: {why}" if why else ""

    def _sample(self) -> None:
        quiet_lines = self._departed + sum(device.arrivals.quiet_lines for device in self._devices.values())
        self._meter.sample(
            time.monotonic(),
            offered=self.batcher.offered + quiet_lines - self._canary.packets,
            analysed=self.batcher.analysed + quiet_lines - self._canary.packets,
            cpu=time.process_time(),
        )

    def metrics(self) -> Iterator[Metric]:
        """Yield counters over all devices and gauges of each device."""
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
        """Accept no new device, redirect gRPC senders, and give them a moment to leave."""
        self._stop_listening()
        self.batcher.flush()
        self._sessions.close()
        await self._ingest.drain(HANDOVER_SECONDS, successor)
        if self._recorder:
            await self._recorder.drain(RECORDINGS_SECONDS)

    async def stop(self) -> None:
        """Close everything that is still open."""
        await self._ingest.close()
        await self._sessions.stop()
        self._stop_listening()
        if self._recorder:
            self._recorder.close()

    async def _tick(self) -> None:
        """Run the periodic checks: coverage, load, overdue recordings, broken sensors, unusable sessions."""
        ticks = 0
        while True:
            await aligned_sleep(TICK_SECONDS)
            now, deadline = now_ns(), self._settings.deadline_ns
            self.running.since(now)
            covered = {name: device.is_covered(now, deadline) for name, device in self._devices.items()}
            if covered != self._covered and self._context is not None:
                self._covered = covered
                self._context.coverage_changed()
            if self._recorder:
                self._recorder.end_overdue(now)
            ticks += 1
            if ticks % 4 == 0:
                self._sample()
            # A share of the devices at a time, so that the event loop is not busy for long.
            for device in list(self._devices.values())[ticks % INSPECTION_TICKS :: INSPECTION_TICKS]:
                device.inspect_sensors(now)
            if ticks % INSPECTION_TICKS == 0:
                self._forget_undeclared(now - UNDECLARED_NS)
                self._sessions.close_unusable()

    def _forget_undeclared(self, since_ns: int) -> None:
        """Forget the undeclared devices that were not heard since `since_ns`."""
        silent = [name for name, device in self._undeclared.items() if device.arrivals.watch.heard_ns < since_ns]
        for name in silent:
            self._undeclared.pop(name).release()
            self._sessions.forget_routes()
